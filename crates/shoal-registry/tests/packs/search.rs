//! Searches all states of the model, breadth first.

use std::collections::VecDeque;
use std::collections::hash_map::Entry as Slot;
use std::fmt;

use shoal_registry::entry::Entry;

use super::clients::{answer, ask_lake, list_entry, list_lake, list_map, look_again};
use super::happenings::{Next, describe, drop_unused_maps, forget, nodes_fail};
use super::monitor::Explanations;
use super::planted::Planted;
use super::rounds::{pack, rewrite, send, send_manifest};
use super::state::{
    At, FIRST_CLIENT, KEEPER, Member, NAMES, NODES, Object, PROCESSES, Pack, Process, Root, State,
    UNREADABLE, Work,
};
use super::table::{Table, fingerprint, story};

/// The numbers of the objects that exist at the start.
const PLAIN: u8 = 1;
const PACKED: u8 = 2;
const DIRTY: u8 = 3;
const FIRST_OBJECT: u8 = 4;

/// The objects of a name at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Nothing,
    /// An object under its own name.
    Plain,
    /// An object in a pack, and an older one under its own name.
    Packed,
    /// The same, and a newer dirty one.
    Dirty,
}

/// A part of the model to search.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// The operations, each with the name that it is about.
    pub(crate) operations: Vec<(Work, usize)>,
    pub(crate) starts: [Start; NAMES],
    /// How many nodes may crash or freeze.
    pub(crate) crashes: u8,
    /// How many answers may be lost, late, or refusals.
    pub(crate) losses: u8,
    /// How many packs may be rewritten.
    pub(crate) rewrites: u8,
    /// The number of times that the map may be rebuilt.
    pub(crate) rebuilds: u8,
    pub(crate) planted: Option<Planted>,
}

/// The rules by which a state follows from another.
pub(crate) struct Protocol {
    planted: Option<Planted>,
}

/// A fault of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// No order of the operations explains the answers.
    NoOrder,
    /// A read would find an object at this moment that no order of the operations explains.
    WrongRead,
    /// A reader finds that its pack is gone.
    PackGone,
    /// An operation cannot end, or an entry cannot be removed.
    Stuck,
}

/// The result of a search.
#[derive(Debug)]
pub(crate) enum Verdict {
    Holds {
        states: usize,
    },
    Fails {
        problem: Problem,
        states: usize,
        /// The shortest way there.
        steps: Vec<String>,
    },
}

impl Case {
    fn begin(&self) -> State {
        let is = |name: usize, starts: &[Start]| starts.contains(&self.starts[name]);
        let packed = [Start::Packed, Start::Dirty];
        let members = std::array::from_fn(|name| if is(name, &packed) { PACKED } else { 0 });
        let map = members.map(|object| (object != 0).then_some(Member { pack: 1, object }));
        let entries = std::array::from_fn(|name| {
            let entry = Entry {
                current: Some(Object(DIRTY)),
                busy: None,
            };
            is(name, &[Start::Dirty]).then_some(entry)
        });
        let newest: [u8; NAMES] = std::array::from_fn(|name| match self.starts[name] {
            Start::Nothing => 0,
            Start::Plain => PLAIN,
            Start::Packed => PACKED,
            Start::Dirty => DIRTY,
        });
        let mut processes = [Process::new(Work::Nothing, 0, 0, 0); PROCESSES];
        for (node, packer) in processes.iter_mut().take(NODES).enumerate() {
            *packer = Process::new(Work::Pack, 0, node, 0);
        }
        processes[KEEPER] = Process::new(Work::Rewrite, 0, 0, 0);
        for (index, (work, name)) in self.operations.iter().enumerate() {
            let number = FIRST_OBJECT + index as u8;
            processes[FIRST_CLIENT + index] = Process::new(*work, *name, index % NODES, number);
        }
        let pack = (members != [0; NAMES]).then_some(Pack { id: 1, members });
        State {
            entries,
            root: Root { map, reserved: None },
            plain: std::array::from_fn(|name| if is(name, &[Start::Nothing]) { 0 } else { PLAIN }),
            packs: pack.into_iter().collect(),
            next_manifest: None,
            cached: [map; NODES],
            requests: Vec::new(),
            late_commits: Vec::new(),
            lives: [0; NODES],
            processes,
            explanations: newest.map(Explanations::of),
            crashes_left: self.crashes,
            losses_left: self.losses,
            rewrites_left: self.rewrites,
            rebuilds_left: self.rebuilds,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operations,
            starts,
            crashes,
            losses,
            rewrites,
            ..
        } = self;
        write!(
            formatter,
            "{operations:?} from {starts:?}, {crashes} crashes, {losses} losses, {rewrites} rewrites"
        )
    }
}

