//! Resumes a response body that breaks off: the rest is requested from the byte where it broke off, if the
//! version is still the same.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;

use http::header::{CONTENT_ENCODING, CONTENT_RANGE, ETAG, IF_MATCH, RANGE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use shoal_base::chance;
use shoal_s3::conditions::CONDITIONAL_HEADERS;

use super::error::{EndpointError, Failure};
use super::{Endpoint, EndpointRequest, LakeBody, SendOptions, retry};
use crate::link::Transfer;

/// Number of breaks allowed within [`PROGRESS_BYTES`]. A stall uses up all of them, because the client has
/// already waited long.
const BREAKS_MAX: u32 = 3;

/// After this many bytes without a break, earlier breaks are forgotten.
const PROGRESS_BYTES: u64 = 1 << 20;

/// A pending request for the rest of a body, over another connection.
pub(super) type Reopening = Pin<Box<dyn Future<Output = Result<LakeBody, EndpointError>> + Send>>;

/// A GET of an object that can be repeated.
pub struct RepeatableGet {
    endpoint: Arc<Endpoint>,
    request: EndpointRequest,
    transfer: Option<Transfer>,
}

/// Called when the lake contradicts its earlier response to a GET: it refuses the rest of the body, or has
/// another version.
pub type OnContradiction = Arc<dyn Fn() + Send + Sync>;

/// The state needed to request the rest of a body.
pub struct Resumption {
    get: RepeatableGet,
    on_contradiction: OnContradiction,
    etag: HeaderValue,
    encoding: Option<HeaderValue>,
    size_bytes: u64,
    /// The bytes of the object that have not arrived.
    missing: Range<u64>,
    breaks: Breaks,
}

/// Recent breaks of the body.
#[derive(Debug, Default)]
struct Breaks {
    count: u32,
    /// Bytes that have arrived since the last break.
    progress_bytes: u64,
}

impl Breaks {
    fn arrived(&mut self, bytes: u64) {
        self.progress_bytes += bytes;
        if self.progress_bytes >= PROGRESS_BYTES {
            self.count = 0;
        }
    }

    /// Returns true if the rest may be requested after this failure.
    fn allow(&mut self, failure: Failure) -> bool {
        let cost = match failure {
            Failure::Truncated | Failure::Reset => 1,
            Failure::Stalled => BREAKS_MAX,
            _ => return false,
        };
        let allowed = self.count + cost <= BREAKS_MAX;
        self.count += cost;
        self.progress_bytes = 0;
        allowed
    }
}

impl RepeatableGet {
    /// Remembers `request` to `endpoint`, except for its range and conditions.
    pub fn of(endpoint: &Arc<Endpoint>, request: &EndpointRequest) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            request: again(request, request.headers.clone()),
            transfer: None,
        }
    }

    /// Returns the same GET as a part of `transfer`.
    #[must_use]
    pub fn within(mut self, transfer: Option<&Transfer>) -> Self {
        self.transfer = transfer.cloned();
        self
    }

    /// Repeats the request when a body with the bytes `part` of an object of `size_bytes` breaks off. The
    /// ETag must be a strong one, because only that guarantees that the rest belongs to the bytes that have
    /// arrived.
    pub fn resumes(
        self,
        etag: HeaderValue,
        encoding: Option<&HeaderValue>,
        size_bytes: u64,
        part: Range<u64>,
        on_contradiction: OnContradiction,
    ) -> Resumption {
        Resumption {
            get: self,
            on_contradiction,
            etag,
            encoding: encoding.cloned(),
            size_bytes,
            missing: part,
            breaks: Breaks::default(),
        }
    }
}

/// Returns a GET of the same target with these headers.
fn again(request: &EndpointRequest, headers: HeaderMap) -> EndpointRequest {
    let (target, account) = (request.target.clone(), request.account.clone());
    let again = EndpointRequest::new(request.operation, Method::GET, target, account, request.payer);
    again.with_headers(headers)
}

impl Resumption {
    /// Counts bytes of the body that have arrived.
    pub(super) fn arrived(&mut self, bytes: u64) {
        self.missing.start += bytes;
        self.breaks.arrived(bytes);
    }

    /// Returns a request for the rest of a body that ended with `error`, or the error if it is final. The
    /// retry is charged to the retry budget.
    pub(super) fn after(&mut self, error: EndpointError) -> Result<Reopening, EndpointError> {
        let endpoint = Arc::clone(&self.get.endpoint);
        let is_worth_it = !self.missing.is_empty() && self.breaks.allow(error.kind());
        if !is_worth_it || !endpoint.budget.spend() {
            return Err(error);
        }
        endpoint.transport.counters.resumes.add(1);
        let pause = retry::backoff(self.breaks.count, chance::unit());
        let (request, expected) = (self.request(), self.expected());
        let transfer = self.get.transfer.clone();
        let on_contradiction = Arc::clone(&self.on_contradiction);
        Ok(Box::pin(async move {
            tokio::time::sleep(pause).await;
            // The time limit excludes the wait for the link, which clients may occupy for long.
            let options = SendOptions::within(transfer.as_ref());
            let (head, body) = endpoint.permitted(request, options).await;
            let sending = endpoint.send_permitted(head, body);
            let answer = tokio::time::timeout(endpoint.transport.timeouts.answer, sending).await;
            // The error that broke the body is more informative than that of a failed attempt to resume.
            let Ok(Ok(response)) = answer else {
                return Err(error);
            };
            let error = match expected.check(&response) {
                RestCheck::Rest => return Ok(response.into_body()),
                RestCheck::NoAnswer => return Err(error),
                RestCheck::Changed => error.of_another_version(),
                RestCheck::Refused => error,
            };
            on_contradiction();
            Err(error)
        }))
    }

