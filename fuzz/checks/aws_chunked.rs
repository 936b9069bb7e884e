//! An aws-chunked body is decoded the same however it is cut, and reaches the lake whole or not at all.
//!
//! Input: one byte of flags, two bytes of decoded length (big-endian), then the body.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::Full;
use shoal_base::secret::Secret;
use shoal_s3::payload::decoder::{ChunkError, Decoder, Event, Framing};
use shoal_s3::payload::{CheckedBody, Payload};
use shoal_s3::sigv4::{PayloadHash, SeedSignature, SigningKey, Timestamp, scope};

const SIGNED: u8 = 1;
const TRAILER: u8 = 2;

/// What a body decodes to, and the bytes it was read from.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    data: Vec<u8>,
    wire: Vec<u8>,
}

/// Panics if the decoder or the checked body misbehave on `input`.
pub(crate) fn check(input: &[u8]) {
    let [flags, high, low, body @ ..] = input else {
        return;
    };
    let framing = Framing {
        signed: flags & SIGNED != 0,
        trailer: flags & TRAILER != 0,
    };
    let length = u64::from(u16::from_be_bytes([*high, *low]));

    let whole = decode(framing, length, body, body.len().max(1));
    for frame_bytes in [1, 7, 64] {
        assert_eq!(
            decode(framing, length, body, frame_bytes),
            whole,
            "frames of {frame_bytes} bytes"
        );
    }
    if let Ok(decoded) = &whole {
        assert_eq!(decoded.data.len() as u64, length);
        assert_eq!(decoded.wire, body);
        for end in 0..body.len().min(64) {
            assert!(
                decode(framing, length, &body[..end], body.len()).is_err(),
                "a beginning of {end} bytes"
            );
        }
    }
    if framing.signed || framing.trailer {
        check_passage(framing, length, body, whole);
    }
}

fn decode(framing: Framing, length: u64, body: &[u8], frame_bytes: usize) -> Result<Decoded, ChunkError> {
    let mut decoder = Decoder::new(framing, length);
    let mut decoded = Decoded {
        data: Vec::new(),
        wire: Vec::new(),
    };
    for frame in body.chunks(frame_bytes) {
        let mut frame = Bytes::copy_from_slice(frame);
        while let Some(event) = decoder.next(&mut frame)? {
            let wire = match event {
                Event::Chunk(line) => line.wire,
                Event::Trailer(line) => line.wire,
                Event::ChunkEnd(wire) | Event::End(wire) => wire,
                Event::Data(data) => {
                    decoded.data.extend_from_slice(&data);
                    data
                }
            };
            decoded.wire.extend_from_slice(&wire);
        }
    }
    decoder.finish().map(|()| decoded)
}

/// The lake receives the whole body if and only if nothing is wrong with it, and then the same data.
fn check_passage(framing: Framing, length: u64, body: &[u8], decoded: Result<Decoded, ChunkError>) {
    let (sent, is_right) = pass(framing, length, body);
    if is_right {
        let theirs = decoded.expect("a body that is sent on whole decodes");
        let ours = decode(framing, length, &sent, sent.len()).expect("what is sent on decodes");
        assert_eq!(ours.data, theirs.data);
        assert_eq!(sent.len(), body.len());
        assert!(
            framing.signed || sent == body,
            "an unsigned body keeps its wire form"
        );
    } else {
        assert!(
            sent.len() < body.len().max(1),
            "a wrong body reached the lake whole"
        );
    }
}

fn pass(framing: Framing, length: u64, body: &[u8]) -> (Vec<u8>, bool) {
    let hash = match (framing.signed, framing.trailer) {
        (true, true) => PayloadHash::StreamingSignedTrailer,
        (true, false) => PayloadHash::StreamingSigned,
        (false, _) => PayloadHash::StreamingUnsignedTrailer,
    };
    let request = Request::put("/bucket/key")
        .header("content-length", body.len())
        .header("x-amz-decoded-content-length", length)
        .header("x-amz-trailer", "x-amz-checksum-crc32")
        .body(())
        .expect("a request of constant headers");
    let payload = Payload {
        hash,
        seed: framing.signed.then(|| seed("secret")),
    };
    let inner = Full::new(Bytes::copy_from_slice(body));
    let Ok(mut checked) = CheckedBody::new(inner, &request.into_parts().0, payload) else {
        return (Vec::new(), false);
    };
    checked.sign_again(seed("the lake's secret"));
    let outcome = checked.outcome();
    let (sent, ended) = collect(checked);
    assert_eq!(ended, outcome.error().is_none());
    (sent, ended)
}

/// Everything a body gives, and whether it came to its end. Its frames are all there, so it is never pending.
fn collect<B: Body<Data = Bytes>>(body: B) -> (Vec<u8>, bool) {
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    loop {
        match body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => bytes.extend(frame.into_data().unwrap_or_default()),
            Poll::Ready(Some(Err(_))) => return (bytes, false),
            Poll::Ready(None) => return (bytes, true),
            Poll::Pending => panic!("a body at hand is pending"),
        }
    }
}

fn seed(secret: &str) -> SeedSignature {
    let timestamp = Timestamp::parse(b"20130524T000000Z").expect("a timestamp");
    let key = SigningKey::derive(&Secret::new(secret), &timestamp, "us-east-1", "s3");
    let signature = key.sign(b"the head of the request");
    SeedSignature {
        key,
        timestamp,
        scope: scope(&timestamp, "us-east-1", "s3"),
        signature,
    }
}
