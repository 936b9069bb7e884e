//! Bodies in chunks, signed and unsigned, with trailers and without.

use std::convert::Infallible;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use proptest::collection;
use proptest::prelude::{any, prop_assert_eq, proptest};
use sha2::{Digest, Sha256};

use super::decoder::decoded;
use super::encoder::{Encoder, seed};
use super::{CLIENT, CheckedBody, DATA, DATA_CRC32, Payload, chunked, for_lake, signed, unsigned};
use crate::error::ErrorCode;
use crate::sigv4::{ChunkSigner, PayloadHash};

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
    // The lake verifies a checksum that this node does not know.
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
        upload.assert_refused(ErrorCode::MissingContentLength).await;
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
        let mut twice = upload(crc32, (crc32, DATA_CRC32));
        twice.headers.push(("x-amz-trailer", crc32.to_owned()));
        twice.assert_refused(ErrorCode::InvalidRequest).await;

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
async fn a_checksum_may_not_follow_the_signature_nor_come_twice() {
    let seed = seed(CLIENT);
    let encoder = signed(Some(("x-amz-checksum-crc32", DATA_CRC32)));
    let wire = String::from_utf8(encoder.encode([DATA])).unwrap();
    let head = &wire[..wire.find("x-amz-checksum").unwrap()];
    let mut signer = ChunkSigner::new(seed);
    signer.sign_chunk(&Sha256::digest(DATA).into());
    signer.sign_chunk(&Sha256::digest(b"").into());
    let of_nothing = signer.sign_trailer(b"");
    let wire =
        format!("{head}x-amz-trailer-signature:{of_nothing}\r\nx-amz-checksum-crc32:{DATA_CRC32}\r\n\r\n");
    chunked(&encoder, wire.as_bytes())
        .assert_refused(ErrorCode::MalformedTrailerError)
        .await;

    let encoder = unsigned(Some(("x-amz-checksum-crc32", DATA_CRC32)));
    let mut wire = String::from_utf8(encoder.encode([DATA])).unwrap();
    wire.insert_str(wire.len() - 2, &format!("x-amz-checksum-crc32:{DATA_CRC32}\r\n"));
    chunked(&encoder, wire.as_bytes())
        .assert_refused(ErrorCode::MalformedTrailerError)
        .await;
}

#[tokio::test]
async fn data_after_the_end_is_refused_even_within_the_content_length() {
    for encoder in [signed(None), unsigned(Some(("x-amz-checksum-crc32", DATA_CRC32)))] {
        let mut wire = encoder.encode([DATA]);
        wire.extend_from_slice(b"0\r\n\r\n");
        chunked(&encoder, &wire)
            .assert_refused(ErrorCode::IncompleteBody)
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
            // The case of a size or a name and the blanks around a value may differ; the data may not.
            let length = data.len() as u64;
            prop_assert_eq!(decoded(encoder.framing(), length, &wire), data.clone());
            prop_assert_eq!(decoded(encoder.framing(), length, &sent.bytes), data);
        }
    }
}