    fn request(&self) -> EndpointRequest {
        let Range { start, end } = self.missing;
        let range = HeaderValue::try_from(format!("bytes={start}-{}", end - 1));
        let mut headers = self.get.request.headers.clone();
        for condition in CONDITIONAL_HEADERS {
            headers.remove(condition);
        }
        headers.insert(RANGE, range.expect("digits are a header value"));
        headers.insert(IF_MATCH, self.etag.clone());
        again(&self.get.request, headers)
    }

    fn expected(&self) -> Expected {
        let Range { start, end } = self.missing;
        Expected {
            etag: self.etag.clone(),
            encoding: self.encoding.clone(),
            content_range: format!("bytes {start}-{}/{}", end - 1, self.size_bytes),
        }
    }
}

/// The response head expected for the rest of a body.
struct Expected {
    etag: HeaderValue,
    encoding: Option<HeaderValue>,
    content_range: String,
}

/// The verdict on the response to the request for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestCheck {
    Rest,
    Changed,
    Refused,
    NoAnswer,
}

impl Expected {
    fn check<B>(&self, response: &Response<B>) -> RestCheck {
        let headers = response.headers();
        match response.status() {
            StatusCode::PRECONDITION_FAILED | StatusCode::NOT_FOUND | StatusCode::RANGE_NOT_SATISFIABLE => {
                RestCheck::Changed
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RestCheck::Refused,
            StatusCode::PARTIAL_CONTENT if headers.get(ETAG) != Some(&self.etag) => RestCheck::Changed,
            StatusCode::PARTIAL_CONTENT
                if headers.get(CONTENT_ENCODING) == self.encoding.as_ref()
                    && headers
                        .get(CONTENT_RANGE)
                        .is_some_and(|range| *range == self.content_range) =>
            {
                RestCheck::Rest
            }
            _ => RestCheck::NoAnswer,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Response};

    use super::{BREAKS_MAX, Breaks, Expected, Failure, PROGRESS_BYTES, RestCheck};

    #[test]
    fn a_body_that_breaks_again_and_again_is_given_up() {
        let mut breaks = Breaks::default();
        for _ in 0..BREAKS_MAX {
            breaks.arrived(PROGRESS_BYTES - 1);
            assert!(breaks.allow(Failure::Truncated));
        }
        assert!(!breaks.allow(Failure::Reset));
    }

    #[test]
    fn progress_makes_up_for_earlier_breaks() {
        let mut breaks = Breaks::default();
        for _ in 0..100 {
            assert!(breaks.allow(Failure::Reset));
            breaks.arrived(PROGRESS_BYTES / 2);
            breaks.arrived(PROGRESS_BYTES / 2);
        }
    }

    #[test]
    fn a_body_that_stalls_is_asked_for_once_more() {
        let mut breaks = Breaks::default();
        assert!(breaks.allow(Failure::Stalled));
        assert!(!breaks.allow(Failure::Stalled));
        let mut broken_before = Breaks::default();
        assert!(broken_before.allow(Failure::Reset));
        assert!(!broken_before.allow(Failure::Stalled));
    }

    #[test]
    fn a_failure_that_is_no_break_is_final() {
        for failure in [Failure::TimedOut, Failure::Unintelligible, Failure::RequestBody] {
            assert!(!Breaks::default().allow(failure), "{failure:?}");
        }
    }

    #[test]
    fn only_the_missing_bytes_of_the_same_version_go_on() {
        let expected = Expected {
            etag: HeaderValue::from_static("\"e\""),
            encoding: None,
            content_range: "bytes 4-9/10".into(),
        };
        let encoded = Expected {
            etag: expected.etag.clone(),
            encoding: Some(HeaderValue::from_static("gzip")),
            content_range: expected.content_range.clone(),
        };
        let check = |status, etag, range| {
            let response = Response::builder()
                .status(status)
                .header("etag", etag)
                .header("content-range", range);
            expected.check(&response.body(()).unwrap())
        };
        assert_eq!(check(206, "\"e\"", "bytes 4-9/10"), RestCheck::Rest);
        let plain = Response::builder()
            .status(206)
            .header("etag", "\"e\"")
            .header("content-range", "bytes 4-9/10");
        let plain = plain.body(()).unwrap();
        assert_eq!(encoded.check(&plain), RestCheck::NoAnswer, "in another encoding");
        for (status, etag, range) in [(206, "\"f\"", "bytes 4-9/10"), (412, "\"e\"", ""), (404, "", "")] {
            assert_eq!(check(status, etag, range), RestCheck::Changed, "{status} {etag}");
        }
        for status in [401, 403] {
            assert_eq!(check(status, "", ""), RestCheck::Refused, "{status}");
        }
        for (status, range) in [
            (206, "bytes 3-9/10"),
            (206, "bytes 4-9/11"),
            (200, "bytes 4-9/10"),
            (503, ""),
        ] {
            assert_eq!(
                check(status, "\"e\"", range),
                RestCheck::NoAnswer,
                "{status} {range}"
            );
        }
    }
}
