//! Which headers and query parameters belong to the message, and which to one hop of it.

use std::borrow::Cow;

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, DATE, EXPECT, HOST, HeaderMap, HeaderName, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};

use crate::sigv2;
use crate::sigv4::canonical::{SIGNATURE_PARAMETER, decode_component, split_pair};

/// Headers of one connection (RFC 9110, 7.6.1), whoever sends them.
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    CONTENT_LENGTH,
];

/// Headers that name the sender, the receiver or the moment: a forwarded request gets its own.
const OF_THE_SENDER: [HeaderName; 7] = [
    HOST,
    AUTHORIZATION,
    DATE,
    EXPECT,
    HeaderName::from_static("x-amz-date"),
    HeaderName::from_static("x-amz-content-sha256"),
    HeaderName::from_static("x-amz-security-token"),
];

/// What a client tells this node and nobody behind it.
const FOR_THIS_NODE: HeaderName = crate::write::MODE_HEADER;

/// The query parameter of a presigned URL that names its signer.
const CREDENTIAL: &str = "X-Amz-Credential";

/// Query parameters by which a presigned URL carries its credentials; S3 reads them in exactly this spelling, once
/// they are percent-decoded.
const PRESIGNED: [&str; 7] = [
    "X-Amz-Algorithm",
    CREDENTIAL,
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    SIGNATURE_PARAMETER,
    "X-Amz-Security-Token",
];

/// The headers of a client's request that go on to the endpoint, in their order and number.
///
/// Framing (`Content-Length`, `Transfer-Encoding`) is left out: [`EndpointRequest`](super::EndpointRequest)
/// says how long the body is.
pub fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(headers);
    retain(headers, |name| {
        !is_hop_by_hop(name)
            && !OF_THE_SENDER.contains(name)
            && name != FOR_THIS_NODE
            && !named.iter().any(|n| n == name.as_str())
    })
}

/// The headers of the endpoint's response that go on to the client, in their order and number.
///
/// `Content-Length` stays: it is what a HEAD is asked for. `Date` stays too, as the moment of the answer.
pub fn end_to_end_of_response(headers: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(headers);
    retain(headers, |name| {
        name == CONTENT_LENGTH || !is_hop_by_hop(name) && !named.iter().any(|n| n == name.as_str())
    })
}

/// The target without the credentials of a presigned URL; every other byte stays as it is.
pub fn without_presigned_credentials(target: &PathAndQuery) -> PathAndQuery {
    let Some(query) = target.query() else {
        return target.clone();
    };
    let name = |pair: &str| decode_component(split_pair(pair.as_bytes()).0);
    let [access_key, ..] = sigv2::PARAMETERS;
    let is_version2 = query.split('&').any(|pair| name(pair) == access_key.as_bytes());
    // The names of version 2 are plain words: without an access key they are not ours to remove.
    let of_version2: &[&str] = if is_version2 { &sigv2::PARAMETERS } else { &[] };
    let is_credential = |pair: &&str| {
        let name = name(pair);
        let mut credentials = PRESIGNED.iter().chain(of_version2);
        credentials.any(|credential| credential.as_bytes() == name)
    };
    if !query.split('&').any(|pair| is_credential(&pair)) {
        return target.clone();
    }
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_credential(pair)).collect();
    let stripped = match kept.as_slice() {
        [] => target.path().to_owned(),
        kept => format!("{}?{}", target.path(), kept.join("&")),
    };
    PathAndQuery::try_from(stripped).unwrap_or_else(|_| unreachable!("a part of a valid target is valid"))
}

