//! A histogram that requests on all cores write to without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds in microseconds: from a hit of a small object to a large object over a narrow link.
const BOUNDS_US: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// How long things took.
#[derive(Clone, Debug, Default)]
pub(super) struct Durations(Arc<Cells>);

#[derive(Debug, Default)]
struct Cells {
    /// One a bound, and one for what is longer than all.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    /// Microseconds; a node that sums up for 500,000 years overflows.
    sum_us: AtomicU64,
}

impl Durations {
    /// Records one duration: two additions and a search among the bounds.
    pub(super) fn observe(&self, duration: Duration) {
        let us = duration.as_micros() as u64;
        let index = BOUNDS_US.partition_point(|&bound| bound < us);
        self.0.counts[index].fetch_add(1, Ordering::Relaxed);
        self.0.sum_us.fetch_add(us, Ordering::Relaxed);
    }
}

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts: Vec<u64> = self
            .0
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect();
        let bounds_s = BOUNDS_US.iter().map(|&us| us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds_s.zip(counts.iter().copied()).collect();
        let sum_s = self.0.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum_s, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Durations {
    const TYPE: MetricType = MetricType::Histogram;
}
