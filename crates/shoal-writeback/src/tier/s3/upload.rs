//! The body of a piece while it is sent to an S3 store.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use md5::{Digest as _, Md5};
use parking_lot::Mutex;
use sha2::Sha256;
use shoal_net::endpoint::{BoxError, RequestBody, RequestStream};
use shoal_s3::sigv4::ChunkSigner;

use crate::tier::exact_body::exactly;
use crate::tier::store::{ByteStream, PieceMd5};

/// Number of bytes that are hashed before the task yields, and that share one signature. The signature
/// precedes them, so none can be sent before all have arrived: larger slices add latency on a slow link.
const SLICE_BYTES: usize = 64 << 10;

/// Separates the length of a chunk from its signature.
const SIGNATURE: &str = ";chunk-signature=";
const SIGNATURE_DIGITS: usize = 64;

/// The progress of a body.
#[derive(Default)]
pub(super) struct Progress {
    /// The MD5 of the whole body, once all of it was handed to the connection.
    pub(super) md5: Mutex<Option<PieceMd5>>,
    /// The error that the body ended with.
    pub(super) error: Mutex<Option<BoxError>>,
}

/// Replaces the body's error in a request.
#[derive(Debug, thiserror::Error)]
#[error("the body of the piece failed")]
struct BodyFailed;

/// Prepares a body of exactly `size_bytes` bytes, in signed chunks if the request is signed. Returns it, and
/// its progress.
///
/// # Errors
///
/// The body should be empty and is not, or fails.
pub(super) async fn prepared(
    size_bytes: u64,
    body: ByteStream,
    is_signed: bool,
) -> Result<(RequestBody, Arc<Progress>), BoxError> {
    let progress = Arc::<Progress>::default();
    let mut body = exactly(size_bytes, body);
    if size_bytes == 0 {
        // Wait for the end of the body, or its error.
        body.next().await.transpose()?;
        *progress.md5.lock() = Some(Md5::digest([]).into());
        return Ok((RequestBody::Empty, progress));
    }
    let hashed = Hashed {
        body,
        waiting: Bytes::new(),
        missing_bytes: size_bytes,
        md5: Md5::new(),
        progress: Arc::clone(&progress),
    };
    let body = if is_signed {
        RequestBody::Seeded {
            length: Some(SignedChunks::encoded_bytes(size_bytes)),
            body: Box::new(move |seed| {
                SignedChunks {
                    data: hashed,
                    signer: ChunkSigner::new(seed),
                }
                .stream()
            }),
        }
    } else {
        RequestBody::Stream {
            length: Some(size_bytes),
            body: hashed.stream(),
        }
    };
    Ok((body, progress))
}

/// A body whose MD5 is recorded together with its last bytes, because no reader polls again after them.
struct Hashed {
    body: ByteStream,
    /// Bytes of the body that have not been returned yet.
    waiting: Bytes,
    missing_bytes: u64,
    md5: Md5,
    progress: Arc<Progress>,
}

