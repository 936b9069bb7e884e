//! The weight of a block: an unbounded number.

use std::ops::{Add, Sub};

/// A sum of ages. Exact below 2⁶⁴; beyond, the 64 highest bits of it.
///
/// GWF adds the age at each use and makes the weight of a victim the age, so weights grow geometrically. If
/// each block is used twice while cached, the age doubles with every turnover of the cache: 64 turnovers
/// exhaust an integer, about a thousand a double-precision number. (In five million accesses of a storage
/// trace, with room for a hundredth of its blocks, the age reached 2¹⁴².) Only proportions matter to the
/// policy, and this type keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight {
    /// Nonzero only if the highest bit of `mantissa` is set, so that the derived order is the numeric one.
    exponent: u32,
    mantissa: u64,
}

impl Weight {
    /// The weight of a block that is worth nothing.
    pub const ZERO: Self = Self {
        exponent: 0,
        mantissa: 0,
    };

    /// The weight as an integer; the greatest integer if it is beyond 64 bits.
    #[must_use]
    pub const fn to_u64_saturating(self) -> u64 {
        if self.exponent == 0 {
            self.mantissa
        } else {
            u64::MAX
        }
    }

    /// Divides the total weight of `number` blocks by their number; zero if there are none.
    ///
    /// Rounded down: an integer is greater than the average if and only if it is greater than this.
    #[must_use]
    pub fn average(self, number: usize) -> Self {
        let mantissa = self.mantissa.checked_div(number as u64).unwrap_or(0);
        Self { mantissa, ..self }.normal()
    }

    fn normal(self) -> Self {
        if self.mantissa == 0 {
            return Self::ZERO;
        }
        let shift = self.exponent.min(self.mantissa.leading_zeros());
        Self {
            exponent: self.exponent - shift,
            mantissa: self.mantissa << shift,
        }
    }

    /// The mantissa in units of another, greater or equal weight.
    fn mantissa_for(self, greater: Self) -> u64 {
        self.mantissa
            .checked_shr(greater.exponent - self.exponent)
            .unwrap_or(0)
    }
}

impl From<u64> for Weight {
    fn from(mantissa: u64) -> Self {
        Self {
            exponent: 0,
            mantissa,
        }
    }
}

impl Add for Weight {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (less, greater) = (self.min(other), self.max(other));
        let (mantissa, carries) = greater.mantissa.overflowing_add(less.mantissa_for(greater));
        if carries {
            Self {
                exponent: greater.exponent + 1,
                mantissa: mantissa >> 1 | 1 << 63,
            }
        } else {
            Self { mantissa, ..greater }
        }
    }
}

impl Sub for Weight {
    type Output = Self;

    /// Zero when `other` is greater, which rounding can cause when the numbers are equal.
    fn sub(self, other: Self) -> Self {
        if self <= other {
            return Self::ZERO;
        }
        let mantissa = self.mantissa - other.mantissa_for(self);
        Self { mantissa, ..self }.normal()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, proptest};

    use super::Weight;

    fn doubled(mut weight: Weight, times: u32) -> Weight {
        for _ in 0..times {
            weight = weight + weight;
        }
        weight
    }

    #[test]
    fn doubling_never_ends() {
        let (small, great) = (doubled(Weight::from(3), 5_000), doubled(Weight::from(5), 5_000));
        assert!(small < great);
        assert_eq!(great - small, doubled(Weight::from(2), 5_000));
        assert_eq!((small + great).average(2), doubled(Weight::from(4), 5_000));
        assert_eq!(great + Weight::from(1), great, "one is nothing beside it");
    }

    #[test]
    fn nothing_on_average_is_nothing() {
        assert_eq!(Weight::from(7).average(0), Weight::ZERO);
        assert_eq!(
            (doubled(Weight::from(1), 70) - doubled(Weight::from(1), 70)),
            Weight::ZERO
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn integers_stay_exact(a in 0..=u64::MAX / 2, b in 0..=u64::MAX / 2, n in 1..100usize) {
            let [weight_a, weight_b] = [a, b].map(Weight::from);
            assert_eq!(weight_a + weight_b, Weight::from(a + b));
            assert_eq!(weight_a - weight_b, Weight::from(a.saturating_sub(b)));
            assert_eq!(weight_a.cmp(&weight_b), a.cmp(&b));
            assert_eq!(weight_a.average(n), Weight::from(a / n as u64));
        }

        #[test]
        fn great_numbers_keep_their_order_and_sum(
            a in any::<u64>(), b in any::<u64>(), times_a in 0..60u32, times_b in 0..60u32
        ) {
            let exact = [u128::from(a) << times_a, u128::from(b) << times_b];
            let [weight_a, weight_b] = [doubled(Weight::from(a), times_a), doubled(Weight::from(b), times_b)];
            assert_eq!(weight_a.cmp(&weight_b), exact[0].cmp(&exact[1]));
            let sum = weight_a + weight_b;
            let sum_exact = exact[0] + exact[1];
            let dropped_bits = (128 - sum_exact.leading_zeros()).saturating_sub(64);
            let error = (u128::from(sum.mantissa) << sum.exponent).abs_diff(sum_exact);
            assert!(error < 2 << dropped_bits, "at most the two last bits are lost");
        }
    }
}
