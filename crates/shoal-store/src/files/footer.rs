//! The footer of a block file: the bytes after its data that describe it.
//!
//! ```text
//! | data | description | tail                                              |
//! |      |             | description length u32 | format u32 | CRC u64 | magic 8 |
//! ```
//!
//! The description of a block that counts in quotas ends with their two digests, 0 for none; that of another
//! block does not have them, nor did it in earlier builds.
//!
//! Fields are encoded as in [`shoal_base::encoding`]. The CRC covers the description and the part of the tail
//! before it. The tail ends the file, so a truncated or extended file has no valid tail at its end. Recovery
//! needs nothing but footer and file name.

use std::num::NonZeroU64;

use crc_fast::{CrcAlgorithm, Digest};
use shoal_base::encoding::{Malformed, Reader};
use shoal_policy::quotas::{QuotaId, QuotaIds};
use shoal_policy::{BlockId, ObjectId};
use shoal_s3::object::{Extent, Version};

/// Increased when the layout changes.
const FORMAT: u32 = 3;

/// Length of the tail in bytes.
pub(crate) const TAIL_BYTES: usize = 24;

/// The maximum length of a footer. HTTP heads are far shorter.
pub(crate) const FOOTER_BYTES_MAX: usize = 1 << 20;

const MAGIC: [u8; 8] = *b"shoalblk";

/// A block on the disk, as its footer describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredBlock {
    pub(crate) id: BlockId,
    pub(crate) object: ObjectId,
    /// The extent of its version.
    pub(crate) extent: Extent,
    /// Orders blocks, and the versions of an object, by age.
    pub(crate) sequence: u64,
    /// The quotas that it counts in. The table of a segment does not have them.
    pub(crate) quotas: QuotaIds,
}

/// The footer of a block file.
#[derive(Clone, Debug)]
pub(crate) struct Footer {
    /// Position of the block in its version.
    pub(crate) index: u32,
    /// Length of the data in bytes.
    pub(crate) data_bytes: u64,
    /// CRC-64/NVME of the data.
    pub(crate) data_checksum: u64,
    /// Assigned in increasing order to every block that this store writes. Orders blocks, and the versions of
    /// an object, by age.
    pub(crate) sequence: u64,
    /// The lake's description of the version.
    pub(crate) version: Version,
    /// The quotas that the block counts in.
    pub(crate) quotas: QuotaIds,
}

/// Why bytes are not a valid footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FooterError {
    #[error("no block ends here")]
    NotABlock,
    #[error("the footer's checksum is wrong")]
    Checksum,
    #[error("the footer contradicts itself")]
    Malformed,
}

impl From<Malformed> for FooterError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// The end of every block file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    description_bytes: u32,
    format: u32,
    checksum: u64,
}

/// The checksum of a block's data, computed incrementally.
pub(crate) struct Checksum(Digest);

impl Checksum {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> u64 {
        self.0.finalize()
    }

    /// Returns the checksum of data in memory.
    pub(crate) fn compute(pieces: &[impl AsRef<[u8]>]) -> u64 {
        let mut checksum = Self::new();
        for piece in pieces {
            checksum.update(piece.as_ref());
        }
        checksum.finish()
    }
}

impl Footer {
    /// Returns the ID of the described block.
    pub(crate) fn block(&self) -> BlockId {
        self.version.block(self.index)
    }

    /// Returns the entry of the described block in the ledger.
    pub(crate) fn stored(&self) -> StoredBlock {
        StoredBlock {
            id: self.block(),
            object: self.version.object,
            extent: self.version.extent(),
            sequence: self.sequence,
            quotas: self.quotas,
        }
    }

