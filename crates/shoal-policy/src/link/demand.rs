//! The demand of a node for the link: the rate at which it moves bytes, or would if there were room.

use std::time::Duration;

use super::{Class, whole};

/// Time constant of the moving averages of rates.
const MEMORY: Duration = Duration::from_secs(1);

/// The demand of a class that did not wait, as a multiple of its rate, so that it can grow.
const HEADROOM: f64 = 1.25;

/// The demand of a class that waited, as a multiple of its rate.
const GROWTH: f64 = 2.0;

/// The demand of one node for one direction of the link, in bytes per second, in parts of falling priority:
/// planned transfers within their reservation ([`Demand::RESERVED`]), clients, planned transfers beyond their
/// reservation, prefetch, cleaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand(pub [u64; Self::PARTS]);

impl Demand {
    /// The number of parts: those of each class, and the reservation.
    pub const PARTS: usize = Class::ALL.len() + 1;

    /// The place of the part that plans reserve.
    pub(super) const RESERVED: usize = 0;

    /// Creates the demand from the rates that each class wants and the rate that plans reserve.
    pub(super) fn new(wanted: [u64; Class::ALL.len()], reserved: u64) -> Self {
        let [client, planned, prefetch, cleaning] = wanted;
        let reserved = planned.min(reserved);
        Self([reserved, client, planned - reserved, prefetch, cleaning])
    }

    /// The sum of all parts, saturating.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, rate| sum.saturating_add(*rate))
    }

    /// The element-wise minimum of two demands.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|part| self.0[part].min(other.0[part])))
    }

    /// Returns true if any part exceeds that of `other` by more than a tenth plus `least` bytes per second.
    pub fn exceeds(&self, other: &Self, least: u64) -> bool {
        let mut pairs = self.0.iter().zip(&other.0);
        pairs.any(|(mine, theirs)| *mine > (theirs / 10).saturating_add(*theirs).saturating_add(least))
    }
}

/// The recent rate of a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// Bytes per second, exponentially weighted: a byte counts 1/e after [`MEMORY`].
    rate: f64,
    at: Duration,
    waited_at: Option<Duration>,
}

impl Usage {
    pub(super) fn at(now: Duration) -> Self {
        Self {
            rate: 0.0,
            at: now,
            waited_at: None,
        }
    }

    /// Counts bytes that were moved, or subtracts bytes that were counted but not moved.
    pub(super) fn moved(&mut self, bytes: f64, now: Duration) {
        self.rate = (self.rate_at(now) + bytes / MEMORY.as_secs_f64()).max(0.0);
        self.at = self.at.max(now);
    }

    pub(super) fn waited(&mut self, now: Duration) {
        self.waited_at = Some(now);
    }

    pub(super) fn rate(&self, now: Duration) -> u64 {
        whole(self.rate_at(now))
    }

    /// See [`Meter::demand`](super::Meter::demand).
    pub(super) fn demand(&self, waits: bool, fair: u64, now: Duration) -> u64 {
        let is_recent = |at: Duration| now.saturating_sub(at) < MEMORY;
        let rate = self.rate_at(now);
        if waits || self.waited_at.is_some_and(is_recent) {
            whole(rate * GROWTH).max(fair)
        } else {
            whole(rate * HEADROOM)
        }
    }

    fn rate_at(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.at).as_secs_f64();
        self.rate * (-age / MEMORY.as_secs_f64()).exp()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Demand, Usage};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_rate_is_what_was_moved_of_late() {
        let mut usage = Usage::at(Duration::ZERO);
        for step in 1..=5_000 {
            usage.moved(1_000.0, ms(step));
        }
        let rate = usage.rate(ms(5_000));
        assert!((985_000..1_005_000).contains(&rate), "{rate}");
        assert!(usage.rate(ms(8_000)) < rate / 10);
    }

    #[test]
    fn a_class_that_waits_wants_more_and_one_that_does_not_wants_a_little_more() {
        let mut usage = Usage::at(Duration::ZERO);
        usage.moved(1_000.0, ms(1));
        assert_eq!(usage.demand(false, 10, ms(1)), 1_250);
        assert_eq!(usage.demand(true, 10, ms(1)), 2_000);
        assert_eq!(usage.demand(true, 5_000, ms(1)), 5_000);
        usage.waited(ms(1));
        assert_eq!(usage.demand(false, 10, ms(2)), 1_998);
        let rested = usage.demand(false, 10, ms(1_002));
        assert!(rested < 500, "{rested}");
    }

    #[test]
    fn a_reservation_is_a_part_of_what_plans_want() {
        let demand = |planned| Demand::new([1, planned, 3, 4], 100);
        assert_eq!(demand(150), Demand([100, 1, 50, 3, 4]));
        assert_eq!(demand(30), Demand([30, 1, 0, 3, 4]));
    }

    #[test]
    fn growth_counts_from_a_tenth_on() {
        let (before, least) = (Demand([0, 1_000, 0, 0, 0]), 50);
        let now = |client, prefetch| Demand([0, client, 0, prefetch, 0]).exceeds(&before, least);
        assert!(!now(1_100, 0) && !now(10, 50) && !now(1_150, 0));
        assert!(now(1_151, 0) && now(1_000, 51));
        assert!(!Demand([u64::MAX; 5]).exceeds(&Demand([u64::MAX; 5]), least));
    }
}
