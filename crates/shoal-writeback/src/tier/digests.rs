//! Digests that verify bytes read from a tier against those that were acknowledged.
//!
//! A piece is digested in chunks of equal size, counted from its start. A range is verified by the chunks
//! that contain it, independent of the block size of a node. The digests are CRC-64/NVME, as in the footers
//! of block files: they detect errors, not forgeries by someone with the store's keys (decision 0040).

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest, checksum, checksum_combine};
use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;
use shoal_s3::range::ByteRange;

use super::store::PIECE_BYTES_MAX;

/// The chunk size, unless the piece is large. Chunks of larger pieces are two, four, eight … times this size.
/// Files of a folder (`folder/piece_file.rs`) have chunks of this size only, and record it.
pub const CHUNK_BYTES: u64 = 256 << 10;

/// Maximum number of digests of an object, and of one part of an upload: 19 KiB, because a reader gets them
/// with the registry entry. An object in more parts than this has one digest for each part.
pub const DIGESTS_MAX: u64 = 2048;

pub(super) const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;

/// The digests of the chunks of one piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64, Vec<u64>)")]
pub struct ChunkDigests {
    size_bytes: u64,
    chunk_bytes: u64,
    digests: Arc<[u64]>,
}

/// Computes the digests of a piece while it is written.
pub struct ChunkDigester {
    complete: Vec<u64>,
    chunk: Digest,
    size_bytes: u64,
}

/// The bytes in this range of a piece differ from the acknowledged ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {} to {} are not those that were acknowledged", .0.start, .0.end)]
pub struct WrongBytes(pub ByteRange);

/// Verifies the bytes of a piece chunk by chunk. The bytes of a chunk are returned only once the whole chunk
/// is verified.
pub struct ChunkProof {
    expected: ChunkDigests,
    at: u64,
    chunk: Digest,
    held: Vec<Bytes>,
}

impl ChunkDigests {
    /// Creates the digests of a piece of `size_bytes`. Returns `None` if their number or the chunk size is
    /// invalid.
    pub fn new(size_bytes: u64, chunk_bytes: u64, digests: impl Into<Arc<[u64]>>) -> Option<Self> {
        let digests = digests.into();
        let is_size = chunk_bytes.is_power_of_two() && chunk_bytes <= PIECE_BYTES_MAX.next_power_of_two();
        let fits = is_size && count(size_bytes, chunk_bytes) == digests.len() as u64;
        fits.then_some(Self {
            size_bytes,
            chunk_bytes,
            digests,
        })
    }

    /// Returns the size of the piece.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the size of every chunk but the last.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// Returns the digests, in order.
    pub fn digests(&self) -> &[u64] {
        &self.digests
    }

    /// Combines the digests into those of larger chunks. `chunk_bytes` is the present size times a power of
    /// two.
    #[must_use]
    pub fn coarser(self, chunk_bytes: u64) -> Self {
        if chunk_bytes == self.chunk_bytes {
            return self;
        }
        assert!(
            chunk_bytes.is_multiple_of(self.chunk_bytes),
            "chunks are joined to whole ones"
        );
        let joined = (chunk_bytes / self.chunk_bytes) as usize;
        let lengths = (0..).map(|number| self.chunk(number).len());
        let sized: Vec<_> = self.digests.iter().copied().zip(lengths).collect();
        let join = |chunks: &[(u64, u64)]| {
            let (first, rest) = chunks.split_first().expect("no chunk of a slice is empty");
            let join = |whole, (digest, len): &(u64, u64)| checksum_combine(ALGORITHM, whole, *digest, *len);
            rest.iter().fold(first.0, join)
        };
        Self {
            size_bytes: self.size_bytes,
            chunk_bytes,
            digests: sized.chunks(joined).map(join).collect(),
        }
    }

    /// Returns the range of a chunk. The number of the chunk must be less than that of the digests.
    pub fn chunk(&self, number: u64) -> ByteRange {
        let start = number * self.chunk_bytes;
        ByteRange {
            start,
            end: self.size_bytes.min(start + self.chunk_bytes),
        }
    }

    /// Returns true if a chunk consists of these bytes.
    pub fn verify(&self, number: u64, bytes: &[u8]) -> bool {
        self.digests[number as usize] == checksum(ALGORITHM, bytes)
    }

    /// Returns the smallest range of whole chunks that contains `range`.
    pub fn whole_chunks(&self, range: ByteRange) -> ByteRange {
        ByteRange::new(
            range.start - range.start % self.chunk_bytes,
            range.end.next_multiple_of(self.chunk_bytes).min(self.size_bytes),
        )
    }

    /// Returns a verifier of the bytes from `start`, which must be the start of a chunk.
    pub fn proof(&self, start: u64) -> ChunkProof {
        assert!(
            start.is_multiple_of(self.chunk_bytes) || start == self.size_bytes,
            "a proof begins with a chunk, or behind the last one"
        );
        ChunkProof {
            expected: self.clone(),
            at: start,
            chunk: Digest::new(ALGORITHM),
            held: Vec::new(),
        }
    }
}

