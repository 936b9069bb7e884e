//! The bytes of a piece on their way to the lake, compared with the acknowledged digests as they leave.
//!
//! Bytes from the tier were proven when they were read. Those from this node's disk were verified when they
//! were loaded, against the footers of their blocks: here they are compared with what the writer was told. They
//! are copied first, since a page of a mapped file may change, or become unreadable, at any time.

use std::collections::VecDeque;
use std::future::poll_fn;

use bytes::Bytes;
use shoal_s3::range::ByteRange;

use super::LakeWriteError;
use crate::blocks::BlockStream;
use crate::sigbus_guard::copy_of;
use crate::tier::{ChunkDigests, ChunkProof, WrongBytes};

/// Bytes that are copied and compared before other tasks get their turn.
const SLICE_BYTES: usize = 256 << 10;

/// A stream of proven bytes.
pub(super) struct ProvenBlocks {
    blocks: BlockStream,
    /// `None` for a piece that an earlier build wrote.
    proof: Option<ChunkProof>,
    /// Bytes that have not been compared, and the position of the first of them in the piece.
    rest: Bytes,
    at: u64,
    proven: VecDeque<Bytes>,
}

impl ProvenBlocks {
    pub(super) fn new(blocks: BlockStream, digests: Option<&ChunkDigests>) -> Self {
        Self {
            blocks,
            proof: digests.map(|digests| digests.proof(0)),
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
            if let Err(wrong) = self.prove() {
                return Some(Err(LakeWriteError::WrongBytes(wrong)));
            }
        }
    }

    fn prove(&mut self) -> Result<(), WrongBytes> {
        let bytes = self.rest.split_to(self.rest.len().min(SLICE_BYTES));
        let (start, end) = (self.at, self.at + bytes.len() as u64);
        self.at = end;
        let bytes = copy_of(&bytes).map_err(|_| WrongBytes(ByteRange { start, end }))?;
        match &mut self.proof {
            Some(proof) => proof.take(bytes, &mut self.proven),
            None => {
                self.proven.push_back(bytes);
                Ok(())
            }
        }
    }
}
