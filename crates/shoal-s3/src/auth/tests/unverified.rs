//! Requests that the lake is to judge: which the node forwards, and which headers a signature covers.

use http::{HeaderName, Method};

use super::{HOST, gate, now, presigned, request, signed};
use crate::auth::{Credentials, Gate, Refusal, SignedHeaders, Verified};
use crate::identity::{Caller, Identities};

/// A gate without identities.
fn stranger() -> Gate {
    Gate::new(Identities::default(), "eu-central-1").leaving_unknown_to_lake()
}

fn judged(gate: &Gate, parts: &http::request::Parts) -> Result<Verified, Refusal> {
    gate.admit(parts, now())
        .or_else(|refusal| gate.admit_unverified(parts, refusal))
}

fn is_unverified(outcome: &Result<Verified, Refusal>) -> bool {
    outcome
        .as_ref()
        .is_ok_and(|verified| matches!(verified.caller, Caller::Unverified))
}

#[test]
fn the_lake_judges_keys_and_algorithms_that_the_gate_does_not_know() {
    // Of another region, too.
    let known = signed(Method::GET, "/b/k", &[]);
    assert!(is_unverified(&judged(&stranger(), &known)));
    let url = presigned("/b/k");
    let verified = judged(&stranger(), &url).unwrap();
    assert!(matches!(verified.credentials, Credentials::Query { .. }));
    let with_token = signed(Method::GET, "/b/k", &[("x-amz-security-token", "token")]);
    assert!(is_unverified(&judged(&stranger(), &with_token)));
    let text =
        "AWS4-ECDSA-P256-SHA256 Credential=a/20130524/s3/aws4_request, SignedHeaders=host, Signature=0";
    let of_version_4a = request(Method::GET, "/b/k", &[("host", HOST), ("authorization", text)]);
    let of_version_2 = request(
        Method::GET,
        "/b/k",
        &[("host", HOST), ("authorization", "AWS a:c2ln")],
    );
    let url_of_version_2 = request(
        Method::GET,
        "/b/k?AWSAccessKeyId=a&Expires=1&Signature=c2ln",
        &[("host", HOST)],
    );
    for parts in [of_version_4a, of_version_2, url_of_version_2] {
        assert!(is_unverified(&judged(&stranger(), &parts)), "{parts:?}");
        assert!(judged(&gate(), &parts).is_err(), "only with the setting");
    }
    let mut preflight = url;
    preflight.method = Method::OPTIONS;
    assert!(is_unverified(&judged(&stranger(), &preflight)));
    // The gate verifies a signature of a key that it knows.
    let gate = gate().leaving_unknown_to_lake();
    let verified = judged(&gate, &known).unwrap();
    assert!(matches!(verified.caller, Caller::Identity(_)));
    let mut forged = known;
    forged.method = Method::PUT;
    assert_eq!(judged(&gate, &forged).unwrap_err(), Refusal::SignatureMismatch);
    let other = request(
        Method::GET,
        "/b/k",
        &[("host", HOST), ("authorization", "Bearer x")],
    );
    assert!(judged(&gate, &other).is_err());
}

#[test]
fn a_header_of_s3_that_is_not_signed_is_refused_unless_it_describes_the_body() {
    for (name, is_forwarded) in [
        ("x-amz-copy-source", false),
        ("x-amz-tagging", false),
        ("x-amz-expected-bucket-owner", false),
        ("x-amz-decoded-content-length", true),
        ("x-amz-trailer", true),
        ("x-amz-checksum-algorithm", true),
        ("content-type", true),
    ] {
        for mut parts in [signed(Method::PUT, "/b/k", &[]), presigned("/b/k")] {
            parts.headers.insert(name, "1".parse().unwrap());
            let outcome = judged(&stranger(), &parts);
            if is_forwarded {
                assert!(is_unverified(&outcome), "{name}");
            } else {
                assert_eq!(outcome.unwrap_err(), Refusal::UnsignedHeaders(name.into()));
            }
        }
    }
    let mut parts = signed(Method::GET, "/b/k", &[]);
    let text = parts.headers["authorization"]
        .to_str()
        .unwrap()
        .replace("=host;", "=");
    parts.headers.insert("authorization", text.parse().unwrap());
    assert_eq!(
        judged(&stranger(), &parts).unwrap_err(),
        Refusal::UnsignedHeaders("host".into())
    );
}

#[test]
fn a_signature_covers_the_headers_that_it_lists() {
    let contains = |parts: &http::request::Parts, name: &str| {
        let signed = SignedHeaders::of(&parts.headers, parts.uri.query()).unwrap();
        signed.contain(&HeaderName::try_from(name).unwrap())
    };
    let header = signed(Method::GET, "/b/k", &[("x-amz-meta-a", "1")]);
    let url = presigned("/b/k");
    let of_version_2 = request(Method::GET, "/b/k", &[("authorization", "AWS a:c2ln")]);
    for (name, expected) in [
        ("host", [true, true, false]),
        ("x-amz-meta-a", [true, false, true]),
        ("x-amz-date", [true, false, true]),
        ("date", [false, false, true]),
        ("content-type", [false, false, true]),
        ("if-none-match", [false, false, false]),
        ("hos", [false, false, false]),
    ] {
        let found = [&header, &url, &of_version_2].map(|parts| contains(parts, name));
        assert_eq!(found, expected, "{name}");
    }
    let unsigned = request(Method::GET, "/b/k?a=b", &[]);
    let basic = request(Method::GET, "/b/k", &[("authorization", "Basic x")]);
    for parts in [unsigned, basic] {
        assert_eq!(SignedHeaders::of(&parts.headers, parts.uri.query()), None);
    }
}
