//! The gate, request by request: who gets in, and what the others are told.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};

use super::{Credentials, Gate, Refusal, Verified, without_credentials};
use crate::front::error::{ErrorCode, S3Error};
use crate::identity::{Account, Caller, Identities, Identity};
use crate::secret::Secret;
use crate::sigv4::{KeyCache, PayloadHash, Signer, Timestamp};

/// The account of Amazon's published examples, so that their signatures can be tried.
const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const HOST: &str = "examplebucket.s3.amazonaws.com";
const REGION: &str = "us-east-1";

fn gate() -> Gate {
    let identity = Identity {
        index: 7,
        access_key: ACCESS_KEY.into(),
        secret_key: Secret::new(SECRET_KEY),
        lake_account: None,
    };
    Gate::new(Identities::new([identity]), REGION)
}

fn at(text: &str) -> SystemTime {
    Timestamp::parse(text.as_bytes()).unwrap().time()
}

fn now() -> SystemTime {
    at("20130524T000000Z")
}

fn account() -> Account {
    Account {
        access_key: ACCESS_KEY.into(),
        secret_key: Secret::new(SECRET_KEY),
        session_token: None,
    }
}

fn request(method: Method, target: &str, headers: &[(&'static str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// A request as an SDK sends it, signed in the header at `time`.
fn signed_at(time: SystemTime, method: Method, target: &str, headers: &[(&'static str, &str)]) -> Parts {
    let mut parts = request(method, target, headers);
    parts
        .headers
        .entry("host")
        .or_insert(HeaderValue::from_static(HOST));
    let hash = parts
        .headers
        .get("x-amz-content-sha256")
        .map(|value| value.as_bytes().to_vec());
    let payload = hash.map_or(PayloadHash::empty(), |hash| PayloadHash::parse(&hash).unwrap());
    let (account, keys) = (account(), KeyCache::default());
    let signer = Signer {
        account: &account,
        region: REGION,
        keys: &keys,
    };
    let target = parts.uri.path_and_query().unwrap().clone();
    signer
        .sign(&parts.method, &target, &mut parts.headers, payload, time)
        .unwrap();
    parts
}

fn signed(method: Method, target: &str, headers: &[(&'static str, &str)]) -> Parts {
    signed_at(now(), method, target, headers)
}

/// A presigned URL of an hour, used without further headers.
fn presigned(target: &str) -> Parts {
    presigned_at(now(), Duration::from_secs(3600), target)
}

fn presigned_at(time: SystemTime, expires: Duration, target: &str) -> Parts {
    let (account, keys) = (account(), KeyCache::default());
    let signer = Signer {
        account: &account,
        region: REGION,
        keys: &keys,
    };
    let headers = HeaderMap::from_iter([(http::header::HOST, HeaderValue::from_static(HOST))]);
    let target = target.parse().unwrap();
    let url = signer
        .presign(
            &Method::GET,
            &target,
            &headers,
            PayloadHash::Unsigned,
            expires,
            time,
        )
        .unwrap();
    request(Method::GET, url.as_str(), &[("host", HOST)])
}

/// The URL with `from` replaced by `to`, its signature left as it was.
fn tampered(parts: &Parts, from: &str, to: &str) -> Parts {
    let target = parts.uri.to_string();
    assert!(target.contains(from), "{target} has no {from}");
    request(parts.method.clone(), &target.replace(from, to), &[("host", HOST)])
}

fn verify(parts: &Parts) -> Result<Verified, Refusal> {
    gate().admit(parts, now())
}

fn refusal(parts: &Parts) -> Refusal {
    verify(parts).map(|verified| verified.caller).unwrap_err()
}

fn told(parts: &Parts) -> S3Error {
    gate()
        .verify(parts, now())
        .map(|verified| verified.caller)
        .unwrap_err()
}

fn is_known(verified: &Verified) -> bool {
    matches!(&verified.caller, Caller::Identity(identity) if identity.index == 7)
}

fn authorization(signed_headers: &str, signature: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20130524/us-east-1/s3/aws4_request,\
         SignedHeaders={signed_headers},Signature={signature}"
    )
}

mod published {
    //! The examples of Amazon's documentation of Signature Version 4 for S3.

    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const DATE: (&str, &str) = ("x-amz-date", "20130524T000000Z");

    fn assert_verified(
        method: Method,
        target: &str,
        headers: &[(&'static str, &str)],
        signed: &str,
        signature: &str,
    ) {
        let authorization = authorization(signed, signature);
        let credentials = [("host", HOST), DATE, ("authorization", authorization.as_str())];
        let parts = request(method, target, &[headers, &credentials].concat());
        assert!(is_known(&verify(&parts).unwrap()));
    }

    #[test]
    fn get_object_with_a_range() {
        assert_verified(
            Method::GET,
            "/test.txt",
            &[("range", "bytes=0-9"), ("x-amz-content-sha256", EMPTY)],
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        );
    }

    #[test]
    fn put_object_with_a_key_to_encode() {
        assert_verified(
            Method::PUT,
            "/test$file.text",
            &[
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                (
                    "x-amz-content-sha256",
                    "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
                ),
            ],
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        );
    }

    #[test]
    fn get_bucket_lifecycle_a_parameter_without_value() {
        assert_verified(
            Method::GET,
            "/?lifecycle",
            &[("x-amz-content-sha256", EMPTY)],
            "host;x-amz-content-sha256;x-amz-date",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        );
    }

    #[test]
    fn list_objects_with_parameters() {
        assert_verified(
            Method::GET,
            "/?prefix=J&max-keys=2",
            &[("x-amz-content-sha256", EMPTY)],
            "host;x-amz-content-sha256;x-amz-date",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        );
    }

    #[test]
    fn get_object_by_a_presigned_url() {
        let target = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&\
            X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&\
            X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&\
            X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        let verified = verify(&request(Method::GET, target, &[("host", HOST)])).unwrap();
        assert!(is_known(&verified));
        assert_eq!(
            verified.credentials,
            Credentials::Query {
                expires: Duration::from_secs(86400)
            }
        );
        assert_eq!(verified.payload.hash, PayloadHash::Unsigned);
    }

    #[test]
    fn put_object_in_signed_chunks() {
        let authorization = authorization(
            "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;\
             x-amz-storage-class",
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        );
        let parts = request(
            Method::PUT,
            "/examplebucket/chunkObject.txt",
            &[
                ("host", "s3.amazonaws.com"),
                DATE,
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ("authorization", &authorization),
                ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
                ("content-encoding", "aws-chunked"),
                ("x-amz-decoded-content-length", "66560"),
                ("content-length", "66824"),
            ],
        );
        let payload = verify(&parts).unwrap().payload;
        assert_eq!(payload.hash, PayloadHash::StreamingSigned);
        let seed = payload.seed.unwrap();
        assert_eq!(
            seed.signature,
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
        );
        assert_eq!(seed.scope, "20130524/us-east-1/s3/aws4_request");
    }
}

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
                expires: Duration::from_secs(3600)
            }
        );
    }
}

#[test]
fn whatever_is_changed_after_signing_breaks_the_signature() {
    let headers = [
        ("x-amz-acl", "private"),
        ("content-type", "text/plain"),
        ("content-md5", "x"),
    ];
    let original = signed(Method::PUT, "/bucket/key?partNumber=1", &headers);
    assert!(verify(&original).is_ok());

    let retargeted = |target: &str| {
        let mut parts = original.clone();
        parts.uri = target.parse().unwrap();
        parts
    };
    let with_header = |name: &'static str, value: &'static str| {
        let mut parts = original.clone();
        parts.headers.insert(name, HeaderValue::from_static(value));
        parts
    };
    let mut other_method = original.clone();
    other_method.method = Method::DELETE;
    let mut without_content_type = original.clone();
    without_content_type.headers.remove("content-type");
    let signature = original.headers["authorization"].to_str().unwrap();
    let shorter: &'static str = signature[..signature.len() - 1].to_owned().leak();
    let flipped: &'static str =
        format!("{shorter}{}", if signature.ends_with('0') { '1' } else { '0' }).leak();

    for parts in [
        retargeted("/bucket/kez?partNumber=1"),
        retargeted("/bucket/key?partNumber=2"),
        retargeted("/bucket/key"),
        retargeted("/bucket/key?partNumber=1&acl"),
        retargeted("/bucket/%256bey?partNumber=1"),
        other_method,
        without_content_type,
        with_header("x-amz-acl", "public-read"),
        with_header("content-type", "text/html"),
        with_header("content-md5", "y"),
        with_header("host", "other.example"),
        with_header("x-amz-content-sha256", "UNSIGNED-PAYLOAD"),
        with_header("x-amz-date", "20130524T000001Z"),
        with_header("authorization", shorter),
        with_header("authorization", flipped),
    ] {
        assert_eq!(refusal(&parts), Refusal::SignatureMismatch, "{parts:?}");
    }
    // The same key spelled differently is the same request.
    assert!(verify(&retargeted("/bucket/%6bey?partNumber=%31")).is_ok());
}

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
fn the_wrong_secret_and_an_unknown_key_are_told_apart_as_s3_does() {
    let other = Identity {
        index: 1,
        access_key: ACCESS_KEY.into(),
        secret_key: Secret::new("x"),
        lake_account: None,
    };
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
        assert_eq!(refusal(&parts), Refusal::UnsignedHeader("x-amz-acl".into()));
        assert_eq!(told(&parts).code, ErrorCode::AccessDenied);
    }
}

#[test]
fn a_signature_that_does_not_cover_the_host_is_refused() {
    let without_host = authorization("x-amz-content-sha256;x-amz-date", &"0".repeat(64));
    let mut parts = signed(Method::GET, "/bucket/key", &[]);
    parts
        .headers
        .insert("authorization", without_host.parse().unwrap());
    assert_eq!(refusal(&parts), Refusal::UnsignedHeader("host".into()));
    let url = tampered(
        &presigned("/bucket/key"),
        "SignedHeaders=host",
        "SignedHeaders=range",
    );
    assert_eq!(refusal(&url), Refusal::UnsignedHeader("host".into()));
}

#[test]
fn signed_headers_are_sorted_names_each_once() {
    for names in [
        "host;x-amz-date;x-amz-content-sha256",
        "host;host;x-amz-content-sha256;x-amz-date",
    ] {
        let mut parts = signed(Method::GET, "/bucket/key", &[]);
        parts.headers.insert(
            "authorization",
            authorization(names, &"0".repeat(64)).parse().unwrap(),
        );
        assert_eq!(
            told(&parts).code,
            ErrorCode::AuthorizationHeaderMalformed,
            "{names}"
        );
    }
    let url = tampered(
        &presigned("/bucket/key"),
        "SignedHeaders=host",
        "SignedHeaders=host%3Bhost",
    );
    assert_eq!(told(&url).code, ErrorCode::AuthorizationQueryParametersError);
}

#[test]
fn a_header_that_decides_something_is_given_once() {
    for name in [
        "host",
        "date",
        "authorization",
        "x-amz-date",
        "x-amz-content-sha256",
        "content-length",
    ] {
        for mut parts in [
            signed(Method::GET, "/b/k", &[]),
            request(Method::GET, "/b/k", &[("host", HOST)]),
        ] {
            let name = HeaderName::from_static(name);
            parts.headers.append(&name, HeaderValue::from_static("1"));
            parts.headers.append(&name, HeaderValue::from_static("1"));
            assert!(matches!(refusal(&parts), Refusal::RepeatedHeader(_)), "{name}");
            assert_eq!(told(&parts).code, ErrorCode::InvalidRequest);
        }
    }
}

#[test]
fn credentials_stand_in_one_place_only() {
    let mut parts = presigned("/bucket/key");
    parts.headers.insert(
        "authorization",
        authorization("host", &"0".repeat(64)).parse().unwrap(),
    );
    assert_eq!(refusal(&parts), Refusal::TwoKindsOfCredentials);

    // One parameter of a signature is enough to be a second kind, however it is spelled.
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
fn a_clock_may_be_off_by_fifteen_minutes() {
    let quarter = Duration::from_secs(15 * 60);
    let second = Duration::from_secs(1);
    for (time, is_fine) in [
        (now() - quarter, true),
        (now() + quarter, true),
        (now() - quarter - second, false),
        (now() + quarter + second, false),
        (now() + Duration::from_secs(86400), false),
    ] {
        let parts = signed_at(time, Method::GET, "/bucket/key", &[]);
        let result = verify(&parts);
        assert_eq!(result.is_ok(), is_fine, "{time:?}");
        if !is_fine {
            assert_eq!(told(&parts).code, ErrorCode::RequestTimeTooSkewed);
        }
    }
}

#[test]
fn a_date_header_serves_in_place_of_the_one_of_amazon() {
    // `Date` enters the string to sign through its moment, so the signature need not list it.
    let original = signed(Method::GET, "/bucket/key", &[]);
    for date in ["Fri, 24 May 2013 00:00:00 GMT", "20130524T000000Z"] {
        let mut parts = original.clone();
        parts.headers.remove("x-amz-date");
        parts.headers.insert("date", HeaderValue::from_static(date));
        // The header is gone from the canonical request, so only the refusal's name tells that the date was read.
        assert_eq!(refusal(&parts), Refusal::SignatureMismatch);
    }
    for date in ["", "tomorrow", "2013-05-24T00:00:00Z"] {
        let mut parts = original.clone();
        parts.headers.remove("x-amz-date");
        parts.headers.insert("date", HeaderValue::from_static(date));
        assert_eq!(refusal(&parts), Refusal::MissingDate, "{date}");
        parts.headers.insert("x-amz-date", HeaderValue::from_static(date));
        assert_eq!(told(&parts).code, ErrorCode::AccessDenied, "{date}");
    }
}

#[test]
fn a_presigned_url_lives_from_its_date_to_its_expiry() {
    let hour = Duration::from_secs(3600);
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
    assert!(told_of("20130524/us-east-1/s3/aws4_request").contains("expecting \"<YOUR-AKID>/YYYYMMDD"));
    assert!(told_of("/20130524/us-east-1/s3/aws4_request").contains("expecting \"<YOUR-AKID>/YYYYMMDD"));
    assert!(told_of(&format!("AK/20130524/{}/s3/aws4_request", "r".repeat(5000))).len() < 300);

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
        assert_eq!(told(&parts).code, ErrorCode::InvalidRequest);
    }
    let target =
        "/bucket/key?AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Expires=1141889120&Signature=vjbyPxybdZaNmGa";
    let parts = request(Method::GET, target, &[("host", HOST)]);
    assert_eq!(refusal(&parts), Refusal::UnsupportedSignatureVersion);
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
fn a_signed_request_says_how_its_body_is_protected() {
    let mut parts = signed(Method::PUT, "/bucket/key", &[]);
    parts.headers.remove("x-amz-content-sha256");
    assert_eq!(refusal(&parts), Refusal::MissingPayloadHash);
    assert_eq!(told(&parts).code, ErrorCode::InvalidRequest);
    parts.headers.insert(
        "x-amz-content-sha256",
        HeaderValue::from_static("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"),
    );
    assert_eq!(refusal(&parts), Refusal::UnknownPayloadHash);
    assert_eq!(told(&parts).code, ErrorCode::InvalidArgument);
}

#[test]
fn only_signed_chunks_come_with_a_seed() {
    for (hash, has_seed) in [
        ("UNSIGNED-PAYLOAD", false),
        ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", false),
        ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", true),
        ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", true),
    ] {
        let payload = verify(&signed(Method::PUT, "/b/k", &[("x-amz-content-sha256", hash)]))
            .unwrap()
            .payload;
        assert_eq!(payload.hash.as_text(), hash);
        assert_eq!(payload.seed.is_some(), has_seed, "{hash}");
    }
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
        assert_eq!(
            refusal(&url),
            Refusal::UnsignedHeader("x-amz-content-sha256".into())
        );
    }
    let mut url = presigned("/bucket/key?X-Amz-Content-Sha256=UNSIGNED-PAYLOAD");
    url.headers.insert(
        "x-amz-content-sha256",
        HeaderValue::from_static("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
    );
    assert_eq!(refusal(&url), Refusal::TwoPayloadHashes);
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
    assert_eq!(refusal(&with_hash("yes")), Refusal::UnknownPayloadHash);
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
fn the_authority_of_http_2_takes_the_place_of_the_host_header() {
    let mut parts = signed(Method::GET, "/bucket/key", &[]);
    parts.uri = format!("http://{HOST}/bucket/key").parse().unwrap();
    assert!(verify(&parts).is_ok());
    parts.headers.remove("host");
    assert!(verify(&parts).is_ok());
    parts.uri = "http://other.example/bucket/key".parse().unwrap();
    assert_eq!(refusal(&parts), Refusal::SignatureMismatch);
    parts.headers.insert("host", HeaderValue::from_static(HOST));
    assert_eq!(refusal(&parts), Refusal::TwoHosts);
    parts.uri = "/bucket/key".parse().unwrap();
    parts.headers.remove("host");
    assert_eq!(refusal(&parts), Refusal::MissingHost);
}

#[test]
fn a_path_that_does_not_decode_is_an_invalid_uri() {
    let mut parts = signed(Method::GET, "/bucket/key", &[]);
    parts.uri = "/bucket/%zz".parse().unwrap();
    assert_eq!(told(&parts).code, ErrorCode::InvalidUri);
}

#[test]
fn a_signature_of_the_far_past_or_future_is_refused_without_panic() {
    for text in ["00000101T000000Z", "99991231T235959Z"] {
        let mut parts = signed(Method::GET, "/bucket/key", &[]);
        parts.headers.insert("x-amz-date", text.parse().unwrap());
        let value = parts.headers["authorization"]
            .to_str()
            .unwrap()
            .replace("20130524", &text[..8]);
        parts.headers.insert("authorization", value.parse().unwrap());
        assert_eq!(refusal(&parts), Refusal::TimeTooSkewed, "{text}");
    }
    assert!(
        gate()
            .admit(&signed(Method::GET, "/b/k", &[]), UNIX_EPOCH)
            .is_err()
    );
}

#[test]
fn what_is_left_of_a_presigned_query_can_be_signed_anew() {
    let url = presigned("/bucket/key?versionId=1&response-content-type=text%2Fplain");
    let rest = without_credentials(url.uri.query().unwrap());
    assert_eq!(rest, "versionId=1&response-content-type=text%2Fplain");
    assert!(verify(&signed(Method::GET, &format!("/bucket/key?{rest}"), &[])).is_ok());
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
