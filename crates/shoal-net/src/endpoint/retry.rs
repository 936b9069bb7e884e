//! Decides if a failed request is retried, and after which pause. Pure: no clock, no randomness.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, Response, StatusCode};

use super::error::{EndpointError, Failure};

/// Maximum number of attempts, including the first.
pub(super) const TRIES_MAX: u32 = 3;

/// If a `Retry-After` is longer than this, it is passed on to the client.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

const BACKOFF_BASE: Duration = Duration::from_millis(50);

/// Number of retries that a node may make at once after a quiet time.
const BURST: u32 = 10;

/// The cost of one retry; each request earns `percent` of it.
const COST: u32 = 100;

/// The outcome of an attempt, as far as retries are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    Answered {
        status: StatusCode,
        retry_after: Option<Duration>,
    },
    Failed(Failure),
}

impl AttemptOutcome {
    pub(super) fn new<B>(outcome: &Result<Response<B>, EndpointError>, now: SystemTime) -> Self {
        match outcome {
            Ok(response) => Self::Answered {
                status: response.status(),
                retry_after: retry_after(response.headers(), now),
            },
            Err(error) => Self::Failed(error.kind()),
        }
    }
}

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
pub(super) fn pause(outcome: AttemptOutcome, tries: u32, chance: f64) -> Option<Duration> {
    let at_least = match outcome {
        _ if tries >= TRIES_MAX => return None,
        AttemptOutcome::Failed(Failure::Unreachable | Failure::BrokenOff) => Duration::ZERO,
        AttemptOutcome::Failed(_) => return None,
        AttemptOutcome::Answered { status, retry_after } => match status.as_u16() {
            // A store that returns 499 considers this node gone, which it is not.
            499 | 500 | 502 | 503 | 504 => retry_after.unwrap_or_default(),
            _ => return None,
        },
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
        AttemptOutcome, Duration, Failure, HeaderMap, RETRY_AFTER, RETRY_AFTER_MAX, RetryBudget, StatusCode,
        pause, retry_after,
    };
    use crate::time::clock;

    fn answered(status: u16) -> AttemptOutcome {
        AttemptOutcome::Answered {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: None,
        }
    }

    #[test]
    fn only_troubles_that_pass_are_tried_again() {
        let retried = [499, 500, 502, 503, 504].map(answered);
        let failures = [Failure::Unreachable, Failure::BrokenOff].map(AttemptOutcome::Failed);
        for outcome in retried.into_iter().chain(failures) {
            assert!(pause(outcome, 1, 0.5).is_some(), "{outcome:?}");
        }
        let finals = [200, 206, 304, 400, 403, 404, 412, 416, 501].map(answered);
        let failures =
            [Failure::TimedOut, Failure::Unintelligible, Failure::Unsignable].map(AttemptOutcome::Failed);
        for outcome in finals.into_iter().chain(failures) {
            assert_eq!(pause(outcome, 1, 0.5), None, "{outcome:?}");
        }
    }

    #[test]
    fn the_pause_grows_and_is_scattered() {
        assert_eq!(pause(answered(503), 1, 0.0), Some(Duration::ZERO));
        assert_eq!(pause(answered(503), 1, 0.5), Some(Duration::from_millis(50)));
        assert_eq!(pause(answered(503), 2, 0.5), Some(Duration::from_millis(100)));
        assert_eq!(pause(answered(503), 3, 0.5), None);
    }

    #[test]
    fn a_short_retry_after_is_waited_for_and_a_long_one_is_relayed() {
        let with = |retry_after| AttemptOutcome::Answered {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: Some(retry_after),
        };
        assert_eq!(
            pause(with(Duration::from_secs(1)), 1, 0.5),
            Some(Duration::from_secs(1))
        );
        assert_eq!(
            pause(with(RETRY_AFTER_MAX + Duration::from_secs(1)), 1, 0.5),
            None
        );
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
