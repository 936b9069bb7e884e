//! The steps of a plan other than fetches.

use super::Step;

/// Steps, each with its time, in the order of time.
#[derive(Clone, Debug)]
pub(super) struct Agenda {
    steps: Vec<(f64, Step)>,
    /// The number of those that were due.
    done: usize,
}

impl Agenda {
    /// Sorts steps by time; those of one time keep their order.
    pub(super) fn new(mut steps: Vec<(f64, Step)>) -> Self {
        steps.sort_by(|one, other| one.0.total_cmp(&other.0));
        Self { steps, done: 0 }
    }

    /// Returns the next step that is due by `now_s`, with its time.
    pub(super) fn next_due(&mut self, now_s: f64) -> Option<(f64, Step)> {
        let next = self.steps.get(self.done).copied();
        let next = next.filter(|(at_s, _)| *at_s <= now_s)?;
        self.done += 1;
        Some(next)
    }
}
