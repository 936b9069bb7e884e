//! Rules that hold wherever the credentials stand, and without credentials.

use std::time::Duration;

use http::{HeaderValue, Method};

use super::{
    ACCESS_KEY, HOST, REGION, SECRET_KEY, authorization, gate, is_known, now, presigned, refusal, request,
    signed, tampered, told, verify,
};
use crate::auth::{Credentials, Gate, Refusal};
use crate::error::{ErrorCode, S3Error};
use crate::identity::{Caller, Identities, Identity};
use crate::sigv4::PayloadHash;

#[test]
fn a_signed_request_is_let_in_whatever_its_key_and_query_look_like() {
    for target in [
        "/",
        "/bucket/key",
        "/bucket//a/./../b",
        "/bucket/a%2Fb%20c%25",
        "/bucket/%F0%9F%A6%8A%00%0A",
        "/bucket/a+b(c)'d",
        "/bucket?list-type=2&prefix=a/b&delimiter=%2F&continuation-token=1+2%3D",
        "/bucket/key?versionId=null&acl&&x=%",
    ] {
        let verified = verify(&signed(Method::GET, target, &[])).unwrap();
        assert!(is_known(&verified), "{target}");
        assert_eq!(verified.credentials, Credentials::Header);
        assert_eq!(verified.payload.hash, PayloadHash::empty());

        let verified = verify(&presigned(target)).unwrap();
        assert!(is_known(&verified), "{target}");
        assert_eq!(
            verified.credentials,
            Credentials::Query {
                expires: Duration::from_hours(1)
            }
        );
    }
}

#[test]
fn the_wrong_secret_and_an_unknown_key_are_told_apart_as_s3_does() {
    let other = Identity::new(ACCESS_KEY, "x");
    let parts = signed(Method::GET, "/bucket/key", &[]);
    let error = Gate::new(Identities::new([other]), REGION)
        .verify(&parts, now())
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::SignatureDoesNotMatch);

    let error = Gate::new(Identities::default(), REGION)
        .verify(&parts, now())
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidAccessKeyId);
}

#[test]
fn a_header_of_amazon_that_is_not_signed_is_refused_in_both_places() {
    for mut parts in [signed(Method::PUT, "/bucket/key", &[]), presigned("/bucket/key")] {
        assert!(verify(&parts).is_ok());
        parts
            .headers
            .insert("range", HeaderValue::from_static("bytes=0-1"));
        assert!(verify(&parts).is_ok());
        parts
            .headers
            .insert("x-amz-acl", HeaderValue::from_static("public-read"));
        assert_eq!(refusal(&parts), Refusal::UnsignedHeaders("x-amz-acl".into()));
        assert_eq!(told(&parts).code, ErrorCode::AccessDenied);
        parts
            .headers
            .insert("x-amz-tagging", HeaderValue::from_static("a=b"));
        assert_eq!(
            told(&parts).details,
            [("HeadersNotSigned", "x-amz-acl, x-amz-tagging".to_owned())]
        );
    }
}

#[test]
fn a_signature_that_does_not_cover_the_host_is_refused() {
    let without_host = authorization("x-amz-content-sha256;x-amz-date", &"0".repeat(64));
    let mut parts = signed(Method::GET, "/bucket/key", &[]);
    parts
        .headers
        .insert("authorization", without_host.parse().unwrap());
    assert_eq!(refusal(&parts), Refusal::UnsignedHeaders("host".into()));
    let url = tampered(
        &presigned("/bucket/key"),
        "SignedHeaders=host",
        "SignedHeaders=range",
    );
    assert_eq!(refusal(&url), Refusal::UnsignedHeaders("host".into()));
}

#[test]
fn credentials_stand_in_one_place_only() {
    let mut parts = presigned("/bucket/key");
    parts.headers.insert(
        "authorization",
        authorization("host", &"0".repeat(64)).parse().unwrap(),
    );
    assert_eq!(refusal(&parts), Refusal::TwoKindsOfCredentials);

    // One parameter of a signature is enough to count as a second kind, however it is spelled.
    for parameter in [
        "X-Amz-Signature=0",
        "X%2DAmz-Credential=x",
        "X-Amz-Security-Token=",
    ] {
        let parts = signed(Method::GET, &format!("/bucket/key?{parameter}"), &[]);
        assert_eq!(refusal(&parts), Refusal::TwoKindsOfCredentials, "{parameter}");
        assert_eq!(told(&parts).code, ErrorCode::InvalidArgument);
    }
}

