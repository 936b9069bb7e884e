//! The time that the policies of a store get.

use std::time::{Duration, Instant};

use shoal_base::clock;
use shoal_base::moment::since_1970;

/// The policies' time: since 1970, so that it continues across restarts, but monotonic while the process
/// runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyTime {
    pub(crate) at_start: Duration,
    started: Instant,
}

impl PolicyTime {
    pub(crate) fn begin() -> Self {
        Self {
            at_start: since_1970(clock::utc_now()),
            started: clock::instant(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.at_start + clock::instant().saturating_duration_since(self.started)
    }
}
