//! What a block file says about itself: the bytes behind its data.
//!
//! ```text
//! | data | description | tail                                              |
//! |      |             | description length u32 | format u32 | CRC u64 | magic 8 |
//! ```
//!
//! All numbers are little-endian. The CRC covers the description and the tail before it. A file is exactly this long, so a file
//! cut anywhere, or one that grew, has no tail at its end. Footer and file name together are all that recovery needs.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use crc_fast::{CrcAlgorithm, Digest};
use http::{HeaderMap, HeaderName, HeaderValue};
use shoal_policy::{BlockId, ObjectId, VersionId};

use crate::object::Version;

/// Counts up when the layout changes. A store of another format is refused as a whole, see `folder`.
pub(super) const FORMAT: u32 = 1;

/// Length of the tail in bytes.
pub(super) const TAIL_BYTES: usize = 24;

/// The longest footer that is written or believed: HTTP heads are far shorter.
pub(super) const FOOTER_BYTES_MAX: usize = 1 << 20;

const MAGIC: [u8; 8] = *b"shoalblk";

/// A block file's description of itself.
#[derive(Clone, Debug)]
pub(super) struct Footer {
    /// Position of the block in its version.
    pub(super) index: u32,
    /// Length of the data in bytes.
    pub(super) data_bytes: u64,
    /// CRC-64/NVME of the data.
    pub(super) data_checksum: u64,
    /// Counts up with every block this store writes: orders the versions of an object, and who was stored first.
    pub(super) sequence: u64,
    /// What the lake said about the version.
    pub(super) version: Version,
}

/// Why bytes are not a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FooterError {
    #[error("no block ends here")]
    NotABlock,
    #[error("the footer's checksum is wrong")]
    Checksum,
    #[error("the footer contradicts itself")]
    Malformed,
}

/// The end of every block file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    description_bytes: u32,
    format: u32,
    checksum: u64,
}

/// The checksum of a block's data, taken piece by piece.
pub(super) struct Checksum(Digest);

impl Checksum {
    pub(super) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(&self) -> u64 {
        self.0.finalize()
    }
}

impl Footer {
    /// The block described.
    pub(super) fn block(&self) -> BlockId {
        self.version.block(self.index)
    }

    /// The bytes that follow the data. `None` when they would be longer than a footer may be.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(1024);
        let version = &self.version;
        out.extend_from_slice(&version.object.0);
        out.extend_from_slice(&version.id.0);
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.data_bytes.to_le_bytes());
        out.extend_from_slice(&self.data_checksum.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&version.size_bytes.to_le_bytes());
        out.extend_from_slice(&version.block_bytes.to_le_bytes());
        write_time(&mut out, version.last_modified);
        write_bytes(&mut out, version.etag.as_bytes());
        out.extend_from_slice(&(version.headers.len() as u32).to_le_bytes());
        for (name, value) in &version.headers {
            write_bytes(&mut out, name.as_str().as_bytes());
            write_bytes(&mut out, value.as_bytes());
        }
        if out.len() + TAIL_BYTES > FOOTER_BYTES_MAX {
            return None;
        }
        let description_bytes = out.len() as u32;
        out.extend_from_slice(&description_bytes.to_le_bytes());
        out.extend_from_slice(&FORMAT.to_le_bytes());
        let checksum = checksum_of(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        Some(out)
    }

    /// Reads a footer from the end of `bytes`, which may begin anywhere before it.
    pub(super) fn decode(bytes: &[u8], tail: Tail) -> Result<Self, FooterError> {
        let start = bytes
            .len()
            .checked_sub(tail.footer_bytes())
            .ok_or(FooterError::NotABlock)?;
        let footer = &bytes[start..];
        let (covered, _) = footer.split_at(footer.len() - MAGIC.len() - size_of::<u64>());
        if checksum_of(covered) != tail.checksum {
            return Err(FooterError::Checksum);
        }
        if tail.format != FORMAT {
            return Err(FooterError::Malformed);
        }
        let mut reader = Reader(&footer[..tail.description_bytes as usize]);
        let parsed = reader.footer().ok_or(FooterError::Malformed)?;
        if reader.0.is_empty() && parsed.is_consistent() {
            Ok(parsed)
        } else {
            Err(FooterError::Malformed)
        }
    }

    /// The pair of what `encode` was given: names follow from what they name, lengths from the version.
    fn is_consistent(&self) -> bool {
        let version = &self.version;
        version.block_bytes > 0
            && self.data_bytes > 0
            && u64::from(self.index) < version.size_bytes.div_ceil(version.block_bytes)
            && self.data_bytes == version.block_len(self.index)
            && version.id == Version::id_of(version.object, &version.etag, version.size_bytes)
    }
}

