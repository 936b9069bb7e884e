//! Credentials in the query.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, header};
use shoal_base::secret::Secret;

use super::{
    ACCESS_KEY, HOST, REGION, SECRET_KEY, account, gate, is_known, now, presigned, presigned_at, refusal,
    request, tampered, told, verify,
};
use crate::auth::proven::PlainUrl;
use crate::auth::{Credentials, Gate, Refusal, Verified};
use crate::error::ErrorCode;
use crate::identity::{Account, Caller, Identities, Identity};
use crate::sigv4::{KeyCache, PayloadHash, Signer};
use crate::temporary_key::{Principal, TemporaryKey};

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
fn a_url_that_was_used_proves_no_more_than_one_that_was_not() {
    let identities = || [Identity::new(ACCESS_KEY, SECRET_KEY)];
    let known = Arc::new(Identities::new(identities()));
    let gate = Gate::new(Arc::clone(&known), REGION);
    let url = presigned("/bucket/key?versionId=1");
    let used = |url: &Parts, now| gate.admit(url, now).map(|verified| is_known(&verified));
    let again = |now| PlainUrl::of(&url, HOST.as_bytes()).and_then(|url| gate.admit_again(&url, now));
    assert!(again(now()).is_none());
    assert_eq!(used(&url, now()), Ok(true));
    assert!(again(now()).is_some(), "remembered");

    for (from, to) in [
        ("/bucket/key", "/bucket/kez"),
        ("versionId=1", "versionId=2"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=3601"),
    ] {
        let other = used(&tampered(&url, from, to), now());
        assert_eq!(other, Err(Refusal::SignatureMismatch), "{from} -> {to}");
    }
    let signature = url.uri.to_string().rsplit_once("X-Amz-Signature=").unwrap().1[..64].to_owned();
    for at in 0..64 {
        let digit = if signature.as_bytes()[at] == b'0' {
            "1"
        } else {
            "0"
        };
        let mut other = signature.clone();
        other.replace_range(at..=at, digit);
        let other = tampered(&url, &signature, &other);
        assert_eq!(used(&other, now()), Err(Refusal::SignatureMismatch), "digit {at}");
    }
    let with = |name: &'static str, value| {
        let mut parts = url.clone();
        parts.headers.insert(name, HeaderValue::from_static(value));
        used(&parts, now())
    };
    assert_eq!(with("host", "other"), Err(Refusal::SignatureMismatch));
    assert_eq!(
        with("x-amz-acl", "private"),
        Err(Refusal::UnsignedHeaders("x-amz-acl".into()))
    );
    assert_eq!(with("authorization", "AWS4"), Err(Refusal::TwoKindsOfCredentials));
    assert_eq!(
        with("x-amz-security-token", "t"),
        Err(Refusal::TokenForStaticIdentity)
    );
    let mut put = url.clone();
    put.method = Method::PUT;
    assert_eq!(used(&put, now()), Err(Refusal::SignatureMismatch));

    let hour = Duration::from_hours(1);
    assert_eq!(used(&url, now() + hour), Err(Refusal::Expired));
    assert_eq!(used(&url, now() - hour), Err(Refusal::NotYetValid));
    assert_eq!(used(&url, now() + hour / 2), Ok(true));

    known.replace(identities());
    assert!(again(now()).is_some(), "nothing has changed");
    known.replace([Identity::new(ACCESS_KEY, "another secret")]);
    assert_eq!(used(&url, now()), Err(Refusal::SignatureMismatch));
    known.replace([]);
    assert_eq!(
        used(&url, now()),
        Err(Refusal::UnknownAccessKey(ACCESS_KEY.into()))
    );
    known.replace(identities());
    assert_eq!(used(&url, now()), Ok(true));
}

#[test]
fn a_url_that_signs_more_than_its_host_is_verified_at_each_use() {
    let (account, keys, gate) = (account(), KeyCache::default(), gate());
    let signer = Signer {
        account: &account,
        region: REGION,
        keys: &keys,
    };
    let host = (header::HOST, HeaderValue::from_static(HOST));
    let text = (header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    let headers = HeaderMap::from_iter([host, text]);
    let (target, hour) = ("/bucket/key".parse().unwrap(), Duration::from_hours(1));
    let url = signer.presign(
        &Method::PUT,
        &target,
        &headers,
        PayloadHash::Unsigned,
        hour,
        now(),
    );
    let url = url.unwrap();
    let with = |content_type| {
        let headers = [("host", HOST), ("content-type", content_type)];
        gate.admit(&request(Method::PUT, url.as_str(), &headers), now())
            .map(|verified| is_known(&verified))
    };
    assert_eq!(with("text/plain"), Ok(true));
    assert_eq!(with("text/html"), Err(Refusal::SignatureMismatch));
    assert_eq!(with("text/plain"), Ok(true));
}

#[test]
fn a_preflight_of_a_presigned_url_is_unsigned_and_names_an_account() {
    let mut question = presigned("/bucket/key");
    question.method = Method::OPTIONS;
    let asked = |question: &Parts| verify(question).unwrap();
    let named = |verified: Verified| match verified.named {
        Some(Caller::Identity(identity)) => Some(identity.index),
        Some(Caller::Anonymous | Caller::Unverified) | None => None,
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
fn a_preflight_for_the_url_of_a_session_names_the_identity_that_asked_for_it() {
    let identities = Identities::new([Identity::new(ACCESS_KEY, SECRET_KEY)]);
    for (access_key, principal) in [
        ("SESSION", Principal::new(ACCESS_KEY)),
        ("ROLE", Principal::of_role("role", "s", 7)),
    ] {
        let account = Account {
            session_token: Some(Secret::new("t")),
            ..Account::new(access_key, SECRET_KEY)
        };
        assert!(identities.learn(TemporaryKey {
            account: Arc::new(account),
            expires: now() + Duration::from_hours(1),
            principal: Arc::new(principal),
        }));
    }
    let gate = Gate::new(identities, REGION);
    let mut question = presigned("/bucket/key");
    question.method = Method::OPTIONS;
    let with_token = tampered(&question, "X-Amz-Date=", "X-Amz-Security-Token=t&X-Amz-Date=");
    let named = |question: &Parts, access_key| {
        let question = tampered(question, ACCESS_KEY, access_key);
        let named = gate.admit(&question, now()).unwrap().named;
        named.map(|caller| caller.name().to_owned())
    };
    assert_eq!(named(&with_token, "SESSION").as_deref(), Some(ACCESS_KEY));
    assert_eq!(named(&question, "SESSION"), None);
    assert_eq!(named(&with_token, "ROLE"), None);
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
