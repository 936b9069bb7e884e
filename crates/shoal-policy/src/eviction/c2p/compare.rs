//! Decides which of two blocks of equally present objects is worth less.

use std::cmp::Ordering;
use std::time::Duration;

/// How to read C2P's Algorithm 1, the *LRU comparator*. It compares by time or by number of uses, depending
/// on how far apart two uses lie. Text and listing agree but look inverted: the algorithm compares by time
/// where times hardly differ. With a short affinity it is LFU with decay as printed, and LRU inverted; with a
/// long affinity it is the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// As printed: by time when the uses are close to each other, by number when they are far apart.
    Printed,
    /// By number when they are close, by time when they are far apart.
    Inverted,
}

/// The local metadata of a block: when it was last used, and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uses {
    /// The time of the last use.
    pub at: Duration,
    /// The number of uses, decayed as of the last one.
    pub number: f32,
}

/// The number of uses of an unused block decays once per period.
const DECAY_PERIOD_SECS: u64 = 60;

/// The fraction of the number of uses that remains after each number of periods without a use; 0 beyond the
/// table.
const DECAY: [f32; 64] = {
    let mut left = [1.0; 64];
    let mut periods = 1;
    while periods < left.len() {
        left[periods] = left[periods - 1] * 0.8;
        periods += 1;
    }
    left
};

impl Uses {
    /// The first use.
    pub const fn first(now: Duration) -> Self {
        Self { at: now, number: 1.0 }
    }

    /// One more use.
    #[must_use]
    pub fn again(self, now: Duration) -> Self {
        Self {
            at: now,
            number: self.number_at(now) + 1.0,
        }
    }

    /// The number of uses at `now`, which decays by a factor of 0.8 per minute without a use (C2P 3.3,
    /// *Hitcount Decay*).
    pub fn number_at(self, now: Duration) -> f32 {
        let periods = now.saturating_sub(self.at).as_secs() / DECAY_PERIOD_SECS;
        let left = usize::try_from(periods)
            .ok()
            .and_then(|periods| DECAY.get(periods));
        self.number * left.unwrap_or(&0.0)
    }
}

/// C2P's Algorithm 1: the lesser leaves first. Uses that lie less than `affinity` apart are close.
///
/// This is not a total order: it is not transitive, and three blocks may form a cycle. A caller that looks
/// for the least iterates over the candidates in a fixed, documented order and keeps the lesser.
pub fn compare(a: Uses, b: Uses, affinity: Duration, reading: Reading, now: Duration) -> Ordering {
    let by_time = a.at.cmp(&b.at);
    let by_number = a.number_at(now).total_cmp(&b.number_at(now));
    let are_close = a.at.abs_diff(b.at) < affinity;
    match (reading, are_close) {
        (Reading::Printed, true) => by_time.then(by_number),
        (Reading::Printed, false) => by_number,
        (Reading::Inverted, true) => by_number.then(by_time),
        (Reading::Inverted, false) => by_time,
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering::{Equal, Greater, Less};
    use std::time::Duration;

    use super::{Reading, Uses, compare};

    fn uses(at: u64, number: f32) -> Uses {
        Uses {
            at: Duration::from_secs(at),
            number,
        }
    }

    #[test]
    fn the_two_readings_disagree_where_time_and_number_do() {
        let affinity = Duration::from_secs(10);
        let now = Duration::from_secs(59);
        for (a, b, printed, inverted) in [
            (uses(5, 9.0), uses(8, 1.0), Less, Greater),
            (uses(5, 9.0), uses(15, 1.0), Greater, Less),
            (uses(5, 1.0), uses(15, 1.0), Equal, Less),
            (uses(5, 1.0), uses(5, 2.0), Less, Less),
            (uses(5, 1.0), uses(5, 1.0), Equal, Equal),
        ] {
            for (reading, expected) in [(Reading::Printed, printed), (Reading::Inverted, inverted)] {
                assert_eq!(
                    compare(a, b, affinity, reading, now),
                    expected,
                    "{a:?} {b:?} {reading:?}"
                );
                assert_eq!(compare(b, a, affinity, reading, now), expected.reverse());
            }
        }
    }

    #[test]
    fn uses_decay_by_a_fifth_a_minute() {
        let twice = uses(0, 1.0).again(Duration::from_secs(59));
        assert_eq!(twice, uses(59, 2.0));
        for (now, left) in [(118, 2.0), (119, 1.6), (179, 1.28), (1 << 40, 0.0)] {
            assert!((twice.number_at(Duration::from_secs(now)) - left).abs() < 1e-6);
        }
        assert!((twice.again(Duration::from_secs(119)).number - 2.6).abs() < 1e-6);
    }
}
