//! Bodies of every mode, right and wrong: what the lake gets of them, and what the client is told.

use std::convert::Infallible;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use http::{Method, Request};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use md5::Md5;
use proptest::collection;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::encoder::{Encoder, seed};
use super::{CheckedBody, Payload};
use crate::front::error::{ErrorCode, S3Error};
use crate::sigv4::PayloadHash;

const CLIENT: &str = "the client's secret";
const LAKE: &str = "our secret at the lake";

/// What the lake received, and the error the client is told.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    bytes: Vec<u8>,
    refused: Option<ErrorCode>,
}

/// A request with a body in frames.
#[derive(Clone, Debug)]
struct Upload {
    method: Method,
    target: &'static str,
    hash: PayloadHash,
    headers: Vec<(&'static str, String)>,
    frames: Vec<Bytes>,
}

impl Upload {
    fn new(hash: PayloadHash, body: &[u8]) -> Self {
        let frames = body.chunks(7).map(Bytes::copy_from_slice).collect();
        let headers = vec![("content-length", body.len().to_string())];
        Self {
            method: Method::PUT,
            target: "/bucket/key",
            hash,
            headers,
            frames,
        }
    }

    fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value.into()));
        self
    }

    fn parts(&self) -> Parts {
        let mut request = Request::builder().method(&self.method).uri(self.target);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn checked(
        &self,
    ) -> Result<CheckedBody<impl Body<Data = Bytes, Error = Infallible> + Unpin + use<>>, S3Error> {
        let frames = self
            .frames
            .clone()
            .into_iter()
            .map(|frame| Ok(Frame::data(frame)));
        let payload = Payload {
            hash: self.hash,
            seed: self.hash.signs_chunks().then(|| seed(CLIENT)),
        };
        let mut body = CheckedBody::new(StreamBody::new(stream::iter(frames)), &self.parts(), payload)?;
        body.resign(seed(LAKE));
        Ok(body)
    }

    async fn send(&self) -> Sent {
        let mut body = match self.checked() {
            Ok(body) => body,
            Err(error) => {
                return Sent {
                    bytes: Vec::new(),
                    refused: Some(error.code),
                };
            }
        };
        let outcome = body.outcome();
        let mut bytes = Vec::new();
        let mut broke_off = false;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes.extend_from_slice(&frame.into_data().unwrap()),
                Err(_) => broke_off = true,
            }
        }
        assert!(body.is_end_stream());
        assert_eq!(
            outcome.error().is_some(),
            broke_off,
            "the client is told exactly when the lake sees it broken off"
        );
        Sent {
            bytes,
            refused: outcome.error().map(|error| error.code),
        }
    }

    /// Everything arrives, byte for byte.
    async fn assert_whole(&self, expected: &[u8]) {
        assert_eq!(
            self.checked().unwrap().size_hint().exact(),
            Some(expected.len() as u64)
        );
        assert_eq!(
            self.send().await,
            Sent {
                bytes: expected.to_vec(),
                refused: None
            }
        );
    }

    /// The client is told `code`, and the lake got less than the whole.
    async fn assert_refused(&self, code: ErrorCode) {
        let sent = self.send().await;
        assert_eq!(sent.refused, Some(code), "{self:?}");
        let whole: usize = self.frames.iter().map(Bytes::len).sum();
        assert!(
            sent.bytes.len() < whole.max(1),
            "the lake got all {whole} bytes of {self:?}"
        );
    }
}

fn sha256(data: &[u8]) -> PayloadHash {
    PayloadHash::Sha256(Sha256::digest(data).into())
}

const DATA: &[u8] = b"The quick brown fox jumps over the lazy dog.";
const DATA_CRC32: &str = "UZAl6Q==";

fn signed<'a>(trailer: Option<(&'a str, &'a str)>) -> Encoder<'a> {
    Encoder {
        seed: Some(seed(CLIENT)),
        trailer,
        trailer_end: "\r\n",
    }
}