    /// Returns the bytes that follow the data. `None` if they would exceed the maximum length of a footer.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.data_bytes.to_le_bytes());
        out.extend_from_slice(&self.data_checksum.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        self.version.write(&mut out);
        if !self.quotas.is_empty() {
            for id in [self.quotas.of_identity, self.quotas.of_prefix] {
                out.extend_from_slice(&id.map_or(0, |id| id.0.get()).to_le_bytes());
            }
        }
        if out.len() + TAIL_BYTES > FOOTER_BYTES_MAX {
            return None;
        }
        let description_bytes = out.len() as u32;
        out.extend_from_slice(&description_bytes.to_le_bytes());
        out.extend_from_slice(&FORMAT.to_le_bytes());
        let checksum = Checksum::compute(&[&out]);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        Some(out)
    }

    /// Decodes the footer at the end of `bytes`, which may start anywhere before it.
    pub(crate) fn decode(bytes: &[u8], tail: Tail) -> Result<Self, FooterError> {
        let start = bytes
            .len()
            .checked_sub(tail.footer_bytes())
            .ok_or(FooterError::NotABlock)?;
        let footer = &bytes[start..];
        let (covered, _) = footer.split_at(footer.len() - MAGIC.len() - size_of::<u64>());
        if Checksum::compute(&[covered]) != tail.checksum {
            return Err(FooterError::Checksum);
        }
        if tail.format != FORMAT {
            return Err(FooterError::Malformed);
        }
        let mut reader = Reader::new(&footer[..tail.description_bytes as usize]);
        let parsed = Self::read(&mut reader)?;
        if reader.rest().is_empty() && parsed.is_consistent() {
            Ok(parsed)
        } else {
            Err(FooterError::Malformed)
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            index: reader.u32()?,
            data_bytes: reader.u64()?,
            data_checksum: reader.u64()?,
            sequence: reader.u64()?,
            version: Version::read(reader)?,
            quotas: read_quotas(reader)?,
        })
    }

    /// Returns true if index and length are consistent with the version.
    fn is_consistent(&self) -> bool {
        self.index < self.version.block_count() && self.data_bytes == self.version.block_len(self.index)
    }
}

/// Reads the quotas at the end of a description, if they are there.
fn read_quotas(reader: &mut Reader<'_>) -> Result<QuotaIds, Malformed> {
    if reader.rest().is_empty() {
        return Ok(QuotaIds::default());
    }
    let mut id = || Ok(NonZeroU64::new(reader.u64()?).map(QuotaId));
    let quotas = QuotaIds {
        of_identity: id()?,
        of_prefix: id()?,
    };
    if quotas.is_empty() {
        Err(Malformed)
    } else {
        Ok(quotas)
    }
}

impl Tail {
    /// Reads the last bytes of a file.
    pub(crate) fn decode(end: &[u8]) -> Result<Self, FooterError> {
        let start = end.len().checked_sub(TAIL_BYTES).ok_or(FooterError::NotABlock)?;
        let mut reader = Reader::new(&end[start..]);
        let tail = Self {
            description_bytes: reader.u32()?,
            format: reader.u32()?,
            checksum: reader.u64()?,
        };
        if reader.rest() != MAGIC || tail.footer_bytes() > FOOTER_BYTES_MAX {
            return Err(FooterError::NotABlock);
        }
        Ok(tail)
    }

    /// Returns the length of description and tail together.
    pub(crate) const fn footer_bytes(self) -> usize {
        self.description_bytes as usize + TAIL_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use http::{HeaderMap, HeaderValue};
    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, proptest};
    use shoal_policy::ObjectId;
    use shoal_s3::object::Version;

    use super::{FOOTER_BYTES_MAX, Footer, FooterError, NonZeroU64, QuotaId, QuotaIds, Tail};

    fn footer() -> Footer {
        let object = ObjectId([7; 16]);
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-color", HeaderValue::from_static("blue"));
        headers.append("x-amz-meta-raw", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        headers.append("cache-control", HeaderValue::from_static("a"));
        headers.append("cache-control", HeaderValue::from_static("b"));
        Footer {
            index: 2,
            data_bytes: 50,
            data_checksum: 0x0123_4567_89ab_cdef,
            sequence: 42,
            version: Version {
                id: Version::id_of(object, "\"etag\"", 250),
                object,
                etag: "\"etag\"".into(),
                size_bytes: 250,
                block_bytes: 100,
                last_modified: Some(SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 5)),
                headers,
            },
            quotas: QuotaIds::default(),
        }
    }

