//! A lock-free histogram that requests on all cores update.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

/// Upper bounds in microseconds: from a hit of a small object to a large object over a narrow link.
const BOUNDS_US: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    /// One per bound, and one for longer durations.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    /// In microseconds; overflows after 500,000 years.
    sum_us: AtomicU64,
}

impl DurationHistogram {
    /// Records one duration: two additions and a binary search.
    pub fn observe(&self, duration: Duration) {
        let us = duration.as_micros() as u64;
        let index = BOUNDS_US.partition_point(|&bound| bound < us);
        self.counts[index].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Returns a snapshot of the recorded durations.
    pub fn distribution(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            counts: self.counts.each_ref().map(|count| count.load(Ordering::Relaxed)),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

/// A snapshot of a histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    counts: [u64; BOUNDS_US.len() + 1],
    sum_us: u64,
}

impl HistogramSnapshot {
    /// Returns the number of recorded durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the upper bound of the bucket that contains this percentile, or `None` if there are no
    /// durations. A duration beyond all bounds is reported as the last bound.
    pub fn percentile(&self, percent: u64) -> Option<Duration> {
        let rank = (self.count() * percent).div_ceil(100);
        let mut below = 0;
        let index = self.counts.iter().position(|count| {
            below += count;
            below >= rank && below > 0
        })?;
        Some(Duration::from_micros(BOUNDS_US[index.min(BOUNDS_US.len() - 1)]))
    }

    /// Writes the durations in seconds.
    pub(super) fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let bounds_s = BOUNDS_US.iter().map(|&us| us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds_s.zip(self.counts).collect();
        encoder.encode_histogram::<NoLabelSet>(self.sum_us as f64 / 1e6, self.count(), &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DurationHistogram, HistogramSnapshot};

    fn recorded(times_ms: &[u64]) -> DurationHistogram {
        let durations = DurationHistogram::default();
        for ms in times_ms {
            durations.observe(Duration::from_millis(*ms));
        }
        durations
    }

    #[test]
    fn a_percentile_is_the_bound_above_so_many_of_the_durations() {
        let times: Vec<u64> = [2; 98].into_iter().chain([400, 90_000]).collect();
        let seen = recorded(&times).distribution();
        assert_eq!(seen.percentile(50), Some(Duration::from_micros(2_500)));
        assert_eq!(seen.percentile(99), Some(Duration::from_millis(500)));
        assert_eq!(seen.percentile(100), Some(Duration::from_mins(1)));
        assert_eq!(HistogramSnapshot::default().percentile(50), None);
    }
}
