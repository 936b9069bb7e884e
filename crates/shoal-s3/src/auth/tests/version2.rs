//! Signatures of version 2, where they are let in.

use std::time::{Duration, SystemTime};

use http::request::Parts;
use http::{HeaderValue, Method};
use shoal_base::secret::Secret;

use super::{ACCESS_KEY, SECRET_KEY, at, gate, is_known, request};
use crate::auth::{Credentials, Gate, Refusal, Verified};
use crate::error::{ErrorCode, S3Error};
use crate::sigv2;
use crate::sigv4::PayloadHash;

const HOST: &str = "awsexamplebucket1.us-west-1.s3.amazonaws.com";
const DATE: &str = "Tue, 27 Mar 2007 19:36:42 +0000";
/// [`DATE`] in seconds since 1970.
const SECONDS: u64 = 1_175_024_202;

fn now() -> SystemTime {
    at("20070327T193642Z")
}

fn lenient() -> Gate {
    gate().with_signature_v2(Some("us-west-1.s3.amazonaws.com".into()))
}

fn verify(parts: &Parts) -> Result<Verified, Refusal> {
    lenient().admit(parts, now())
}

fn refusal(parts: &Parts) -> Refusal {
    verify(parts).map(|verified| verified.caller).unwrap_err()
}

fn signature(parts: &Parts, date: &str, path: &str, is_presigned: bool) -> String {
    let request = sigv2::Request {
        method: &parts.method,
        date: date.as_bytes(),
        path,
        query: parts.uri.query().unwrap_or_default(),
        headers: &parts.headers,
        is_presigned,
    };
    sigv2::sign(&Secret::new(SECRET_KEY), &request.string_to_sign().unwrap())
}