impl Tail {
    /// Reads the last bytes of a file.
    pub(super) fn decode(end: &[u8]) -> Result<Self, FooterError> {
        let start = end.len().checked_sub(TAIL_BYTES).ok_or(FooterError::NotABlock)?;
        let mut reader = Reader(&end[start..]);
        let tail = reader.tail().ok_or(FooterError::NotABlock)?;
        if reader.0 != MAGIC || tail.footer_bytes() > FOOTER_BYTES_MAX {
            return Err(FooterError::NotABlock);
        }
        Ok(tail)
    }

    /// Length of description and tail together.
    pub(super) const fn footer_bytes(self) -> usize {
        self.description_bytes as usize + TAIL_BYTES
    }

    /// Where the data is in a file of `file_bytes`.
    pub(super) fn data(self, file_bytes: u64) -> Range<u64> {
        0..file_bytes.saturating_sub(self.footer_bytes() as u64)
    }
}

fn checksum_of(bytes: &[u8]) -> u64 {
    let mut checksum = Checksum::new();
    checksum.update(bytes);
    checksum.finish()
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// One byte says whether there is a time and on which side of the epoch, then seconds and nanoseconds from it.
fn write_time(out: &mut Vec<u8>, time: Option<SystemTime>) {
    let (kind, distance) = match time.map(|time| time.duration_since(SystemTime::UNIX_EPOCH)) {
        None => (0, Duration::ZERO),
        Some(Ok(after)) => (1, after),
        Some(Err(before)) => (2, before.duration()),
    };
    out.push(kind);
    out.extend_from_slice(&distance.as_secs().to_le_bytes());
    out.extend_from_slice(&distance.subsec_nanos().to_le_bytes());
}

/// Takes fields off the front of bytes nobody vouches for; `None` when they are not there.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn footer(&mut self) -> Option<Footer> {
        let object = ObjectId(self.array()?);
        let id = VersionId(self.array()?);
        let index = self.u32()?;
        let data_bytes = self.u64()?;
        let data_checksum = self.u64()?;
        let sequence = self.u64()?;
        let size_bytes = self.u64()?;
        let block_bytes = self.u64()?;
        let last_modified = self.time()?;
        let etag = std::str::from_utf8(self.bytes()?).ok()?.into();
        let headers = self.headers()?;
        let version = Version {
            id,
            object,
            etag,
            size_bytes,
            block_bytes,
            last_modified,
            headers,
        };
        Some(Footer {
            index,
            data_bytes,
            data_checksum,
            sequence,
            version,
        })
    }

    fn tail(&mut self) -> Option<Tail> {
        Some(Tail {
            description_bytes: self.u32()?,
            format: self.u32()?,
            checksum: self.u64()?,
        })
    }

    fn headers(&mut self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        for _ in 0..self.u32()? {
            let name = HeaderName::from_bytes(self.bytes()?).ok()?;
            let value = HeaderValue::from_bytes(self.bytes()?).ok()?;
            headers.try_append(name, value).ok()?;
        }
        Some(headers)
    }

    fn time(&mut self) -> Option<Option<SystemTime>> {
        let [kind] = self.array()?;
        let (seconds, nanos) = (self.u64()?, self.u32()?);
        let distance = (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))?;
        match kind {
            0 => Some(None),
            1 => SystemTime::UNIX_EPOCH.checked_add(distance).map(Some),
            2 => SystemTime::UNIX_EPOCH.checked_sub(distance).map(Some),
            _ => None,
        }
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use http::{HeaderMap, HeaderValue};
    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, proptest};
    use shoal_policy::ObjectId;

    use super::{FOOTER_BYTES_MAX, Footer, FooterError, Tail};
    use crate::object::Version;

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
        assert_eq!(tail.data(file.len() as u64), 0..50);
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
            bytes.extend(super::checksum_of(&bytes).to_le_bytes());
            bytes.extend(super::MAGIC);
            assert_eq!(decode(&bytes).unwrap_err(), FooterError::Malformed);
        }
    }
}
