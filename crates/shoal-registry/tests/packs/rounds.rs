//! The life of a round: changes begin in the entries, bytes go to the lake, a manifest follows, the root
//! names it, and the changes leave the entries.

use shoal_registry::entry::{Busy, Entry, Kind, Owner};
use ulid::Ulid;

use super::happenings::{Next, Outcome, fault, step, tell};
use super::planted::Planted;
use super::search::Protocol;
use super::state::{
    At, LateCommit, Life, Map, Member, NAMES, Object, Pack, Request, Reservation, Round, RoundKind, Sent,
    State, What, Work, value,
};

impl Protocol {
    /// The lake has the bytes. The map changes if it has to name something, or names something older.
    pub(crate) fn has_bytes(&self, after: &mut State, number: usize, round: Round) {
        let node = usize::from(after.processes[number].life.node);
        let map = if self.is(Planted::ChangesByAnOldMap) {
            after.cached[node]
        } else {
            after.root.map
        };
        let is_left = match round.kind {
            RoundKind::Packed => self.is(Planted::LeavesBeforeTheMap),
            RoundKind::Removal => self.is(Planted::RemovedButMapped),
            RoundKind::Plain => self.is(Planted::OverwrittenButMapped),
            RoundKind::Through | RoundKind::Unpacked | RoundKind::Rewritten(_) => false,
        };
        let has_to_change = match round.kind {
            RoundKind::Packed | RoundKind::Rewritten(_) => true,
            _ => (0..NAMES).any(|name| round.objects[name] != 0 && map[name].is_some()),
        };
        if let RoundKind::Rewritten(old) = round.kind
            && self.is(Planted::RemovesAPackBeforeTheCommit)
        {
            after.packs.retain(|pack| pack.id != old);
        }
        if round.kind == RoundKind::Packed && is_left {
            leave(after, &round);
        }
        let goes_on = has_to_change && (!is_left || round.kind == RoundKind::Packed);
        after.processes[number].at = if goes_on {
            At::Reserves(round)
        } else {
            At::Ends(round)
        };
    }

    /// Takes the right to write the next manifest, and decides on its map.
    pub(crate) fn reserve(&self, state: &State, number: usize, round: Round, next: &mut Next) {
        let is_ours = is_reserved(state, &round);
        if state.root.reserved.is_some() && !is_ours && !self.is(Planted::OverwritesTheRoot) {
            return;
        }
        let is_stale = matches!(round.kind, RoundKind::Rewritten(_)) && self.is(Planted::RewritesAnOldMap);
        let before = if is_stale { round.seen } else { state.root.map };
        let map: Map = std::array::from_fn(|name| {
            let object = round.objects[name];
            let member = Member {
                pack: round.pack,
                object,
            };
            match round.kind {
                _ if object == 0 => before[name],
                RoundKind::Packed => Some(member),
                RoundKind::Rewritten(old) => {
                    let moved = |found: Member| if found.pack == old { member } else { found };
                    before[name].map(moved)
                }
                _ => None,
            }
        });
        let reserved = Reservation {
            token: round.token,
            owner: state.processes[number].life,
        };
        let mut after = state.clone();
        if !is_ours {
            after.commit_root(state.root.map, Some(reserved));
        }
        if state.losses_left > 0 && !is_ours {
            let mut late = state.clone();
            late.late_commits.push(LateCommit::Reserves(reserved));
            let ways = [
                (after.clone(), "reserves the next manifest; the answer is lost"),
                (late, "reserves the next manifest; the commit is late"),
            ];
            for (mut after, what) in ways {
                after.losses_left -= 1;
                next.push((fault(number, what), after));
            }
        }
        after.processes[number].at = At::Reserved(round, map);
        next.push((step(number, "has reserved the next manifest"), after));
    }

    /// The request of a round was not answered, and FENCE has passed: looks what the lake has.
    pub(crate) fn look(&self, state: &State, number: usize, sent: Sent, next: &mut Next) {
        let Sent { round, manifest } = sent;
        let is_of_round = |request: &Request| request.token == round.token && request.sender == number;
        let takes_for_certain = self.is(Planted::TakesThePackForCertain) && manifest.is_none();
        if state.requests.iter().any(is_of_round) && !takes_for_certain {
            return;
        }
        let is_there = match (manifest, round.kind) {
            (Some(map), _) => state.next_manifest == Some(map),
            (None, RoundKind::Packed | RoundKind::Rewritten(_)) => {
                takes_for_certain || state.packs.iter().any(|pack| pack.id == round.pack)
            }
            (None, RoundKind::Plain | RoundKind::Unpacked) => {
                let name = round.name();
                state.plain[name] == round.objects[name]
            }
            (None, RoundKind::Removal | RoundKind::Through) => false,
        };
        if !is_there {
            give_up(state, number, sent, Outcome::Unknown, next);
            return;
        }
        let mut after = state.clone();
        match manifest {
            Some(map) => after.processes[number].at = At::Commits(round, map),
            None => self.has_bytes(&mut after, number, round),
        }
        next.push((step(number, "finds at the lake what it has sent"), after));
    }

