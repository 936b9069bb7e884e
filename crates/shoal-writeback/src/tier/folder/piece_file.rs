//! The file of a piece: its bytes, their checksums, and a tail that names the key.
//!
//! ```text
//! | data | a checksum for each chunk | data length u64 | chunk length u32 | format u32 | CRC u64 | magic 8 |
//! ```
//!
//! Numbers are little-endian; checksums are CRC-64/NVME. The CRC covers the key and everything between the
//! data and itself. A file is exactly this long, so a file that was cut or that grew has no tail at its end.

use crc_fast::Digest;

use crate::tier::digests::{ALGORITHM, CHUNK_BYTES, ChunkDigests};

const TAIL_BYTES: u64 = 32;
const CHECKSUM_BYTES: u64 = 8;
const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"shoalpce";

/// The reason why bytes are not those of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    #[error("no piece ends where its file ends")]
    NotAPiece,
    #[error("the checksum of its description is wrong, or it is another piece")]
    Description,
    #[error("the checksum of its bytes is wrong")]
    Data,
}

/// The tail of a file, which locates the description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    size_bytes: u64,
    crc: u64,
}

/// Returns everything that follows the data of the piece `key`, whose chunks have these checksums.
pub(super) fn end_of(key: &str, data: &ChunkDigests) -> Vec<u8> {
    let mut end = Vec::with_capacity(end_bytes(data.size_bytes()) as usize);
    for checksum in data.digests() {
        end.extend_from_slice(&checksum.to_le_bytes());
    }
    end.extend_from_slice(&data.size_bytes().to_le_bytes());
    end.extend_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
    end.extend_from_slice(&FORMAT.to_le_bytes());
    end.extend_from_slice(&crc_of(key, &end).to_le_bytes());
    end.extend_from_slice(&MAGIC);
    end
}

impl Tail {
    /// Length of a tail in bytes.
    pub(super) const BYTES: usize = TAIL_BYTES as usize;

    /// Decodes the last bytes of a file of `file_bytes`.
    pub(super) fn decode(tail: &[u8; Self::BYTES], file_bytes: u64) -> Result<Self, Damage> {
        let number = |at: usize| u64::from_le_bytes(tail[at..at + 8].try_into().expect("eight bytes"));
        let (size_bytes, layout, crc) = (number(0), number(8), number(16));
        let known = CHUNK_BYTES | u64::from(FORMAT) << 32;
        let fits = size_bytes < file_bytes && size_bytes + end_bytes(size_bytes) == file_bytes;
        if tail[24..] == MAGIC && layout == known && fits {
            Ok(Self { size_bytes, crc })
        } else {
            Err(Damage::NotAPiece)
        }
    }

    /// Returns the position and length of the description.
    pub(super) fn description(self) -> (u64, u64) {
        (self.size_bytes, end_bytes(self.size_bytes))
    }

    /// Decodes the digests of the piece `key` from its description: all bytes after its data.
    pub(super) fn digests(self, end: &[u8], key: &str) -> Result<ChunkDigests, Damage> {
        let covered = end.len() - MAGIC.len() - size_of::<u64>();
        if crc_of(key, &end[..covered]) != self.crc {
            return Err(Damage::Description);
        }
        let (digests, _) = end[..end.len() - Self::BYTES].as_chunks();
        let digests: Vec<u64> = digests.iter().copied().map(u64::from_le_bytes).collect();
        ChunkDigests::new(self.size_bytes, CHUNK_BYTES, digests).ok_or(Damage::NotAPiece)
    }
}

/// Returns the length of the data in a piece's file of `file_bytes`.
pub(super) fn size_in(file_bytes: u64) -> u64 {
    let with_checksums = file_bytes.saturating_sub(TAIL_BYTES);
    with_checksums
        - with_checksums.div_ceil(CHUNK_BYTES + CHECKSUM_BYTES) * CHECKSUM_BYTES.min(with_checksums)
}

/// Returns the number of bytes that follow data of `size_bytes`.
fn end_bytes(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(CHUNK_BYTES) * CHECKSUM_BYTES + TAIL_BYTES
}

fn crc_of(key: &str, description: &[u8]) -> u64 {
    let mut digest = Digest::new(ALGORITHM);
    digest.update(key.as_bytes());
    digest.update(description);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, Damage, Tail, end_of, size_in};
    use crate::tier::ChunkDigester;

    const KEY: &str = "a/01JAZ";

    fn file(data: &[u8]) -> Vec<u8> {
        let mut digester = ChunkDigester::default();
        for part in data.chunks(1000) {
            digester.update(part);
        }
        [data, &end_of(KEY, &digester.chunks())].concat()
    }

    /// Reads all of a file as the store does.
    fn read(file: &[u8], key: &str) -> Result<Vec<u8>, Damage> {
        let tail = file.last_chunk().ok_or(Damage::NotAPiece)?;
        let tail = Tail::decode(tail, file.len() as u64)?;
        let (at, _) = tail.description();
        let digests = tail.digests(&file[at as usize..], key)?;
        for (number, chunk) in file[..at as usize].chunks(CHUNK_BYTES as usize).enumerate() {
            assert_eq!(chunk.len() as u64, digests.chunk(number as u64).len());
            digests
                .verify(number as u64, chunk)
                .then_some(())
                .ok_or(Damage::Data)?;
        }
        Ok(file[..at as usize].into())
    }

    fn data(size_bytes: u64) -> Vec<u8> {
        (0..size_bytes).map(|at| ((at * 31) >> 3) as u8).collect()
    }

    #[test]
    fn a_piece_of_any_length_comes_back() {
        let sizes = [
            0,
            1,
            999,
            CHUNK_BYTES - 1,
            CHUNK_BYTES,
            CHUNK_BYTES + 1,
            3 * CHUNK_BYTES + 7,
        ];
        for size_bytes in sizes {
            let data = data(size_bytes);
            let file = file(&data);
            assert_eq!(size_in(file.len() as u64), size_bytes);
            assert!(read(&file, KEY) == Ok(data), "{size_bytes}");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let file = file(&data(100));
        for bit in 0..file.len() * 8 {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped, KEY).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_file_that_was_cut_or_that_grew_is_refused() {
        let file = file(&data(100));
        for end in 0..file.len() {
            assert!(read(&file[..end], KEY).is_err(), "cut at {end}");
            let zeros = [&file[..end], &vec![0; file.len() - end]].concat();
            assert!(zeros == file || read(&zeros, KEY).is_err(), "zeros from {end}");
        }
        assert!(read(&[&file[..], b"x"].concat(), KEY).is_err());
        for short in 0..40 {
            size_in(short);
        }
    }

    #[test]
    fn a_file_under_another_name_is_refused() {
        assert_eq!(read(&file(b"x"), "a/01JAY"), Err(Damage::Description));
    }
}
