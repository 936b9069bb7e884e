//! Whether the answers that clients got can be explained by some order of their operations.
//!
//! The monitor keeps every explanation that is still possible: the value that the name has in it, and which
//! of the open operations have taken effect in it, with which answer. An answer removes those explanations
//! that do not agree with it. If none is left, the history is not linearizable (Herlihy and Wing, 1990).
//! Two histories with the same explanations have the same future, so a state of the model needs only their
//! number.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::state::{CLIENTS, FIRST_CLIENT, Process, Work};
use super::table::Table;

/// The number of a set of explanations.
pub(crate) type Explanations = u32;

/// No explanation is left.
pub(crate) const NONE_LEFT: Explanations = 0;

/// An answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// A condition of the operation does not hold.
    ConditionFailed,
    /// The object that a GET has found; 0 for none.
    Found(u8),
}

impl Answer {
    fn code(self) -> u8 {
        match self {
            Self::Done => DONE,
            Self::ConditionFailed => 2,
            Self::Found(object) => 3 + object,
        }
    }
}

const DONE: u8 = 1;

/// The possible explanations of a history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Possible {
    /// One bit for each process whose operation has begun and not ended.
    open: u16,
    /// In ascending order. The lowest byte of each is the value, the others hold an answer for each client: 0
    /// as long as its operation has not taken effect.
    explanations: Vec<u128>,
}

/// An event of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    Begins,
    Answers(u8),
    HasNoEffect,
    IsForgotten,
}

/// Follows operations. Sets of explanations are numbered, and each change of a set is computed once.
pub(crate) struct Monitor {
    sets: Vec<Arc<Possible>>,
    numbers: Table<Arc<Possible>, Explanations>,
    changes: Table<(Explanations, u8, Event), Explanations>,
}

impl Monitor {
    /// A monitor of a name that has `value` at the start, and the number of its explanations.
    pub(crate) fn new(value: u8) -> (Self, Explanations) {
        let mut monitor = Self {
            sets: Vec::new(),
            numbers: Table::default(),
            changes: Table::default(),
        };
        let none = Possible {
            open: 0,
            explanations: Vec::new(),
        };
        assert_eq!(monitor.number(none), NONE_LEFT);
        let start = monitor.number(Possible {
            open: 0,
            explanations: vec![u128::from(value)],
        });
        (monitor, start)
    }

    /// Forgets the computed changes: a process has got another operation.
    pub(crate) fn operations_changed(&mut self) {
        self.changes.clear();
    }

    /// The operation of `process` begins.
    pub(crate) fn begins(&mut self, set: Explanations, process: usize, all: &[Process]) -> Explanations {
        self.change(set, process, Event::Begins, all)
    }

    /// The operation of `process` is answered.
    pub(crate) fn answers(
        &mut self,
        set: Explanations,
        process: usize,
        answer: Answer,
        all: &[Process],
    ) -> Explanations {
        self.change(set, process, Event::Answers(answer.code()), all)
    }

    /// The operation of `process` is answered with an error that promises that nothing has happened.
    pub(crate) fn has_no_effect(
        &mut self,
        set: Explanations,
        process: usize,
        all: &[Process],
    ) -> Explanations {
        self.change(set, process, Event::HasNoEffect, all)
    }

    /// No request of the operation of `process` is still on its way, and its client does not know the
    /// outcome: the operation has taken effect by now, or never does.
    pub(crate) fn is_forgotten(
        &mut self,
        set: Explanations,
        process: usize,
        all: &[Process],
    ) -> Explanations {
        self.change(set, process, Event::IsForgotten, all)
    }

    /// Returns true if the name may have `value` now.
    pub(crate) fn may_be(&self, set: Explanations, value: u8) -> bool {
        let explanations = &self.sets[set as usize].explanations;
        explanations
            .iter()
            .any(|&explanation| value_of(explanation) == value)
    }

    fn change(&mut self, set: Explanations, process: usize, event: Event, all: &[Process]) -> Explanations {
        let key = (set, process as u8, event);
        if let Some(&after) = self.changes.get(&key) {
            return after;
        }
        let after = changed(&self.sets[set as usize], process, event, all);
        let after = if after.explanations.is_empty() {
            NONE_LEFT
        } else {
            self.number(after)
        };
        self.changes.insert(key, after);
        after
    }

    fn number(&mut self, possible: Possible) -> Explanations {
        if let Some(&number) = self.numbers.get(&possible) {
            return number;
        }
        let possible = Arc::new(possible);
        let number = self.sets.len() as Explanations;
        self.sets.push(Arc::clone(&possible));
        self.numbers.insert(possible, number);
        number
    }
}

fn changed(before: &Possible, process: usize, event: Event, all: &[Process]) -> Possible {
    let mask = !(0xff << shift(process));
    let bit = 1 << process;
    let explanations = before.explanations.iter().copied();
    match event {
        Event::Begins => completed(before.open | bit, explanations.collect(), all),
        Event::Answers(code) => {
            let agree = explanations.filter(|&explanation| answer_of(explanation, process) == code);
            sorted(before.open & !bit, agree.map(|explanation| explanation & mask))
        }
        Event::HasNoEffect => {
            let agree = explanations.filter(|&explanation| answer_of(explanation, process) == 0);
            sorted(before.open & !bit, agree)
        }
        Event::IsForgotten => sorted(
            before.open & !bit,
            explanations.map(|explanation| explanation & mask),
        ),
    }
}

/// Adds every explanation in which more of the open operations have taken effect.
fn completed(open: u16, mut waiting: Vec<u128>, all: &[Process]) -> Possible {
    let mut explanations = BTreeSet::new();
    while let Some(explanation) = waiting.pop() {
        if !explanations.insert(explanation) {
            continue;
        }
        for process in (FIRST_CLIENT..FIRST_CLIENT + CLIENTS).filter(|process| open & (1 << process) != 0) {
            if answer_of(explanation, process) == 0 {
                let (value, answer) = effect(&all[process], value_of(explanation));
                let others = explanation & !0xff;
                waiting.push(others | u128::from(value) | u128::from(answer.code()) << shift(process));
            }
        }
    }
    Possible {
        open,
        explanations: explanations.into_iter().collect(),
    }
}

fn sorted(open: u16, explanations: impl Iterator<Item = u128>) -> Possible {
    let explanations: BTreeSet<u128> = explanations.collect();
    Possible {
        open,
        explanations: explanations.into_iter().collect(),
    }
}

/// The effect that S3 promises: the value after the operation, and its answer.
fn effect(process: &Process, value: u8) -> (u8, Answer) {
    match process.work {
        Work::Put | Work::Write => (process.object, Answer::Done),
        Work::Delete | Work::Remove => (0, Answer::Done),
        Work::Create if value == 0 => (process.object, Answer::Done),
        Work::Replace if value == process.expects => (process.object, Answer::Done),
        Work::Create | Work::Replace => (value, Answer::ConditionFailed),
        Work::Get | Work::Flush | Work::Tend | Work::Nothing => (value, Answer::Found(value)),
    }
}

fn value_of(explanation: u128) -> u8 {
    (explanation & 0xff) as u8
}

fn answer_of(explanation: u128, process: usize) -> u8 {
    (explanation >> shift(process) & 0xff) as u8
}

fn shift(process: usize) -> usize {
    8 * (process - FIRST_CLIENT + 1)
}