/// The target of a presigned URL that names `access_key`, and a signature of nothing in the place of its own: the
/// claim without the proof. Every other byte stays as it is.
pub fn presigned_in_name(target: &PathAndQuery, access_key: &str) -> PathAndQuery {
    let Some(query) = target.query() else {
        return target.clone();
    };
    let access_key = utf8_percent_encode(access_key, NON_ALPHANUMERIC);
    let pairs = query.split('&').map(|pair| {
        let (name, value) = split_pair(pair.as_bytes());
        let name = decode_component(name);
        if name == SIGNATURE_PARAMETER.as_bytes() {
            return Cow::Owned(format!("{SIGNATURE_PARAMETER}={:064}", 0));
        }
        match scope_of(value).filter(|_| name == CREDENTIAL.as_bytes()) {
            Some(scope) => Cow::Owned(format!("{CREDENTIAL}={access_key}%2F{scope}")),
            None => Cow::Borrowed(pair),
        }
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    PathAndQuery::try_from(format!("{}?{query}", target.path()))
        .unwrap_or_else(|_| unreachable!("a valid target with other encoded values is valid"))
}

/// What stands behind the access key in a credential, encoded: a day and three words.
fn scope_of(credential: &[u8]) -> Option<String> {
    let credential = decode_component(credential);
    let slash = memchr::memrchr_iter(b'/', &credential).nth(3)?;
    Some(percent_encode(&credential[slash + 1..], NON_ALPHANUMERIC).to_string())
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name) || name.as_str().starts_with("proxy-")
}

/// What `Connection` declares to be of this hop only. It cannot name what S3 gives a meaning to: a client
/// that says `Connection: x-amz-acl` would else remove a header after it was authorised.
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

fn retain(headers: &HeaderMap, keep: impl Fn(&HeaderName) -> bool) -> HeaderMap {
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

    use super::{
        HeaderMap, HeaderName, PathAndQuery, end_to_end, end_to_end_of_response, presigned_in_name,
        without_presigned_credentials,
    };

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
            ("expect", "100-continue"),
            ("x-amz-date", "today"),
            ("x-amz-content-sha256", "00"),
            ("x-amz-security-token", "secret"),
        ]);
        assert_eq!(end_to_end(&sent), HeaderMap::new());
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

    #[test]
    fn a_presigned_query_names_another_without_a_proof_and_keeps_every_other_byte() {
        let nothing = "0".repeat(64);
        for (given, expected) in [
            ("/b/k", "/b/k"),
            ("/b/k?a=%2f&&b=+", "/b/k?a=%2f&&b=+"),
            (
                "/b/%6b?X-Amz-Credential=me%2F20260101%2Feu%2Fs3%2Faws4_request&X-Amz-%53ignature=1f&x",
                "/b/%6b?X-Amz-Credential=their%2Fkey%2F20260101%2Feu%2Fs3%2Faws4%5Frequest&X-Amz-Signature={nothing}&x",
            ),
            (
                "/b/k?X%2DAmz-Credential=m/e/1/2/3/4&X-Amz-Date=%31",
                "/b/k?X-Amz-Credential=their%2Fkey%2F1%2F2%2F3%2F4&X-Amz-Date=%31",
            ),
            ("/b/k?X-Amz-Credential=me", "/b/k?X-Amz-Credential=me"),
        ] {
            let target = PathAndQuery::from_static(given);
            let named = presigned_in_name(&target, "their/key");
            assert_eq!(named.as_str(), expected.replace("{nothing}", &nothing));
        }
    }

    #[test]
    fn a_presigned_query_loses_its_credentials_and_nothing_else() {
        for (given, expected) in [
            ("/b/k", "/b/k"),
            ("/b/k?", "/b/k?"),
            ("/b/k?a=%2f&&b=+", "/b/k?a=%2f&&b=+"),
            (
                "/b/k?X-Amz-Signature=0&versionId=3&X-Amz-Date=1",
                "/b/k?versionId=3",
            ),
            (
                "/b/k?X-Amz-Algorithm=a&X-Amz-Credential=b&X-Amz-Expires=1&X-Amz-SignedHeaders=h",
                "/b/k",
            ),
            ("/b/k?X-Amz-Security-Token&&x=%41", "/b/k?&x=%41"),
            (
                "/b/k?X%2DAmz-Date=1&X-Amz-%53ignature=0&%58%2d%41mz-Credential=c&a%3D=1",
                "/b/k?a%3D=1",
            ),
            (
                "/b/k?Signature=s&versionId=3&AWS%41ccessKeyId=a&Expires=1",
                "/b/k?versionId=3",
            ),
            ("/b/k?Signature=s&Expires=1", "/b/k?Signature=s&Expires=1"),
            (
                "/b/k?x-amz-signature=0&X-Amz-Meta=1",
                "/b/k?x-amz-signature=0&X-Amz-Meta=1",
            ),
        ] {
            let target = PathAndQuery::from_static(given);
            assert_eq!(without_presigned_credentials(&target).as_str(), expected);
        }
    }
}