#[test]
fn a_scope_other_than_ours_is_named_with_what_is_expected() {
    let told_of = |scope: &str| {
        let mut parts = signed(Method::GET, "/bucket/key", &[]);
        let ours = format!("{ACCESS_KEY}/20130524/us-east-1/s3/aws4_request");
        let value = parts.headers["authorization"]
            .to_str()
            .unwrap()
            .replace(&ours, scope);
        parts.headers.insert("authorization", value.parse().unwrap());
        let error = told(&parts);
        assert_eq!(error.code, ErrorCode::AuthorizationHeaderMalformed, "{scope}");
        error.message.into_owned()
    };
    assert_eq!(
        told_of("AK/20130524/eu-west-1/s3/aws4_request"),
        "The authorization header is malformed; the region 'eu-west-1' is wrong; expecting 'us-east-1'"
    );
    assert!(told_of("AK/20130524/us-east-1/sts/aws4_request").contains("incorrect service \"sts\""));
    assert!(told_of("AK/20130524/us-east-1/s3/aws5_request").contains("incorrect terminal \"aws5_request\""));
    assert!(
        told_of("AK/20130525/us-east-1/s3/aws4_request").contains("Invalid credential date \"20130525\"")
    );
    for day in ["2013-05-24", "2013052", "2013052Z", ""] {
        let expected = format!("incorrect date format \"{day}\".");
        assert!(told_of(&format!("AK/{day}/us-east-1/s3/aws4_request")).contains(&expected));
    }
    assert!(told_of("20130524/us-east-1/s3/aws4_request").contains("expecting \"<YOUR-AKID>/YYYYMMDD"));
    assert!(told_of("/20130524/us-east-1/s3/aws4_request").contains("expecting \"<YOUR-AKID>/YYYYMMDD"));
    assert!(told_of(&format!("AK/20130524/{}/s3/aws4_request", "r".repeat(5000))).len() < 300);

    let url = tampered(&presigned("/bucket/key"), "%2F20130524%2F", "%2F20130525%2F");
    let error = told(&url);
    assert_eq!(error.code, ErrorCode::AuthorizationQueryParametersError);
    assert_eq!(
        error.message,
        "Invalid credential date \"20130525\". This date is not the same as X-Amz-Date: \"20130524\"."
    );
    let url = tampered(&presigned("/bucket/key"), "us-east-1", "eu-west-1");
    let error = told(&url);
    assert_eq!(error.code, ErrorCode::AuthorizationQueryParametersError);
    assert!(
        error
            .message
            .ends_with("the region 'eu-west-1' is wrong; expecting 'us-east-1'")
    );
}

#[test]
fn older_and_asymmetric_signatures_are_told_what_to_use() {
    let mut parts = request(Method::GET, "/bucket/key", &[("host", HOST)]);
    for value in [
        "AWS AKIAIOSFODNN7EXAMPLE:frJIUN8DYpKDtOLCwo//yllqDzg=",
        "AWS4-ECDSA-P256-SHA256 Credential=x",
    ] {
        parts
            .headers
            .insert("authorization", HeaderValue::from_static(value));
        assert_eq!(refusal(&parts), Refusal::UnsupportedSignatureVersion);
        let error = told(&parts);
        assert_eq!(error.code, ErrorCode::InvalidRequest);
        assert!(error.message.ends_with("Please use AWS4-HMAC-SHA256."), "{error}");
    }
    for target in [
        "/bucket/key?AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Expires=1141889120&Signature=vjbyPxybdZaNmGa",
        "/bucket/key?AWS%41ccessKeyId=a&AWSAccessKeyId=a",
        "/bucket/key?versionId=1&AWSAccessKeyId",
    ] {
        let unsigned = request(Method::GET, target, &[("host", HOST)]);
        for parts in [unsigned, signed(Method::GET, target, &[])] {
            assert_eq!(refusal(&parts), Refusal::UnsupportedSignatureVersion, "{target}");
        }
    }
}

