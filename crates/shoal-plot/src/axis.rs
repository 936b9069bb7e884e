//! An axis from 0 with round numbers on it.

/// An axis from 0 to a little more than the greatest value.
pub(super) struct Axis {
    end: f64,
    step: f64,
}

impl Axis {
    /// Returns an axis for `values`, whose end is a whole number of round steps.
    pub(super) fn to_rounded(values: impl Iterator<Item = f64>) -> Self {
        let greatest = greatest(values);
        let step = step(greatest);
        Self {
            end: (greatest / step).ceil() * step,
            step,
        }
    }

    /// Returns an axis that ends with the greatest of `values`.
    pub(super) fn to_greatest(values: impl Iterator<Item = f64>) -> Self {
        let end = greatest(values);
        Self { end, step: step(end) }
    }

    /// Returns the position of `value` on an axis drawn from `start` to `end`.
    pub(super) fn place(&self, value: f64, start: f64, end: f64) -> f64 {
        start + value / self.end * (end - start)
    }

    /// Returns round values and their labels.
    pub(super) fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        #[expect(clippy::cast_sign_loss, reason = "an axis has no negative digits")]
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        (0..)
            .map(|number| f64::from(number) * self.step)
            .take_while(|value| *value <= self.end * (1.0 + 1e-9))
            .map(move |value| (value, format!("{value:.digits$}")))
    }
}

/// Returns the greatest of values; 1 if none is positive.
fn greatest(values: impl Iterator<Item = f64>) -> f64 {
    let greatest = values.fold(0.0, f64::max);
    if greatest > 0.0 { greatest } else { 1.0 }
}

/// Returns 1, 2 or 5 times a power of ten, of which four to ten reach the greatest value.
fn step(greatest: f64) -> f64 {
    let power = 10_f64.powf((greatest / 10.0).log10().ceil());
    [0.1, 0.2, 0.5, 1.0]
        .map(|part| part * power)
        .into_iter()
        .find(|width| greatest / width <= 10.0)
        .unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::Axis;

    #[test]
    fn ticks_are_round_and_reach_the_greatest_value() {
        for (greatest, last) in [(9.3, "10"), (100.0, "100"), (0.031, "0.035"), (0.0, "1.0")] {
            let axis = Axis::to_rounded([greatest].into_iter());
            let ticks: Vec<_> = axis.ticks().map(|(_, text)| text).collect();
            assert!((4..=11).contains(&ticks.len()), "{greatest}: {ticks:?}");
            assert_eq!(ticks.last().unwrap(), last, "{ticks:?}");
        }
    }
}
