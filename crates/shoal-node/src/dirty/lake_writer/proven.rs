//! The bytes of a piece on their way to the lake, compared with the acknowledged digests as they leave.
//!
//! Bytes from the tier were proven when they were read. Those from this node's disk were verified when they
//! were loaded, against the footers of their blocks: here they are compared with what the writer was told.
//! They are copied first, since a page of a mapped file may change, or become unreadable, at any time.

use std::collections::VecDeque;
use std::future::poll_fn;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use shoal_s3::range::ByteRange;

use super::LakeWriteError;
use crate::blocks::BlockStream;
use crate::sigbus_guard::copy_of;
use crate::tier::{ChunkProof, Piece, PieceMd5, WrongBytes};

/// Bytes that are copied and compared before other tasks get their turn.
const SLICE_BYTES: usize = 256 << 10;

/// How bytes are compared.
enum Proof {
    /// Chunk by chunk.
    Chunks(Box<ChunkProof>),
    /// All at once, for a piece that an earlier build wrote: the last bytes are held back until all are
    /// proven.
    Md5 {
        md5: Md5,
        expected: PieceMd5,
        missing_bytes: u64,
        held: Option<Bytes>,
    },
    /// Not here, for a part that an earlier build received: the MD5s of all parts are compared before the
    /// upload is completed.
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

    /// Takes the next bytes, and gives those that are proven with them.
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

/// A stream of proven bytes.
pub(super) struct ProvenBlocks {
    blocks: BlockStream,
    proof: Proof,
    /// Bytes that have not been compared, and the position of the first of them in the piece.
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

    /// The next bytes; `None` at the end of the piece.
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
        let unread = |_| LakeWriteError::WrongBytes(WrongBytes(ByteRange { start, end }));
        let bytes = copy_of(&bytes).map_err(unread)?;
        self.proof.take(bytes, &mut self.proven)
    }
}
