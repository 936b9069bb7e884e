//! Limits concurrent requests to a store to the fewest that keep it busy.
//!
//! A store with spare capacity answers twice as many requests per second when it gets twice as many at a
//! time. A saturated store answers as many as before, each in twice the time: the additional requests queue
//! at the store, where there is no fair queueing. So while requests wait here, the limit probes half and
//! double its present value from time to time, and moves there if the rate of answers justifies it. No
//! latency has to be known or compared.

use std::time::Duration;

/// A measuring window ends after this many answers and this many rounds of the limit, or after
/// [`WINDOW_TIME`], whichever comes first.
const WINDOW_ANSWERS: usize = 150;
const WINDOW_ROUNDS: usize = 4;
const WINDOW_TIME: Duration = Duration::from_secs(1);
/// A window with fewer answers than this is ignored.
const ANSWERS_MIN: usize = 20;

/// Half the limit is enough if it yields this fraction of the rate.
const HALF_RATE_MIN: f64 = 0.9;
/// Double the limit is worth it if it yields this multiple of the rate.
const DOUBLE_GAIN_MIN: f64 = 1.2;

/// The pause between two probes in the same direction; doubled after each probe that did not pay off.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The minimum limit, so that one request may be in transit while another is answered.
const LIMIT_MIN: usize = 2;

/// A limit that follows the capacity of the store.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    present: usize,
    max: usize,
    phase: Phase,
    /// Answers per second at the present limit, as last measured.
    rate: f64,
    /// The best recent rate, so that repeated steps down do not add up to a loss.
    best: f64,
    down: Probe,
    up: Probe,
    window: Option<Window>,
    /// Answers still due to requests sent under the previous limit.
    settling: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Present,
    Half,
    Double,
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    not_before: Option<Duration>,
    pause: Duration,
}

impl Probe {
    const READY: Self = Self {
        not_before: None,
        pause: PAUSE_MIN,
    };

    fn is_due(&self, now: Duration) -> bool {
        self.not_before.is_none_or(|then| now >= then)
    }