    /// Commits the root, on the condition that the reservation is still there.
    pub(crate) fn commit_root(&self, state: &State, number: usize, round: Round, map: Map, next: &mut Next) {
        let is_unsure = matches!(state.processes[number].at, At::CommitUnsure(..));
        if !is_reserved(state, &round) && !self.is(Planted::OverwritesTheRoot) {
            let mut after = state.clone();
            if is_unsure && !state.has_lapsed(state.processes[number].life) {
                committed(&mut after, number, round);
                next.push((step(number, "finds its commit in the root"), after));
            } else {
                stop(&mut after, number, Outcome::Unknown);
                next.push((step(number, "finds the root changed"), after));
            }
            return;
        }
        let mut after = state.clone();
        set_root(&mut after, map);
        if state.losses_left > 0 {
            let mut late = state.clone();
            late.late_commits.push(LateCommit::Names(round.token, map));
            let ways = [
                (after.clone(), "commits the root; the answer is lost"),
                (late, "commits the root; the commit is late"),
            ];
            for (mut after, what) in ways {
                after.losses_left -= 1;
                after.processes[number].at = At::CommitUnsure(round, map);
                next.push((fault(number, what), after));
            }
        }
        committed(&mut after, number, round);
        next.push((step(number, "commits the root"), after));
    }

    /// Removes the old pack, once no node uses a map that names it, and no reader has found it there: FENCE
    /// has passed, twice.
    pub(crate) fn remove(&self, state: &State, number: usize, old: u8, next: &mut Next) {
        let reads = |at: At| matches!(at, At::ReadsPack(member) if member.pack == old);
        let is_read = state.processes.iter().any(|process| reads(process.at));
        let names = |map: &Map| map.iter().flatten().any(|member| member.pack == old);
        let is_mapped = state.cached.iter().any(names);
        if is_read && !self.is(Planted::RemovesAPackAtOnce)
            || is_mapped && !self.is(Planted::RemovesAMappedPack)
        {
            return;
        }
        let mut after = state.clone();
        if !state.has_lapsed(state.processes[number].life) {
            after.packs.retain(|pack| pack.id != old);
        }
        stop(&mut after, number, Outcome::NoEffect);
        next.push((step(number, "removes the old pack"), after));
    }

    pub(crate) fn end(&self, state: &State, number: usize, round: Round, next: &mut Next) {
        let mut after = state.clone();
        leave(&mut after, &round);
        if self.is(Planted::RemovesWhatItPacks) && round.kind == RoundKind::Packed {
            for name in (0..NAMES).filter(|name| round.objects[*name] != 0) {
                after.plain[name] = 0;
            }
        }
        if round.kind == RoundKind::Unpacked && after.processes[number].work == Work::Write {
            after.processes[number].at = At::Idle;
        } else {
            stop(&mut after, number, Outcome::Done);
        }
        next.push((step(number, "ends its round"), after));
    }
}

/// A packer begins a round about some names.
pub(crate) fn pack(state: &State, number: usize, next: &mut Next) {
    let current: [u8; NAMES] = std::array::from_fn(|name| {
        let entry = state.entries[name].as_ref().filter(|entry| entry.busy.is_none());
        entry.and_then(|entry| entry.current).map_or(0, |object| object.0)
    });
    for chosen in 1..1_u8 << NAMES {
        let objects: [u8; NAMES] = std::array::from_fn(|name| current[name] * (chosen >> name & 1));
        let names: Vec<u8> = objects.into_iter().filter(|object| *object != 0).collect();
        if names.len() < chosen.count_ones() as usize {
            continue;
        }
        let kind = match names[..] {
            _ if names.iter().all(|object| Object(*object).is_small()) => RoundKind::Packed,
            [object] if value(object) == 0 => RoundKind::Removal,
            [_] => RoundKind::Plain,
            _ => continue,
        };
        begin(state, number, Round::new(state, kind, objects), next);
    }
}

/// Begins a round, with a change in the entry of each name that it is about.
pub(crate) fn begin(state: &State, number: usize, round: Round, next: &mut Next) {
    let life = state.present_life(state.processes[number].life.node);
    let mut after = state.clone();
    for name in (0..NAMES).filter(|name| round.objects[*name] != 0) {
        let is_flush = matches!(
            round.kind,
            RoundKind::Packed | RoundKind::Plain | RoundKind::Removal
        );
        let busy = Busy {
            kind: if is_flush { Kind::Flush } else { Kind::Write },
            owner: owner(life),
            token: Ulid(u128::from(round.token)),
            of: is_flush.then(|| Ulid(u128::from(round.objects[name]))),
        };
        let entry = state.entries[name].clone().unwrap_or_default();
        match entry.begun(busy) {
            Ok(begun) => after.commit(name, Some(begun)),
            Err(_) => return,
        }
    }
    after.processes[number].life = life;
    after.processes[number].at = At::Begun(round);
    next.push((step(number, "begins its round"), after));
}

