//! Decides if some order of the operations on a name explains the answers that clients got (Herlihy and Wing,
//! 1990), as the monitor of the other model does, for fewer clients.

use super::state::{CLIENTS, Work, value};

/// The answer to a change that was carried out. Answers to reads are [`found`].
pub(crate) const DONE: u8 = 1;

/// The code of the answer to a read.
pub(crate) fn found(object: u8) -> u8 {
    2 + object
}

/// An operation that has begun and is not over.
pub(crate) type Open = [Option<(Work, u8)>; CLIENTS];

/// Each way to explain what clients of a name have seen: the object that the name has, and the answers of the
/// open operations that have taken effect (0 for the others). In ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Explanations(Vec<(u8, [u8; CLIENTS])>);

impl Explanations {
    pub(crate) fn of(object: u8) -> Self {
        Self(vec![(object, [0; CLIENTS])])
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the name may have `object` now.
    pub(crate) fn may_be(&self, object: u8) -> bool {
        self.0.iter().any(|(value, _)| *value == object)
    }

    /// An operation begins: each open one may take effect, in any order.
    pub(crate) fn begins(&mut self, open: Open) {
        let mut waiting = std::mem::take(&mut self.0);
        while let Some((object, answers)) = waiting.pop() {
            if self.0.contains(&(object, answers)) {
                continue;
            }
            self.0.push((object, answers));
            for (client, operation) in open.iter().enumerate() {
                if let Some((work, written)) = *operation
                    && answers[client] == 0
                {
                    let (after, answer) = effect(work, written, object);
                    let mut answers = answers;
                    answers[client] = answer;
                    waiting.push((after, answers));
                }
            }
        }
        self.0.sort_unstable();
    }

    /// A client has an answer.
    pub(crate) fn answers(&mut self, client: usize, answer: u8) {
        self.0.retain(|(_, answers)| answers[client] == answer);
        self.forget(client);
    }

    /// A client has an error that promises that nothing has happened.
    pub(crate) fn has_no_effect(&mut self, client: usize) {
        self.0.retain(|(_, answers)| answers[client] == 0);
    }

    /// An operation with an unknown outcome has taken effect by now, or never does.
    pub(crate) fn forget(&mut self, client: usize) {
        for (_, answers) in &mut self.0 {
            answers[client] = 0;
        }
        self.0.sort_unstable();
        self.0.dedup();
    }
}

/// The effect that S3 promises: the object after the operation, and the answer.
fn effect(work: Work, written: u8, object: u8) -> (u8, u8) {
    match work {
        Work::Put | Work::Large | Work::Delete | Work::Write => (value(written), DONE),
        Work::Get | Work::List => (object, found(object)),
        Work::Unpack | Work::Pack | Work::Rewrite | Work::Nothing => (object, DONE),
    }
}