fn unsigned<'a>(trailer: Option<(&'a str, &'a str)>) -> Encoder<'a> {
    Encoder {
        seed: None,
        trailer,
        trailer_end: "\r\n",
    }
}

/// The same body as the lake must receive it.
fn for_lake<'a>(encoder: &Encoder<'a>) -> Encoder<'a> {
    Encoder {
        seed: encoder.seed.as_ref().map(|_| seed(LAKE)),
        ..encoder.clone()
    }
}

fn chunked(encoder: &Encoder<'_>, wire: &[u8]) -> Upload {
    let hash = match (encoder.seed.is_some(), encoder.trailer) {
        (true, None) => PayloadHash::StreamingSigned,
        (true, Some(_)) => PayloadHash::StreamingSignedTrailer,
        (false, _) => PayloadHash::StreamingUnsignedTrailer,
    };
    let upload = Upload::new(hash, wire).header("x-amz-decoded-content-length", DATA.len().to_string());
    match encoder.trailer {
        Some((name, _)) => upload.header("x-amz-trailer", name),
        None => upload,
    }
}

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
}

#[tokio::test]
async fn signed_chunks_arrive_in_the_clients_framing_with_our_signatures() {
    let encoder = signed(None);
    for sizes in [1, 3, 16, 1000] {
        let wire = encoder.encode(DATA.chunks(sizes));
        chunked(&encoder, &wire)
            .assert_whole(&for_lake(&encoder).encode(DATA.chunks(sizes)))
            .await;
    }
    let empty = chunked(&encoder, &encoder.encode([])).header("x-amz-decoded-content-length", "0");
    empty.assert_whole(&for_lake(&encoder).encode([])).await;
}

#[tokio::test]
async fn a_signed_trailer_is_signed_anew_however_its_lines_end() {
    for trailer_end in ["\r\n", "\n\r\n"] {
        let encoder = Encoder {
            trailer_end,
            ..signed(Some(("x-amz-checksum-crc32", DATA_CRC32)))
        };
        let wire = encoder.encode(DATA.chunks(16));
        chunked(&encoder, &wire)
            .assert_whole(&for_lake(&encoder).encode(DATA.chunks(16)))
            .await;
    }
}

#[tokio::test]
async fn an_unsigned_trailer_arrives_as_it_was_sent() {
    for trailer_end in ["\r\n", "\n\r\n"] {
        let encoder = Encoder {
            trailer_end,
            ..unsigned(Some(("x-amz-checksum-crc32", DATA_CRC32)))
        };
        let wire = encoder.encode(DATA.chunks(16));
        chunked(&encoder, &wire).assert_whole(&wire).await;
    }
    // A checksum of the future is for the lake to verify.
    let encoder = unsigned(Some(("x-amz-checksum-xxhash128", "AAAA")));
    let wire = encoder.encode([DATA]);
    chunked(&encoder, &wire).assert_whole(&wire).await;
}

#[tokio::test]
async fn a_signed_chunk_is_verified_before_a_byte_of_it_goes_on() {
    let encoder = signed(None);
    let mut wire = encoder.encode(DATA.chunks(16));
    let second_chunk = wire
        .windows(4)
        .position(|window| window == &DATA[16..20])
        .unwrap();
    wire[second_chunk] ^= 1;
    let sent = chunked(&encoder, &wire).send().await;
    assert_eq!(sent.refused, Some(ErrorCode::SignatureDoesNotMatch));
    let size_line = 2 + ";chunk-signature=".len() + 64 + 2;
    assert!(
        for_lake(&encoder)
            .encode(DATA.chunks(16))
            .starts_with(&sent.bytes)
    );
    assert!(
        (size_line..=size_line + 16 + 2).contains(&sent.bytes.len()),
        "{sent:?}"
    );
}