    fn decode(bytes: &[u8]) -> Result<Footer, FooterError> {
        Footer::decode(bytes, Tail::decode(bytes)?)
    }

    fn same(left: &Footer, right: &Footer) -> bool {
        format!("{left:?}") == format!("{right:?}") && left.version.headers == right.version.headers
    }

    #[test]
    fn a_footer_comes_back_as_it_was_written_whatever_precedes_it() {
        let written = footer();
        let mut file = vec![9; 50];
        file.extend(written.encode().unwrap());
        assert!(same(&decode(&file).unwrap(), &written));
        let tail = Tail::decode(&file).unwrap();
        assert_eq!(file.len() - tail.footer_bytes(), 50);
    }

    #[test]
    fn times_on_both_sides_of_the_epoch_and_none_survive() {
        for last_modified in [None, Some(SystemTime::UNIX_EPOCH - Duration::from_millis(1500))] {
            let mut written = footer();
            written.version.last_modified = last_modified;
            assert_eq!(
                decode(&written.encode().unwrap()).unwrap().version.last_modified,
                last_modified
            );
        }
    }

    #[test]
    fn a_footer_has_the_quotas_of_its_block_and_no_bytes_for_none() {
        let without = footer().encode().unwrap();
        let (identity, prefix) = (NonZeroU64::new(7), NonZeroU64::new(u64::MAX));
        for (identity, prefix) in [(identity, None), (None, prefix), (identity, prefix)] {
            let mut written = footer();
            written.quotas = QuotaIds {
                of_identity: identity.map(QuotaId),
                of_prefix: prefix.map(QuotaId),
            };
            let bytes = written.encode().unwrap();
            assert_eq!(bytes.len(), without.len() + 16);
            assert!(same(&decode(&bytes).unwrap(), &written));
        }
    }

    #[test]
    fn a_footer_cut_anywhere_or_followed_by_anything_is_refused() {
        let bytes = footer().encode().unwrap();
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        for start in 1..bytes.len() {
            assert!(decode(&bytes[start..]).is_err(), "begins at {start}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(decode(&longer).is_err());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = footer().encode().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_footer_that_contradicts_itself_is_refused_although_its_checksum_is_right() {
        let lies: [fn(&mut Footer); 6] = [
            |footer| footer.index = 3,
            |footer| footer.data_bytes = 100,
            |footer| footer.version.block_bytes = 0,
            |footer| footer.version.size_bytes = 251,
            |footer| footer.version.etag = "\"other\"".into(),
            |footer| footer.version.object = ObjectId([8; 16]),
        ];
        for (number, lie) in lies.iter().enumerate() {
            let mut lying = footer();
            lie(&mut lying);
            assert_eq!(
                decode(&lying.encode().unwrap()).unwrap_err(),
                FooterError::Malformed,
                "lie {number}"
            );
        }
    }

    #[test]
    fn a_description_beyond_the_bound_is_not_written() {
        let mut long = footer();
        let value = HeaderValue::from_bytes(&vec![b'x'; FOOTER_BYTES_MAX]).unwrap();
        long.version.headers.append("x-amz-meta-long", value);
        assert!(long.encode().is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn arbitrary_bytes_are_refused_without_a_panic(bytes in vec(any::<u8>(), 0..300)) {
            assert!(decode(&bytes).is_err());
        }

        #[test]
        fn a_right_checksum_over_arbitrary_bytes_does_not_panic(description in vec(any::<u8>(), 0..300)) {
            let mut bytes = description;
            let length = bytes.len() as u32;
            bytes.extend(length.to_le_bytes());
            bytes.extend(super::FORMAT.to_le_bytes());
            bytes.extend(super::Checksum::compute(&[&bytes]).to_le_bytes());
            bytes.extend(super::MAGIC);
            assert_eq!(decode(&bytes).unwrap_err(), FooterError::Malformed);
        }
    }
}
