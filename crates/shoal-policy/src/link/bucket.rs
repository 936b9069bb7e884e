//! A token bucket: a rate and a burst. Time is an argument.

use std::time::Duration;

use super::whole;

/// Tokens for bytes. They accumulate at a rate up to a burst, and transfers consume them.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Bytes per second.
    rate: f64,
    /// The maximum number of tokens.
    burst: f64,
    /// The number of tokens at `at`; negative after a transfer took more than there were.
    level: f64,
    /// The time of `level`.
    at: Duration,
}

impl Bucket {
    /// Creates a bucket that is full at `now`.
    pub fn new(rate: u64, burst: u64, now: Duration) -> Self {
        Self {
            rate: rate as f64,
            burst: burst as f64,
            level: burst as f64,
            at: now,
        }
    }

    /// Changes the rate and the burst from `now` on.
    pub fn set(&mut self, rate: u64, burst: u64, now: Duration) {
        self.refill(now);
        (self.rate, self.burst) = (rate as f64, burst as f64);
        self.level = self.level.min(self.burst);
    }

    /// Bytes per second.
    pub fn rate(&self) -> u64 {
        whole(self.rate)
    }

    /// Adds the tokens accumulated until `now`. A `now` in the past adds none.
    pub fn refill(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.at);
        self.level = (self.level + self.rate * elapsed.as_secs_f64()).min(self.burst);
        self.at = self.at.max(now);
    }

    /// Returns true if there were more than `least` tokens at the last refill.
    pub(super) fn exceeds(&self, least: u64) -> bool {
        // The margin keeps rounding errors from counting as a token.
        self.level > least as f64 + 1e-3
    }

    /// Takes tokens, going into debt if there are too few.
    pub(super) fn take(&mut self, bytes: u64) {
        self.level -= bytes as f64;
    }

    /// Takes tokens if there are as many. Returns true if there were.
    pub fn take_if_enough(&mut self, bytes: u64) -> bool {
        let is_enough = self.level >= bytes as f64;
        if is_enough {
            self.take(bytes);
        }
        is_enough
    }

    /// Takes up to `bytes` tokens, without going into debt.
    pub(super) fn take_at_most(&mut self, bytes: u64) {
        self.level = (self.level - bytes as f64).max(self.level.min(0.0));
    }

    /// Returns tokens that were taken but not used.
    pub fn give_back(&mut self, bytes: u64) {
        self.level = (self.level + bytes as f64).min(self.burst);
    }

    /// The time at which the bucket will have more than `least` tokens; `None` if it never will.
    pub(super) fn exceeds_at(&self, least: u64) -> Option<Duration> {
        if self.exceeds(least) {
            return Some(self.at);
        }
        let enough = least as f64 + 1.0;
        let wait = Duration::try_from_secs_f64((enough - self.level) / self.rate).ok()?;
        // Rounded up, so that the bucket really has the tokens at that time.
        (enough <= self.burst).then_some(self.at + wait + Duration::from_nanos(1))
    }

    /// Takes tokens at `now` and returns the time that the transfer has to wait until the debt is paid.
    /// Transfers that share the bucket queue behind each other.
    pub fn take_and_wait(&mut self, bytes: u64, now: Duration) -> Duration {
        self.refill(now);
        self.take(bytes);
        let wait = Duration::try_from_secs_f64(-self.level.min(0.0) / self.rate);
        wait.unwrap_or(Duration::MAX)
    }

    /// Takes tokens at `now` if there are any, possibly going into debt. Returns true if it took them.
    pub fn take_if_any(&mut self, bytes: u64, now: Duration) -> bool {
        self.refill(now);
        let has_any = self.exceeds(0);
        if has_any {
            self.take(bytes);
        }
        has_any
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::Bucket;

    const START: Duration = Duration::ZERO;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_is_taken_only_if_it_is_there_is_no_more_than_the_rate() {
        let mut bucket = Bucket::new(1_000, 500, START);
        let taken = (0..10_000)
            .filter(|step| bucket.take_if_any(100, ms(*step)))
            .count();
        assert!((105..=106).contains(&taken), "{taken}");
    }

    #[test]
    fn tokens_come_at_the_rate_and_stay_below_the_burst() {
        let mut bucket = Bucket::new(1_000, 500, START);
        bucket.take(500);
        assert!(!bucket.exceeds(0));
        bucket.refill(ms(100));
        assert!(bucket.exceeds(99) && !bucket.exceeds(101));
        bucket.refill(ms(60_000));
        assert!(bucket.exceeds(499) && !bucket.exceeds(500));
        bucket.refill(ms(100));
        assert!(bucket.exceeds(499), "time that runs backwards takes nothing");
    }

    #[test]
    fn a_bucket_says_when_it_will_have_enough() {
        let mut bucket = Bucket::new(1_000, 500, START);
        bucket.take(700);
        let at = bucket.exceeds_at(0).unwrap();
        assert!((ms(200)..ms(202)).contains(&at), "{at:?}");
        bucket.refill(at);
        assert!(bucket.exceeds(0));
        assert_eq!(bucket.exceeds_at(500), None, "more than ever fits");
        let closed = Bucket::new(0, 1, START);
        assert_eq!(closed.exceeds_at(1), None);
    }

    #[test]
    fn what_is_taken_as_far_as_it_is_there_leaves_no_debt_and_pays_none() {
        let mut bucket = Bucket::new(1_000, 500, START);
        bucket.take_at_most(900);
        assert!(bucket.exceeds_at(0).is_some_and(|at| at < ms(2)));
        bucket.take(100);
        bucket.take_at_most(50);
        let at = bucket.exceeds_at(0).unwrap();
        assert!((ms(100)..ms(102)).contains(&at), "{at:?}");
    }

    #[test]
    fn tokens_that_are_given_back_do_not_overflow() {
        let mut bucket = Bucket::new(1_000, 500, START);
        bucket.take(100);
        bucket.give_back(300);
        assert!(bucket.exceeds(499) && !bucket.exceeds(500));
    }

    proptest! {
        /// Transfers that wait as required get no more than the rate and one burst, in any time.
        #[test]
        fn transfers_that_wait_their_time_keep_the_rate(
            asks in prop::collection::vec((1_u64..5_000, 0_u64..50), 1..200),
        ) {
            let (rate, burst) = (100_000, 10_000);
            let mut bucket = Bucket::new(rate, burst, START);
            let mut now = START;
            let mut sent = Vec::new();
            for (bytes, pause_ms) in asks {
                now += ms(pause_ms);
                let at = now + bucket.take_and_wait(bytes, now);
                sent.push((at, bytes));
            }
            for (first, (from, _)) in sent.iter().enumerate() {
                let mut sum = 0;
                for (until, bytes) in &sent[first..] {
                    sum += bytes;
                    let most = until.saturating_sub(*from).as_secs_f64() * rate as f64 + burst as f64 + 5_000.0;
                    prop_assert!(sum as f64 <= most + 1.0, "{sum} > {most}");
                }
            }
        }
    }
}
