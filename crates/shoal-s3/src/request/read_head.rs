//! The read options in the head of a GET or HEAD, found in one pass over its headers.

use http::{HeaderMap, HeaderValue, header};

use crate::conditions::Conditions;
use crate::range::RangeRequest;

/// S3's own headers that change neither the permission to read nor the answer. The SDK for Java sends the
/// checksum of the body with reads, too, which have none.
const PLAIN_AMZ_HEADERS: [&str; 13] = [
    "x-amz-api-version",
    "x-amz-date",
    "x-amz-content-sha256",
    "x-amz-checksum-mode",
    "x-amz-user-agent",
    "x-amz-security-token",
    "x-amz-te",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];

/// Other headers that change neither: connection and tracing headers.
const PLAIN_HEADERS: [&str; 9] = [
    "b3",
    "dnt",
    "keep-alive",
    "priority",
    "traceparent",
    "tracestate",
    "x-amzn-trace-id",
    "x-correlation-id",
    "x-request-id",
];

/// The options of a read.
#[derive(Debug)]
pub struct ReadHead {
    /// The bytes to read. `None` for several ranges, a malformed range, and `If-Range`, because stores treat
    /// those differently.
    pub range: Option<RangeRequest>,
    /// The conditions of the read.
    pub conditions: Conditions,
    /// The `Cache-Control` directives of the client.
    pub cache_control: CacheControl,
    /// `x-amz-checksum-mode: ENABLED`
    pub checksum_mode: bool,
    /// True if the object is encrypted with a key that the client provides (SSE-C).
    pub sse_c: bool,
    /// Whether, according to the headers, the lake's answers to other reads also apply to this one.
    pub question: Question,
}

/// How far the lake's answer to one read also applies to another. Each header can only make a read less
/// plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Every header is known to change neither the permission to read nor the answer.
    Plain,
    /// The same except for a `Referer`, which changes nothing for a caller that signs its requests, because
    /// it could send any.
    Referred,
    /// A header unknown to the node may change the permission to read: `X-Forwarded-For` and its like appear
    /// in bucket policies.
    Particular,
    /// A header requires an answer of the lake: an S3 header unknown to the node, or a web page's `Origin`.
    Foreign,
}

/// A client's wishes about caches in general.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// `no-cache`: revalidate with the lake, whatever is cached.
    pub no_cache: bool,
    /// `no-store`: cache nothing of the answer.
    pub no_store: bool,
    /// `only-if-cached`: do not contact the lake.
    pub only_if_cached: bool,
}

impl ReadHead {
    /// Parses the headers.
    pub fn parse(headers: &HeaderMap) -> Self {
        let mut head = Self {
            range: Some(RangeRequest::Whole),
            conditions: Conditions::default(),
            cache_control: CacheControl::default(),
            checksum_mode: false,
            sse_c: false,
            question: Question::Plain,
        };
        // Most reads have none of these headers, and one pass over the names is cheaper than several look-ups
        // in the map.
        let (mut has_range, mut has_condition, mut has_cache_control) = (false, false, false);
        for (name, value) in headers {
            match *name {
                header::RANGE | header::IF_RANGE => has_range = true,
                header::IF_MATCH
                | header::IF_NONE_MATCH
                | header::IF_MODIFIED_SINCE
                | header::IF_UNMODIFIED_SINCE => has_condition = true,
                header::CACHE_CONTROL | header::PRAGMA => has_cache_control = true,
                header::REFERER => head.question = head.question.max(Question::Referred),
                header::ORIGIN => head.question = Question::Foreign,
                header::ACCEPT
                | header::ACCEPT_CHARSET
                | header::ACCEPT_ENCODING
                | header::ACCEPT_LANGUAGE
                | header::AUTHORIZATION
                | header::CONNECTION
                | header::CONTENT_LENGTH
                | header::CONTENT_TYPE
                | header::DATE
                | header::EXPECT
                | header::HOST
                | header::TE
                | header::USER_AGENT => {}
                _ => head.take_other(name.as_str(), value),
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

    fn take_other(&mut self, name: &str, value: &HeaderValue) {
        if !name.starts_with("x-amz-") {
            let is_plain = name.starts_with("amz-sdk-")
                || name.starts_with("sec-")
                || name.starts_with("x-b3-")
                || PLAIN_HEADERS.contains(&name);
            if !is_plain {
                self.question = self.question.max(Question::Particular);
            }
            return;
        }
        if !PLAIN_AMZ_HEADERS.contains(&name) {
            self.question = Question::Foreign;
        }
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

/// The `Range` header; a header that is not text counts as malformed.
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
        assert!(head.conditions.is_empty() && head.question == Question::Plain);
        assert!(!head.checksum_mode && !head.sse_c);
    }

    #[test]
    fn each_header_is_heard() {
        assert_eq!(head(&[("range", "bytes=0-1,3-4")]).range, None);
        assert_eq!(head(&[("range", "bytes=0-1"), ("if-range", "\"x\"")]).range, None);
        assert!(head(&[("x-amz-checksum-mode", "Enabled")]).checksum_mode);
        let sse_c = head(&[("x-amz-server-side-encryption-customer-algorithm", "AES256")]);
        assert!(sse_c.sse_c && sse_c.question == Question::Foreign);
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
    fn only_headers_known_to_change_no_permission_are_plain() {
        let of_sdk = [
            ("user-agent", "aws-sdk-rust/1"),
            ("accept-encoding", "identity"),
            ("amz-sdk-invocation-id", "1"),
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
            ("x-amz-api-version", "2006-03-01"),
            ("x-amz-checksum-crc32", "AAAAAA=="),
            ("range", "bytes=0-1"),
            ("if-match", "\"x\""),
            ("traceparent", "00-1-2-00"),
        ];
        assert_eq!(head(&of_sdk).question, Question::Plain);
        assert_eq!(head(&[("referer", "https://page")]).question, Question::Referred);
        for name in ["cookie", "forwarded", "x-forwarded-for", "x-never-heard-of"] {
            let headers = [(name, "x"), ("referer", "https://page")];
            assert_eq!(head(&headers).question, Question::Particular, "{name}");
        }
        for name in ["origin", "x-amz-expected-bucket-owner", "x-amz-request-payer"] {
            let headers = [(name, "x"), ("cookie", "x"), ("referer", "https://page")];
            assert_eq!(head(&headers).question, Question::Foreign, "{name}");
        }
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
