//! Verifies the bytes of a piece against the acknowledged digests as they are sent to the lake.
//!
//! Bytes from the tier were verified when they were read. Bytes from this node's disk were only verified
//! against their block footers when they were loaded, so they are compared with the acknowledged digests
//! here. They are copied first, because a page of a mapped file may change or become unreadable at any time.

use std::collections::VecDeque;
use std::future::poll_fn;

use bytes::Bytes;
use shoal_cache::blocks::BlockStream;
use shoal_net::sigbus_guard::copy_of;
use shoal_s3::range::ByteRange;

use super::error::LakeWriteError;
use crate::tier::{ChunkProof, WrongBytes};

/// Number of bytes that are copied and verified before the task yields.
const SLICE_BYTES: usize = 256 << 10;

/// A stream of verified bytes.
pub(super) struct ProvenBlocks {
    blocks: BlockStream,
    proof: ChunkProof,
    /// Bytes that are not verified yet; `at` is their position in the piece.
    rest: Bytes,
    at: u64,
    proven: VecDeque<Bytes>,
}

impl ProvenBlocks {
    pub(super) fn new(blocks: BlockStream, proof: ChunkProof) -> Self {
        Self {
            blocks,
            proof,
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
        let taken = self.proof.take(bytes, &mut self.proven);
        taken.map_err(LakeWriteError::WrongBytes)
    }
}
