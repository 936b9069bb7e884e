//! Credentials in the `Authorization` header.

use std::time::{Duration, UNIX_EPOCH};

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method};
use shoal_base::secret::Secret;

use super::{
    HOST, REGION, SECRET_KEY, authorization, gate, is_known, now, presigned, refusal, request, signed,
    signed_at, tampered, told, verify,
};
use crate::auth::Refusal;
use crate::error::ErrorCode;
use crate::sigv4::{PayloadHash, SigningKey, Timestamp, canonical, scope, string_to_sign};

#[test]
fn a_change_after_signing_breaks_the_signature() {
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
fn a_clock_may_be_off_by_fifteen_minutes() {
    let quarter = Duration::from_mins(15);
    let second = Duration::from_secs(1);
    for (time, is_fine) in [
        (now() - quarter, true),
        (now() + quarter, true),
        (now() - quarter - second, false),
        (now() + quarter + second, false),
        (now() + Duration::from_hours(24), false),
    ] {
        let parts = signed_at(time, Method::GET, "/bucket/key", &[]);
        let result = verify(&parts);
        assert_eq!(result.is_ok(), is_fine, "{time:?}");
        if !is_fine {
            assert_eq!(told(&parts).code, ErrorCode::RequestTimeTooSkewed);
        }
    }
}

/// A request whose signature covers these headers and no others, and the payload hash of another header.
fn signing_only(signed_headers: &str, headers: &[(&'static str, &str)]) -> Parts {
    let mut parts = request(Method::PUT, "/bucket/key", headers);
    let timestamp = Timestamp::at(now());
    let mut text = Vec::new();
    canonical::Request {
        method: "PUT",
        path: "/bucket/key",
        query: "",
        headers: &parts.headers,
        host: HOST.as_bytes(),
        signed_headers,
        payload_hash: parts.headers["x-amz-content-sha256"].as_bytes(),
    }
    .write(&mut text)
    .unwrap();
    let key = SigningKey::derive(&Secret::new(SECRET_KEY), &timestamp, REGION, "s3");
    let signature = key.sign(&string_to_sign(
        &timestamp,
        &scope(&timestamp, REGION, "s3"),
        text,
    ));
    parts.headers.insert(
        "authorization",
        authorization(signed_headers, signature.as_str()).parse().unwrap(),
    );
    parts
}

#[test]
fn headers_about_the_body_alone_may_stand_unsigned_and_no_others() {
    let of_body = [
        ("x-amz-decoded-content-length", "5"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("x-amz-checksum-algorithm", "CRC32"),
    ];
    for hash in [
        "UNSIGNED-PAYLOAD",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        &PayloadHash::empty().as_text(),
    ] {
        let mut headers = vec![
            ("host", HOST),
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-content-sha256", hash),
        ];
        headers.extend(of_body);
        let parts = signing_only("date;host", &headers);
        assert_eq!(verify(&parts).unwrap().payload.hash.as_text(), hash);
        for other in [
            "x-amz-acl",
            "x-amz-checksum-crc32",
            "x-amz-checksum-type",
            "x-amz-copy-source",
            "x-amz-date",
            "x-amz-meta-a",
            "x-amz-sdk-checksum-algorithm",
            "x-amz-security-token",
        ] {
            let mut more = parts.clone();
            let value = if other == "x-amz-date" {
                "20130524T000000Z"
            } else {
                ""
            };
            more.headers.insert(other, HeaderValue::from_static(value));
            assert_eq!(refusal(&more), Refusal::UnsignedHeaders(other.into()));
        }
    }
}

#[test]
fn the_payload_hash_is_signed_even_if_its_header_is_not() {
    let hashes = [
        "UNSIGNED-PAYLOAD",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ];
    for signed in hashes {
        let headers = [
            ("host", HOST),
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("x-amz-content-sha256", signed),
        ];
        for sent in hashes {
            let mut parts = signing_only("date;host", &headers);
            parts
                .headers
                .insert("x-amz-content-sha256", HeaderValue::from_static(sent));
            let is_let_in = verify(&parts).is_ok();
            assert_eq!(is_let_in, sent == signed, "{signed} {sent}");
            if !is_let_in {
                assert_eq!(refusal(&parts), Refusal::SignatureMismatch);
            }
        }
    }
}

#[test]
fn a_date_header_serves_in_place_of_the_one_of_amazon() {
    let sign_by = |date: &str| {
        let digest = PayloadHash::empty().as_text();
        let headers = [("host", HOST), ("date", date), ("x-amz-content-sha256", &digest)];
        signing_only("date;host;x-amz-content-sha256", &headers)
    };
    for date in ["Fri, 24 May 2013 00:00:00 GMT", "20130524T000000Z"] {
        assert!(is_known(&verify(&sign_by(date)).unwrap()), "{date}");
    }
    assert_eq!(
        refusal(&sign_by("Fri, 24 May 2013 00:00:01 GMT")),
        Refusal::SignatureMismatch
    );
    for date in ["", "tomorrow", "2013-05-24T00:00:00Z"] {
        assert_eq!(refusal(&sign_by(date)), Refusal::MissingDate, "{date}");
        let mut parts = signed(Method::GET, "/bucket/key", &[]);
        parts.headers.insert("x-amz-date", HeaderValue::from_static(date));
        assert_eq!(told(&parts).code, ErrorCode::AccessDenied, "{date}");
    }
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
