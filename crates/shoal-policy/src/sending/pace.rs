//! The rate of a transfer of many blocks: at most its maximum rate, and just fast enough for its deadline.
//!
//! A transfer with a deadline uses only as much of the link as it needs: its rate is the remaining bytes
//! divided by the remaining time. A tenth of that time is kept in reserve, so that a delayed transfer catches
//! up before the deadline.

use std::time::Duration;

/// A transfer with a deadline aims to finish within this percentage of the remaining time.
const PLANNED_PERCENT: u128 = 90;

/// The pace of one transfer. Times are counted from an origin of the caller's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    rate_max: Option<u64>,
    deadline: Option<Duration>,
    /// When the next block may be transferred.
    next: Duration,
}

impl Pace {
    /// Creates the pace of a transfer of at most `rate_max` bytes per second that should finish by
    /// `deadline`.
    pub const fn new(rate_max: Option<u64>, deadline: Option<Duration>) -> Self {
        Self {
            rate_max,
            deadline,
            next: Duration::ZERO,
        }
    }

    /// Changes the maximum rate from the next block on.
    pub const fn limit(&mut self, rate_max: Option<u64>) {
        self.rate_max = rate_max;
    }

    /// The rate to use in bytes per second; `None` means as fast as the link allows. `left_bytes` is the
    /// number of remaining bytes, once known.
    pub fn rate(&self, now: Duration, left_bytes: Option<u64>) -> Option<u64> {
        self.rate_for_deadline(now, left_bytes).or(self.rate_max)
    }

    /// The rate in bytes per second at which the transfer finishes before its deadline, but at most its
    /// maximum; `None` without a deadline, after it, or while the number of remaining bytes is unknown.
    pub fn rate_for_deadline(&self, now: Duration, left_bytes: Option<u64>) -> Option<u64> {
        let needed = self.needed(now, left_bytes?, PLANNED_PERCENT)?;
        Some(self.rate_max.map_or(needed, |rate_max| needed.min(rate_max)))
    }

