//! Decides if a failed request is retried, and after which pause. Pure: no clock, no randomness.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, Response};

use super::error::Failure;

/// Maximum number of attempts, including the first.
pub(super) const TRIES_MAX: u32 = 3;

/// If a `Retry-After` is longer than this, it is passed on to the client.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

const BACKOFF_BASE: Duration = Duration::from_millis(50);

/// Number of retries that a node may make at once after a quiet time.
const BURST: u32 = 10;

/// The cost of one retry; each request earns `percent` of it.
const COST: u32 = 100;

/// Parses `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match value.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(value)
            .ok()
            .map(|date| date.duration_since(now).unwrap_or_default()),
    }
}

/// Returns the pause before the next attempt, or `None` if this outcome is final. `chance` is uniform in `[0,
/// 1)`.
///
/// Full jitter, so that clients that failed together do not retry together.
pub(super) fn pause<B>(
    outcome: Result<&Response<B>, Failure>,
    now: SystemTime,
    tries: u32,
    chance: f64,
) -> Option<Duration> {
    let at_least = match outcome {
        _ if tries >= TRIES_MAX => return None,
        Err(Failure::Unreachable | Failure::BrokenOff) => Duration::ZERO,
        // A store that returns 499 considers this node gone, which it is not.
        Ok(response) if matches!(response.status().as_u16(), 499 | 500 | 502 | 503 | 504) => {
            retry_after(response.headers(), now).unwrap_or_default()
        }
        _ => return None,
    };
    (at_least <= RETRY_AFTER_MAX).then(|| at_least.max(backoff(tries, chance)))
}

/// Returns the pause after this many attempts.
pub(super) fn backoff(tries: u32, chance: f64) -> Duration {
    (BACKOFF_BASE * 2u32.pow(tries)).mul_f64(chance)
}

/// Limits retries to a share of requests, so that an overloaded store does not get three times the load.
#[derive(Debug)]
pub struct RetryBudget {
    percent: u32,
    /// In percent of a retry.
    tokens: AtomicU32,
}

impl RetryBudget {
    /// Creates a budget of `percent` retries for a hundred first attempts.
    pub fn new(percent: u32) -> Self {
        let tokens = if percent == 0 { 0 } else { BURST * COST };
        Self {
            percent,
            tokens: AtomicU32::new(tokens),
        }
    }

    /// Adds the share of a retry that every first attempt earns.
    pub fn earn(&self) {
        self.change(|tokens| Some((tokens + self.percent).min(BURST * COST)));
    }

    /// Takes one retry. Returns true if one was left.
    pub fn spend(&self) -> bool {
        self.change(|tokens| tokens.checked_sub(COST))
    }

    fn change(&self, change: impl Fn(u32) -> Option<u32>) -> bool {
        self.tokens
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::{
        Duration, Failure, HeaderMap, RETRY_AFTER, RETRY_AFTER_MAX, Response, RetryBudget, retry_after,
    };
    use crate::time::clock;

    fn pause(outcome: Result<&Response<()>, Failure>, tries: u32, chance: f64) -> Option<Duration> {
        super::pause(outcome, clock::utc_now(), tries, chance)
    }

    fn answered(status: u16) -> Response<()> {
        Response::builder().status(status).body(()).unwrap()
    }

    #[test]
    fn only_troubles_that_pass_are_tried_again() {
        for status in [499, 500, 502, 503, 504] {
            assert!(pause(Ok(&answered(status)), 1, 0.5).is_some(), "{status}");
        }
        for failure in [Failure::Unreachable, Failure::BrokenOff] {
            assert!(pause(Err(failure), 1, 0.5).is_some(), "{failure:?}");
        }
        for status in [200, 206, 304, 400, 403, 404, 412, 416, 501] {
            assert_eq!(pause(Ok(&answered(status)), 1, 0.5), None, "{status}");
        }
        for failure in [Failure::TimedOut, Failure::Unintelligible, Failure::Unsignable] {
            assert_eq!(pause(Err(failure), 1, 0.5), None, "{failure:?}");
        }
    }

    #[test]
    fn the_pause_grows_and_is_scattered() {
        let failed = answered(503);
        assert_eq!(pause(Ok(&failed), 1, 0.0), Some(Duration::ZERO));
        assert_eq!(pause(Ok(&failed), 1, 0.5), Some(Duration::from_millis(50)));
        assert_eq!(pause(Ok(&failed), 2, 0.5), Some(Duration::from_millis(100)));
        assert_eq!(pause(Ok(&failed), 3, 0.5), None);
    }

    #[test]
    fn a_short_retry_after_is_waited_for_and_a_long_one_is_relayed() {
        let with = |retry_after: Duration| {
            let mut response = answered(503);
            let seconds = retry_after.as_secs().into();
            response.headers_mut().insert(RETRY_AFTER, seconds);
            response
        };
        let second = Duration::from_secs(1);
        assert_eq!(pause(Ok(&with(second)), 1, 0.5), Some(second));
        assert_eq!(pause(Ok(&with(RETRY_AFTER_MAX + second)), 1, 0.5), None);
    }

    #[test]
    fn retries_are_a_share_of_requests_after_the_burst_is_spent() {
        let budget = RetryBudget::new(10);
        assert_eq!((0..100).filter(|_| budget.spend()).count(), 10);
        for _ in 0..9 {
            budget.earn();
        }
        assert!(!budget.spend());
        budget.earn();
        assert!(budget.spend());
        assert!(!budget.spend());
    }

    #[test]
    fn no_budget_means_no_retry() {
        let budget = RetryBudget::new(0);
        budget.earn();
        assert!(!budget.spend());
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let now = clock::utc_now();
        let read = |value: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(value).unwrap())]);
            retry_after(&headers, now)
        };
        assert_eq!(read("2"), Some(Duration::from_secs(2)));
        let in_a_minute = read(&httpdate::fmt_http_date(now + Duration::from_mins(1))).unwrap();
        assert!((59..=60).contains(&in_a_minute.as_secs()), "{in_a_minute:?}");
        assert_eq!(read("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("soon"), None);
    }
}
