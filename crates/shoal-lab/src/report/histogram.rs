//! Durations in buckets: their number, and percentiles to within a sixty-fourth.

use std::time::Duration;

use serde::Serialize;

/// The number of buckets per power of two.
const STEPS: u64 = 64;

/// Durations, counted in buckets whose width is at most 1/64 of their values. Memory is bounded: 30 KiB.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum_nanos: u128,
    max_nanos: u64,
}

/// The distribution of durations, in seconds. All zero if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// The number of durations.
    pub count: u64,
    /// Exact.
    pub mean: f64,
    /// Half are not longer.
    pub p50: f64,
    /// Nine tenths are not longer.
    pub p90: f64,
    /// All but a hundredth are not longer.
    pub p99: f64,
    /// Exact.
    pub max: f64,
}

impl Histogram {
    /// Counts a duration.
    pub fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bucket(nanos);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum_nanos += u128::from(nanos);
        self.max_nanos = self.max_nanos.max(nanos);
    }

    /// The distribution.
    pub fn percentiles(&self) -> Percentiles {
        if self.count == 0 {
            return Percentiles::default();
        }
        Percentiles {
            count: self.count,
            mean: self.sum_nanos as f64 / self.count as f64 * 1e-9,
            p50: self.percentile(50),
            p90: self.percentile(90),
            p99: self.percentile(99),
            max: self.max_nanos as f64 * 1e-9,
        }
    }

    /// The end of the bucket that contains the percentile, but at most the longest duration.
    fn percentile(&self, percent: u64) -> f64 {
        let rank = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        let holds = |count: &u64| {
            seen += count;
            seen >= rank
        };
        let bucket = self
            .buckets
            .iter()
            .position(holds)
            .expect("the last bucket reaches every rank");
        end(bucket as u64).min(self.max_nanos) as f64 * 1e-9
    }
}

fn bucket(nanos: u64) -> usize {
    let power = u64::from(nanos.max(1).ilog2());
    let shift = power.saturating_sub(u64::from(STEPS.ilog2()));
    (shift * STEPS + (nanos >> shift)) as usize
}

/// The largest duration in a bucket.
const fn end(bucket: u64) -> u64 {
    if bucket < 2 * STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    let step = bucket - shift * STEPS;
    (((step as u128 + 1) << shift) - 1) as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Histogram, bucket, end};

    #[test]
    fn every_duration_is_in_a_bucket_that_ends_little_later() {
        let samples =
            (0..64).flat_map(|power| [0, 1, 12345].map(|more| (1_u64 << power).saturating_add(more)));
        for nanos in samples.chain([0, u64::MAX]) {
            let end = end(bucket(nanos) as u64);
            assert!(end >= nanos && end - nanos <= nanos / 64, "{nanos} ends at {end}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_durations() {
        let mut histogram = Histogram::default();
        (1..=1000)
            .rev()
            .for_each(|millis| histogram.record(Duration::from_millis(millis)));
        let told = histogram.percentiles();
        assert_eq!((told.count, told.max), (1000, 1.0));
        assert!((told.mean - 0.5005).abs() < 1e-12);
        for (told, exact) in [(told.p50, 0.5), (told.p90, 0.9), (told.p99, 0.99)] {
            assert!(
                told >= exact && told <= exact * (1.0 + 1.0 / 64.0),
                "{told} for {exact}"
            );
        }
    }
}
