//! Credentials in the query.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Method};

use super::{ACCESS_KEY, gate, now, presigned, presigned_at, refusal, tampered, told, verify};
use crate::auth::{Credentials, Refusal, Verified};
use crate::error::ErrorCode;
use crate::identity::Caller;

#[test]
fn a_presigned_url_changed_after_signing_is_worthless() {
    let url = presigned("/bucket/key?versionId=1");
    assert!(verify(&url).is_ok());
    for (from, to) in [
        ("/bucket/key", "/bucket/kez"),
        ("versionId=1", "versionId=2"),
        ("versionId=1&", ""),
        ("X-Amz-Expires=3600", "X-Amz-Expires=3601"),
        ("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders=host&acl"),
        ("X-Amz-Signature=", "X-Amz-Signature=0"),
    ] {
        assert_eq!(
            refusal(&tampered(&url, from, to)),
            Refusal::SignatureMismatch,
            "{from} -> {to}"
        );
    }
    let mut put = url.clone();
    put.method = Method::PUT;
    assert_eq!(refusal(&put), Refusal::SignatureMismatch);
}

#[test]
fn a_preflight_of_a_presigned_url_is_unsigned_and_names_an_account() {
    let mut question = presigned("/bucket/key");
    question.method = Method::OPTIONS;
    let asked = |question: &Parts| verify(question).unwrap();
    let named = |verified: Verified| match verified.named {
        Some(Caller::Identity(identity)) => Some(identity.index),
        Some(Caller::Anonymous) | None => None,
    };
    let verified = asked(&question);
    assert!(matches!(verified.caller, Caller::Anonymous));
    assert_eq!(verified.credentials, Credentials::None);
    assert_eq!(named(verified), Some(0));
    for (from, to) in [
        (ACCESS_KEY, "AKIDNOBODY"),
        ("X-Amz-Date=", "X-Amz-Security-Token=t&X-Amz-Date="),
    ] {
        let question = tampered(&question, from, to);
        assert_eq!(named(asked(&question)), None, "{to}");
    }
}

#[test]
fn a_presigned_url_lives_from_its_date_to_its_expiry() {
    let hour = Duration::from_hours(1);
    let check = |time, expires| {
        gate()
            .admit(&presigned_at(time, expires, "/bucket/key"), now())
            .map(|_| ())
    };
    assert_eq!(check(now(), hour), Ok(()));
    assert_eq!(check(now() - hour + Duration::from_secs(1), hour), Ok(()));
    assert_eq!(check(now() - hour, hour), Err(Refusal::Expired));
    assert_eq!(check(now(), Duration::ZERO), Err(Refusal::Expired));
    assert_eq!(check(now() - 24 * 6 * hour, 24 * 7 * hour), Ok(()));
    assert_eq!(
        check(now(), 24 * 7 * hour + Duration::from_secs(1)),
        Err(Refusal::ExpiresTooLong)
    );
    assert_eq!(check(now() + hour / 4, hour), Ok(()));
    assert_eq!(check(now() + 24 * hour, 48 * hour), Err(Refusal::NotYetValid));

    let url = presigned("/bucket/key");
    for (expires, refused) in [
        ("-7", Refusal::ExpiresNegative),
        ("soon", Refusal::ExpiresNotANumber),
        ("", Refusal::ExpiresNotANumber),
    ] {
        let url = tampered(&url, "X-Amz-Expires=3600", &format!("X-Amz-Expires={expires}"));
        assert_eq!(refusal(&url), refused);
    }
    for refusal in [
        Refusal::Expired,
        Refusal::NotYetValid,
        Refusal::ExpiresTooLong,
        Refusal::ExpiresNegative,
    ] {
        assert_eq!(refusal.code().status().as_u16(), 403, "{refusal}");
    }
}

#[test]
fn a_presigned_url_needs_each_parameter_exactly_once() {
    let url = presigned("/bucket/key");
    for name in [
        "Algorithm",
        "Credential",
        "Date",
        "Expires",
        "SignedHeaders",
        "Signature",
    ] {
        let missing = tampered(&url, &format!("X-Amz-{name}="), "x=");
        assert_eq!(refusal(&missing), Refusal::MissingParameters, "{name}");
        let twice = tampered(
            &url,
            &format!("X-Amz-{name}="),
            &format!("X-Amz-{name}=a&X-Amz-{name}="),
        );
        assert_eq!(refusal(&twice), Refusal::RepeatedParameter, "{name}");
        assert_eq!(told(&twice).code, ErrorCode::AuthorizationQueryParametersError);
    }
    let other = tampered(
        &url,
        "X-Amz-Algorithm=AWS4-HMAC-SHA256",
        "X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256",
    );
    assert_eq!(refusal(&other), Refusal::UnsupportedAlgorithm);
    assert_eq!(
        refusal(&tampered(&url, "X-Amz-Date=2", "X-Amz-Date=x")),
        Refusal::MalformedQueryDate
    );
}

#[test]
fn a_presigned_url_cannot_carry_a_streaming_payload() {
    for hash in [
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    ] {
        let url = presigned(&format!("/bucket/key?X-Amz-Content-Sha256={hash}"));
        assert_eq!(refusal(&url), Refusal::StreamingWithPresigned);

        let mut url = presigned("/bucket/key");
        url.headers
            .insert("x-amz-content-sha256", HeaderValue::from_static(hash));
        assert_eq!(refusal(&url), Refusal::StreamingWithPresigned);
    }
    let mut url = presigned("/bucket/key?X-Amz-Content-Sha256=UNSIGNED-PAYLOAD");
    url.headers.insert(
        "x-amz-content-sha256",
        HeaderValue::from_static("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
    );
    assert_eq!(refusal(&url), Refusal::TwoPayloadHashes);
}