/// Checks the fields of digests in a record.
impl TryFrom<(u64, u64, Vec<u64>)> for ChunkDigests {
    type Error = Malformed;

    fn try_from((size_bytes, chunk_bytes, digests): (u64, u64, Vec<u64>)) -> Result<Self, Malformed> {
        Self::new(size_bytes, chunk_bytes, digests).ok_or(Malformed)
    }
}

/// Returns the smallest chunk size, at least `least_bytes`, at which pieces of these sizes have no more than
/// [`DIGESTS_MAX`] digests together.
pub fn chunk_bytes_for(sizes: &(impl Iterator<Item = u64> + Clone), least_bytes: u64) -> u64 {
    let largest = sizes.clone().max().unwrap_or_default();
    let mut chunk_bytes = least_bytes;
    while chunk_bytes < largest
        && sizes.clone().map(|size| count(size, chunk_bytes)).sum::<u64>() > DIGESTS_MAX
    {
        chunk_bytes *= 2;
    }
    chunk_bytes
}

/// Returns the number of chunks of a piece.
pub fn count(size_bytes: u64, chunk_bytes: u64) -> u64 {
    size_bytes.div_ceil(chunk_bytes)
}

impl Default for ChunkDigester {
    fn default() -> Self {
        Self {
            complete: Vec::new(),
            chunk: Digest::new(ALGORITHM),
            size_bytes: 0,
        }
    }
}

impl ChunkDigester {
    /// Digests the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = CHUNK_BYTES - self.size_bytes % CHUNK_BYTES;
            let (now, later) = bytes.split_at(bytes.len().min(room as usize));
            self.chunk.update(now);
            self.size_bytes += now.len() as u64;
            if self.size_bytes.is_multiple_of(CHUNK_BYTES) {
                self.end_chunk();
            }
            bytes = later;
        }
    }

    /// Returns the digests of all bytes, at most [`DIGESTS_MAX`].
    pub fn finish(self) -> ChunkDigests {
        let digests = self.chunks();
        let chunk_bytes = chunk_bytes_for(&std::iter::once(digests.size_bytes), CHUNK_BYTES);
        digests.coarser(chunk_bytes)
    }

    /// Returns the digests of all bytes in chunks of [`CHUNK_BYTES`], without a limit on their number.
    pub fn chunks(mut self) -> ChunkDigests {
        if !self.size_bytes.is_multiple_of(CHUNK_BYTES) {
            self.end_chunk();
        }
        debug_assert_eq!(
            self.complete.len() as u64,
            count(self.size_bytes, CHUNK_BYTES),
            "each chunk has one digest"
        );
        ChunkDigests {
            size_bytes: self.size_bytes,
            chunk_bytes: CHUNK_BYTES,
            digests: self.complete.into(),
        }
    }

    fn end_chunk(&mut self) {
        let chunk = std::mem::replace(&mut self.chunk, Digest::new(ALGORITHM));
        self.complete.push(chunk.finalize());
    }
}

impl ChunkProof {
    /// Returns the position after the verified bytes.
    pub fn proven_end(&self) -> u64 {
        self.at - self.held.iter().map(|bytes| bytes.len() as u64).sum::<u64>()
    }

