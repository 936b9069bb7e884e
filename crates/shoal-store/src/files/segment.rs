//! The format of a segment: a file of fixed size that holds many small blocks.
//!
//! ```text
//! | head 64 | marks, a byte a slot | entry | entry | …        | table | tail 24 |
//! | describes the file             | in the order of slots   | written last    |
//! entry: | head 32 | footer | data |
//! ```
//!
//! Entries are appended. The [footer](super::footer) of an entry is that of a block in a file of its own.
//! Once no further entry fits, the table is written, which lists all entries, so that a start reads the table
//! alone. The table of an unfinished or damaged segment is [found](scan) from its entries, up to the first
//! one that is not whole.
//!
//! **What a reader may hold is written once**: entries, and the table. Only the marks change: the mark of a
//! slot is 0 until its block is removed. Any other value is a removal, so that a flipped bit may lose a block
//! but returns none.

use shoal_base::encoding::{Malformed, Reader};
use shoal_policy::quotas::QuotaIds;
use shoal_policy::{BlockId, ObjectId, VersionId};
use shoal_s3::object::Extent;

use super::footer::{Checksum, Footer, FooterError, StoredBlock, Tail};
use super::place::SegmentNumber;

/// Increased when the layout changes.
const FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"shoalseg";
const ENTRY_MAGIC: u32 = u32::from_le_bytes(*b"entr");

const HEAD_BYTES: u64 = 64;
pub(crate) const ENTRY_HEAD_BYTES: u64 = 32;
const RECORD_BYTES: u64 = 60;
const TAIL_BYTES: u64 = 24;

/// A segment has one slot for this many of its bytes. Entries are hardly ever smaller.
const BYTES_A_SLOT: u64 = 256;

/// The value of a mark after its block was removed.
pub(crate) const REMOVED: u8 = 0xff;

/// The shape of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) segment_bytes: u64,
    /// Size of every block except the last of a version.
    pub(crate) block_bytes: u64,
}

/// An entry, as the table lists it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) stored: StoredBlock,
    /// The first byte of the entry in the segment.
    pub(crate) offset: u32,
    pub(crate) entry_bytes: u32,
}

/// The bytes before the footer of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHead {
    pub(crate) segment: SegmentNumber,
    pub(crate) slot: u32,
    pub(crate) footer_bytes: u32,
    pub(crate) data_bytes: u32,
}

/// Why bytes are not a part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SegmentError {
    #[error("the file is no segment")]
    NotASegment,
    #[error("the checksum of the segment's table is wrong")]
    Table,
    #[error("no entry begins here")]
    NotAnEntry,
    #[error("{0}")]
    Footer(#[from] FooterError),
    #[error("the data's checksum is wrong")]
    Checksum,
}

impl From<Malformed> for SegmentError {
    fn from(_: Malformed) -> Self {
        Self::NotASegment
    }
}

impl Layout {
    /// The largest number of entries.
    pub(crate) const fn slots(self) -> u64 {
        self.segment_bytes / BYTES_A_SLOT
    }

    pub(crate) const fn mark_offset(slot: u32) -> u64 {
        HEAD_BYTES + slot as u64
    }

    /// The first byte of the first entry.
    pub(crate) const fn entries_offset(self) -> u64 {
        HEAD_BYTES + self.slots()
    }

    /// The first byte of a table of `entries`, which ends with the segment.
    pub(crate) fn table_offset(self, entries: usize) -> Option<u64> {
        let table_bytes = RECORD_BYTES
            .checked_mul(entries as u64)?
            .checked_add(TAIL_BYTES)?;
        let offset = self.segment_bytes.checked_sub(table_bytes)?;
        (offset >= self.entries_offset()).then_some(offset)
    }

    /// Returns true if a segment with `entries` up to `end` has room for one more of `entry_bytes`.
    pub(crate) fn fits(self, entries: usize, end: u64, entry_bytes: u64) -> bool {
        let table_offset = self.table_offset(entries + 1);
        (entries as u64) < self.slots() && table_offset.is_some_and(|offset| end + entry_bytes <= offset)
    }

