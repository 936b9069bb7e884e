//! The examples in Amazon's documentation of Signature Version 4 for S3.

use std::time::Duration;

use http::Method;

use super::{HOST, authorization, is_known, request, verify};
use crate::auth::Credentials;
use crate::sigv4::PayloadHash;

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
            expires: Duration::from_hours(24)
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
        seed.signature.as_str(),
        "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
    );
    assert_eq!(seed.scope, "20130524/us-east-1/s3/aws4_request");
}
