//! Bodies of every mode, right and wrong: the bytes that the lake gets, and the errors that the client gets.

mod chunked;
mod decoder;
mod encoder;
mod plain;

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use http::{Method, Request};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use sha2::{Digest, Sha256};

use self::encoder::{Encoder, seed};
use super::{CheckedBody, Payload};
use crate::error::{ErrorCode, S3Error};
use crate::sigv4::PayloadHash;

const CLIENT: &str = "the client's secret";
const LAKE: &str = "our secret at the lake";

/// The bytes that the lake received, and the error that the client receives.
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
        body.sign_again(seed(LAKE));
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

    /// Asserts that everything arrives, byte for byte.
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

    /// Asserts that the client receives `code`, and the lake less than the whole body.
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

/// The same body in the form that the lake must receive.
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
