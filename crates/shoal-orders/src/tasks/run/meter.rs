//! The speed of a task.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::Mutex;
use shoal_net::clock;

use crate::tasks::records::progress::Progress;

/// Measures the speed of a task over the last seconds.
pub(in crate::tasks) struct Meter {
    /// The bytes that were done at earlier looks, the oldest first.
    looks: VecDeque<(Instant, u64)>,
}

impl Meter {
    /// The number of looks over which the speed is measured.
    const LOOKS: usize = 10;

    /// Measures from now on.
    pub(in crate::tasks) fn new(progress: &Mutex<Progress>) -> Self {
        let done = progress.lock().tally.bytes.done;
        Self {
            looks: [(clock::instant(), done)].into(),
        }
    }

    /// Notes the speed in the progress, and whether the task `is_at_risk` at it.
    pub(in crate::tasks) fn measure(
        &mut self,
        progress: &Mutex<Progress>,
        is_at_risk: impl FnOnce(Option<u64>) -> bool,
    ) {
        let (now, done) = (clock::instant(), progress.lock().tally.bytes.done);
        let &(then, before) = self.looks.front().expect("there was a first look");
        let millis = now.saturating_duration_since(then).as_millis().max(1);
        let speed = u128::from(done.saturating_sub(before)) * 1000 / millis;
        let speed = u64::try_from(speed).unwrap_or(u64::MAX);
        self.looks.push_back((now, done));
        // At first a task finds out what there is to do.
        let is_known = self.looks.len() > Self::LOOKS / 2;
        if self.looks.len() > Self::LOOKS {
            self.looks.pop_front();
        }
        let is_at_risk = is_at_risk(is_known.then_some(speed));
        let mut progress = progress.lock();
        progress.bytes_per_second = Some(speed);
        progress.at_risk = is_at_risk;
    }
}
