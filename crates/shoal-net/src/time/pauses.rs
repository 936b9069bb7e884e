//! Pauses between attempts.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

/// Returns the ticks of work that is done every `period`. After late work, the next pause is a whole one.
pub fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Exponential back-off: each pause is twice as long as the previous one, up to a limit.
#[derive(Debug)]
pub struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    /// Creates pauses that start with `first`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// Sleeps for the next pause.
    pub async fn wait(&mut self) {
        tokio::time::sleep(self.advance()).await;
    }

    fn advance(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Pauses};

    #[test]
    fn each_pause_is_twice_as_long_as_the_one_before_up_to_the_longest() {
        let mut pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(5));
        for seconds in [1, 2, 4, 5, 5] {
            assert_eq!(pauses.advance(), Duration::from_secs(seconds));
        }
    }
}