    /// Returns the first bytes of a segment.
    pub(crate) fn encode_head(self, number: SegmentNumber) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&number.get().to_le_bytes());
        out.extend_from_slice(&self.segment_bytes.to_le_bytes());
        out.extend_from_slice(&self.block_bytes.to_le_bytes());
        out.resize((HEAD_BYTES - 8) as usize, 0);
        let checksum = Checksum::compute(&[&out]);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the head of the segment `number`, a file of `file_bytes`.
    pub(crate) fn decode_head(
        bytes: &[u8],
        number: SegmentNumber,
        file_bytes: u64,
    ) -> Result<Self, SegmentError> {
        let head = bytes
            .get(..HEAD_BYTES as usize)
            .ok_or(SegmentError::NotASegment)?;
        let (covered, checksum) = head.split_at((HEAD_BYTES - 8) as usize);
        let mut reader = Reader::new(covered);
        let is_ours = reader.array()? == MAGIC && reader.u32()? == FORMAT && reader.u32()? == number.get();
        let layout = Self {
            segment_bytes: reader.u64()?,
            block_bytes: reader.u64()?,
        };
        let is_whole =
            Checksum::compute(&[covered]).to_le_bytes() == checksum && layout.segment_bytes == file_bytes;
        // Offsets have 32 bits.
        if is_ours && is_whole && u32::try_from(file_bytes).is_ok() && layout.block_bytes > 0 {
            Ok(layout)
        } else {
            Err(SegmentError::NotASegment)
        }
    }

    /// Returns the table with its tail.
    pub(crate) fn encode_table(records: &[Record]) -> Vec<u8> {
        let mut out = Vec::with_capacity(records.len() * RECORD_BYTES as usize + TAIL_BYTES as usize);
        for Record {
            stored,
            offset,
            entry_bytes,
        } in records
        {
            out.extend_from_slice(&stored.id.version.0);
            out.extend_from_slice(&stored.object.0);
            out.extend_from_slice(&stored.id.index.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&entry_bytes.to_le_bytes());
            out.extend_from_slice(&stored.extent.size_bytes.to_le_bytes());
            out.extend_from_slice(&stored.sequence.to_le_bytes());
        }
        out.extend_from_slice(&(records.len() as u64).to_le_bytes());
        let checksum = Checksum::compute(&[&out]);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        out
    }

    /// Reads the number of entries from the last bytes of a segment. `None` if there is no table.
    pub(crate) fn decode_tail(self, tail: [u8; TAIL_BYTES as usize]) -> Option<usize> {
        let entries = u64::from_le_bytes(*tail.first_chunk().expect("a tail is longer"));
        let entries = usize::try_from(entries).ok()?;
        (tail.ends_with(&MAGIC) && self.table_offset(entries).is_some()).then_some(entries)
    }

    /// Reads the table with its tail.
    pub(crate) fn decode_table(self, bytes: &[u8]) -> Result<Vec<Record>, SegmentError> {
        let covered = bytes.len().checked_sub(MAGIC.len() + size_of::<u64>());
        let (covered, end) = bytes.split_at(covered.ok_or(SegmentError::Table)?);
        if end[..8] != Checksum::compute(&[covered]).to_le_bytes() {
            return Err(SegmentError::Table);
        }
        let records = covered
            .len()
            .checked_sub(size_of::<u64>())
            .ok_or(SegmentError::Table)?;
        let records = covered[..records].chunks_exact(RECORD_BYTES as usize);
        let records: Vec<Record> = records
            .map(|bytes| self.decode_record(bytes))
            .collect::<Result<_, _>>()?;
        let mut end = self.entries_offset();
        for record in &records {
            // Entries follow each other, so that each ends where the next one begins.
            if u64::from(record.offset) != end {
                return Err(SegmentError::Table);
            }
            end += u64::from(record.entry_bytes);
        }
        let is_inside = self
            .table_offset(records.len())
            .is_some_and(|offset| end <= offset);
        is_inside.then_some(records).ok_or(SegmentError::Table)
    }

    fn decode_record(self, bytes: &[u8]) -> Result<Record, SegmentError> {
        let mut reader = Reader::new(bytes);
        let (version, object) = (VersionId(reader.array()?), ObjectId(reader.array()?));
        let (index, offset, entry_bytes) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let extent = Extent {
            size_bytes: reader.u64()?,
            block_bytes: self.block_bytes,
        };
        let stored = StoredBlock {
            id: BlockId { version, index },
            object,
            extent,
            sequence: reader.u64()?,
            quotas: QuotaIds::default(),
        };
        let record = Record {
            stored,
            offset,
            entry_bytes,
        };
        (index < extent.block_count())
            .then_some(record)
            .ok_or(SegmentError::Table)
    }
}

impl EntryHead {
    /// Length of the entry in bytes.
    pub(crate) const fn entry_bytes(self) -> u64 {
        ENTRY_HEAD_BYTES + self.footer_bytes as u64 + self.data_bytes as u64
    }