impl Hashed {
    fn stream(self) -> RequestStream {
        let frames = stream::try_unfold(self, |mut hashed| async move {
            let bytes = hashed.next(SLICE_BYTES).await?;
            Ok(bytes.map(|bytes| (Frame::data(bytes), hashed)))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// Returns the next bytes, at most `bytes_max`.
    async fn next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, BoxError> {
        if self.waiting.is_empty() {
            match self.body.next().await {
                None => return Ok(None),
                Some(Ok(bytes)) => self.waiting = bytes,
                Some(Err(error)) => {
                    *self.progress.error.lock() = Some(error);
                    return Err(BodyFailed.into());
                }
            }
        } else {
            tokio::task::yield_now().await;
        }
        let bytes = self.waiting.split_to(self.waiting.len().min(bytes_max));
        self.md5.update(&bytes);
        let missing = self.missing_bytes.checked_sub(bytes.len() as u64);
        self.missing_bytes = missing.expect("a body of exactly this length has no more bytes");
        if self.missing_bytes == 0 {
            let md5 = std::mem::take(&mut self.md5);
            *self.progress.md5.lock() = Some(md5.finalize().into());
        }
        Ok(Some(bytes))
    }
}

/// A body in chunks, each with a signature that is chained to the previous one
/// (`STREAMING-AWS4-HMAC-SHA256-PAYLOAD`).
///
/// The store verifies the bytes before it commits the piece, and detects a truncated body by its missing last
/// chunk: versitygw 1.8 commits the beginning of a plain body whose connection ends early.
struct SignedChunks {
    data: Hashed,
    signer: ChunkSigner,
}

impl SignedChunks {
    fn stream(self) -> RequestStream {
        let chunks = stream::try_unfold(Some(self), |chunks| async move {
            let Some(mut chunks) = chunks else { return Ok(None) };
            let is_last = chunks.data.missing_bytes == 0;
            let frames = chunks.next().await?.into_iter().map(Frame::data).map(Ok);
            Ok::<_, BoxError>(Some((stream::iter(frames), (!is_last).then_some(chunks))))
        });
        StreamBody::new(chunks.try_flatten()).boxed_unsync()
    }

    /// Returns the next chunk with its signature, in the form in which it is sent. The last one is empty.
    async fn next(&mut self) -> Result<Vec<Bytes>, BoxError> {
        let chunk_bytes = self.data.missing_bytes.min(SLICE_BYTES as u64) as usize;
        let (mut sha256, mut missing_bytes) = (Sha256::new(), chunk_bytes);
        let mut encoded = vec![Bytes::new()];
        while missing_bytes > 0 {
            let bytes = self.data.next(missing_bytes).await?;
            let bytes = bytes.expect("a body of exactly this length fails or goes on");
            sha256.update(&bytes);
            missing_bytes -= bytes.len();
            encoded.push(bytes);
        }
        let signature = self.signer.sign_chunk(&sha256.finalize().into());
        let head = format!("{chunk_bytes:x}{SIGNATURE}{}\r\n", signature.as_str());
        encoded[0] = head.into();
        encoded.push(Bytes::from_static(b"\r\n"));
        Ok(encoded)
    }

    /// Returns the encoded length of a body of `size_bytes`.
    fn encoded_bytes(size_bytes: u64) -> u64 {
        let overhead = |chunk_bytes: u64| {
            let digits = u64::from(chunk_bytes.checked_ilog2().unwrap_or(0) / 4 + 1);
            digits + (SIGNATURE.len() + SIGNATURE_DIGITS + 4) as u64
        };
        let (whole, rest) = (size_bytes / SLICE_BYTES as u64, size_bytes % SLICE_BYTES as u64);
        let of_rest = if rest == 0 { 0 } else { overhead(rest) };
        size_bytes + whole * overhead(SLICE_BYTES as u64) + of_rest + overhead(0)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::{StreamExt as _, stream};
    use http_body_util::BodyExt as _;
    use shoal_base::secret::Secret;
    use shoal_s3::sigv4::{SeedSignature, Signature, SigningKey, Timestamp, scope};

    use super::{RequestBody, SLICE_BYTES, SignedChunks, prepared};

    fn seed() -> SeedSignature {
        let timestamp = Timestamp::parse(b"20130524T000000Z").unwrap();
        SeedSignature {
            key: SigningKey::derive(&Secret::new("s"), &timestamp, "us-east-1", "s3"),
            timestamp,
            scope: scope(&timestamp, "us-east-1", "s3"),
            signature: Signature::from_mac(&[7; 32]),
        }
    }

    #[tokio::test]
    async fn a_signed_body_has_the_announced_length() {
        let sizes = [
            1,
            15,
            16,
            4095,
            SLICE_BYTES - 1,
            SLICE_BYTES,
            SLICE_BYTES + 1,
            3 * SLICE_BYTES + 70_000,
        ];
        for size_bytes in sizes {
            let pieces: Vec<_> = vec![7; size_bytes]
                .chunks(100_001)
                .map(|piece| Ok(Bytes::copy_from_slice(piece)))
                .collect();
            let upload = prepared(size_bytes as u64, stream::iter(pieces).boxed(), true).await;
            let RequestBody::Seeded { length, body } = upload.unwrap().0 else {
                panic!("it is signed");
            };
            let sent = body(seed()).collect().await.unwrap().to_bytes();
            assert_eq!(length, Some(sent.len() as u64), "{size_bytes}");
            assert_eq!(length, Some(SignedChunks::encoded_bytes(size_bytes as u64)));
        }
    }
}
