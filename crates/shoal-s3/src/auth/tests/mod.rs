//! The gate, request by request: which callers get in, and the errors that the others get.

mod both;
mod header;
mod presigned;
mod published;
mod unverified;

use std::time::{Duration, SystemTime};

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request};

use super::{Gate, Refusal, Verified};
use crate::error::S3Error;
use crate::identity::{Account, Caller, Identities, Identity};
use crate::sigv4::{KeyCache, PayloadHash, Signer, Timestamp};

/// The account of Amazon's published examples, so that tests can check their signatures.
const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const HOST: &str = "examplebucket.s3.amazonaws.com";
const REGION: &str = "us-east-1";

fn gate() -> Gate {
    let identity = Identity::new(ACCESS_KEY, SECRET_KEY);
    Gate::new(Identities::new([identity]), REGION)
}

fn at(text: &str) -> SystemTime {
    Timestamp::parse(text.as_bytes()).unwrap().time()
}

fn now() -> SystemTime {
    at("20130524T000000Z")
}

fn account() -> Account {
    Account::new(ACCESS_KEY, SECRET_KEY)
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

/// A presigned URL that is valid for an hour, used without further headers.
fn presigned(target: &str) -> Parts {
    presigned_at(now(), Duration::from_hours(1), target)
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
    matches!(&verified.caller, Caller::Identity(identity) if identity.access_key == ACCESS_KEY)
}

fn authorization(signed_headers: &str, signature: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20130524/us-east-1/s3/aws4_request,\
         SignedHeaders={signed_headers},Signature={signature}"
    )
}