#[tokio::test]
async fn chunks_signed_by_another_or_in_another_order_are_refused() {
    let stranger = Encoder {
        seed: Some(seed("another secret")),
        ..signed(None)
    };
    chunked(&stranger, &stranger.encode([DATA]))
        .assert_refused(ErrorCode::SignatureDoesNotMatch)
        .await;

    let encoder = signed(None);
    let wire = encoder.encode([b"one!".as_slice(), b"two!".as_slice()]);
    let line = 1 + ";chunk-signature=".len() + 64 + 2 + 4 + 2;
    let swapped = [&wire[line..2 * line], &wire[..line], &wire[2 * line..]].concat();
    let upload = chunked(&encoder, &swapped).header("x-amz-decoded-content-length", "8");
    upload.assert_refused(ErrorCode::SignatureDoesNotMatch).await;
    let upload = chunked(&encoder, &wire).header("x-amz-decoded-content-length", "8");
    assert_eq!(upload.send().await.refused, None);
}

#[tokio::test]
async fn the_final_chunk_is_needed_and_verified() {
    let encoder = signed(None);
    let wire = encoder.encode([DATA]);
    let last = 1 + ";chunk-signature=".len() + 64 + 4;
    chunked(&encoder, &wire[..wire.len() - last])
        .assert_refused(ErrorCode::IncompleteBody)
        .await;
    chunked(&encoder, &wire[..wire.len() - 2])
        .assert_refused(ErrorCode::IncompleteBody)
        .await;

    let mut flipped = wire.clone();
    let at = wire.len() - 5;
    flipped[at] = if wire[at] == b'0' { b'1' } else { b'0' };
    chunked(&encoder, &flipped)
        .assert_refused(ErrorCode::SignatureDoesNotMatch)
        .await;
}

#[tokio::test]
async fn the_decoded_length_is_needed_and_exact() {
    for encoder in [signed(None), unsigned(Some(("x-amz-checksum-crc32", DATA_CRC32)))] {
        let upload = chunked(&encoder, &encoder.encode([DATA]));
        for length in ["43", "45", "0"] {
            let upload = upload.clone().header("x-amz-decoded-content-length", length);
            upload.assert_refused(ErrorCode::IncompleteBody).await;
        }
        let upload = upload.clone().header("x-amz-decoded-content-length", "-1");
        upload.assert_refused(ErrorCode::InvalidArgument).await;
        let mut upload = upload.clone();
        upload
            .headers
            .retain(|(name, _)| *name != "x-amz-decoded-content-length");
        upload.assert_refused(ErrorCode::MissingContentLength).await;
    }
}

#[tokio::test]
async fn the_trailer_is_the_one_announced_with_the_right_value() {
    let crc32 = "x-amz-checksum-crc32";
    for kind in [signed, unsigned] {
        let upload = |announced: &'static str, trailer| {
            let encoder = kind(Some(trailer));
            chunked(&encoder, &encoder.encode([DATA])).header("x-amz-trailer", announced)
        };
        upload(crc32, (crc32, "AAAAAA=="))
            .assert_refused(ErrorCode::BadDigest)
            .await;
        upload(crc32, (crc32, "AAAA"))
            .assert_refused(ErrorCode::InvalidRequest)
            .await;
        upload(crc32, (crc32, ""))
            .assert_refused(ErrorCode::InvalidRequest)
            .await;
        upload("x-amz-checksum-sha1", (crc32, DATA_CRC32))
            .assert_refused(ErrorCode::MalformedTrailerError)
            .await;
        for unsupported in [
            "x-amz-meta-a",
            "x-amz-checksum-",
            "x-amz-checksum-crc32,x-amz-checksum-sha1",
            "",
        ] {
            upload(unsupported, (crc32, DATA_CRC32))
                .assert_refused(ErrorCode::InvalidRequest)
                .await;
        }
        let mut unannounced = upload(crc32, (crc32, DATA_CRC32));
        unannounced.headers.retain(|(name, _)| *name != "x-amz-trailer");
        unannounced.assert_refused(ErrorCode::MalformedTrailerError).await;

        let encoder = kind(None);
        let mut missing = chunked(&encoder, &encoder.encode([DATA])).header("x-amz-trailer", crc32);
        if encoder.framing().signed {
            missing.hash = PayloadHash::StreamingSignedTrailer;
        }
        missing.assert_refused(ErrorCode::MalformedTrailerError).await;
    }
}