#[test]
fn a_session_token_is_invalid_for_an_identity_that_has_none() {
    let parts = signed(Method::GET, "/bucket/key", &[]);
    let mut with_token = parts.clone();
    with_token
        .headers
        .insert("x-amz-security-token", HeaderValue::from_static("token"));
    assert_eq!(refusal(&with_token), Refusal::TokenForStaticIdentity);
    assert_eq!(told(&with_token).code, ErrorCode::InvalidToken);

    let url = tampered(
        &presigned("/bucket/key"),
        "X-Amz-Date",
        "X-Amz-Security-Token=token&X-Amz-Date",
    );
    assert_eq!(refusal(&url), Refusal::TokenForStaticIdentity);
}

#[test]
fn temporary_credentials_are_told_that_this_node_does_not_know_their_key() {
    let none = Gate::new(Identities::default(), REGION);
    let mut header = signed(Method::GET, "/bucket/key", &[]);
    header
        .headers
        .insert("x-amz-security-token", HeaderValue::from_static("token"));
    let url = tampered(
        &presigned("/bucket/key"),
        "X-Amz-Date",
        "X-Amz-Security-Token=token&X-Amz-Date",
    );
    for parts in [header, url] {
        let error = none.verify(&parts, now()).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidAccessKeyId);
        assert_eq!(error.details, [("AWSAccessKeyId", ACCESS_KEY.to_owned())]);
        assert!(
            error
                .message
                .starts_with("This node does not know the access key"),
            "{error}"
        );
    }
}

#[test]
fn a_stranger_is_let_in_as_a_stranger_but_not_with_chunks() {
    let verified = verify(&request(
        Method::GET,
        "/bucket/key?x-id=GetObject",
        &[("host", HOST)],
    ))
    .unwrap();
    assert!(matches!(verified.caller, Caller::Anonymous));
    assert_eq!(
        (verified.credentials, verified.payload.hash),
        (Credentials::None, PayloadHash::Unsigned)
    );

    let with_hash = |hash| {
        request(
            Method::PUT,
            "/b/k",
            &[("host", HOST), ("x-amz-content-sha256", hash)],
        )
    };
    let digest = PayloadHash::empty().as_text();
    assert_eq!(
        verify(&with_hash(&digest)).unwrap().payload.hash,
        PayloadHash::empty()
    );
    let impossible = refusal(&with_hash("yes"));
    assert_eq!(impossible, Refusal::ImpossiblePayloadHash("yes".into()));
    let told = S3Error::from(impossible);
    assert_eq!(told.code, ErrorCode::XAmzContentSha256Mismatch);
    assert_eq!(told.details, [("ClientComputedContentSHA256", "yes".to_owned())]);
    for hash in [
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
    ] {
        assert_eq!(refusal(&with_hash(hash)), Refusal::StreamingWithoutCredentials);
    }
    // An empty header claims nothing.
    let empty = request(
        Method::GET,
        "/bucket/key",
        &[("host", HOST), ("authorization", "")],
    );
    assert!(matches!(verify(&empty).unwrap().caller, Caller::Anonymous));
}

#[test]
fn a_path_that_does_not_decode_is_an_invalid_uri() {
    let mut parts = signed(Method::GET, "/bucket/key", &[]);
    parts.uri = "/bucket/%zz".parse().unwrap();
    assert_eq!(told(&parts).code, ErrorCode::InvalidUri);
}

#[test]
fn no_message_tells_a_secret_or_the_signature_it_should_have_been() {
    let mut parts = signed(Method::GET, "/bucket/key", &[]);
    let right = parts.headers["authorization"]
        .to_str()
        .unwrap()
        .rsplit('=')
        .next()
        .unwrap()
        .to_owned();
    let wrong = authorization("host;x-amz-content-sha256;x-amz-date", &"0".repeat(64));
    parts.headers.insert("authorization", wrong.parse().unwrap());
    let error = told(&parts);
    for text in [error.to_string(), format!("{error:?}"), format!("{:?}", gate())] {
        assert!(!text.contains(SECRET_KEY) && !text.contains(&right), "{text}");
    }
}
