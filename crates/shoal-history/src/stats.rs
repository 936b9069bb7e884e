//! Robust statistics: quantiles, which are insensitive to outliers.

use serde::{Deserialize, Serialize};

/// Typical value and range of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// 10th percentile.
    pub low: u64,
    /// Expected value.
    pub typical: u64,
    /// 90th percentile.
    pub high: u64,
}

/// Number of most recent values that determine the expected value. Sizes grow, so older ones mislead.
const TYPICAL_OF: usize = 7;

/// Number of most recent values that determine the range.
const RANGE_OF: usize = 30;

impl Spread {
    /// Computes the spread of values in chronological order; `None` without values.
    pub fn from_values(values: &[u64]) -> Option<Self> {
        let recent = |count: usize| {
            let mut recent = values[values.len().saturating_sub(count)..].to_vec();
            recent.sort_unstable();
            recent
        };
        let typical = quantile(&recent(TYPICAL_OF), 0.5)?;
        let range = recent(RANGE_OF);
        Some(Self {
            low: quantile(&range, 0.1)?.min(typical),
            typical,
            high: quantile(&range, 0.9)?.max(typical),
        })
    }

    /// Returns the spread of a sum of this many equal values.
    pub(crate) fn times(self, count: u64) -> Self {
        Self {
            low: self.low.saturating_mul(count),
            typical: self.typical.saturating_mul(count),
            high: self.high.saturating_mul(count),
        }
    }
}

/// Returns the quantile `share` of sorted values; `None` without values.
pub(crate) fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let last = sorted.len().checked_sub(1)?;
    #[expect(clippy::cast_sign_loss, reason = "a share of a length is not negative")]
    let at = (last as f64 * share).round() as usize;
    sorted.get(at.min(last)).copied()
}

/// Returns the sum of values; the greatest number if it is greater.
pub(crate) fn sum(values: impl Iterator<Item = u64>) -> u64 {
    values.fold(0, u64::saturating_add)
}

/// Sorts values.
pub(crate) fn sorted(values: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut values: Vec<i64> = values.collect();
    values.sort_unstable();
    values
}

/// Returns the median of unsorted values; `None` without values.
pub(crate) fn median(values: impl Iterator<Item = i64>) -> Option<i64> {
    quantile(&sorted(values), 0.5)
}

#[cfg(test)]
mod tests {
    use super::{Spread, median, quantile};

    #[test]
    fn quantiles_are_values_that_were_there() {
        assert_eq!(quantile(&[1, 2, 3, 4, 5], 0.5), Some(3));
        assert_eq!(quantile(&[1, 2, 3, 4, 5], 0.9), Some(5));
        assert_eq!(quantile::<i64>(&[], 0.5), None);
        assert_eq!(median([9, 1, 5].into_iter()), Some(5));
    }

    #[test]
    fn the_expected_size_follows_growth_and_ignores_an_outlier() {
        let mut sizes: Vec<u64> = (0..40).map(|day| 1_000 + day * 10).collect();
        sizes[38] = 1_000_000;
        let spread = Spread::from_values(&sizes).unwrap();
        assert!((1_350..1_400).contains(&spread.typical), "{spread:?}");
        assert!(spread.low < spread.typical && spread.high < 1_400, "{spread:?}");
        assert_eq!(Spread::from_values(&[]), None);
    }
}
