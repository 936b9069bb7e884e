//! Verifies the bytes of a piece against the acknowledged digests as they are sent to the lake.
//!
//! Bytes from the tier were verified when they were read. Bytes from this node's disk were only verified
//! against their block footers when they were loaded, so they are compared with the acknowledged digests
//! here. They are copied first, because a page of a mapped file may change or become unreadable at any time.

use std::collections::VecDeque;
use std::future::poll_fn;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use shoal_cache::blocks::BlockStream;
use shoal_net::sigbus_guard::copy_of;
use shoal_s3::range::ByteRange;

use super::error::LakeWriteError;
use crate::tier::{ChunkProof, Piece, PieceMd5, WrongBytes};

/// Number of bytes that are copied and verified before the task yields.
const SLICE_BYTES: usize = 256 << 10;

/// The way in which a piece is verified.
enum Proof {
    /// Chunk by chunk.
    Chunks(Box<ChunkProof>),
    /// As a whole, for a piece from an earlier build: the last bytes are withheld until all are verified.
    Md5 {
        md5: Md5,
        expected: PieceMd5,
        missing_bytes: u64,
        held: Option<Bytes>,
    },
    /// Not here, for a part from an earlier build: the MD5s of all parts are compared before the upload is
    /// completed.
    Later,
}

impl Proof {
    fn of(piece: Option<&Piece>) -> Self {
        match piece {
            Some(Piece {
                digests: Some(digests),
                ..
            }) => Self::Chunks(Box::new(digests.proof(0))),
            Some(Piece {
                md5: Some(expected),
                size_bytes,
                ..
            }) => Self::Md5 {
                md5: Md5::new(),
                expected: *expected,
                missing_bytes: *size_bytes,
                held: None,
            },
            _ => Self::Later,
        }
    }

    /// Adds the next bytes to the proof, and appends those that it verifies to `proven`.
    fn take(&mut self, bytes: Bytes, proven: &mut VecDeque<Bytes>) -> Result<(), LakeWriteError> {
        match self {
            Self::Chunks(proof) => proof.take(bytes, proven).map_err(LakeWriteError::WrongBytes),
            Self::Md5 {
                md5,
                expected,
                missing_bytes,
                held,
            } => {
                md5.update(&bytes);
                *missing_bytes = missing_bytes.saturating_sub(bytes.len() as u64);
                proven.extend(held.replace(bytes));
                if *missing_bytes > 0 {
                    return Ok(());
                }
                if PieceMd5::from(std::mem::take(md5).finalize()) != *expected {
                    return Err(LakeWriteError::OtherMd5);
                }
                proven.extend(held.take());
                Ok(())
            }
            Self::Later => {
                proven.push_back(bytes);
                Ok(())
            }
        }
    }
}

/// A stream of verified bytes.
pub(super) struct ProvenBlocks {
    blocks: BlockStream,
    proof: Proof,
    /// Bytes that are not verified yet; `at` is their position in the piece.
    rest: Bytes,
    at: u64,
    proven: VecDeque<Bytes>,
}

impl ProvenBlocks {
    pub(super) fn new(blocks: BlockStream, piece: Option<&Piece>) -> Self {
        Self {
            blocks,
            proof: Proof::of(piece),
            rest: Bytes::new(),
            at: 0,
            proven: VecDeque::new(),
        }
    }

    /// Returns the next bytes, or `None` at the end of the piece.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, LakeWriteError>> {
        loop {
            if let Some(bytes) = self.proven.pop_front() {
                return Some(Ok(bytes));
            }
            if self.rest.is_empty() {
                match poll_fn(|cx| self.blocks.poll_next(cx)).await? {
                    Ok(bytes) => self.rest = bytes,
                    Err(error) => return Some(Err(LakeWriteError::Unread(error))),
                }
            } else {
                tokio::task::yield_now().await;
            }
            if let Err(error) = self.prove() {
                return Some(Err(error));
            }
        }
    }

    fn prove(&mut self) -> Result<(), LakeWriteError> {
        let bytes = self.rest.split_to(self.rest.len().min(SLICE_BYTES));
        let (start, end) = (self.at, self.at + bytes.len() as u64);
        self.at = end;
        let unread = |_| LakeWriteError::WrongBytes(WrongBytes(ByteRange::new(start, end)));
        let bytes = copy_of(&bytes).map_err(unread)?;
        self.proof.take(bytes, &mut self.proven)
    }
}
