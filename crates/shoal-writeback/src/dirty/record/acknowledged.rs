//! The digests of an object's bytes at the time of acknowledgement. They are stored in the object's record,
//! and all bytes that leave the tier are checked against them.

use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;
use shoal_base::hex;

use crate::tier::{ChunkDigests, PieceMd5, chunk_bytes_for, count};

/// Limit on the checksums of parts in a record. If an object exceeds it (thousands of parts with SHA-256),
/// its flush reads each part twice: once to compute the checksum, once to send it.
const CHECKSUM_BYTES_MAX: usize = 128 << 10;

/// The digests of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Acknowledged {
    /// The size of the chunks of all pieces.
    chunk_bytes: u64,
    /// The digests of the chunks, all pieces in one list.
    chunks: Vec<u64>,
    /// The MD5s of its parts, in order. Empty if it was written in one piece: its ETag is then the MD5.
    parts: Vec<PieceMd5>,
    /// The checksums of its parts, in one list. Empty if the upload has none, or if the record has no room
    /// for them.
    checksums: Vec<u8>,
}

impl Acknowledged {
    /// Collects the digests of an object's pieces, none of them empty, and the MD5 and the checksum of each
    /// part. The checksums are empty if the upload has none.
    pub(crate) fn new(pieces: Vec<ChunkDigests>, parts: &[(PieceMd5, &[u8])]) -> Self {
        debug_assert!(
            pieces.iter().all(|piece| piece.size_bytes() > 0),
            "no piece is empty"
        );
        let least_bytes = pieces.iter().map(ChunkDigests::chunk_bytes).max();
        let sizes = pieces.iter().map(ChunkDigests::size_bytes);
        let chunk_bytes = chunk_bytes_for(&sizes, least_bytes.unwrap_or(1));
        let coarser = pieces.into_iter().map(|piece| piece.coarser(chunk_bytes));
        let length = parts.first().map_or(0, |(_, checksum)| checksum.len());
        let are_alike = parts.iter().all(|(_, checksum)| checksum.len() == length);
        let are_kept = are_alike && length * parts.len() <= CHECKSUM_BYTES_MAX;
        let checksums = parts
            .iter()
            .filter(|_| are_kept)
            .flat_map(|(_, checksum)| *checksum);
        Self {
            chunk_bytes,
            chunks: coarser.flat_map(|piece| piece.digests().to_vec()).collect(),
            parts: parts.iter().map(|(md5, _)| *md5).collect(),
            checksums: checksums.copied().collect(),
        }
    }

    /// Returns the digests of each piece.
    pub(crate) fn of_pieces(&self, sizes: &[u64]) -> Result<Vec<ChunkDigests>, Malformed> {
        if !self.chunk_bytes.is_power_of_two() {
            return Err(Malformed);
        }
        let mut rest = &self.chunks[..];
        let pieces = sizes.iter().map(|size_bytes| {
            let count = usize::try_from(count(*size_bytes, self.chunk_bytes)).map_err(|_| Malformed)?;
            let (digests, behind) = rest.split_at_checked(count).ok_or(Malformed)?;
            rest = behind;
            ChunkDigests::new(*size_bytes, self.chunk_bytes, digests).ok_or(Malformed)
        });
        let pieces: Vec<_> = pieces.collect::<Result<_, _>>()?;
        rest.is_empty().then_some(pieces).ok_or(Malformed)
    }

    /// Returns the MD5 of each part.
    pub(crate) fn parts(&self) -> &[PieceMd5] {
        &self.parts
    }

    /// Returns the checksum of a part, if the record has checksums of `length` bytes.
    pub(crate) fn checksum(&self, part: usize, length: usize) -> Option<&[u8]> {
        let has_all = self.checksums.len() == length * self.parts.len();
        self.checksums.chunks_exact(length).nth(part).filter(|_| has_all)
    }
}

/// Returns the MD5 in an ETag, or `None` if the ETag has another form.
pub(crate) fn md5_in(etag: &str) -> Option<[u8; 16]> {
    hex::decode(etag.trim_matches('"').as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{Acknowledged, CHECKSUM_BYTES_MAX};
    use crate::dirty::record::format::{decoded, encoded};
    use crate::tier::{ChunkDigester, ChunkDigests, PieceMd5};

    fn pieces(sizes: &[usize]) -> Vec<ChunkDigests> {
        let digests = sizes.iter().map(|size| {
            let mut digester = ChunkDigester::default();
            digester.update(&vec![7; *size]);
            digester.finish()
        });
        digests.collect()
    }

    fn parts(count: usize, checksum: &[u8]) -> Vec<(PieceMd5, &[u8])> {
        let md5 = |number| [number as u8; 16];
        (0..count).map(|number| (md5(number), checksum)).collect()
    }

    fn reread(written: &Acknowledged) -> Acknowledged {
        decoded(&encoded(written)).unwrap()
    }

    #[test]
    fn digests_read_back_unchanged_and_belong_to_their_pieces() {
        let sizes = [600 << 10, 1, 256 << 10];
        let written = Acknowledged::new(pieces(&sizes), &parts(3, b"abcd"));
        assert_eq!(reread(&written), written);
        let sizes = sizes.map(|size| size as u64);
        assert_eq!(written.of_pieces(&sizes), Ok(pieces(&[600 << 10, 1, 256 << 10])));
        assert!(written.of_pieces(&sizes[..2]).is_err());
        assert!(written.of_pieces(&[600 << 10, 1, 512 << 10]).is_err());
        assert!(Acknowledged::default().of_pieces(&sizes).is_err());
    }

    #[test]
    fn a_part_has_its_own_checksum_if_all_have_one_of_that_length() {
        let of = |checksums: &[&[u8]]| {
            let parts: Vec<_> = checksums.iter().map(|checksum| ([0; 16], *checksum)).collect();
            Acknowledged::new(Vec::new(), &parts)
        };
        let acknowledged = of(&[b"aaaa", b"bbbb"]);
        assert_eq!(acknowledged.checksum(1, 4), Some(&b"bbbb"[..]));
        assert_eq!(
            (acknowledged.checksum(2, 4), acknowledged.checksum(0, 8)),
            (None, None)
        );
        assert_eq!(of(&[b"aaaa", b""]).checksum(0, 4), None);
    }

    #[test]
    fn checksums_that_would_make_an_entry_large_are_left_out() {
        let fitting = CHECKSUM_BYTES_MAX / 32;
        let checksum = [1; 32];
        let of = |count| Acknowledged::new(Vec::new(), &parts(count, &checksum));
        assert_eq!(of(fitting).checksum(fitting - 1, 32), Some(&checksum[..]));
        let many = of(fitting + 1);
        assert_eq!(many.checksum(0, 32), None);
        assert_eq!(reread(&many), many);
    }

    #[test]
    fn the_digests_of_an_object_in_ten_thousand_parts_fit_into_an_entry() {
        let pieces = vec![pieces(&[1 << 20]).remove(0); 10_000];
        let bytes = encoded(&Acknowledged::new(pieces, &parts(10_000, &[1; 8])));
        assert!(bytes.len() < 340 << 10, "{}", bytes.len());
    }
}
