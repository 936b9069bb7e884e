//! Simulated time: whole nanoseconds since the start of a run or of a trace.

use std::ops::{Add, Sub};
use std::time::Duration;

const NANOS_PER_SECOND: f64 = 1e9;

/// A point in time, in nanoseconds since the start. The maximum is 584 years after the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// The start.
    pub const ZERO: Self = Self(0);

    /// A time that is never reached.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time `seconds` after the start, rounded up so that nothing ends early. Saturates: a negative time
    /// is the start, and one that is too large is [`Time::NEVER`].
    pub fn from_secs_f64(seconds: f64) -> Self {
        // A conversion of a float saturates at both ends.
        #[expect(clippy::cast_sign_loss, reason = "negative times are the start")]
        Self((seconds * NANOS_PER_SECOND).ceil() as u64)
    }

    /// Seconds since the start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS_PER_SECOND
    }

    /// Time since the start, in the form that policies take.
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub for Time {
    type Output = Duration;

    /// The time since `earlier`; zero if `earlier` is not earlier.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Time;

    #[test]
    fn a_moment_is_never_early_and_never_wraps() {
        assert_eq!(Time::from_secs_f64(1.5), Time(1_500_000_000));
        assert_eq!(Time::from_secs_f64(1e-10), Time(1));
        assert_eq!(Time::from_secs_f64(-1.0), Time::ZERO);
        assert_eq!(Time::from_secs_f64(f64::INFINITY), Time::NEVER);
        assert_eq!(Time(5) + Duration::MAX, Time::NEVER);
        assert_eq!(Time(5) - Time(7), Duration::ZERO);
    }
}