    /// Schedules a block of `bytes`, and returns how long it has to wait.
    pub fn take(&mut self, now: Duration, bytes: u64, left_bytes: Option<u64>) -> Duration {
        let starts = self.next.max(now);
        // If there are fewer bytes left than in this block, objects have grown since they were counted.
        let left_bytes = left_bytes.filter(|left| *left >= bytes);
        let until = |rate: Option<u64>| {
            let nanos = rate.map_or(0, |rate| {
                u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))
            });
            starts.saturating_add(Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX)))
        };
        let next = until(self.rate(now, left_bytes));
        // Past its deadline, only its maximum rate limits a transfer.
        let next = self.deadline.map_or(next, |deadline| next.min(deadline));
        self.next = next.max(until(self.rate_max));
        starts.saturating_sub(now)
    }

    /// Returns true if the transfer will miss its deadline, or has, if it continues at `speed` bytes per
    /// second, or if its maximum rate is too low. The speed and the number of remaining bytes are unknown at
    /// first.
    pub fn is_at_risk(&self, now: Duration, left_bytes: Option<u64>, speed: Option<u64>) -> bool {
        let Some(deadline) = self.deadline.filter(|_| left_bytes != Some(0)) else {
            return false;
        };
        let needed = left_bytes.and_then(|left| self.needed(now, left, 100));
        let too_slow =
            |rate: Option<u64>| matches!((rate, needed), (Some(rate), Some(needed)) if rate < needed);
        now >= deadline || too_slow(self.rate_max) || too_slow(speed)
    }

    /// The rate that transfers `left_bytes` in `percent` of the remaining time; `None` without a deadline or
    /// after it.
    fn needed(&self, now: Duration, left_bytes: u64, percent: u128) -> Option<u64> {
        let left = self.deadline?.checked_sub(now)?.as_nanos() * percent / 100;
        let rate = (u128::from(left_bytes) * 1_000_000_000).checked_div(left)?;
        Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Pace;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_transfer_with_a_deadline_goes_as_fast_as_it_needs_to() {
        // (rate, deadline, now, left) → rate
        for (rate_max, deadline, now, left, expected) in [
            (None, None, 0, Some(900), None),
            (Some(5), None, 0, Some(900), Some(5)),
            (None, Some(100), 0, Some(900), Some(10)),
            (None, Some(100), 50, Some(900), Some(20)),
            (Some(15), Some(100), 50, Some(900), Some(15)),
            (None, Some(100), 0, None, None),
            (None, Some(100), 100, Some(900), None),
            (Some(7), Some(100), 200, Some(900), Some(7)),
            (None, Some(100), 0, Some(0), Some(1)),
        ] {
            let pace = Pace::new(rate_max, deadline.map(s));
            let context = format!("{pace:?} at {now} s with {left:?}");
            assert_eq!(pace.rate(s(now), left), expected, "{context}");
            let is_known = left.is_some() && deadline.is_some_and(|deadline| deadline > now);
            let for_deadline = expected.filter(|_| is_known);
            assert_eq!(pace.rate_for_deadline(s(now), left), for_deadline, "{context}");
        }
    }

    #[test]
    fn blocks_wait_for_their_turns() {
        let mut pace = Pace::new(Some(10), None);
        assert_eq!(pace.take(s(0), 20, None), s(0));
        assert_eq!(pace.take(s(0), 20, None), s(2));
        assert_eq!(pace.take(s(1), 20, None), s(3));
        assert_eq!(pace.take(s(60), 20, None), s(0), "a pause is not made up for");
        let mut free = Pace::new(None, None);
        assert_eq!(
            (free.take(s(0), u64::MAX, None), free.take(s(0), 1, None)),
            (s(0), s(0))
        );
    }

    #[test]
    fn all_blocks_go_before_the_deadline_and_most_of_the_time_is_used() {
        let (mut pace, mut now, mut left) = (Pace::new(None, Some(s(1_000))), s(0), 1_000);
        while left > 0 {
            now += pace.take(now, 10, Some(left));
            left -= 10;
        }
        assert!((s(800)..s(1_000)).contains(&now), "{now:?}");
    }

    #[test]
    fn more_bytes_than_were_counted_do_not_wait_beyond_the_deadline() {
        let mut pace = Pace::new(None, Some(s(100)));
        let waits: Vec<_> = (0..4).map(|_| pace.take(s(0), 450, Some(900))).collect();
        assert_eq!(waits, [s(0), s(45), s(90), s(100)]);
        let mut pace = Pace::new(None, Some(s(100)));
        let waits: Vec<_> = (0..4).map(|_| pace.take(s(0), 450, Some(0))).collect();
        assert_eq!(waits, [s(0); 4], "it is not known how many are left");
        let mut pace = Pace::new(Some(5), Some(s(100)));
        let waits: Vec<_> = (0..3).map(|_| pace.take(s(0), 450, Some(900))).collect();
        assert_eq!(waits, [s(0), s(90), s(180)], "it is never faster than its rate");
    }

    #[test]
    fn a_transfer_that_is_too_slow_is_at_risk() {
        for (rate_max, deadline, now, left, speed, expected) in [
            (None, None, 0, Some(100), Some(0), false),
            (None, Some(100), 0, Some(100), None, false),
            (None, Some(100), 0, Some(100), Some(1), false),
            (None, Some(100), 0, Some(200), Some(1), true),
            (Some(1), Some(100), 0, Some(200), None, true),
            (None, Some(100), 100, Some(1), Some(99), true),
            (None, Some(100), 100, Some(0), Some(99), false),
            (None, Some(100), 99, None, Some(0), false),
            (None, Some(100), 100, None, Some(99), true),
            (None, None, 100, None, None, false),
        ] {
            let pace = Pace::new(rate_max, deadline.map(s));
            assert_eq!(
                pace.is_at_risk(s(now), left, speed),
                expected,
                "{pace:?} at {now} s"
            );
        }
    }
}
