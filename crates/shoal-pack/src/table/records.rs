//! The records of a table, written and read.

use bytes::BufMut as _;
use crc_fast::{CrcAlgorithm, Digest};
use shoal_base::encoding::{Malformed, Reader, write_bytes};

use super::{BLOCKS_BYTES_MAX, COMMONS_BYTES_MAX, LISTED_MAX, Listed, TAIL_BYTES_MAX};
use crate::{KEY_BYTES_MAX, PACK_BYTES_MAX};

/// The bytes of the end of a table.
pub(super) const END_BYTES: usize = 4 + MARK.len() + 8;
/// The bytes of a pack in the list of packs.
pub(super) const PACK_ID_BYTES: usize = 16;
/// The bytes of an entry of the index without its key.
pub(super) const INDEX_ENTRY_BYTES: usize = 20;
/// The bytes of a table in a list of tables.
const LISTED_BYTES: usize = 24;

const MARK: &[u8; 20] = b"Shoal map, format 1\n";
const FORMAT_AT: usize = 18;

/// The reason why bytes are not accepted as a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    /// The bytes do not end as a table does.
    #[error("it does not end as a table does: it was cut off, changed or extended, or it never was one")]
    End,
    /// Another build wrote the table.
    #[error("it is a table of format {0}, which this build cannot read; use a newer one")]
    Format(u8),
    /// The tail or all blocks would be larger than a builder makes them.
    #[error(
        "it claims a tail of more than {TAIL_BYTES_MAX} bytes, or has blocks of more than {BLOCKS_BYTES_MAX}"
    )]
    TooLarge,
    /// The tail is not the one that was written, or not as long.
    #[error("its tail does not match the checksum at its end")]
    Checksum,
    /// The tail contradicts the format.
    #[error("its {0} is wrong")]
    Section(Section),
}

/// A part of the tail of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Section {
    /// It is cut off, has too many tables, or a number that occurs twice or is too great.
    #[error("list of at most {LISTED_MAX} tables with lower numbers")]
    Tables,
    /// It is cut off, too long, or does not decode.
    #[error("list of at most {COMMONS_BYTES_MAX} bytes of writers and headers")]
    Commons,
    /// It is cut off.
    #[error("list of packs")]
    Packs,
    /// It is cut off, its keys do not ascend, or its blocks do not follow one another up to the tail.
    #[error("index of blocks")]
    Index,
}

/// A block of a table that is not as it was written. The rows of other blocks can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {block} of table {table} of the map is wrong: {problem}")]
pub struct DamagedBlock {
    /// The number of the table.
    pub table: u64,
    /// The number of the block, from 0.
    pub block: usize,
    /// The contradiction.
    pub problem: BlockProblem,
}

/// A contradiction in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockProblem {
    /// It is not the one that was written.
    #[error("it does not match its checksum")]
    Checksum,
    /// A row ends too early or too late, or has a number that is not written in the shortest way.
    #[error("a row is cut off")]
    CutOff,
    /// A key is longer than S3's.
    #[error("a key has more than {KEY_BYTES_MAX} bytes")]
    Key,
    /// Keys do not ascend, do not share what they could, or are not those of this block by the index.
    #[error("a key does not follow the one before, or belongs to another block")]
    Order,
    /// A row refers to a pack, or to a writer, that the table does not have.
    #[error("a row refers to what the table does not list")]
    Reference,
    /// A pack cannot have these bytes.
    #[error("an object exceeds the {PACK_BYTES_MAX} bytes of a pack")]
    Place,
}

impl From<Malformed> for BlockProblem {
    fn from(_: Malformed) -> Self {
        Self::CutOff
    }
}

/// The end of a table.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) tail_bytes: u32,
    pub(super) checksum: u64,
}

impl End {
    /// Returns the end of a table with this tail.
    pub(super) fn of(tail: &[u8]) -> Self {
        let tail_bytes = tail.len() as u32;
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        digest.update(tail);
        digest.update(&tail_bytes.to_le_bytes());
        digest.update(MARK);
        Self {
            tail_bytes,
            checksum: digest.finalize(),
        }
    }

    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.put_u32_le(self.tail_bytes);
        out.extend_from_slice(MARK);
        out.put_u64_le(self.checksum);
    }

    pub(super) fn read(bytes: &[u8; END_BYTES]) -> Result<Self, Damaged> {
        let mut reader = Reader::new(bytes);
        let fields = (reader.u32(), reader.array::<20>(), reader.u64());
        let (Ok(tail_bytes), Ok(mut mark), Ok(checksum)) = fields else {
            return Err(Damaged::End);
        };
        let format = std::mem::replace(&mut mark[FORMAT_AT], MARK[FORMAT_AT]);
        if mark != *MARK || !format.is_ascii_digit() {
            return Err(Damaged::End);
        }
        if format != MARK[FORMAT_AT] {
            return Err(Damaged::Format(format - b'0'));
        }
        Ok(Self { tail_bytes, checksum })
    }
}

pub(super) fn write_tables(out: &mut Vec<u8>, tables: &[Listed]) {
    out.put_u32_le((tables.len() * LISTED_BYTES) as u32);
    for table in tables {
        out.put_u64_le(table.number);
        out.put_u64_le(table.size_bytes);
        out.put_u64_le(table.checksum);
    }
}

pub(super) fn read_tables(reader: &mut Reader<'_>) -> Result<Vec<Listed>, Malformed> {
    let mut reader = Reader::new(reader.bytes()?);
    if reader.rest().len() > LISTED_MAX * LISTED_BYTES {
        return Err(Malformed);
    }
    let mut tables = Vec::new();
    while !reader.rest().is_empty() {
        tables.push(Listed {
            number: reader.u64()?,
            size_bytes: reader.u64()?,
            checksum: reader.u64()?,
        });
    }
    Ok(tables)
}

/// A block, as the index has it.
pub(super) struct IndexEntry<'a> {
    /// Where the block ends; the next one begins there.
    pub(super) end: u64,
    pub(super) checksum: u64,
    /// The key of its first row.
    pub(super) key: &'a [u8],
}

impl<'a> IndexEntry<'a> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.put_u64_le(self.end);
        out.put_u64_le(self.checksum);
        write_bytes(out, self.key);
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            end: reader.u64()?,
            checksum: reader.u64()?,
            key: reader.bytes()?,
        })
    }
}

pub(super) fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// Writes a number in groups of 7 bits, the lowest first; all but the last have the high bit.
pub(super) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Inverse of [`write_varint`]. A longer form than the one that it writes is refused.
pub(super) fn read_varint(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = reader.array()?;
        let bits = u64::from(byte & 0x7f);
        value |= bits << shift;
        if byte < 0x80 {
            let is_shortest = byte > 0 || shift == 0;
            let is_whole = bits << shift >> shift == bits;
            return (is_shortest && is_whole).then_some(value).ok_or(Malformed);
        }
    }
    Err(Malformed)
}

/// Writes the length of `bytes` as [`write_varint`] does, then the bytes.
pub(super) fn write_short(out: &mut Vec<u8>, bytes: &[u8]) {
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn read_short<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Malformed> {
    let length = read_varint(reader)?;
    reader.take(length as usize)
}