impl Protocol {
    pub(crate) fn is(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    /// Every state that can follow `state`.
    fn next(&self, state: &State) -> Next {
        let mut next = Next::new();
        for process in 0..PROCESSES {
            self.moves(state, process, &mut next);
        }
        self.lake_works(state, &mut next);
        self.late_commits_land(state, &mut next);
        nodes_fail(state, &mut next);
        self.clear_up(state, &mut next);
        self.rebuild(state, &mut next);
        for (_, after) in &mut next {
            forget(after);
            if !self.is(Planted::ChangesByAnOldMap) {
                drop_unused_maps(after);
            }
        }
        next
    }

    fn moves(&self, state: &State, number: usize, next: &mut Next) {
        match state.processes[number].at {
            At::Idle if number < KEEPER => pack(state, number, next),
            At::Idle if number == KEEPER => rewrite(state, number, next),
            At::Idle => self.serve(state, number, next),
            At::Begun(round) => send(state, number, round, next),
            At::Silent(sent) => self.look(state, number, sent, next),
            At::Reserves(round) => self.reserve(state, number, round, next),
            At::Reserved(round, map) => send_manifest(state, number, round, map, next),
            At::Commits(round, map) | At::CommitUnsure(round, map) => {
                self.commit_root(state, number, round, map, next);
            }
            At::Ends(round) => self.end(state, number, round, next),
            At::Removes(old) => self.remove(state, number, old, next),
            At::ReadsPack(member) => answer(state, number, member.object, next),
            At::AsksLake(stamp) => ask_lake(state, number, stamp, next),
            At::LooksAgain(stamp) => look_again(state, number, stamp, next),
            At::ListsMap => list_map(state, number, next),
            At::ListsLake => list_lake(state, number, next),
            At::ListsEntry(packed) => list_entry(state, number, packed, next),
            At::Waits(..) | At::Unknown | At::Ended => {}
        }
    }
}

/// Searches a case completely.
pub(crate) fn explore(case: &Case) -> Verdict {
    let protocol = Protocol {
        planted: case.planted,
    };
    let mut start = case.begin();
    forget(&mut start);
    let mut parents: Table<u64, u64> = Table::default();
    let mut waiting = VecDeque::from([start.clone()]);
    parents.insert(fingerprint(&start), 0);
    while let Some(state) = waiting.pop_front() {
        let next = protocol.next(&state);
        let own = fingerprint(&state);
        if let Some(problem) = problem(&state, &next) {
            return Verdict::Fails {
                problem,
                states: parents.len(),
                steps: story(start, own, &parents, |state| {
                    let next = protocol.next(state).into_iter();
                    next.map(|(step, after)| (describe(step, state), after)).collect()
                }),
            };
        }
        for (_, after) in next {
            if let Slot::Vacant(vacant) = parents.entry(fingerprint(&after)) {
                vacant.insert(own);
                waiting.push_back(after);
            }
        }
    }
    Verdict::Holds {
        states: parents.len(),
    }
}

fn problem(state: &State, next: &Next) -> Option<Problem> {
    if state.explanations.iter().any(Explanations::is_empty) {
        return Some(Problem::NoOrder);
    }
    let is_wrong = |name: usize| {
        let visible = state.visible(name);
        visible == UNREADABLE || !state.explanations[name].may_be(visible)
    };
    if (0..NAMES).any(is_wrong) {
        return Some(Problem::WrongRead);
    }
    let finds_nothing = |process: &Process| matches!(process.at, At::ReadsPack(member) if !state.has(member));
    if state.processes.iter().any(finds_nothing) {
        return Some(Problem::PackGone);
    }
    let goes_on = next.iter().any(|(step, _)| !step.is_fault);
    (!goes_on && !is_at_rest(state)).then_some(Problem::Stuck)
}

/// Returns true if all is done: what reads find is what the lake has.
fn is_at_rest(state: &State) -> bool {
    let is_done = |(number, process): (usize, &Process)| match process.at {
        At::Ended => true,
        At::Idle => number < FIRST_CLIENT,
        _ => false,
    };
    state.entries.iter().all(Option::is_none)
        && state.root.reserved.is_none()
        && state.processes.iter().enumerate().all(is_done)
}
