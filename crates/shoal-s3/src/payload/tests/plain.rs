//! Plain bodies, and the digests that headers give of any body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use http::Method;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::{CheckedBody, DATA, DATA_CRC32, Payload, Sent, Upload, chunked, sha256, unsigned};
use crate::error::ErrorCode;
use crate::sigv4::PayloadHash;

#[tokio::test]
async fn a_body_with_nothing_to_check_passes_frame_by_frame() {
    Upload::new(PayloadHash::Unsigned, DATA).assert_whole(DATA).await;
    Upload::new(PayloadHash::Unsigned, b"").assert_whole(b"").await;
}

#[tokio::test]
async fn a_body_with_the_signed_hash_arrives_whole() {
    Upload::new(sha256(DATA), DATA).assert_whole(DATA).await;
    Upload::new(sha256(b""), b"").assert_whole(b"").await;
    Upload::new(sha256(b"x"), b"x").assert_whole(b"x").await;
}

#[tokio::test]
async fn a_body_without_the_signed_hash_never_arrives_whole() {
    for body in [DATA, b"x", b""] {
        Upload::new(sha256(b"other"), body)
            .assert_refused(ErrorCode::XAmzContentSha256Mismatch)
            .await;
    }
}

#[tokio::test]
async fn a_body_of_another_length_is_incomplete() {
    for length in ["43", "45"] {
        for hash in [PayloadHash::Unsigned, sha256(DATA)] {
            let upload = Upload::new(hash, DATA).header("content-length", length);
            assert_eq!(
                upload.send().await.refused,
                Some(ErrorCode::IncompleteBody),
                "{length}"
            );
        }
    }
    let upload = Upload::new(sha256(DATA), DATA).header("content-length", "+44");
    upload.assert_refused(ErrorCode::InvalidArgument).await;
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_incomplete_body_and_the_last_request_on_it() {
    let half = || Ok(Frame::data(Bytes::from_static(b"half")));
    let frames = stream::iter([half(), half(), Err("connection reset")]);
    let upload = Upload::new(PayloadHash::Unsigned, DATA);
    let payload = Payload {
        hash: upload.hash,
        seed: None,
    };
    let mut body = CheckedBody::new(StreamBody::new(frames), &upload.parts(), payload).unwrap();
    let outcome = body.outcome();
    assert!(body.frame().await.unwrap().is_ok());
    assert!(body.frame().await.unwrap().is_err());
    assert!(body.frame().await.is_none());
    let error = outcome.error().unwrap();
    assert_eq!((error.code, error.close), (ErrorCode::IncompleteBody, true));
}

#[tokio::test]
async fn digests_in_headers_are_held_against_the_body() {
    let right = [
        ("content-md5", STANDARD.encode(Md5::digest(DATA))),
        ("x-amz-checksum-crc32", DATA_CRC32.to_owned()),
        (
            "x-amz-checksum-crc32c",
            crc(crc_fast::CrcAlgorithm::Crc32Iscsi, 4),
        ),
        (
            "x-amz-checksum-crc64nvme",
            crc(crc_fast::CrcAlgorithm::Crc64Nvme, 8),
        ),
        ("x-amz-checksum-sha1", STANDARD.encode(Sha1::digest(DATA))),
        ("x-amz-checksum-sha256", STANDARD.encode(Sha256::digest(DATA))),
    ];
    let encoder = unsigned(None);
    let wire = encoder.encode([DATA]);
    for (name, value) in right {
        for (upload, whole) in [
            (Upload::new(sha256(DATA), DATA), DATA),
            (chunked(&encoder, &wire), &wire),
        ] {
            upload
                .clone()
                .header(name, value.clone())
                .assert_whole(whole)
                .await;

            let mut other = STANDARD.decode(&value).unwrap();
            other[0] ^= 1;
            let wrong = upload.clone().header(name, STANDARD.encode(&other));
            wrong.assert_refused(ErrorCode::BadDigest).await;

            let malformed = if name == "content-md5" {
                ErrorCode::InvalidDigest
            } else {
                ErrorCode::InvalidRequest
            };
            for garbage in ["", "garbage", "AAAA", "YWJyYWNhZGFicmE="] {
                upload
                    .clone()
                    .header(name, garbage)
                    .assert_refused(malformed)
                    .await;
            }
        }
    }
}

#[tokio::test]
async fn a_wrong_checksum_beside_headers_that_contradict_it_is_told_as_the_contradiction() {
    const WRONG: &str = "AAAAAA==";
    let wrong = Upload::new(sha256(DATA), DATA).header("x-amz-checksum-crc32", WRONG);
    let several = wrong.clone().header("x-amz-checksum-crc32c", WRONG);
    several.assert_refused(ErrorCode::InvalidRequest).await;
    let other = wrong.clone().header("x-amz-sdk-checksum-algorithm", "SHA256");
    other.assert_refused(ErrorCode::InvalidRequest).await;
    // The name of the algorithm is case-insensitive.
    let same = wrong.header("x-amz-sdk-checksum-algorithm", "CRC32");
    same.assert_refused(ErrorCode::BadDigest).await;
    // A lake may accept headers that contradict each other if the checksum is right.
    let right = Upload::new(sha256(DATA), DATA).header("x-amz-checksum-crc32", DATA_CRC32);
    right
        .header("x-amz-sdk-checksum-algorithm", "SHA256")
        .assert_whole(DATA)
        .await;
}

fn crc(algorithm: crc_fast::CrcAlgorithm, len: usize) -> String {
    STANDARD.encode(&crc_fast::checksum(algorithm, DATA).to_be_bytes()[8 - len..])
}

#[tokio::test]
async fn the_checksum_of_a_finished_upload_is_not_that_of_the_request_that_finishes_it() {
    let mut upload = Upload::new(sha256(DATA), DATA).header("x-amz-checksum-crc32", "AAAAAA==");
    upload.assert_refused(ErrorCode::BadDigest).await;
    upload.method = Method::POST;
    upload.assert_refused(ErrorCode::BadDigest).await;
    upload.target = "/bucket/key?uploadId=1";
    upload.assert_whole(DATA).await;
    // A part has its own checksum.
    upload.method = Method::PUT;
    upload.target = "/bucket/key?partNumber=1&uploadId=1";
    upload.assert_refused(ErrorCode::BadDigest).await;

    let copy = Upload::new(sha256(b""), b"").header("x-amz-checksum-crc32", DATA_CRC32);
    copy.assert_refused(ErrorCode::BadDigest).await;
    copy.header("x-amz-copy-source", "/bucket/other")
        .assert_whole(b"")
        .await;
}

#[tokio::test]
async fn a_body_without_content_length_is_checked_too() {
    let mut upload = Upload::new(sha256(DATA), DATA);
    upload.headers.clear();
    assert_eq!(upload.checked().unwrap().size_hint().exact(), None);
    assert_eq!(
        upload.send().await,
        Sent {
            bytes: DATA.to_vec(),
            refused: None
        }
    );
    upload.hash = sha256(b"other");
    upload.assert_refused(ErrorCode::XAmzContentSha256Mismatch).await;
}