    /// Takes the next bytes of the piece, and appends those that can now be verified to `proven`.
    ///
    /// # Errors
    ///
    /// A chunk that these bytes complete differs from the acknowledged one. The chunks before it are
    /// appended.
    pub fn take(&mut self, mut bytes: Bytes, proven: &mut VecDeque<Bytes>) -> Result<(), WrongBytes> {
        while !bytes.is_empty() {
            let number = self.at / self.expected.chunk_bytes;
            let chunk = self.expected.chunk(number);
            let end = chunk.end;
            if self.at >= end {
                let (start, end) = (self.at, self.at + bytes.len() as u64);
                return Err(WrongBytes(ByteRange::new(start, end)));
            }
            let now = bytes.split_to(bytes.len().min((end - self.at) as usize));
            self.chunk.update(&now);
            self.at += now.len() as u64;
            self.held.push(now);
            if self.at < end {
                continue;
            }
            let digest = std::mem::replace(&mut self.chunk, Digest::new(ALGORITHM));
            if self.expected.digests[number as usize] != digest.finalize() {
                return Err(WrongBytes(chunk));
            }
            proven.extend(self.held.drain(..));
        }
        debug_assert!(
            self.held.is_empty() || !self.at.is_multiple_of(self.expected.chunk_bytes),
            "only bytes of an incomplete chunk are held"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use bytes::Bytes;
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
    use shoal_s3::range::ByteRange;

    use super::{CHUNK_BYTES, ChunkDigester, ChunkDigests, DIGESTS_MAX, WrongBytes, chunk_bytes_for};

    fn digests(bytes: &[u8]) -> ChunkDigests {
        let mut digester = ChunkDigester::default();
        bytes
            .chunks(1 + CHUNK_BYTES as usize / 3)
            .for_each(|piece| digester.update(piece));
        digester.finish()
    }

    fn bytes(size_bytes: u64) -> Bytes {
        (0..size_bytes)
            .map(|at| (at ^ at >> 8 ^ at >> 16) as u8)
            .collect()
    }

    /// Returns the verified bytes of a piece from `start`, and the outcome.
    fn proven(digests: &ChunkDigests, bytes: &[u8], start: u64) -> (Vec<u8>, Result<(), WrongBytes>) {
        let (mut proof, mut given) = (digests.proof(start), VecDeque::new());
        let mut pieces = bytes.chunks(100_000).map(Bytes::copy_from_slice);
        let result = pieces.try_for_each(|piece| proof.take(piece, &mut given));
        (given.into_iter().flatten().collect(), result)
    }

    #[test]
    fn a_chunk_with_another_byte_is_not_given_and_those_before_it_are() {
        let right = bytes(2 * CHUNK_BYTES + 5);
        let digests = digests(&right);
        assert_eq!(proven(&digests, &right, 0), (right.to_vec(), Ok(())));
        for (at, chunk) in [
            (0, 0),
            (CHUNK_BYTES, 1),
            (2 * CHUNK_BYTES - 1, 1),
            (2 * CHUNK_BYTES + 4, 2),
        ] {
            let mut wrong = right.to_vec();
            wrong[at as usize] ^= 0x10;
            let (given, result) = proven(&digests, &wrong, 0);
            assert_eq!(given, &right[..(chunk * CHUNK_BYTES) as usize]);
            let start = chunk * CHUNK_BYTES;
            let end = (start + CHUNK_BYTES).min(right.len() as u64);
            assert_eq!(result, Err(WrongBytes(ByteRange::new(start, end))), "{at}");
        }
        let longer = [&right[..], b"x"].concat();
        assert!(proven(&digests, &longer, 0).1.is_err());
    }

    #[test]
    fn a_range_is_proven_by_the_chunks_that_hold_it() {
        let right = bytes(3 * CHUNK_BYTES + 5);
        let digests = digests(&right);
        let wanted = ByteRange::new(CHUNK_BYTES + 7, 3 * CHUNK_BYTES + 1);
        let chunks = digests.whole_chunks(wanted);
        assert_eq!((chunks.start, chunks.end), (CHUNK_BYTES, 3 * CHUNK_BYTES + 5));
        let (given, result) = proven(&digests, &right[CHUNK_BYTES as usize..], chunks.start);
        assert_eq!((&given[..], result), (&right[CHUNK_BYTES as usize..], Ok(())));
    }

    #[test]
    fn a_large_piece_and_an_object_of_many_have_few_digests() {
        let of = |sizes: &[u64]| chunk_bytes_for(&sizes.iter().copied(), CHUNK_BYTES);
        assert_eq!(of(&[1]), CHUNK_BYTES);
        assert_eq!(of(&[DIGESTS_MAX * CHUNK_BYTES]), CHUNK_BYTES);
        assert_eq!(of(&[DIGESTS_MAX * CHUNK_BYTES + 1]), 2 * CHUNK_BYTES);
        assert_eq!(of(&[5 << 30]), 4 << 20);
        // One digest for each part.
        assert_eq!(of(&vec![8 << 20; 10_000]), 8 << 20);
    }

    #[test]
    fn digests_of_another_number_or_of_odd_chunks_are_refused() {
        assert!(ChunkDigests::new(5, 4, [1, 2]).is_some());
        assert!(ChunkDigests::new(5, 4, [1]).is_none());
        assert!(ChunkDigests::new(5, 3, [1, 2]).is_none());
        assert!(ChunkDigests::new(5, 0, [1, 2]).is_none());
    }

    proptest! {
        #[test]
        fn coarser_digests_are_those_of_the_joined_chunks(size in 1..2_000_usize, by in 0..6_u32, seed in any::<u8>()) {
            let data: Vec<u8> = (0..size).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
            let of = |chunk_bytes: usize| {
                let crc = |chunk: &[u8]| crc_fast::checksum(super::ALGORITHM, chunk);
                let digests: Vec<u64> = data.chunks(chunk_bytes).map(crc).collect();
                ChunkDigests::new(size as u64, chunk_bytes as u64, digests).unwrap()
            };
            prop_assert_eq!(of(64).coarser(64 << by), of(64 << by));
        }

        #[test]
        fn bytes_in_any_pieces_are_proven(pieces in vec(vec(any::<u8>(), 0..50), 0..20)) {
            let whole = pieces.concat();
            let digests = digests(&whole);
            let (mut proof, mut given) = (digests.proof(0), VecDeque::new());
            for piece in pieces {
                prop_assert!(proof.take(piece.into(), &mut given).is_ok());
            }
            prop_assert_eq!(proof.proven_end(), whole.len() as u64);
            prop_assert_eq!(given.into_iter().flatten().collect::<Vec<u8>>(), whole);
        }
    }
}
