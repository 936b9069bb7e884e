//! Evaluates `If-Match` and the other conditions before anything is read or replaced.

use s3s::dto::{ETag, ETagCondition, Timestamp};
use time::OffsetDateTime;

/// The conditions of one request, whichever headers they came in.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    pub(super) matches: Option<ETagCondition>,
    pub(super) none_match: Option<ETagCondition>,
    pub(super) modified_since: Option<Timestamp>,
    pub(super) unmodified_since: Option<Timestamp>,
}

/// The result of the conditions for the object as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The request may go on.
    Met,
    /// The object has changed, or is absent.
    Failed,
    /// The client has the current object already.
    Unchanged,
}

impl Conditions {
    /// Judges an object by its ETag without quotes and its time. Entity tags go before dates (RFC 9110,
    /// 13.2.2).
    pub(super) fn judge(&self, etag: &str, modified: &Timestamp) -> Verdict {
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
            (true, _) => Verdict::Failed,
            (false, true) => Verdict::Unchanged,
            (false, false) => Verdict::Met,
        }
    }

    /// Judges the absence of an object: only `If-Match` can fail on it.
    pub(super) fn judge_absent(&self) -> Verdict {
        if self.matches.is_some() {
            Verdict::Failed
        } else {
            Verdict::Met
        }
    }
}

fn is_weak(etag: &ETag) -> bool {
    etag.as_weak().is_some()
}

/// Dates in headers have whole seconds; a file's time is finer, and would always look newer.
fn seconds(time: &Timestamp) -> i64 {
    OffsetDateTime::from(time.clone()).unix_timestamp()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use s3s::dto::Timestamp;

    use super::{Conditions, Verdict};

    fn at(ms: u64) -> Timestamp {
        Timestamp::from(UNIX_EPOCH + Duration::from_millis(ms))
    }

    fn judge(header: &str, value: &str) -> Verdict {
        let mut conditions = Conditions::default();
        match header {
            "if-match" => conditions.matches = Some(value.parse().unwrap()),
            "if-none-match" => conditions.none_match = Some(value.parse().unwrap()),
            _ => unreachable!("only tags are given as text"),
        }
        conditions.judge("abc", &at(5_500))
    }

    #[test]
    fn tags_match_quoted_and_unquoted_and_any() {
        for tag in ["\"abc\"", "abc", "*"] {
            assert_eq!(judge("if-match", tag), Verdict::Met, "{tag}");
            assert_eq!(judge("if-none-match", tag), Verdict::Unchanged, "{tag}");
        }
        assert_eq!(judge("if-match", "\"abd\""), Verdict::Failed);
        assert_eq!(judge("if-none-match", "abd"), Verdict::Met);
        assert_eq!(
            judge("if-match", "W/\"abc\""),
            Verdict::Failed,
            "a weak tag names no bytes"
        );
        assert_eq!(judge("if-none-match", "W/\"abc\""), Verdict::Unchanged);
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
            conditions.judge("abc", &at(5_500))
        };
        assert_eq!(
            [since(true, 5_000), since(true, 4_000)],
            [Verdict::Met, Verdict::Failed]
        );
        assert_eq!(
            [since(false, 5_000), since(false, 4_000)],
            [Verdict::Unchanged, Verdict::Met]
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
        assert_eq!(conditions.judge("abc", &at(5_500)), Verdict::Met);
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
            [must_exist.judge_absent(), must_not.judge_absent()],
            [Verdict::Failed, Verdict::Met]
        );
    }
}
