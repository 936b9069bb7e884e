//! Conditional requests: evaluating `If-Match` and its kin (RFC 9110, section 13.2.2).
//!
//! A node evaluates only conditions that all stores interpret alike: one entity tag, and dates in the past.
//! AWS, `MinIO`, Ceph and versitygw differ on everything else, valid in RFC 9110 or not.

use std::time::SystemTime;

use http::{HeaderMap, HeaderName, header};
use shoal_base::moment::since_1970;

use crate::etag;

/// The four conditions of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    wanted: Option<String>,
    known: Option<String>,
    modified_since: Option<SystemTime>,
    unmodified_since: Option<SystemTime>,
    /// True if there is a condition that stores interpret differently.
    is_odd: bool,
}

/// The outcome of a conditional request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluation {
    /// Answer as if there were no condition.
    Proceed,
    /// `304`
    NotModified,
    /// `412`, and the header whose condition does not hold.
    Failed(&'static str),
}

/// The headers that make a request conditional.
pub const CONDITIONAL_HEADERS: [HeaderName; 5] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
];

impl Conditions {
    /// Parses the conditions.
    pub fn parse(headers: &HeaderMap) -> Self {
        let mut read = Self::default();
        read.wanted = read.one(headers, &header::IF_MATCH, tag);
        read.known = read.one(headers, &header::IF_NONE_MATCH, tag);
        read.modified_since = read.one(headers, &header::IF_MODIFIED_SINCE, date);
        read.unmodified_since = read.one(headers, &header::IF_UNMODIFIED_SINCE, date);
        read
    }

    /// Parses one condition, and sets `is_odd` if it is repeated or `parse` fails.
    fn one<T>(&mut self, headers: &HeaderMap, name: &HeaderName, parse: fn(&str) -> Option<T>) -> Option<T> {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?;
        let read = value
            .to_str()
            .ok()
            .and_then(parse)
            .filter(|_| values.next().is_none());
        self.is_odd |= read.is_none();
        read
    }

    /// Returns true if there is no condition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if S3 stores differ on these conditions, so that only the lake can evaluate them. An
    /// empty `If-Match` is no condition or one that never holds, a list is read from its beginning, as one
    /// tag or as a list, `*` and weak tags match or do not, an invalid date is ignored or rejected, and RFC
    /// 9110 ignores dates in the future.
    pub fn is_dialect(&self, now: SystemTime) -> bool {
        let to_come = |date: Option<SystemTime>| date.is_some_and(|date| date > now);
        self.is_odd || to_come(self.modified_since) || to_come(self.unmodified_since)
    }

    /// Evaluates the conditions for an existing version. They must not be a [dialect](Self::is_dialect).
    pub fn evaluate(&self, etag: &str, last_modified: Option<SystemTime>) -> Evaluation {
        let is_named = |named: &String| etag::bare(named) == etag::bare(etag);
        match (&self.wanted, self.unmodified_since) {
            (Some(wanted), _) if !is_named(wanted) => return Evaluation::Failed("If-Match"),
            (None, Some(since)) if modified_after(last_modified, since) => {
                return Evaluation::Failed("If-Unmodified-Since");
            }
            _ => {}
        }
        match (&self.known, self.modified_since) {
            (Some(known), _) if is_named(known) => Evaluation::NotModified,
            (None, Some(since)) if last_modified.is_some() && !modified_after(last_modified, since) => {
                Evaluation::NotModified
            }
            _ => Evaluation::Proceed,
        }
    }
}

/// Parses one strong entity tag, quoted or not, because Hadoop's S3A before 3.4 omits the quotes.
fn tag(text: &str) -> Option<String> {
    let text = text.trim();
    etag::names_version(text).then(|| text.to_owned())
}

fn date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

/// Compares whole seconds, because HTTP dates have no fractions.
fn modified_after(last_modified: Option<SystemTime>, since: SystemTime) -> bool {
    let seconds = |time| since_1970(time).as_secs();
    last_modified.is_some_and(|modified| seconds(modified) > seconds(since))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ETAG: &str = "\"abc-2\"";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn then() -> SystemTime {
        httpdate::parse_http_date(THEN).unwrap() + Duration::from_millis(700)
    }

    fn conditions(headers: &[(&str, &str)]) -> Conditions {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            );
        }
        Conditions::parse(&map)
    }

    #[test]
    fn conditions_are_evaluated_in_the_order_of_the_standard() {
        use Evaluation::{NotModified, Proceed};
        let failed = Evaluation::Failed("If-Match");
        let table: [(&[(&str, &str)], Evaluation); 12] = [
            (&[], Proceed),
            (&[("if-match", ETAG)], Proceed),
            (&[("if-match", "abc-2")], Proceed),
            (&[("if-match", "\"x\"")], failed),
            (&[("if-none-match", ETAG)], NotModified),
            (&[("if-none-match", "abc-2")], NotModified),
            (&[("if-none-match", "\"x\"")], Proceed),
            (&[("if-modified-since", THEN)], NotModified),
            (&[("if-modified-since", EARLIER)], Proceed),
            (&[("if-unmodified-since", THEN)], Proceed),
            (
                &[("if-unmodified-since", EARLIER)],
                Evaluation::Failed("If-Unmodified-Since"),
            ),
            (&[("if-match", ETAG), ("if-unmodified-since", EARLIER)], Proceed),
        ];
        for (headers, expected) in table {
            let read = conditions(headers);
            assert_eq!(read.evaluate(ETAG, Some(then())), expected, "{headers:?}");
            assert_eq!(read.is_empty(), headers.is_empty());
            assert!(!read.is_dialect(then()), "{headers:?}");
        }
    }

    #[test]
    fn a_condition_that_stores_read_in_different_ways_is_a_dialect() {
        let table: [&[(&str, &str)]; 6] = [
            &[("if-match", ETAG), ("if-match", ETAG)],
            &[("if-match", ETAG), ("if-none-match", "")],
            &[("if-modified-since", LATER)],
            &[("if-unmodified-since", LATER)],
            &[("if-modified-since", "yesterday")],
            &[("if-unmodified-since", "")],
        ];
        for headers in table {
            let read = conditions(headers);
            assert!(read.is_dialect(then()) && !read.is_empty(), "{headers:?}");
        }
        for name in ["if-match", "if-none-match"] {
            for tags in [
                "",
                " ",
                "\"\"",
                "*",
                "\"*\"",
                "W/\"abc-2\"",
                "\"x\", \"abc-2\"",
                "x,abc-2",
                ",",
            ] {
                assert!(conditions(&[(name, tags)]).is_dialect(then()), "{name}: {tags}");
            }
        }
    }
}