/// The keeper rewrites a pack that the map names.
pub(crate) fn rewrite(state: &State, number: usize, next: &mut Next) {
    if state.rewrites_left == 0 {
        return;
    }
    for old in &state.packs {
        let is_alive = |member: &Member| member.pack == old.id;
        let objects = state
            .root
            .map
            .map(|member| member.filter(is_alive).map_or(0, |it| it.object));
        if objects == [0; NAMES] {
            continue;
        }
        let mut after = state.clone();
        after.rewrites_left -= 1;
        after.processes[number].life = state.present_life(0);
        let round = Round::new(state, RoundKind::Rewritten(old.id), objects);
        after.processes[number].at = At::Begun(round);
        next.push((step(number, "reads a pack"), after));
    }
}

/// Sends the bytes.
pub(crate) fn send(state: &State, number: usize, round: Round, next: &mut Next) {
    if state.has_lapsed(state.processes[number].life) {
        abandon(state, number, Outcome::NoEffect, next);
        return;
    }
    let what = match round.kind {
        RoundKind::Packed | RoundKind::Rewritten(_) => What::Pack(Pack {
            id: round.pack,
            members: round.objects,
        }),
        _ => {
            let name = round.name();
            What::Plain(name, value(round.objects[name]))
        }
    };
    let manifest = None;
    request(state, number, what, Sent { round, manifest }, next);
}

pub(crate) fn send_manifest(state: &State, number: usize, round: Round, map: Map, next: &mut Next) {
    if state.has_lapsed(state.processes[number].life) {
        abandon(state, number, Outcome::Unknown, next);
    } else {
        let manifest = Some(map);
        let sent = Sent { round, manifest };
        request(state, number, What::Manifest(map), sent, next);
    }
}

fn request(state: &State, number: usize, what: What, sent: Sent, next: &mut Next) {
    let mut after = state.clone();
    after.requests.push(Request {
        what,
        owner: state.processes[number].life,
        token: sent.round.token,
        sender: number,
    });
    after.processes[number].at = At::Waits(sent);
    next.push((step(number, "sends its request to the lake"), after));
}

/// The lake does not have the bytes or the manifest, and will not: the changes leave the entries as they
/// are.
pub(crate) fn give_up(state: &State, number: usize, sent: Sent, outcome: Outcome, next: &mut Next) {
    let Sent { round, manifest } = sent;
    let mut after = state.clone();
    if manifest.is_some() && is_reserved(&after, &round) {
        after.commit_root(state.root.map, None);
    }
    let token = Ulid(u128::from(round.token));
    for name in 0..NAMES {
        let left = after.entries[name]
            .as_ref()
            .and_then(|entry| entry.given_up(token));
        if left.is_some() {
            after.commit(name, left);
        }
    }
    // If bytes under the name of the object have reached the lake, the change may still show.
    let outcome = if manifest.is_some() {
        Outcome::Unknown
    } else {
        outcome
    };
    stop(&mut after, number, outcome);
    next.push((step(number, "gives its round up"), after));
}

/// A node whose session has ended leaves its round to the others.
fn abandon(state: &State, number: usize, outcome: Outcome, next: &mut Next) {
    let mut after = state.clone();
    stop(&mut after, number, outcome);
    next.push((step(number, "does nothing more: its session has ended"), after));
}

fn committed(after: &mut State, number: usize, round: Round) {
    after.processes[number].at = match round.kind {
        RoundKind::Rewritten(old) => At::Removes(old),
        _ => At::Ends(round),
    };
}

fn leave(after: &mut State, round: &Round) {
    let token = Ulid(u128::from(round.token));
    for name in 0..NAMES {
        let done = after.entries[name].as_ref().and_then(|entry| entry.done(token));
        if done.is_some() {
            after.commit(name, done);
        }
    }
}

/// A process ends what it does.
fn stop(after: &mut State, number: usize, outcome: Outcome) {
    match after.processes[number].work {
        Work::Pack | Work::Rewrite => after.processes[number].at = At::Idle,
        _ => tell(after, number, outcome),
    }
}

pub(crate) fn set_root(state: &mut State, map: Map) {
    state.commit_root(map, None);
    state.next_manifest = None;
}

/// Returns true if the right to write the next manifest is the round's.
fn is_reserved(state: &State, round: &Round) -> bool {
    let token = state.root.reserved.map(|reserved| reserved.token);
    token == Some(round.token)
}

pub(crate) fn owner(life: Life) -> Owner {
    Owner {
        node: u64::from(life.node),
        life: Ulid(u128::from(life.number)),
    }
}

/// The life of an owner.
pub(crate) fn life(owner: Owner) -> Life {
    Life {
        node: owner.node as u8,
        number: owner.life.0 as u8,
    }
}

/// The entry after a write.
pub(crate) fn written(entry: Option<&Entry<Object>>, object: u8) -> Entry<Object> {
    entry.cloned().unwrap_or_default().written(Object(object))
}
