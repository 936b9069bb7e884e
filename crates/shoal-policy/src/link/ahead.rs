//! How many bytes may be on their way to transfers that no client waits for.
//!
//! Such bytes cannot be called back: a client's bytes queue behind them. But a store answers some time after
//! it is asked, and in that time the link would rest if nothing else was on its way. So enough for that time
//! is permitted, and not much more.

use std::time::Duration;

use super::whole;

/// The time of an answer is the shortest that was seen within this time, or twice it.
const FLOOR_LASTS: Duration = Duration::from_secs(10);

/// The link has work for so long beyond the time of an answer: timers and tasks are late.
const SLACK: Duration = Duration::from_micros(500);

/// While no answer was seen, it is taken to need this time.
const AT_FIRST: Duration = Duration::from_millis(2);

/// The shortest time from a request to its answer, of late. Longer times are those of queues.
#[derive(Clone, Copy, Debug)]
pub struct AnswerTime {
    /// Of the present period, and of the one before.
    floors: [Option<Duration>; 2],
    began: Duration,
}

impl AnswerTime {
    /// No answer was seen at `now`.
    pub const fn new(now: Duration) -> Self {
        Self {
            floors: [None; 2],
            began: now,
        }
    }

    /// Notes an answer that came at `now`, and `took` so long.
    pub fn answered(&mut self, took: Duration, now: Duration) {
        if now.saturating_sub(self.began) >= FLOOR_LASTS {
            self.floors = [None, self.floors[0]];
            self.began = now;
        }
        let present = &mut self.floors[0];
        *present = Some(present.map_or(took, |floor| floor.min(took)));
    }

    /// The shortest time of late.
    pub fn floor(&self) -> Duration {
        self.floors.into_iter().flatten().min().unwrap_or(AT_FIRST)
    }
}

/// A transfer begins if fewer bytes of its class than this are on their way over a link of `bandwidth` to a
/// store that takes `answer_time`, or half as long again.
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
