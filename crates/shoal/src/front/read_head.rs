//! What the head of a GET or HEAD says about how to read, found in one pass over its headers.

use http::{HeaderMap, HeaderValue, header};

use crate::front::conditions::Conditions;
use crate::front::range::RangeRequest;

/// Headers of a read that change neither who may read nor what comes back; any other `x-amz-*` header is a question that only
/// the lake can answer, so a remembered yes does not do.
const PLAIN_AMZ_HEADERS: [&str; 6] = [
    "x-amz-date",
    "x-amz-content-sha256",
    "x-amz-checksum-mode",
    "x-amz-user-agent",
    "x-amz-security-token",
    "x-amz-te",
];

/// How a client wants to read.
#[derive(Debug)]
pub struct ReadHead {
    /// Which bytes; `None` for several ranges, one that is not well-formed, and `If-Range`: stores differ in what they make
    /// of those.
    pub range: Option<RangeRequest>,
    /// Under which conditions.
    pub conditions: Conditions,
    /// What it says about caches in general.
    pub cache_control: CacheControl,
    /// `x-amz-checksum-mode: ENABLED`
    pub checksum_mode: bool,
    /// The object is encrypted with a key that the client brings along.
    pub sse_c: bool,
    /// No header asks anything that a remembered yes of the lake does not answer.
    pub plain: bool,
}

/// What a client says about caches in general.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// Ask the lake whatever is remembered.
    pub no_cache: bool,
    /// Keep nothing of the answer.
    pub no_store: bool,
    /// Do not ask the lake.
    pub only_if_cached: bool,
}

impl ReadHead {
    /// Reads the headers.
    pub fn parse(headers: &HeaderMap) -> Self {
        let mut head = Self {
            range: Some(RangeRequest::Whole),
            conditions: Conditions::default(),
            cache_control: CacheControl::default(),
            checksum_mode: false,
            sse_c: false,
            plain: true,
        };
        // Most reads carry none of these, and to see that a name is another one is cheaper than to search the map for it.
        let (mut has_range, mut has_condition, mut has_cache_control) = (false, false, false);
        for (name, value) in headers {
            match *name {
                header::RANGE | header::IF_RANGE => has_range = true,
                header::IF_MATCH
                | header::IF_NONE_MATCH
                | header::IF_MODIFIED_SINCE
                | header::IF_UNMODIFIED_SINCE => has_condition = true,
                header::CACHE_CONTROL | header::PRAGMA => has_cache_control = true,
                _ => head.take_amz(name.as_str(), value),
            }
        }
        if has_range {
            head.range =
                RangeRequest::parse(range(headers)).filter(|_| !headers.contains_key(header::IF_RANGE));
        }
        if has_condition {
            head.conditions = Conditions::parse(headers);
        }
        if has_cache_control {
            head.cache_control = CacheControl::parse(headers);
        }
        head
    }

    fn take_amz(&mut self, name: &str, value: &HeaderValue) {
        if !name.starts_with("x-amz-") {
            return;
        }
        self.plain &= PLAIN_AMZ_HEADERS.contains(&name);
        match name {
            "x-amz-checksum-mode" => {
                self.checksum_mode |= value.as_bytes().eq_ignore_ascii_case(b"enabled");
            }
            "x-amz-server-side-encryption-customer-algorithm" => self.sse_c = true,
            _ => {}
        }
    }
}

impl CacheControl {
    fn parse(headers: &HeaderMap) -> Self {
        let mut directives = Self::default();
        let values = headers
            .get_all(header::CACHE_CONTROL)
            .iter()
            .filter_map(|value| value.to_str().ok());
        for directive in values.flat_map(|value| value.split(',')).map(str::trim) {
            match directive.to_ascii_lowercase().as_str() {
                "no-cache" | "max-age=0" => directives.no_cache = true,
                "no-store" => directives.no_store = true,
                "only-if-cached" => directives.only_if_cached = true,
                _ => {}
            }
        }
        directives.no_cache |= headers
            .get(header::PRAGMA)
            .is_some_and(|pragma| pragma == "no-cache");
        directives
    }
}

/// The `Range` header; one that is not text is not well-formed either.
fn range(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(header::RANGE)
        .map(|range| range.to_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(headers: &[(&'static str, &'static str)]) -> ReadHead {
        let pairs = headers.iter().map(|(name, value)| {
            let name = http::HeaderName::from_static(name);
            (name, http::HeaderValue::from_static(value))
        });
        let mut map = HeaderMap::new();
        pairs.for_each(|(name, value)| {
            map.append(name, value);
        });
        ReadHead::parse(&map)
    }

    #[test]
    fn a_head_that_says_nothing_asks_for_the_whole_object() {
        let head = head(&[("host", "x"), ("x-amz-date", "20130524T000000Z")]);
        assert_eq!(head.range, Some(RangeRequest::Whole));
        assert_eq!(head.cache_control, CacheControl::default());
        assert!(head.conditions.is_empty() && head.plain);
        assert!(!head.checksum_mode && !head.sse_c);
    }

    #[test]
    fn each_header_is_heard() {
        assert_eq!(head(&[("range", "bytes=0-1,3-4")]).range, None);
        assert_eq!(head(&[("range", "bytes=0-1"), ("if-range", "\"x\"")]).range, None);
        assert!(head(&[("x-amz-checksum-mode", "Enabled")]).checksum_mode);
        let sse_c = head(&[("x-amz-server-side-encryption-customer-algorithm", "AES256")]);
        assert!(sse_c.sse_c && !sse_c.plain);
        assert!(!head(&[("x-amz-request-payer", "requester")]).plain);
        for condition in ["if-match", "if-none-match"] {
            assert!(!head(&[(condition, "x")]).conditions.is_empty());
        }
        for condition in ["if-modified-since", "if-unmodified-since"] {
            let date = "Sun, 06 Nov 1994 08:49:37 GMT";
            assert!(!head(&[(condition, date)]).conditions.is_empty());
        }
        assert_eq!(head(&[("if-range", "\"x\"")]).range, None);
    }

    #[test]
    fn cache_directives_are_found_in_any_spelling_and_in_repeated_headers() {
        let control = |headers: &[_]| head(headers).cache_control;
        assert!(control(&[("cache-control", "x, No-Cache")]).no_cache);
        assert!(control(&[("cache-control", "max-age=0")]).no_cache);
        assert!(control(&[("pragma", "no-cache")]).no_cache);
        let both = control(&[("cache-control", "no-store"), ("cache-control", "only-if-cached")]);
        assert!(both.no_store && both.only_if_cached && !both.no_cache);
    }
}
