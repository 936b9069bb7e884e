//! Limits log lines about one problem, because its first line says as much as a thousand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The interval of problems that need no other.
const EVERY: Duration = Duration::from_secs(1);

/// Admits one line per interval and counts the others.
#[derive(Debug)]
pub struct LogThrottle {
    every: Duration,
    latest: Mutex<Option<Instant>>,
    suppressed: AtomicU64,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self::new()
    }
}

impl LogThrottle {
    /// Creates a throttle that admits the next line, and then one line per second.
    pub const fn new() -> Self {
        Self::every(EVERY)
    }

    /// Creates a throttle that admits the next line, and then one line in `every`.
    pub const fn every(every: Duration) -> Self {
        Self {
            every,
            latest: Mutex::new(None),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Returns the number of lines suppressed since the last one if a line may be written now; otherwise
    /// `None`.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut latest = self.latest.lock();
        if latest.is_some_and(|latest| now.saturating_duration_since(latest) < self.every) {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *latest = Some(now);
        Some(self.suppressed.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::{EVERY, LogThrottle};
    use crate::time::clock;

    #[test]
    fn one_line_a_second_counts_those_that_were_suppressed() {
        let (throttle, now) = (LogThrottle::new(), clock::instant());
        assert_eq!(throttle.admit(now), Some(0));
        assert_eq!(throttle.admit(now), None);
        assert_eq!(throttle.admit(now + EVERY / 2), None);
        assert_eq!(throttle.admit(now + EVERY), Some(2));
        assert_eq!(throttle.admit(now + EVERY * 2), Some(0));
    }
}