    fn failed(&mut self, now: Duration) {
        self.not_before = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

#[derive(Clone, Copy, Debug)]
struct Window {
    began: Duration,
    answers: usize,
}

impl ConcurrencyLimit {
    /// Creates a limit that begins at `start` and never exceeds `max`.
    pub fn new(start: usize, max: usize) -> Self {
        let max = max.max(LIMIT_MIN);
        Self {
            present: start.clamp(LIMIT_MIN, max),
            max,
            phase: Phase::Present,
            rate: 0.0,
            best: 0.0,
            down: Probe::READY,
            up: Probe::READY,
            window: None,
            settling: 0,
        }
    }

    /// The number of requests that may be in flight to the store now.
    pub fn limit(&self) -> usize {
        match self.phase {
            Phase::Present => self.present,
            Phase::Half => self.present / 2,
            Phase::Double => self.present * 2,
        }
        .clamp(LIMIT_MIN, self.max)
    }

    /// Records that the store has answered at `now`, counted from any moment; `waiting` is true if other
    /// requests are queued.
    pub fn answered(&mut self, waiting: bool, now: Duration) {
        if !waiting {
            // The rate shows the demand of the clients, not the capacity of the store.
            self.window = None;
            self.phase = Phase::Present;
            return;
        }
        if self.settling > 0 {
            self.settling -= 1;
            return;
        }
        let window = self.window.get_or_insert(Window {
            began: now,
            answers: 0,
        });
        // The answer that opens a window is not counted, only those within its time.
        if window.began == now && window.answers == 0 {
            window.answers = 1;
            return;
        }
        window.answers += 1;
        let took = now.saturating_sub(window.began);
        let answers = window.answers - 1;
        let is_full = answers >= WINDOW_ANSWERS.max(WINDOW_ROUNDS * self.limit());
        if is_full || took >= WINDOW_TIME && answers >= ANSWERS_MIN {
            self.judge(answers as f64 / took.as_secs_f64().max(1e-6), now);
        }
    }

    fn judge(&mut self, rate: f64, now: Duration) {
        let before = self.limit();
        match self.phase {
            Phase::Present => {
                self.rate = rate;
                self.best = rate.max(self.best * 0.9);
                self.phase = self.next_probe(now);
            }
            Phase::Half if rate >= HALF_RATE_MIN * self.rate.max(self.best) => self.settle_at(before, rate),
            Phase::Half => {
                self.down.failed(now);
                self.phase = Phase::Present;
            }
            Phase::Double if rate >= DOUBLE_GAIN_MIN * self.rate => {
                self.settle_at(before, rate);
                self.down = Probe::READY;
                self.down.failed(now);
            }
            Phase::Double => {
                self.up.failed(now);
                self.phase = Phase::Present;
            }
        }
        self.window = None;
        self.settling = if self.limit() == before { 0 } else { before };
    }

    /// Adopts the limit of a successful probe, and probes the next step in the same direction at once.
    fn settle_at(&mut self, limit: usize, rate: f64) {
        debug_assert!(
            (LIMIT_MIN..=self.max).contains(&limit),
            "a probe stays within the bounds"
        );
        self.present = limit;
        self.rate = rate;
        self.best = self.best.max(rate);
        let more = match self.phase {
            Phase::Half => self.present > LIMIT_MIN,
            _ => self.present < self.max,
        };
        if !more {
            self.phase = Phase::Present;
        }
    }

    fn next_probe(&self, now: Duration) -> Phase {
        if self.present < self.max && self.up.is_due(now) {
            Phase::Double
        } else if self.present > LIMIT_MIN && self.down.is_due(now) {
            Phase::Half
        } else {
            Phase::Present
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    /// A store with `servers` servers, each taking `service_us` for a request, behind a wire of `latency_us`.
    /// Requests always wait.
    fn run(
        concurrency: &mut ConcurrencyLimit,
        began: &mut Duration,
        (servers, service_us, latency_us): (usize, u64, u64),
        answers: usize,
    ) -> f64 {
        let mut free: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
        let mut on_their_way: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
        let mut now_us = 0;
        let mut chance = 1_u64;
        for _ in 0..answers {
            while on_their_way.len() < concurrency.limit() {
                let Reverse(server_free_us) = free.pop().unwrap();
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let wire_us = latency_us / 4 + latency_us * (chance >> 48) / 65536 / 2;
                let ends_us = server_free_us.max(now_us + wire_us) + service_us;
                free.push(Reverse(ends_us));
                on_their_way.push(Reverse(ends_us + wire_us));
            }
            let Reverse(answer_us) = on_their_way.pop().unwrap();
            now_us = answer_us;
            concurrency.answered(true, *began + Duration::from_micros(now_us));
        }
        *began += Duration::from_micros(now_us);
        answers as f64 / (now_us as f64 / 1e6)
    }

    #[test]
    fn a_store_that_is_busy_with_two_is_asked_two_or_four_at_a_time() {
        let mut concurrency = ConcurrencyLimit::new(64, 512);
        let rate = run(&mut concurrency, &mut Duration::default(), (2, 1000, 100), 20_000);
        assert!(concurrency.present <= 4, "{concurrency:?}");
        assert!(rate > 1700.0, "{rate} answers a second of 2000");
    }

    #[test]
    fn a_distant_store_with_room_is_asked_as_much_as_allowed() {
        let mut concurrency = ConcurrencyLimit::new(64, 512);
        run(
            &mut concurrency,
            &mut Duration::default(),
            (10_000, 1000, 30_000),
            60_000,
        );
        assert_eq!(concurrency.present, 512, "{concurrency:?}");
    }

    #[test]
    fn the_limit_of_a_store_that_lost_its_room_falls_and_rises_again_when_it_is_back() {
        let (mut concurrency, mut now) = (ConcurrencyLimit::new(64, 512), Duration::ZERO);
        run(&mut concurrency, &mut now, (10_000, 1000, 30_000), 60_000);
        run(&mut concurrency, &mut now, (8, 4000, 500), 60_000);
        assert!((8..=32).contains(&concurrency.present), "{concurrency:?}");
        run(&mut concurrency, &mut now, (10_000, 1000, 30_000), 60_000);
        assert!(concurrency.present >= 256, "{concurrency:?}");
    }

    #[test]
    fn nothing_is_learned_from_a_store_without_waiting_requests() {
        let mut concurrency = ConcurrencyLimit::new(64, 512);
        for number in 0..10_000 {
            concurrency.answered(false, Duration::from_millis(number));
        }
        assert_eq!(concurrency.limit(), 64);
    }
}
