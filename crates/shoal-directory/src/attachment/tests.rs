//! A model of three nodes that read and change one name through a directory that fails: every read fits one
//! order of all changes. Time is virtual, and a seed decides each schedule. The model finds the mistakes that
//! are planted in it.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use shoal_base::clock;
use shoal_policy::{NodeId, ObjectId};

use super::{ANSWER_LIFE, ATTEND_PAUSE, Attachment, RENEWAL_PAUSE, REPORT_TIMEOUT};
use crate::embedded::names::KnownNames;
use crate::names::{CHANGE_LIFE, Change, Promoted, SETTLING, Token};

const NODES: usize = 3;
const NAME: ObjectId = ObjectId([7; 16]);
const LENGTH: Duration = Duration::from_mins(6);
/// A replaced server answers for this long at most.
const REPLACED_ANSWERS: Duration = Duration::from_secs(10);
/// The lake executes a request within this time after the node's last renewal, or never.
const LATE_EFFECT: Duration = Duration::from_secs(40);
const READER_PATIENCE: Duration = Duration::from_millis(20);
const NODE_PATIENCE: Duration = REPORT_TIMEOUT;

/// A mistake in the protocol, for the model to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// Nodes rely on tokens although another node is detached.
    IgnoresOthers,
    /// A detached node changes names at once.
    ChangesUntoldAtOnce,
    /// A name that the directory has forgotten is settled at once.
    SettlesAtOnce,
    /// A change is reported once, and not renewed.
    NeverRenews,
    /// An answer is kept with the token that the name has after the lake was asked.
    TokenAfterAnswer,
    /// A node that meets a promoted server changes names at once.
    TrustsPromoted,
}

type Then = Box<dyn FnOnce(&mut World)>;

struct Event {
    at: Instant,
    number: u64,
    then: Then,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

struct Node {
    attachment: Attachment,
    /// The lake's answer, the token that it was kept with, and when.
    kept: Option<(u64, Token, Instant)>,
    under_way: Vec<UnderWay>,
    server: usize,
    cut_until: Instant,
}

#[derive(Clone, Copy)]
struct UnderWay {
    change: Change,
    until: Option<Instant>,
}

struct World {
    now: Instant,
    end: Instant,
    chance: u64,
    events: BinaryHeap<Reverse<Event>>,
    scheduled: u64,
    planted: Planted,
    nodes: Vec<Node>,
    servers: Vec<Rc<KnownNames>>,
    frozen_until: Instant,
    /// The number of changes that have taken effect at the lake.
    version: u64,
    /// The greatest version that a request that has ended has shown or made.
    floor: u64,
    believed: u64,
    mistake: Option<String>,
}

impl World {
    fn new(seed: u64, planted: Planted) -> Self {
        let now = clock::instant();
        let node = |number: usize| Node {
            attachment: Attachment::new(NodeId(number as u64), 1, now),
            kept: None,
            under_way: Vec::new(),
            server: 0,
            cut_until: now,
        };
        let mut world = Self {
            now,
            end: now + LENGTH,
            chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            events: BinaryHeap::new(),
            scheduled: 0,
            planted,
            nodes: (0..NODES).map(node).collect(),
            servers: vec![Rc::default()],
            frozen_until: now,
            version: 0,
            floor: 0,
            believed: 0,
            mistake: None,
        };
        for node in 0..NODES {
            world.after(Duration::ZERO, move |world| world.attend(node));
            world.after(RENEWAL_PAUSE, move |world| world.renew(node));
            world.after(Duration::from_millis(100), move |world| world.read(node));
            world.after(Duration::from_millis(500), move |world| world.write(node));
        }
        world.after(Duration::from_secs(10), Self::fail);
        world
    }

    fn run(mut self) -> Result<u64, String> {
        while let Some(Reverse(event)) = self.events.pop() {
            if event.at > self.end || self.mistake.is_some() {
                break;
            }
            self.now = event.at;
            (event.then)(&mut self);
        }
        self.mistake.map_or(Ok(self.believed), Err)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % bound
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.below(most.as_micros() as u64 + 1))
    }

    fn after(&mut self, pause: Duration, then: impl FnOnce(&mut Self) + 'static) {
        self.scheduled += 1;
        self.events.push(Reverse(Event {
            at: self.now + pause,
            number: self.scheduled,
            then: Box::new(then),
        }));
    }

