//! Measures the time since an event, including suspensions of the machine.

use std::time::{Duration, SystemTime};

use shoal_base::clock;
use tokio::time::Instant;
use ulid::Ulid;

/// A moment from which something may be relied on for a limited time.
///
/// The runtime's clock stops while the machine is suspended, but other machines continue. So the time of a
/// suspension is added. A virtual machine that is paused from outside cannot detect that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    at: Instant,
    suspended: Duration,
}

impl Moment {
    /// Returns the present moment.
    pub fn now() -> Self {
        Self {
            at: Instant::now(),
            suspended: clock::suspended(),
        }
    }

    /// Returns the time since this moment, awake and suspended.
    pub fn elapsed(&self) -> Duration {
        self.elapsed_at(Instant::now(), clock::suspended())
    }

    fn elapsed_at(&self, now: Instant, suspended: Duration) -> Duration {
        now.saturating_duration_since(self.at) + suspended.saturating_sub(self.suspended)
    }
}

/// Returns the age of an object by its id. It determines when the object is flushed, and orders nothing.
pub fn age_of(id: Ulid) -> Duration {
    let written = SystemTime::UNIX_EPOCH + Duration::from_millis(id.timestamp_ms());
    clock::utc_now().duration_since(written).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Moment;

    #[test]
    fn the_time_that_the_machine_was_suspended_counts() {
        let second = Duration::from_secs(1);
        let moment = Moment::now();
        let awake = moment.at + second;
        assert_eq!(moment.elapsed_at(awake, moment.suspended), second);
        assert_eq!(
            moment.elapsed_at(awake, moment.suspended + 9 * second),
            10 * second
        );
        assert_eq!(moment.elapsed_at(moment.at, Duration::ZERO), Duration::ZERO);
    }
}
