//! Evaluates conditional headers before anything is read or replaced.

use s3s::dto::{ETag, ETagCondition, Timestamp};
use time::OffsetDateTime;

/// The conditions of one request, from whichever headers.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    pub(super) matches: Option<ETagCondition>,
    pub(super) none_match: Option<ETagCondition>,
    pub(super) modified_since: Option<Timestamp>,
    pub(super) unmodified_since: Option<Timestamp>,
}

/// Result of evaluating the conditions against the current object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evaluation {
    /// The request proceeds.
    Met,
    /// 412: the object has changed or is absent.
    Failed,
    /// 304: the client has the current object.
    Unchanged,
}

impl Conditions {
    /// Evaluates the conditions against an object's unquoted ETag and modification time. Entity tags take
    /// precedence over dates (RFC 9110, 13.2.2).
    pub(super) fn evaluate(&self, etag: &str, modified: &Timestamp) -> Evaluation {
        let names_it =
            |condition: &ETagCondition| condition.as_etag().is_none_or(|named| named.value() == etag);
        let failed = match (&self.matches, &self.unmodified_since) {
            (Some(condition), _) => !names_it(condition) || condition.as_etag().is_some_and(is_weak),
            (None, Some(since)) => seconds(modified) > seconds(since),
            (None, None) => false,
        };
        let unchanged = match (&self.none_match, &self.modified_since) {
            (Some(condition), _) => names_it(condition),
            (None, Some(since)) => seconds(modified) <= seconds(since),
            (None, None) => false,
        };
        match (failed, unchanged) {
            (true, _) => Evaluation::Failed,
            (false, true) => Evaluation::Unchanged,
            (false, false) => Evaluation::Met,
        }
    }

    /// Evaluates the conditions if the object is absent: only `If-Match` can fail.
    pub(super) fn evaluate_absent(&self) -> Evaluation {
        if self.matches.is_some() {
            Evaluation::Failed
        } else {
            Evaluation::Met
        }
    }
}

fn is_weak(etag: &ETag) -> bool {
    etag.as_weak().is_some()
}

/// Truncates to seconds, the resolution of dates in headers; a file's finer time would always look newer.
fn seconds(time: &Timestamp) -> i64 {
    OffsetDateTime::from(time.clone()).unix_timestamp()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use s3s::dto::Timestamp;

    use super::{Conditions, Evaluation};

    fn at(ms: u64) -> Timestamp {
        Timestamp::from(UNIX_EPOCH + Duration::from_millis(ms))
    }

    fn evaluate(header: &str, value: &str) -> Evaluation {
        let mut conditions = Conditions::default();
        match header {
            "if-match" => conditions.matches = Some(value.parse().unwrap()),
            "if-none-match" => conditions.none_match = Some(value.parse().unwrap()),
            _ => unreachable!("only tags are given as text"),
        }
        conditions.evaluate("abc", &at(5_500))
    }

    #[test]
    fn tags_match_quoted_and_unquoted_and_any() {
        for tag in ["\"abc\"", "abc", "*"] {
            assert_eq!(evaluate("if-match", tag), Evaluation::Met, "{tag}");
            assert_eq!(evaluate("if-none-match", tag), Evaluation::Unchanged, "{tag}");
        }
        assert_eq!(evaluate("if-match", "\"abd\""), Evaluation::Failed);
        assert_eq!(evaluate("if-none-match", "abd"), Evaluation::Met);
        assert_eq!(
            evaluate("if-match", "W/\"abc\""),
            Evaluation::Failed,
            "a weak tag names no bytes"
        );
        assert_eq!(evaluate("if-none-match", "W/\"abc\""), Evaluation::Unchanged);
    }

    #[test]
    fn dates_compare_in_whole_seconds() {
        let since = |unmodified: bool, ms: u64| {
            let date = Some(at(ms));
            let conditions = if unmodified {
                Conditions {
                    unmodified_since: date,
                    ..Conditions::default()
                }
            } else {
                Conditions {
                    modified_since: date,
                    ..Conditions::default()
                }
            };
            conditions.evaluate("abc", &at(5_500))
        };
        assert_eq!(
            [since(true, 5_000), since(true, 4_000)],
            [Evaluation::Met, Evaluation::Failed]
        );
        assert_eq!(
            [since(false, 5_000), since(false, 4_000)],
            [Evaluation::Unchanged, Evaluation::Met]
        );
    }

    #[test]
    fn tags_go_before_dates() {
        let conditions = Conditions {
            matches: Some("abc".parse().unwrap()),
            unmodified_since: Some(at(0)),
            none_match: Some("abd".parse().unwrap()),
            modified_since: Some(at(9_000)),
        };
        assert_eq!(conditions.evaluate("abc", &at(5_500)), Evaluation::Met);
    }

    #[test]
    fn only_if_match_fails_on_what_is_not_there() {
        let must_exist = Conditions {
            matches: Some("*".parse().unwrap()),
            ..Conditions::default()
        };
        let must_not = Conditions {
            none_match: Some("*".parse().unwrap()),
            ..Conditions::default()
        };
        assert_eq!(
            [must_exist.evaluate_absent(), must_not.evaluate_absent()],
            [Evaluation::Failed, Evaluation::Met]
        );
    }
}