    /// Sends a request to the directory. The request may be lost or executed late, and its answer may be
    /// lost.
    fn ask<R: 'static>(
        &mut self,
        node: usize,
        patience: Duration,
        request: impl FnOnce(&KnownNames, Instant) -> R + 'static,
        then: impl FnOnce(&mut Self, Option<R>) + 'static,
    ) {
        let answer = Rc::new(RefCell::new(None));
        let arrives = self.now + self.up_to(Duration::from_millis(5));
        let cut_until = self.nodes[node].cut_until.max(self.frozen_until);
        let (executed_at, is_lost) = if cut_until > self.now {
            (
                cut_until + self.up_to(Duration::from_millis(50)),
                self.below(2) == 0,
            )
        } else {
            (arrives, false)
        };
        if !is_lost {
            let server = Rc::clone(&self.servers[self.nodes[node].server]);
            let given = Rc::clone(&answer);
            self.after(executed_at - self.now, move |world| {
                *given.borrow_mut() = Some(request(&server, world.now));
            });
        }
        let back = executed_at + self.up_to(Duration::from_millis(5));
        let answered_at = if is_lost || back > self.now + patience || self.below(200) == 0 {
            None
        } else {
            Some(back)
        };
        match answered_at {
            Some(at) => self.after(at - self.now, move |world| {
                let answer = answer.borrow_mut().take();
                then(world, answer);
            }),
            None => self.after(patience, move |world| then(world, None)),
        }
    }

    fn fresh(&mut self) -> Token {
        Token(self.below(u64::MAX))
    }

    fn attend(&mut self, node: usize) {
        let (mine, at) = self.nodes[node].attachment.presence(self.now);
        let asked_at = self.now;
        self.ask(
            node,
            NODE_PATIENCE,
            move |names, now| names.attend_at(mine, at, now),
            move |world, roll| {
                let Some(roll) = roll else { return };
                let now = world.now;
                let others = (0..NODES)
                    .filter(|other| *other != node && world.planted != Planted::IgnoresOthers)
                    .map(|other| NodeId(other as u64));
                world.nodes[node]
                    .attachment
                    .record_roll(&roll, others, asked_at, now);
            },
        );
        self.after(ATTEND_PAUSE, move |world| world.attend(node));
    }

    /// Reports every change under way to the directory.
    fn renew(&mut self, node: usize) {
        let now = self.now;
        let under_way = &mut self.nodes[node].under_way;
        under_way.retain(|change| change.until.is_none_or(|until| until > now));
        if self.planted == Planted::NeverRenews {
            under_way.clear();
        }
        for UnderWay { change, .. } in under_way.clone() {
            let fresh = self.fresh();
            self.ask(
                node,
                NODE_PATIENCE,
                move |names, now| names.begin_at(NAME, change, fresh, now),
                move |world, answer| {
                    if answer.is_none() {
                        world.nodes[node].attachment.failed(world.now);
                    }
                },
            );
        }
        self.after(RENEWAL_PAUSE, move |world| world.renew(node));
    }

    fn read(&mut self, node: usize) {
        let (floor, began) = (self.floor, self.now);
        if self.nodes[node].attachment.may_use_tokens(self.now) {
            let fresh = self.fresh();
            let at_once = self.planted == Planted::SettlesAtOnce;
            self.ask(
                node,
                READER_PATIENCE,
                move |names, now| {
                    let token = names.token_at(NAME, fresh, now);
                    let later = at_once.then(|| names.token_at(NAME, fresh, now + SETTLING));
                    token.or(later.flatten())
                },
                move |world, token| {
                    let token = token.flatten();
                    let kept = world.nodes[node].kept;
                    match kept.filter(|kept| Some(kept.1) == token && began < kept.2 + ANSWER_LIFE) {
                        Some((version, ..)) => {
                            world.believed += 1;
                            world.shown(version, floor, "the cache");
                        }
                        None => world.ask_lake(node, token, floor),
                    }
                },
            );
        } else {
            self.ask_lake(node, None, floor);
        }
        let pause = self.up_to(Duration::from_millis(700));
        self.after(pause, move |world| world.read(node));
    }

    fn ask_lake(&mut self, node: usize, token: Option<Token>, floor: u64) {
        let asked_at = self.now;
        let there = self.up_to(Duration::from_millis(300));
        self.after(there, move |world| {
            let version = world.version;
            let back = world.up_to(Duration::from_millis(300));
            world.after(back, move |world| {
                world.shown(version, floor, "the lake");
                if world.planted == Planted::TokenAfterAnswer {
                    let fresh = world.fresh();
                    world.ask(
                        node,
                        READER_PATIENCE,
                        move |names, now| names.token_at(NAME, fresh, now),
                        move |world, token| {
                            let token = token.flatten();
                            world.nodes[node].kept = token.map(|token| (version, token, asked_at));
                        },
                    );
                } else if let Some(token) = token {
                    world.nodes[node].kept = Some((version, token, asked_at));
                }
            });
        });
    }

    fn shown(&mut self, version: u64, floor: u64, by: &str) {
        if version < floor {
            let at = self.now + LENGTH - self.end;
            self.mistake = Some(format!("{by} shows {version} after {floor}, at {at:?}"));
        }
        self.floor = self.floor.max(version);
    }

    fn write(&mut self, node: usize) {
        let change = Change(self.below(u64::MAX));
        self.nodes[node].under_way.push(UnderWay { change, until: None });
        let goes_ahead = self.nodes[node].attachment.may_change_before_report(self.now);
        if goes_ahead {
            self.send_to_lake(node, change);
        }
        let (fresh, server) = (self.fresh(), self.nodes[node].server);
        self.ask(
            node,
            NODE_PATIENCE,
            move |names, now| names.begin_at(NAME, change, fresh, now),
            move |world, answer| {
                let (now, planted) = (world.now, world.planted);
                let attachment = &mut world.nodes[node].attachment;
                let may_at = if answer.is_some() {
                    let promoted =
                        (server > 0 && planted != Planted::TrustsPromoted).then_some(Promoted(server as u64));
                    attachment.may_change_at(promoted, now)
                } else {
                    attachment.failed(now);
                    if planted == Planted::ChangesUntoldAtOnce {
                        now
                    } else {
                        attachment.may_change_unreported_at(now)
                    }
                };
                if !goes_ahead {
                    world.after(may_at.saturating_duration_since(now), move |world| {
                        world.send_to_lake(node, change);
                    });
                }
            },
        );
        let pause = Duration::from_millis(300) + self.up_to(Duration::from_secs(25));
        self.after(pause, move |world| world.write(node));
    }

    fn send_to_lake(&mut self, node: usize, change: Change) {
        let is_answered = self.below(25) > 0;
        let most = if is_answered {
            Duration::from_secs(6)
        } else {
            LATE_EFFECT
        };
        let effect = self.up_to(most);
        self.after(effect, move |world| {
            world.version += 1;
            let version = world.version;
            let back = world.up_to(Duration::from_millis(300));
            if is_answered {
                world.after(back, move |world| {
                    world.floor = world.floor.max(version);
                    world.nodes[node].under_way.retain(|other| other.change != change);
                    world.ask(
                        node,
                        NODE_PATIENCE,
                        move |names, _| names.end(NAME, change),
                        |_, _| {},
                    );
                });
            }
        });
        if !is_answered {
            let until = self.now + CHANGE_LIFE;
            let under_way = &mut self.nodes[node].under_way;
            for this in under_way.iter_mut().filter(|other| other.change == change) {
                this.until = Some(until);
            }
        }
    }

    fn fail(&mut self) {
        match self.below(6) {
            0 | 1 => {
                let (node, length) = (self.below(NODES as u64) as usize, self.below(25));
                self.nodes[node].cut_until = self.now + Duration::from_secs(length);
            }
            2 => {
                let length = Duration::from_millis(self.below(20_000));
                self.frozen_until = self.now + length;
            }
            3 | 4 => self.servers[self.servers.len() - 1].forget(),
            _ => {
                // Another server takes over, with none of the names: it has another replication id.
                self.servers.push(Rc::default());
                let server = self.servers.len() - 1;
                for node in 0..NODES {
                    let moves = self.up_to(REPLACED_ANSWERS);
                    self.after(moves, move |world| world.nodes[node].server = server);
                }
            }
        }
        let pause = Duration::from_secs(1) + self.up_to(Duration::from_secs(70));
        self.after(pause, Self::fail);
    }
}

fn first_mistake(planted: Planted, schedules: u64) -> Option<String> {
    (1..=schedules).find_map(|seed| {
        let mistake = World::new(seed, planted).run().err();
        mistake.map(|mistake| format!("seed {seed}: {mistake}"))
    })
}

#[test]
fn every_read_fits_one_order_of_all_changes_however_the_directory_fails() {
    assert_eq!(first_mistake(Planted::Nothing, 500), None);
}

#[test]
fn reads_are_answered_without_the_lake() {
    let believed: u64 = (1..=20)
        .map(|seed| World::new(seed, Planted::Nothing).run().unwrap())
        .sum();
    assert!(believed > 1000, "{believed}");
}

#[test]
fn the_model_finds_each_mistake_that_is_planted() {
    for planted in [
        Planted::IgnoresOthers,
        Planted::ChangesUntoldAtOnce,
        Planted::SettlesAtOnce,
        Planted::NeverRenews,
        Planted::TokenAfterAnswer,
        Planted::TrustsPromoted,
    ] {
        let found = first_mistake(planted, 3000);
        assert!(found.is_some(), "{planted:?} is not found");
    }
}
