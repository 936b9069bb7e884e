//! Builds the HTTP responses of reads: statuses, headers, `X-Cache`.

use std::time::Duration;

use bytes::Bytes;
use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use shoal_net::endpoint::LakeBody;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::error_xml::{RequestId, error_xml};
use shoal_s3::hop_by_hop::{MODE_HEADER, end_to_end_of_response};
use shoal_s3::object::Version;
use shoal_s3::operation::{Query, response_override};
use shoal_s3::range::{ByteRange, RangeRequest};

use super::body::ResponseBody;
use super::location::{AddressedDocument, Relocation};
pub use super::record::CacheStatus;
use crate::blocks::Reading;
use crate::write::{Uncached, WriteMode};

/// Headers that apply to this caller only; `None` if the lake was not asked for this read.
pub type CallerHeaders = Option<Box<HeaderMap>>;

/// `X-Cache`: how much of a response this node had.
pub const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
/// `X-Cache-Reason`: why a response was not cached.
pub const X_CACHE_REASON: HeaderName = HeaderName::from_static("x-cache-reason");
/// `x-amz-request-id`
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
/// `x-amz-id-2`
const EXTENDED_ID: HeaderName = HeaderName::from_static("x-amz-id-2");
/// `Server-Timing`
pub const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The client's options for the form of the response.
#[derive(Clone, Debug, Default)]
pub struct ResponseOptions {
    /// `response-*` parameters.
    pub overrides: Vec<(HeaderName, HeaderValue)>,
    /// `x-amz-checksum-mode: ENABLED`
    pub checksum_mode: bool,
}

impl ResponseOptions {
    /// Parses the `response-*` parameters.
    ///
    /// # Errors
    ///
    /// Returns `InvalidArgument` for a value that is not valid in a header (CR, LF, other control
    /// characters).
    pub fn parse(query: &Query, checksum_mode: bool) -> Result<Self, S3Error> {
        let overrides = query
            .iter()
            .filter_map(|(name, value)| Some((response_override(name)?, value)));
        let overrides = overrides.map(|(name, value)| match HeaderValue::from_str(value) {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(S3Error::new(
                ErrorCode::InvalidArgument,
                "A response-* parameter holds control characters.",
            )),
        });
        Ok(Self {
            overrides: overrides.collect::<Result<_, _>>()?,
            checksum_mode,
        })
    }
}

/// Adds the mode in which a write was carried out and, if it was written around the cache, the reason.
pub fn written(headers: &mut HeaderMap, cached: Result<(), Uncached>) {
    let mode = match cached {
        Ok(()) => WriteMode::Through,
        Err(why) => {
            headers.insert(X_CACHE_REASON, HeaderValue::from_static(why.as_str()));
            WriteMode::Around
        }
    };
    headers.insert(MODE_HEADER, HeaderValue::from_static(mode.as_str()));
}

/// Returns `200` or `206` with the bytes of a version, and the headers that the lake sent to this caller with
/// it.
pub fn object(
    reading: Reading,
    caller_headers: CallerHeaders,
    asked: RangeRequest,
    options: &ResponseOptions,
) -> Response<ResponseBody> {
    let Reading {
        version,
        range,
        blocks,
        ..
    } = reading;
    let body = ResponseBody::blocks(blocks, range.len());
    described(body, &version, caller_headers, range, asked, options)
}

/// Returns the response to a HEAD of a version that this node knows, with the headers of a GET of `range`.
pub fn head(
    version: &Version,
    range: ByteRange,
    asked: RangeRequest,
    options: &ResponseOptions,
) -> Response<ResponseBody> {
    let body = ResponseBody::head(range.len());
    described(body, version, None, range, asked, options)
}