    /// The first byte of the data in the entry.
    pub(crate) const fn data_offset(self) -> u64 {
        ENTRY_HEAD_BYTES + self.footer_bytes as u64
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENTRY_HEAD_BYTES as usize);
        for word in [
            ENTRY_MAGIC,
            self.segment.get(),
            self.slot,
            self.footer_bytes,
            self.data_bytes,
            0,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        let checksum = Checksum::compute(&[&out]);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the head at the beginning of `bytes`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, SegmentError> {
        let head = bytes
            .get(..ENTRY_HEAD_BYTES as usize)
            .ok_or(SegmentError::NotAnEntry)?;
        let (covered, checksum) = head.split_at(head.len() - 8);
        let mut reader = Reader::new(covered);
        let magic = reader.u32()?;
        let segment = SegmentNumber::new(reader.u32()?).ok_or(SegmentError::NotAnEntry)?;
        let head = Self {
            segment,
            slot: reader.u32()?,
            footer_bytes: reader.u32()?,
            data_bytes: reader.u32()?,
        };
        let is_whole = magic == ENTRY_MAGIC && Checksum::compute(&[covered]).to_le_bytes() == checksum;
        is_whole.then_some(head).ok_or(SegmentError::NotAnEntry)
    }

    /// Reads the footer of an entry, given the bytes of the entry up to its data or beyond.
    pub(crate) fn decode_footer(self, entry: &[u8]) -> Result<Footer, SegmentError> {
        let footer = entry.get(ENTRY_HEAD_BYTES as usize..self.data_offset() as usize);
        let footer = footer.ok_or(SegmentError::NotAnEntry)?;
        let tail = Tail::decode(footer)?;
        let is_consistent = tail.footer_bytes() == footer.len();
        let footer = Footer::decode(footer, tail)?;
        if is_consistent && footer.data_bytes == u64::from(self.data_bytes) {
            Ok(footer)
        } else {
            Err(SegmentError::NotAnEntry)
        }
    }
}

/// Reads a whole entry and verifies its data.
pub(crate) fn decode_entry(entry: &[u8]) -> Result<(EntryHead, Footer), SegmentError> {
    let head = EntryHead::decode(entry)?;
    let footer = head.decode_footer(entry)?;
    let data = entry.get(head.data_offset() as usize..head.entry_bytes() as usize);
    let data = data.ok_or(SegmentError::NotAnEntry)?;
    if Checksum::compute(&[data]) == footer.data_checksum {
        Ok((head, footer))
    } else {
        Err(SegmentError::Checksum)
    }
}

/// Finds the entries of segment `number` from its bytes, up to the first one that is not whole.
pub(crate) fn scan(layout: Layout, number: SegmentNumber, bytes: &[u8]) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut end = layout.entries_offset();
    while let Some(rest) = bytes.get(end as usize..)
        && let Ok((head, footer)) = decode_entry(rest)
        && (head.segment, head.slot as usize) == (number, records.len())
        && footer.version.block_bytes == layout.block_bytes
        && layout.fits(records.len(), end, head.entry_bytes())
    {
        records.push(Record {
            stored: footer.stored(),
            offset: end as u32,
            entry_bytes: head.entry_bytes() as u32,
        });
        end += head.entry_bytes();
    }
    records
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::HeaderMap;
    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, proptest};
    use shoal_policy::ObjectId;
    use shoal_s3::object::Version;

    use super::*;

    const LAYOUT: Layout = Layout {
        segment_bytes: 64 << 10,
        block_bytes: 100_000,
    };
    const NUMBER: SegmentNumber = SegmentNumber::new(7).unwrap();

    fn footer(number: u8, data: &[u8]) -> Footer {
        let object = ObjectId([number; 16]);
        let size_bytes = data.len() as u64;
        Footer {
            index: 0,
            data_bytes: size_bytes,
            data_checksum: Checksum::compute(&[data]),
            sequence: u64::from(number) + 10,
            version: Version {
                id: Version::id_of(object, "\"a\"", size_bytes),
                object,
                etag: "\"a\"".into(),
                size_bytes,
                block_bytes: LAYOUT.block_bytes,
                last_modified: Some(SystemTime::UNIX_EPOCH),
                headers: HeaderMap::new(),
            },
            quotas: QuotaIds::default(),
        }
    }

    /// A segment with entries of these lengths, and their table.
    fn segment(lengths: &[usize]) -> (Vec<u8>, Vec<Record>) {
        let mut bytes = LAYOUT.encode_head(NUMBER);
        bytes.resize(LAYOUT.entries_offset() as usize, 0);
        let mut records = Vec::new();
        for (slot, &length) in lengths.iter().enumerate() {
            let data = vec![slot as u8 + 1; length];
            let footer = footer(slot as u8, &data);
            let encoded = footer.encode().unwrap();
            let head = EntryHead {
                segment: NUMBER,
                slot: slot as u32,
                footer_bytes: encoded.len() as u32,
                data_bytes: length as u32,
            };
            assert!(LAYOUT.fits(slot, bytes.len() as u64, head.entry_bytes()));
            records.push(Record {
                stored: footer.stored(),
                offset: bytes.len() as u32,
                entry_bytes: head.entry_bytes() as u32,
            });
            bytes.extend(head.encode());
            bytes.extend(encoded);
            bytes.extend(data);
        }
        bytes.resize(LAYOUT.segment_bytes as usize, 0);
        (bytes, records)
    }

    fn shown(records: &[Record]) -> String {
        format!("{records:?}")
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_no_flipped_bit_passes() {
        let head = LAYOUT.encode_head(NUMBER);
        assert_eq!(head.len() as u64, HEAD_BYTES);
        assert_eq!(
            Layout::decode_head(&head, NUMBER, LAYOUT.segment_bytes),
            Ok(LAYOUT)
        );
        let other = SegmentNumber::new(8).unwrap();
        assert!(Layout::decode_head(&head, other, LAYOUT.segment_bytes).is_err());
        assert!(Layout::decode_head(&head, NUMBER, LAYOUT.segment_bytes - 1).is_err());
        for bit in 0..head.len() * 8 {
            let mut flipped = head.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Layout::decode_head(&flipped, NUMBER, LAYOUT.segment_bytes).is_err(),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn a_table_is_read_as_it_was_written_and_no_flipped_bit_passes() {
        let (_, records) = segment(&[100, 7, 5000]);
        let table = Layout::encode_table(&records);
        let tail = *table.last_chunk().unwrap();
        assert_eq!(LAYOUT.decode_tail(tail), Some(3));
        assert_eq!(
            LAYOUT.table_offset(3).unwrap() + table.len() as u64,
            LAYOUT.segment_bytes
        );
        assert_eq!(shown(&LAYOUT.decode_table(&table).unwrap()), shown(&records));
        for bit in 0..(table.len() - 8) * 8 {
            let mut flipped = table.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(LAYOUT.decode_table(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_scan_finds_what_the_table_lists() {
        let (bytes, records) = segment(&[100, 0, 5000, 1]);
        // An empty object has no blocks, so its footer contradicts itself, and the scan ends there.
        assert_eq!(shown(&scan(LAYOUT, NUMBER, &bytes)), shown(&records[..1]));
        let (bytes, records) = segment(&[100, 7, 5000, 1]);
        assert_eq!(shown(&scan(LAYOUT, NUMBER, &bytes)), shown(&records));
        assert!(scan(LAYOUT, SegmentNumber::new(8).unwrap(), &bytes).is_empty());
        assert!(scan(LAYOUT, NUMBER, &bytes[..100]).is_empty());
    }

    #[test]
    fn a_scan_of_a_torn_segment_ends_at_the_first_entry_that_is_not_whole() {
        let (bytes, records) = segment(&[100, 7, 300]);
        let end = (records[2].offset + records[2].entry_bytes) as usize;
        for cut in 0..end {
            let mut torn = bytes.clone();
            torn[cut..].fill(0);
            let whole = records
                .iter()
                .filter(|record| (record.offset + record.entry_bytes) as usize <= cut);
            // Data that end with zeros are whole without them; these do not.
            assert_eq!(scan(LAYOUT, NUMBER, &torn).len(), whole.count(), "cut at {cut}");
        }
    }

    #[test]
    fn every_flipped_bit_of_an_entry_is_noticed() {
        let (bytes, records) = segment(&[300]);
        let start = records[0].offset as usize;
        let entry = &bytes[start..start + records[0].entry_bytes as usize];
        assert!(decode_entry(entry).is_ok());
        for bit in 0..entry.len() * 8 {
            let mut flipped = entry.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_entry(&flipped).is_err(), "bit {bit}");
        }
        for end in 0..entry.len() {
            assert!(decode_entry(&entry[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_segment_takes_entries_until_no_table_would_fit_behind_them() {
        let last = LAYOUT.table_offset(1).unwrap();
        assert!(LAYOUT.fits(0, LAYOUT.entries_offset(), last - LAYOUT.entries_offset()));
        assert!(!LAYOUT.fits(0, LAYOUT.entries_offset(), last - LAYOUT.entries_offset() + 1));
        assert!(!LAYOUT.fits(LAYOUT.slots() as usize, LAYOUT.entries_offset(), 1));
        assert_eq!(LAYOUT.table_offset(usize::MAX), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn arbitrary_bytes_are_no_part_of_a_segment(bytes in vec(any::<u8>(), 0..400)) {
            assert!(Layout::decode_head(&bytes, NUMBER, bytes.len() as u64).is_err());
            assert!(LAYOUT.decode_table(&bytes).is_err());
            assert!(decode_entry(&bytes).is_err());
        }

        #[test]
        fn a_right_checksum_over_arbitrary_bytes_does_not_panic(bytes in vec(any::<u8>(), 0..400)) {
            let mut table = bytes;
            table.extend(Checksum::compute(&[&table]).to_le_bytes());
            table.extend(MAGIC);
            drop(LAYOUT.decode_table(&table));
        }
    }
}
