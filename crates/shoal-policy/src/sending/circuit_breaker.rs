//! A circuit breaker: decides whether a request may be sent to another server. Callers pass the time since a
//! moment of their choice.
//!
//! Gossip notices within seconds that a node is dead. Until then, and while a live server does not answer
//! (stopped, overloaded, behind a broken link), every read would wait for its own timeout. So after
//! [`FAILURES_MAX`] consecutive failures requests to the server pause for a while, then one request probes
//! it.

use std::time::Duration;

/// The number of consecutive failures that opens the circuit.
const FAILURES_MAX: u32 = 3;

/// The first pause after the circuit opens. The pause doubles after each probe that fails.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The results of the last requests to a server. The circuit is open while requests are held back.
#[derive(Debug)]
pub struct CircuitBreaker {
    failures: u32,
    open_until: Option<Duration>,
    pause_max: Duration,
}

impl CircuitBreaker {
    /// Creates a closed circuit, whose pauses will last at most `pause_max`.
    pub const fn new(pause_max: Duration) -> Self {
        Self {
            failures: 0,
            open_until: None,
            pause_max,
        }
    }

    /// Returns true if a request may be sent.
    pub fn is_reachable(&self, now: Duration) -> bool {
        self.open_until.is_none_or(|until| until <= now)
    }

    /// Records that a request is about to be sent. If it is a probe, the circuit stays open for other
    /// requests until the probe's result is known or the pause has passed again.
    pub fn sending(&mut self, now: Duration) {
        if self.open_until.is_some() {
            self.open_until = Some(now + self.pause());
        }
    }

    /// Records that the server answered, and closes the circuit.
    pub fn succeeded(&mut self) {
        *self = Self::new(self.pause_max);
    }

    /// Records that the server did not send a complete answer.
    pub fn failed(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_MAX {
            self.open_until = Some(now + self.pause());
        }
    }

    fn pause(&self) -> Duration {
        let probes = self.failures.saturating_sub(FAILURES_MAX).min(10);
        (PAUSE_MIN * 2_u32.pow(probes)).min(self.pause_max)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CircuitBreaker, FAILURES_MAX};

    const PAUSE_MAX: Duration = Duration::from_secs(30);

    /// Any moment.
    const NOW: Duration = Duration::from_secs(1_000);

    fn failed(times: u32, now: Duration) -> CircuitBreaker {
        let mut breaker = CircuitBreaker::new(PAUSE_MAX);
        for _ in 0..times {
            breaker.sending(now);
            breaker.failed(now);
        }
        breaker
    }

    #[test]
    fn a_server_is_left_alone_after_some_failures_in_a_row() {
        let now = NOW;
        assert!(failed(FAILURES_MAX - 1, now).is_reachable(now));
        let mut breaker = failed(FAILURES_MAX, now);
        assert!(!breaker.is_reachable(now));
        breaker.succeeded();
        assert!(breaker.is_reachable(now));
        let mut breaker = failed(FAILURES_MAX - 1, now);
        breaker.succeeded();
        breaker.failed(now);
        assert!(
            breaker.is_reachable(now),
            "failures with an answer between them are none"
        );
    }

    #[test]
    fn one_request_probes_and_the_pause_doubles_until_it_succeeds() {
        let mut now = NOW;
        let mut breaker = failed(FAILURES_MAX, now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            assert!(!breaker.is_reachable(now + Duration::from_millis(seconds * 1_000 - 1)));
            now += Duration::from_secs(seconds);
            assert!(breaker.is_reachable(now));
            breaker.sending(now);
            assert!(!breaker.is_reachable(now), "others wait for the probe");
            breaker.failed(now);
        }
        assert!(breaker.is_reachable(now + PAUSE_MAX));
        breaker.sending(now + PAUSE_MAX);
        breaker.succeeded();
        assert!(breaker.is_reachable(now));
    }
}
