//! Searches the states of the model: all of them, or along random schedules.

use std::collections::VecDeque;
use std::fmt;

use super::happenings::{Step, describe};
use super::monitor::{Monitor, NONE_LEFT};
use super::planted::Planted;
use super::protocol::Protocol;
use super::state::{
    At, FIRST_CLIENT, FIRST_TENDER, NODES, PROCESSES, Packed, Process, State, TOMBSTONE, Work, value,
};
use super::table::{Table, fingerprint, story};

/// The object that the lake has at the start, if it has one.
pub(crate) const LAKE_OBJECT: u8 = 1;
/// The dirty object at the start, if there is one.
pub(crate) const DIRTY_OBJECT: u8 = 2;
const FIRST_OBJECT: u8 = 3;
/// In a long schedule the numbers of objects are used again, long after the last trace of the first ones.
const OBJECTS_MAX: u8 = TOMBSTONE - 1;

/// The objects at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// No object.
    Nothing,
    /// An object at the lake.
    Clean,
    /// An object at the lake, and a newer one that is dirty.
    Dirty,
    /// An object at the lake, and a tombstone.
    Removed,
}

/// A part of the model to search.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) operations: Vec<Work>,
    pub(crate) start: Start,
    /// How many nodes may crash or freeze.
    pub(crate) crashes: u8,
    /// How many answers may be lost, late, or errors.
    pub(crate) losses: u8,
    pub(crate) planted: Option<Planted>,
    pub(crate) separate_reads: bool,
}

impl Case {
    pub(crate) fn new(operations: &[Work], start: Start, crashes: u8, losses: u8) -> Self {
        Self {
            operations: operations.to_vec(),
            start,
            crashes,
            losses,
            planted: None,
            separate_reads: false,
        }
    }

    fn begin(&self) -> (Protocol, State) {
        let (lake, dirty) = match self.start {
            Start::Nothing => (0, 0),
            Start::Clean => (LAKE_OBJECT, 0),
            Start::Dirty => (LAKE_OBJECT, DIRTY_OBJECT),
            Start::Removed => (LAKE_OBJECT, TOMBSTONE | DIRTY_OBJECT),
        };
        let newest = if dirty == 0 { lake } else { value(dirty) };
        let (monitor, explanations) = Monitor::new(newest);
        let protocol = Protocol {
            monitor,
            planted: self.planted,
            separate_reads: self.separate_reads,
        };
        let mut processes = [Process::new(Work::Nothing, 0, 0, 0); PROCESSES];
        for (node, flusher) in processes.iter_mut().take(NODES).enumerate() {
            *flusher = Process::new(Work::Flush, node as u8, 0, 0);
        }
        // Two tenders that read and commit in one step are as one.
        let tenders = if self.separate_reads { 2 } else { 1 };
        for tender in processes.iter_mut().skip(FIRST_TENDER).take(tenders) {
            *tender = Process::new(Work::Tend, 0, 0, 0);
        }
        let expects = if newest == 0 { FIRST_OBJECT } else { newest };
        for (index, work) in self.operations.iter().enumerate() {
            let node = (index % NODES) as u8;
            let object = object_of(*work, FIRST_OBJECT + index as u8);
            processes[FIRST_CLIENT + index] = Process::new(*work, node, object, expects);
        }
        let state = State {
            entry: (dirty != 0).then_some(Packed {
                current: dirty,
                busy: None,
            }),
            lake,
            requests: Vec::new(),
            late_commits: Vec::new(),
            lives: [0; NODES],
            lasting: [0; NODES],
            processes,
            explanations,
            crashes_left: self.crashes,
            losses_left: self.losses,
        };
        (protocol, state)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operations,
            start,
            crashes,
            losses,
            ..
        } = self;
        write!(
            formatter,
            "{operations:?} from {start:?}, {crashes} crashes, {losses} losses"
        )
    }
}

/// A fault of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// No order of the operations explains the answers.
    NoOrder,
    /// A read would find an object at this moment that no order of the operations explains.
    WrongRead,
    /// Two requests that change the name are on their way to the lake.
    TwoRequests,
    /// An operation cannot end, or an entry cannot be removed.
    Stuck,
}

/// The result of a search.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// No state is wrong.
    Holds { states: usize },
    /// A state is wrong.
    Fails {
        problem: Problem,
        states: usize,
        /// The shortest way there.
        steps: Vec<String>,
    },
}