/// A path-style request, signed in the header.
fn signed(method: Method, target: &str, headers: &[(&'static str, &str)]) -> Parts {
    let mut parts = request(method, target, headers);
    parts
        .headers
        .entry("host")
        .or_insert(HeaderValue::from_static("node"));
    let date = match (parts.headers.get("x-amz-date"), parts.headers.get("date")) {
        (None, Some(date)) => date.to_str().unwrap(),
        _ => "",
    };
    let signature = signature(&parts, date, parts.uri.path(), false);
    let authorization = format!("AWS {ACCESS_KEY}:{signature}");
    parts
        .headers
        .insert("authorization", authorization.parse().unwrap());
    parts
}

/// A path-style URL, signed in the query.
fn presigned(method: Method, target: &str, expires: &str) -> Parts {
    let separator = if target.contains('?') { '&' } else { '?' };
    let parts = request(method.clone(), target, &[]);
    let signature = signature(&parts, expires, parts.uri.path(), true)
        .replace('+', "%2B")
        .replace('/', "%2F");
    let target =
        format!("{target}{separator}AWSAccessKeyId={ACCESS_KEY}&Signature={signature}&Expires={expires}");
    request(method, &target, &[("host", "node")])
}

#[test]
fn the_published_requests_are_let_in_in_both_styles() {
    let authorization = format!("AWS {ACCESS_KEY}:qgk2+6Sv9/oM7G3qLEjTH1a1l1g=");
    for (host, target) in [
        (HOST, "/photos/puppy.jpg"),
        ("node", "/awsexamplebucket1/photos/puppy.jpg"),
    ] {
        let headers = [
            ("host", host),
            ("date", DATE),
            ("authorization", authorization.as_str()),
        ];
        let verified = verify(&request(Method::GET, target, &headers)).unwrap();
        assert!(is_known(&verified), "{target}");
        assert_eq!(verified.credentials, Credentials::Header);
        assert_eq!(verified.payload.hash, PayloadHash::Unsigned);
    }
    let target = format!(
        "/johnsmith/photos/puppy.jpg?AWSAccessKeyId={ACCESS_KEY}&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D&\
         Expires=1175139620"
    );
    let verified = verify(&request(Method::GET, &target, &[("host", "node")])).unwrap();
    assert!(is_known(&verified));
    let expires = Duration::from_secs(1_175_139_620 - SECONDS);
    assert_eq!(verified.credentials, Credentials::Query { expires });
}

#[test]
fn version_2_is_refused_unless_it_is_enabled() {
    let soon = (SECONDS + 60).to_string();
    for parts in [
        signed(Method::GET, "/b/k", &[("date", DATE)]),
        presigned(Method::GET, "/b/k", &soon),
        presigned(Method::GET, "/b/k", "soon"),
    ] {
        let refused = gate()
            .admit(&parts, now())
            .map(|verified| verified.caller)
            .unwrap_err();
        assert_eq!(refused, Refusal::UnsupportedSignatureVersion);
    }
}

#[test]
fn a_change_of_what_a_signature_covers_is_refused() {
    let headers = [
        ("date", DATE),
        ("content-type", "text/plain"),
        ("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg=="),
        ("x-amz-acl", "private"),
    ];
    let parts = signed(Method::PUT, "/b/k?versionId=1&acl", &headers);
    assert!(is_known(&verify(&parts).unwrap()));
    let changed = |change: &dyn Fn(&mut Parts)| {
        let mut parts = parts.clone();
        change(&mut parts);
        refusal(&parts)
    };
    assert_eq!(
        changed(&|parts| parts.method = Method::DELETE),
        Refusal::SignatureMismatch
    );
    for target in [
        "/b/other?versionId=1&acl",
        "/b/k?versionId=2&acl",
        "/b/k?versionId=1",
    ] {
        let refused = changed(&|parts| parts.uri = target.parse().unwrap());
        assert_eq!(refused, Refusal::SignatureMismatch, "{target}");
    }
    for (name, value) in [
        ("content-type", "text/html"),
        ("content-md5", ""),
        ("x-amz-acl", "public-read"),
        ("x-amz-meta-a", "1"),
    ] {
        let refused = changed(&|parts| {
            parts.headers.insert(name, HeaderValue::from_static(value));
        });
        assert_eq!(refused, Refusal::SignatureMismatch, "{name}: {value}");
    }
    let mut unsigned = parts;
    unsigned.uri = "/b/k?versionId=1&acl&retention".parse().unwrap();
    assert_eq!(refusal(&unsigned), Refusal::UnsignedParameter("retention".into()));
}

#[test]
fn a_signature_in_the_header_is_of_this_quarter_of_an_hour() {
    for (name, date, expected) in [
        ("date", "Tue, 27 Mar 2007 19:51:42 +0000", None),
        ("date", "Tue, 27 Mar 2007 19:21:42 GMT", None),
        ("x-amz-date", "Tue, 27 Mar 2007 19:36:42 GMT", None),
        (
            "date",
            "Tue, 27 Mar 2007 19:51:43 GMT",
            Some(Refusal::TimeTooSkewed),
        ),
        (
            "x-amz-date",
            "Tue, 27 Mar 2007 19:21:41 +0000",
            Some(Refusal::TimeTooSkewed),
        ),
        (
            "x-amz-date",
            "Tue, 07 Jul 1950 21:53:04 GMT",
            Some(Refusal::MissingDate),
        ),
        ("date", "today", Some(Refusal::MissingDate)),
        ("x-amz-date", "", Some(Refusal::MissingDate)),
        ("x-else", DATE, Some(Refusal::MissingDate)),
    ] {
        let parts = signed(Method::GET, "/b/k", &[(name, date)]);
        assert_eq!(verify(&parts).err(), expected, "{name}: {date}");
    }
    // If both dates are present, Amazon's counts.
    let stale = ("date", "Tue, 27 Mar 2007 01:00:00 GMT");
    assert!(verify(&signed(Method::GET, "/b/k", &[stale, ("x-amz-date", DATE)])).is_ok());
}

#[test]
fn a_url_is_valid_until_its_end_which_is_at_most_a_week_away() {
    const WEEK: u64 = 7 * 24 * 60 * 60;
    for (expires, expected) in [
        ((SECONDS + 1).to_string(), None),
        ((SECONDS + WEEK).to_string(), None),
        (SECONDS.to_string(), Some(Refusal::Expired)),
        ("0".into(), Some(Refusal::Expired)),
        ((SECONDS + WEEK + 1).to_string(), Some(Refusal::ExpiresTooLate)),
        ("9".repeat(40), Some(Refusal::ExpiresTooLate)),
        ("soon".into(), Some(Refusal::ExpiresNotATime)),
        ("-1".into(), Some(Refusal::ExpiresNotATime)),
        (String::new(), Some(Refusal::ExpiresNotATime)),
    ] {
        let parts = presigned(Method::GET, "/b/k?versionId=1", &expires);
        assert_eq!(verify(&parts).err(), expected, "{expires}");
        assert_eq!(
            expected.map_or(ErrorCode::AccessDenied, |refusal| refusal.code()),
            ErrorCode::AccessDenied
        );
    }
}

#[test]
fn incomplete_ambiguous_or_unknown_claims_are_refused_by_name() {
    let soon = (SECONDS + 60).to_string();
    let url = presigned(Method::GET, "/b/k", &soon).uri.to_string();
    let of_url = |url: String| request(Method::GET, &url, &[("host", "node")]);
    let mut both = signed(Method::GET, "/b/k", &[("date", DATE)]);
    both.uri = url.parse().unwrap();
    let mut with_version4 = signed(Method::GET, "/b/k", &[("date", DATE)]);
    with_version4.uri = "/b/k?X-Amz-Signature=0".parse().unwrap();
    let header = |value: &str| {
        let headers = [("host", "node"), ("date", DATE), ("authorization", value)];
        request(Method::GET, "/b/k", &headers)
    };
    let mut twice = signed(Method::GET, "/b/k", &[("date", DATE)]);
    twice.headers.append("date", HeaderValue::from_static(DATE));
    let token = ("x-amz-security-token", "t");
    let chunks = ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    for (parts, expected, code) in [
        (both, Refusal::TwoKindsOfCredentials, ErrorCode::InvalidArgument),
        (
            with_version4,
            Refusal::TwoKindsOfCredentials,
            ErrorCode::InvalidArgument,
        ),
        (
            of_url(format!("{url}&X%2DAmz-Signature=0")),
            Refusal::TwoKindsOfCredentials,
            ErrorCode::InvalidArgument,
        ),
        (
            of_url(format!("{url}&E%78pires=9")),
            Refusal::RepeatedParameter,
            ErrorCode::AuthorizationQueryParametersError,
        ),
        (
            of_url(format!("/b/k?AWSAccessKeyId={ACCESS_KEY}&Expires={soon}")),
            Refusal::MissingParametersOfVersion2,
            ErrorCode::AccessDenied,
        ),
        (
            of_url(url.replace(ACCESS_KEY, "nobody")),
            Refusal::UnknownAccessKey("nobody".into()),
            ErrorCode::InvalidAccessKeyId,
        ),
        (
            of_url(format!("{url}&x-amz-security-token=t")),
            Refusal::TokenForStaticIdentity,
            ErrorCode::InvalidToken,
        ),
        (
            signed(Method::GET, "/b/k", &[("date", DATE), token]),
            Refusal::TokenForStaticIdentity,
            ErrorCode::InvalidToken,
        ),
        (
            signed(Method::PUT, "/b/k", &[("date", DATE), chunks]),
            Refusal::StreamingWithVersion2,
            ErrorCode::InvalidRequest,
        ),
        (
            header("AWS nobody:c2ln"),
            Refusal::UnknownAccessKey("nobody".into()),
            ErrorCode::InvalidAccessKeyId,
        ),
        (
            header(&format!("AWS {ACCESS_KEY}:c2ln")),
            Refusal::SignatureMismatch,
            ErrorCode::SignatureDoesNotMatch,
        ),
        (
            header("AWS HAHAHA"),
            Refusal::UnsupportedAuthorization("AWS".into()),
            ErrorCode::InvalidArgument,
        ),
        (twice, Refusal::RepeatedHeader("date"), ErrorCode::InvalidRequest),
    ] {
        let refused = refusal(&parts);
        assert_eq!(S3Error::from(refused.clone()).code, code, "{expected:?}");
        assert_eq!(refused, expected);
    }
}
