//! Conditional requests: evaluating `If-Match` and its kin (RFC 9110, section 13.2.2).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, header};

/// The four conditions of a request, as the client wrote them.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    wanted: Option<String>,
    known: Option<String>,
    modified_since: Option<SystemTime>,
    unmodified_since: Option<SystemTime>,
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
pub const CONDITIONAL_HEADERS: [http::HeaderName; 5] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
];

impl Conditions {
    /// Reads the conditions; a date that is not an HTTP date is no condition.
    pub fn parse(headers: &HeaderMap) -> Self {
        Self {
            wanted: list(headers, &header::IF_MATCH),
            known: list(headers, &header::IF_NONE_MATCH),
            modified_since: date(headers, &header::IF_MODIFIED_SINCE),
            unmodified_since: date(headers, &header::IF_UNMODIFIED_SINCE),
        }
    }

    /// Whether there is any condition.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_none()
            && self.known.is_none()
            && self.modified_since.is_none()
            && self.unmodified_since.is_none()
    }

    /// Whether S3 stores differ on these conditions: some answer `200` to `If-None-Match: *`, and some to a
    /// date in the future, which RFC 9110 does not count as a condition at all.
    pub fn is_dialect(&self, now: SystemTime) -> bool {
        let to_come = |date: Option<SystemTime>| date.is_some_and(|date| date > now);
        let any = self.known.as_deref().is_some_and(|known| known.contains('*'));
        any || to_come(self.modified_since) || to_come(self.unmodified_since)
    }

    /// Judges a version that exists.
    pub fn evaluate(&self, etag: &str, last_modified: Option<SystemTime>) -> Evaluation {
        match (&self.wanted, self.unmodified_since) {
            (Some(wanted), _) if !names_strongly(wanted, etag) => return Evaluation::Failed("If-Match"),
            (None, Some(since)) if modified_after(last_modified, since) => {
                return Evaluation::Failed("If-Unmodified-Since");
            }
            _ => {}
        }
        match (&self.known, self.modified_since) {
            (Some(known), _) if names(known, etag) => Evaluation::NotModified,
            (None, Some(since)) if last_modified.is_some() && !modified_after(last_modified, since) => {
                Evaluation::NotModified
            }
            _ => Evaluation::Proceed,
        }
    }
}

fn list(headers: &HeaderMap, name: &http::HeaderName) -> Option<String> {
    let values: Vec<&str> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}

fn date(headers: &HeaderMap, name: &http::HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

/// Compares whole seconds, because HTTP dates have no fractions.
fn modified_after(last_modified: Option<SystemTime>, since: SystemTime) -> bool {
    let seconds = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO)
            .as_secs()
    };
    last_modified.is_some_and(|modified| seconds(modified) > seconds(since))
}

/// Whether a list of entity tags names `etag`; quoted, unquoted (Hadoop's S3A before 3.4) and weak spellings
/// are equal.
fn names(list: &str, etag: &str) -> bool {
    tags(list).any(|candidate| candidate == "*" || bare(candidate) == bare(etag))
}

/// Like [`names`], but by the strong comparison of RFC 9110, section 8.8.3.2: a weak tag names nothing.
fn names_strongly(list: &str, etag: &str) -> bool {
    tags(list).any(|candidate| !candidate.starts_with("W/") && names(candidate, etag))
}

fn tags(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

fn bare(etag: &str) -> &str {
    let etag = etag.strip_prefix("W/").unwrap_or(etag);
    etag.strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: &str = "\"abc-2\"";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn evaluate(headers: &[(&str, &str)]) -> Evaluation {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                value.parse().unwrap(),
            );
        }
        let modified = httpdate::parse_http_date(THEN).unwrap() + Duration::from_millis(700);
        Conditions::parse(&map).evaluate(ETAG, Some(modified))
    }

    #[test]
    fn conditions_are_evaluated_in_the_order_of_the_standard() {
        use Evaluation::{NotModified, Proceed};
        let failed = Evaluation::Failed("If-Match");
        let table: [(&[(&str, &str)], Evaluation); 19] = [
            (&[], Proceed),
            (&[("if-match", ETAG)], Proceed),
            (&[("if-match", "abc-2")], Proceed),
            (&[("if-match", "\"x\", \"abc-2\"")], Proceed),
            (&[("if-match", "*")], Proceed),
            (&[("if-match", "\"x\"")], failed),
            (&[("if-match", "W/\"abc-2\"")], failed),
            (&[("if-match", "W/\"abc-2\", \"abc-2\"")], Proceed),
            (&[("if-none-match", ETAG)], NotModified),
            (&[("if-none-match", "abc-2")], NotModified),
            (&[("if-none-match", "W/\"abc-2\"")], NotModified),
            (&[("if-none-match", "\"x\"")], Proceed),
            (&[("if-modified-since", THEN)], NotModified),
            (&[("if-modified-since", EARLIER)], Proceed),
            (&[("if-unmodified-since", THEN)], Proceed),
            (
                &[("if-unmodified-since", EARLIER)],
                Evaluation::Failed("If-Unmodified-Since"),
            ),
            (&[("if-match", ETAG), ("if-unmodified-since", EARLIER)], Proceed),
            (
                &[("if-none-match", "\"x\""), ("if-modified-since", LATER)],
                Proceed,
            ),
            (&[("if-modified-since", "yesterday")], Proceed),
        ];
        for (headers, expected) in table {
            assert_eq!(evaluate(headers), expected, "{headers:?}");
        }
    }
}
