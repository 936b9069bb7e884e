//! Separates end-to-end headers from hop-by-hop headers.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, DATE, EXPECT, HOST, HeaderMap, HeaderName,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// Headers of one connection (RFC 9110, 7.6.1), and `Content-Length`, which like `Transfer-Encoding` frames a
/// message on one connection and is set again for the next one.
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    CONTENT_LENGTH,
];

/// Headers with the sender, the receiver, the time, or the encodings that the sender accepts: a forwarded
/// request has its own.
const OF_THE_SENDER: [HeaderName; 8] = [
    ACCEPT_ENCODING,
    HOST,
    AUTHORIZATION,
    DATE,
    EXPECT,
    HeaderName::from_static("x-amz-date"),
    HeaderName::from_static("x-amz-content-sha256"),
    HeaderName::from_static("x-amz-security-token"),
];

/// The header with the mode of one write. It is not forwarded to the lake.
pub const MODE_HEADER: HeaderName = HeaderName::from_static("x-shoal-write");

/// The header with the expected lifetime of an object. It is not forwarded to the lake.
pub const LIFETIME_HEADER: HeaderName = HeaderName::from_static("x-shoal-lifetime");

/// The header with the name of the job that sent a request, for the access log. It is not forwarded to the
/// lake.
pub const JOB_HEADER: HeaderName = HeaderName::from_static("x-shoal-job");

/// Headers for this node, which are not forwarded.
const OF_THE_NODE: [HeaderName; 3] = [MODE_HEADER, LIFETIME_HEADER, JOB_HEADER];

/// The headers of a client's request that are forwarded to the endpoint, in their order and number.
///
/// Framing (`Content-Length`, `Transfer-Encoding`) is left out, because the request to the lake is framed
/// separately.
pub fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(headers);
    retain(headers, |name| {
        !is_hop_by_hop(name)
            && !OF_THE_SENDER.contains(name)
            && !OF_THE_NODE.contains(name)
            && !named.iter().any(|n| n == name.as_str())
    })
}

/// The headers of a client's request that is forwarded with the client's signature, in their order and
/// number: those that it covers, and all others that are not of one connection or for this node.
///
/// `Content-Length` is kept, because the body is forwarded as it came.
pub fn with_signed(headers: &HeaderMap, is_signed: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let named = named_by_connection(headers);
    retain(headers, |name| {
        is_signed(name)
            || name == CONTENT_LENGTH
            || !is_hop_by_hop(name)
                && name != EXPECT
                && !OF_THE_NODE.contains(name)
                && !named.iter().any(|n| n == name.as_str())
    })
}

/// The headers of the endpoint's response that are returned to the client, in their order and number.
///
/// `Content-Length` is kept, because HEAD responses need it, and so is `Date`.
pub fn end_to_end_of_response(headers: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(headers);
    retain(headers, |name| {
        name == CONTENT_LENGTH || !is_hop_by_hop(name) && !named.iter().any(|n| n == name.as_str())
    })
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name) || name.as_str().starts_with("proxy-")
}

/// The headers that `Connection` declares as hop-by-hop. Headers with a meaning in S3 are ignored: otherwise
/// `Connection: x-amz-acl` would remove a header after the request was authorised.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty() && !name.starts_with("x-amz-"))
        .collect()
}

/// The headers whose names `keep` accepts, in their order and number.
pub(crate) fn retain(headers: &HeaderMap, keep: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if keep(name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::{HeaderMap, HeaderName, end_to_end, end_to_end_of_response, with_signed};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn headers_of_the_hop_and_of_the_sender_stay_behind() {
        let sent = headers(&[
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "secret"),
            ("content-length", "3"),
            ("host", "node"),
            ("authorization", "secret"),
            ("date", "today"),
            ("accept-encoding", "gzip"),
            ("expect", "100-continue"),
            ("x-amz-date", "today"),
            ("x-amz-content-sha256", "00"),
            ("x-amz-security-token", "secret"),
            ("x-shoal-write", "back"),
            ("x-shoal-lifetime", "short"),
            ("x-shoal-job", "etl"),
        ]);
        assert_eq!(end_to_end(&sent), HeaderMap::new());
    }

    #[test]
    fn what_is_signed_passes_whatever_it_is() {
        let sent = headers(&[
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("host", "lake"),
            ("expect", "100-continue"),
            ("authorization", "AWS4"),
            ("content-length", "3"),
            ("x-shoal-job", "etl"),
        ]);
        let names = |is_signed: bool| {
            let kept = with_signed(&sent, |_| is_signed);
            kept.keys()
                .map(|name| name.as_str().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(true).len(), sent.len());
        assert_eq!(names(false), ["host", "authorization", "content-length"]);
    }

    #[test]
    fn unknown_headers_pass_with_their_duplicates_in_order() {
        let sent = headers(&[
            ("x-unknown", "1"),
            ("range", "bytes=0-1"),
            ("x-unknown", "2"),
            ("x-amz-acl", "private"),
        ]);
        assert_eq!(end_to_end(&sent), sent);
        let values: Vec<_> = end_to_end(&sent).get_all("x-unknown").iter().cloned().collect();
        assert_eq!(values, ["1", "2"]);
    }

    #[test]
    fn connection_cannot_remove_a_header_of_s3() {
        let sent = headers(&[("connection", "x-amz-acl"), ("x-amz-acl", "private")]);
        assert_eq!(end_to_end(&sent), headers(&[("x-amz-acl", "private")]));
    }

    #[test]
    fn a_response_keeps_its_length_and_its_date() {
        let received = headers(&[
            ("content-length", "3"),
            ("date", "today"),
            ("connection", "close"),
            ("etag", "\"e\""),
        ]);
        assert_eq!(
            end_to_end_of_response(&received),
            headers(&[("content-length", "3"), ("date", "today"), ("etag", "\"e\"")])
        );
    }
}