/// Searches a case breadth first, completely.
pub(crate) fn explore(case: &Case) -> Verdict {
    let (mut protocol, start) = case.begin();
    let mut parents: Table<u64, u64> = Table::default();
    let mut waiting = VecDeque::new();
    parents.insert(fingerprint(&start), 0);
    waiting.push_back(start.clone());
    while let Some(state) = waiting.pop_front() {
        let next = protocol.next(&state);
        let own = fingerprint(&state);
        if let Some(problem) = problem(&protocol, &state, &next) {
            let steps = story(start, own, &parents, |state| {
                let next = protocol.next(state).into_iter();
                next.map(|(step, after)| (describe(step, state).to_string(), after))
                    .collect()
            });
            return Verdict::Fails {
                problem,
                states: parents.len(),
                steps,
            };
        }
        for (_, after) in next {
            let print = fingerprint(&after);
            if let std::collections::hash_map::Entry::Vacant(vacant) = parents.entry(print) {
                vacant.insert(own);
                waiting.push_back(after);
            }
        }
    }
    Verdict::Holds {
        states: parents.len(),
    }
}

fn problem(protocol: &Protocol, state: &State, next: &[(Step, State)]) -> Option<Problem> {
    if state.explanations == NONE_LEFT {
        return Some(Problem::NoOrder);
    }
    if !protocol.monitor.may_be(state.explanations, state.visible()) {
        return Some(Problem::WrongRead);
    }
    // A planted bug has to show in what clients see.
    if state.requests.len() > 1 && protocol.planted.is_none() {
        return Some(Problem::TwoRequests);
    }
    let goes_on = next.iter().any(|(step, _)| !step.is_fault);
    (!goes_on && !is_at_rest(state)).then_some(Problem::Stuck)
}

/// Returns true if all is done: what reads find is what the lake has.
fn is_at_rest(state: &State) -> bool {
    let is_done = |process: &Process| match process.at {
        At::Ended => true,
        At::Idle => !process.is_client(),
        _ => false,
    };
    state.entry.is_none()
        && state.requests.is_empty()
        && state.late_commits.is_empty()
        && state.processes.iter().all(is_done)
}

/// A source of chance that gives the same numbers for the same seed (SplitMix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// The dirty object that an operation writes: a tombstone if it removes the name.
fn object_of(work: Work, number: u8) -> u8 {
    if work == Work::Remove {
        TOMBSTONE | number
    } else {
        number
    }
}

const WORKS: [Work; 7] = [
    Work::Put,
    Work::Get,
    Work::Delete,
    Work::Remove,
    Work::Create,
    Work::Replace,
    Work::Write,
];

/// Every set of `size` operations, each on a node of its own as far as there are nodes.
pub(crate) fn sets_of(size: usize) -> Vec<Vec<Work>> {
    let mut sets = vec![Vec::new()];
    for _ in 0..size {
        let longer = |set: Vec<Work>| {
            let last = set.last().copied().unwrap_or(WORKS[0]);
            WORKS
                .into_iter()
                .filter(move |work| *work >= last)
                .map(move |work| [&set[..], &[work]].concat())
        };
        sets = sets.into_iter().flat_map(longer).collect();
    }
    sets
}

/// Follows one random schedule for `length` steps, and then until all is at rest: five clients, each with one
/// operation after the other, on random nodes, and faults now and then.
///
/// # Errors
///
/// The problem, and the last steps before it.
pub(crate) fn wander(seed: u64, length: usize) -> Result<usize, (Problem, Vec<String>)> {
    let mut chance = Chance(seed);
    let mut case = Case::new(&[], Start::Clean, 1, 1);
    case.separate_reads = chance.below(2) == 0;
    let (mut protocol, mut state) = case.begin();
    let mut objects = (FIRST_OBJECT..OBJECTS_MAX).cycle();
    let mut steps = Vec::new();
    loop {
        for number in FIRST_CLIENT..PROCESSES {
            if state.processes[number].at == At::Ended && steps.len() < length {
                let work = WORKS[chance.below(WORKS.len())];
                let node = chance.below(NODES) as u8;
                let visible = state.visible();
                let object = objects
                    .find(|object| *object != visible)
                    .expect("the objects come again");
                state.processes[number] = Process::new(work, node, object_of(work, object), visible);
                protocol.monitor.operations_changed();
            }
        }
        let mut next = protocol.next(&state);
        if let Some(problem) = problem(&protocol, &state, &next) {
            let last = steps.len().saturating_sub(60);
            return Err((problem, steps.split_off(last)));
        }
        let faults = chance.below(12) == 0;
        if next.iter().any(|(step, _)| step.is_fault == faults) {
            next.retain(|(step, _)| step.is_fault == faults);
        }
        if next.is_empty() {
            return Ok(steps.len());
        }
        let (step, after) = next.swap_remove(chance.below(next.len()));
        steps.push(format!("{} => {after}", describe(step, &state)));
        state = after;
        // Lives and faults are counted in a byte each.
        state.losses_left = 1;
        state.crashes_left = u8::from(state.lives.iter().all(|life| *life < u8::MAX));
    }
}