#[tokio::test]
async fn a_signed_trailer_needs_its_own_signature_last() {
    let encoder = signed(Some(("x-amz-checksum-crc32", DATA_CRC32)));
    let wire = String::from_utf8(encoder.encode([DATA])).unwrap();
    let signature_at = wire.find("x-amz-trailer-signature").unwrap();
    let checksum_at = wire.find("x-amz-checksum").unwrap();
    let (checksum, signature) = (
        &wire[checksum_at..signature_at],
        &wire[signature_at..wire.len() - 2],
    );
    let head = &wire[..checksum_at];
    for (trailer, code) in [
        (checksum.to_owned(), ErrorCode::MalformedTrailerError),
        (signature.to_owned(), ErrorCode::SignatureDoesNotMatch),
        (format!("{signature}{checksum}"), ErrorCode::SignatureDoesNotMatch),
        (
            format!("{checksum}{checksum}{signature}"),
            ErrorCode::MalformedTrailerError,
        ),
        (
            format!("{checksum}x-amz-trailer-signature:{}\r\n", "0".repeat(64)),
            ErrorCode::SignatureDoesNotMatch,
        ),
        (
            format!("{checksum}x-amz-trailer-signature:\r\n"),
            ErrorCode::SignatureDoesNotMatch,
        ),
    ] {
        let wire = format!("{head}{trailer}\r\n");
        chunked(&encoder, wire.as_bytes()).assert_refused(code).await;
    }
}

#[tokio::test]
async fn data_after_the_end_is_refused_even_within_the_content_length() {
    for encoder in [signed(None), unsigned(Some(("x-amz-checksum-crc32", DATA_CRC32)))] {
        let mut wire = encoder.encode([DATA]);
        wire.extend_from_slice(b"0\r\n\r\n");
        chunked(&encoder, &wire)
            .assert_refused(ErrorCode::InvalidRequest)
            .await;
    }
}

#[tokio::test]
async fn a_signed_body_sent_on_without_our_key_is_our_error() {
    let encoder = signed(None);
    let upload = chunked(&encoder, &encoder.encode([DATA]));
    let payload = Payload {
        hash: upload.hash,
        seed: Some(seed(CLIENT)),
    };
    let frames = upload
        .frames
        .clone()
        .into_iter()
        .map(|frame| Ok::<_, Infallible>(Frame::data(frame)));
    let body = CheckedBody::new(StreamBody::new(stream::iter(frames)), &upload.parts(), payload).unwrap();
    let outcome = body.outcome();
    assert!(body.collect().await.is_err());
    assert_eq!(outcome.error().unwrap().code, ErrorCode::InternalError);
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

proptest! {
    #[test]
    fn no_damaged_byte_of_a_signed_body_goes_unnoticed(
        data in collection::vec(any::<u8>(), 1..60),
        size in 1_usize..30,
        with_trailer: bool,
        at: proptest::sample::Index,
        byte: u8,
    ) {
        let crc = STANDARD.encode(&crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &data).to_be_bytes()[4..]);
        let encoder = signed(with_trailer.then_some(("x-amz-checksum-crc32", crc.as_str())));
        let good = encoder.encode(data.chunks(size));
        let at = at.index(good.len());
        let mut wire = good.clone();
        wire[at] = byte;
        let upload = chunked(&encoder, &wire).header("x-amz-decoded-content-length", data.len().to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let sent = runtime.block_on(upload.send());
        if sent.refused.is_none() {
            // The case of a name or a digit may differ; what it stands for may not.
            prop_assert!(wire.eq_ignore_ascii_case(&good), "byte {at} was changed to {byte}");
            prop_assert!(sent.bytes.eq_ignore_ascii_case(&for_lake(&encoder).encode(data.chunks(size))));
            let lengths = |wire: &[u8]| wire.iter().filter(|byte| **byte == b'\n').count();
            prop_assert_eq!(lengths(&wire), lengths(&good));
        }
    }
}
