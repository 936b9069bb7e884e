//! Bounds the bytes in flight of transfers for which no client waits.
//!
//! Such bytes cannot be recalled, and a client's bytes queue behind them. But a store takes some time to
//! answer, during which the link would be idle if nothing else was in flight. So about as many bytes are
//! permitted as the link carries in that time.

use std::time::Duration;

use super::whole;

/// The response time is the shortest one seen within the last one to two periods of this length.
const FLOOR_WINDOW: Duration = Duration::from_secs(10);

/// Extra time for which the link is kept busy beyond the response time, because timers and tasks are late.
const SLACK: Duration = Duration::from_micros(500);

/// The response time assumed until the first answer.
const AT_FIRST: Duration = Duration::from_millis(2);

/// The shortest recent time from a request to its answer. Longer times include queueing.
#[derive(Clone, Copy, Debug)]
pub struct AnswerTime {
    /// The minima of the present and of the previous period.
    floors: [Option<Duration>; 2],
    began: Duration,
}

impl AnswerTime {
    /// Starts at `now`, without an answer so far.
    pub const fn new(now: Duration) -> Self {
        Self {
            floors: [None; 2],
            began: now,
        }
    }

    /// Records an answer at `now` that took `took`.
    pub fn answered(&mut self, took: Duration, now: Duration) {
        if now.saturating_sub(self.began) >= FLOOR_WINDOW {
            self.floors = [None, self.floors[0]];
            self.began = now;
        }
        let present = &mut self.floors[0];
        *present = Some(present.map_or(took, |floor| floor.min(took)));
    }

    /// The shortest recent response time.
    pub fn floor(&self) -> Duration {
        self.floors.into_iter().flatten().min().unwrap_or(AT_FIRST)
    }
}

/// Computes the limit of bytes in flight per class below which another transfer may begin, for a link of
/// `bandwidth` bytes per second and a store with a response time of up to 1.5 times `answer_time`.
pub fn ahead_bytes(bandwidth: u64, answer_time: Duration) -> u64 {
    let time = answer_time.saturating_add(answer_time / 2).saturating_add(SLACK);
    whole(bandwidth as f64 * time.as_secs_f64()).max(1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{AT_FIRST, AnswerTime, ahead_bytes};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn queues_do_not_count_as_the_time_of_an_answer() {
        let mut times = AnswerTime::new(ms(0));
        assert_eq!(times.floor(), AT_FIRST);
        times.answered(ms(5), ms(10));
        times.answered(ms(80), ms(20));
        assert_eq!(times.floor(), ms(5));
    }

    #[test]
    fn a_store_that_became_slower_is_known_after_a_while() {
        let mut times = AnswerTime::new(ms(0));
        times.answered(ms(5), ms(10));
        for second in 1..=30 {
            times.answered(ms(50), ms(second * 1_000));
        }
        assert_eq!(times.floor(), ms(50));
    }

    #[test]
    fn what_is_on_its_way_fills_the_link_while_the_store_is_asked() {
        let gbit = 125_000_000;
        assert_eq!(ahead_bytes(gbit, ms(10)), gbit * 155 / 10_000);
        assert!(ahead_bytes(1, ms(0)) > 0, "a transfer may begin on any link");
    }
}