/// Returns `304` with the headers that RFC 9110 requires.
pub fn not_modified(version: &Version) -> Response<ResponseBody> {
    let mut response = empty(StatusCode::NOT_MODIFIED);
    for name in [
        header::ETAG,
        header::LAST_MODIFIED,
        header::CACHE_CONTROL,
        header::EXPIRES,
    ] {
        if let Some(value) = version.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// Adds the headers of the lake's response to this caller that let a web page read a response without an
/// object (CORS).
pub fn add_page_headers(headers: &mut HeaderMap, caller_headers: &HeaderMap) {
    for (name, value) in caller_headers {
        if name == header::VARY || name.as_str().starts_with("access-control-") {
            headers.append(name.clone(), value.clone());
        }
    }
}

/// Returns a response without a body.
pub fn empty(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = status;
    response
}

/// Returns `416` with the range that was `asked` for, and the size.
pub fn unsatisfiable(
    asked: RangeRequest,
    size_bytes: u64,
    resource: &str,
    request_id: RequestId,
) -> Response<ResponseBody> {
    let error = S3Error::new(ErrorCode::InvalidRange, "The requested range is not satisfiable")
        .with("RangeRequested", asked.to_string())
        .with("ActualObjectSize", size_bytes.to_string());
    let mut response = self::error(&error, resource, request_id);
    add_size(response.headers_mut(), size_bytes);
    response
}

/// Returns `416` to a HEAD, with the size.
pub fn unsatisfiable_head(size_bytes: u64) -> Response<ResponseBody> {
    let mut response = empty(StatusCode::RANGE_NOT_SATISFIABLE);
    add_size(response.headers_mut(), size_bytes);
    response
}

/// Adds the `Content-Range` of a `416`.
fn add_size(headers: &mut HeaderMap, size_bytes: u64) {
    let range = HeaderValue::try_from(format!("bytes */{size_bytes}")).expect("digits are a header value");
    headers.insert(header::CONTENT_RANGE, range);
}

/// Returns an error of this node as S3's XML.
pub fn error(error: &S3Error, resource: &str, request_id: RequestId) -> Response<ResponseBody> {
    let xml = error_xml(error, resource, request_id);
    let mut response = Response::new(ResponseBody::full(xml));
    *response.status_mut() = error.code.status();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    if matches!(error.code, ErrorCode::SlowDown | ErrorCode::ServiceUnavailable) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if error.close {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Adds the headers of every response: its id, `X-Cache`, and the time until its head.
pub fn stamp(
    headers: &mut HeaderMap,
    request_id: RequestId,
    cache: Option<CacheStatus>,
    head_time: Duration,
) {
    if let Entry::Vacant(unnamed) = headers.entry(REQUEST_ID) {
        let id = HeaderValue::from_str(request_id.as_str()).expect("request ids are hexadecimal");
        unnamed.insert(id.clone());
        headers.insert(EXTENDED_ID, id);
    }
    if let Some(cache) = cache {
        headers.insert(X_CACHE, HeaderValue::from_static(cache.as_str()));
    }
    headers.insert(SERVER_TIMING, server_timing(head_time));
}

/// Returns `shoal;dur=1.234`, in milliseconds.
fn server_timing(head_time: Duration) -> HeaderValue {
    const NAME: &[u8] = b"shoal;dur=";
    let micros = head_time.as_micros() as u64;
    let mut digits = itoa::Buffer::new();
    let whole = digits.format(micros / 1000).as_bytes();
    let [hundreds, tens, ones] = [100, 10, 1].map(|unit| b'0' + (micros / unit % 10) as u8);
    let fraction = [b'.', hundreds, tens, ones];
    // A vector without spare capacity becomes a header value without being copied.
    let mut text = Vec::with_capacity(NAME.len() + whole.len() + fraction.len());
    for part in [NAME, whole, &fraction] {
        text.extend_from_slice(part);
    }
    HeaderValue::from_maybe_shared(Bytes::from(text)).expect("digits are a header value")
}

/// Returns a response with the headers for a range of a version: `206` if the client asked for a part, else
/// `200`.
fn described(
    body: ResponseBody,
    version: &Version,
    caller_headers: CallerHeaders,
    range: ByteRange,
    asked: RangeRequest,
    options: &ResponseOptions,
) -> Response<ResponseBody> {
    /// The number of headers that this function and [`stamp`] add. Growing the map later would cost a hit
    /// more than filling it.
    const ADDED: usize = 7;
    let is_part = asked != RangeRequest::Whole;
    // The checksums cover the whole object; a client would verify the part against them.
    let checksums = options.checksum_mode && !is_part;
    let is_left_out = |name: &HeaderName| !checksums && name.as_str().starts_with("x-amz-checksum-");
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    // A map is cloned without its names being hashed again.
    headers.clone_from(&version.headers);
    for name in version.headers.keys().filter(|name| is_left_out(name)) {
        headers.remove(name);
    }
    headers.remove(header::DATE);
    let callers = caller_headers.as_ref().map_or(0, |headers| headers.len());
    headers.reserve(callers + options.overrides.len() + ADDED);
    if let Some(caller_headers) = caller_headers {
        headers.extend(*caller_headers);
    }
    for (name, value) in &options.overrides {
        headers.insert(name, value.clone());
    }
    headers
        .entry(header::ACCEPT_RANGES)
        .or_insert(HeaderValue::from_static("bytes"));
    let mut digits = itoa::Buffer::new();
    let length = HeaderValue::from_str(digits.format(range.len())).expect("digits are a header value");
    headers.insert(header::CONTENT_LENGTH, length);
    if is_part {
        let content_range = format!("bytes {}-{}/{}", range.start, range.end - 1, version.size_bytes);
        let content_range = HeaderValue::try_from(content_range).expect("digits are a header value");
        headers.insert(header::CONTENT_RANGE, content_range);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

/// Converts the lake's response to one for the client.
pub fn relay(response: Response<LakeBody>) -> Response<ResponseBody> {
    let (head, body) = response.into_parts();
    relay_with(&head, ResponseBody::lake(body))
}

/// Relays the lake's response, with the client's address in its header and its document.
pub fn relay_addressed(response: Response<LakeBody>, relocation: Relocation) -> Response<ResponseBody> {
    let (head, body) = response.into_parts();
    let location = head
        .headers
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok());
    let location = location.and_then(|location| HeaderValue::try_from(relocation.of(location)?).ok());
    let has_document = matches!(head.status, StatusCode::OK | StatusCode::CREATED);
    let body = if has_document {
        ResponseBody::document(AddressedDocument::new(body, relocation))
    } else {
        ResponseBody::lake(body)
    };
    let mut relayed = relay_with(&head, body);
    let headers = relayed.headers_mut();
    if has_document {
        headers.remove(header::CONTENT_LENGTH);
    }
    if let Some(location) = location {
        headers.insert(header::LOCATION, location);
    }
    relayed
}

/// Converts the lake's response to one with another body.
fn relay_with(head: &http::response::Parts, body: ResponseBody) -> Response<ResponseBody> {
    let mut relayed = Response::new(body);
    *relayed.status_mut() = head.status;
    *relayed.headers_mut() = end_to_end_of_response(&head.headers);
    relayed
}
