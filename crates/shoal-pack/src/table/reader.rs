//! Reads tables, and trusts no byte of them.

use bytes::Bytes;
use shoal_base::encoding::{Malformed, Reader};
use ulid::Ulid;

use super::records::{
    BlockProblem, Damaged, DamagedBlock, End, IndexEntry, PACK_ID_BYTES, Section, crc64, read_short,
    read_tables, read_varint,
};
use super::{
    BLOCKS_BYTES_MAX, COMMONS_BYTES_MAX, Entry, Listed, Names, Packed, Place, Row, TAIL_BYTES_MAX, about,
};
use crate::{KEY_BYTES_MAX, PACK_BYTES_MAX};

/// A table that is open. Beside its bytes it keeps a copy of its tail in memory: the first key of each block,
/// and what rows refer to.
#[derive(Debug)]
pub struct Table {
    bytes: Bytes,
    place: Place,
    checksum: u64,
    commons: Vec<Bytes>,
    packs: Bytes,
    index: Bytes,
    /// Where entries begin in the index.
    entries: Vec<u32>,
}

/// Rows of a table, in the order of their names. An error is the last item.
#[derive(Debug)]
pub struct Rows<'a> {
    table: &'a Table,
    names: Names<'a>,
    /// The number of the block that is read after this one.
    next_block: usize,
    /// The unread rest of this block.
    block: Reader<'a>,
    /// The first key of the next block. A look-up would not find it, or a greater one, in this block.
    limit: Option<&'a [u8]>,
    /// The key of the row that was read last; empty before the first one of a block.
    key: Vec<u8>,
    is_over: bool,
}

impl Table {
    /// Opens a table, which may be a mapped file: only the tail is copied.
    ///
    /// # Errors
    ///
    /// The bytes are no table, or their tail is not as it was written.
    pub fn open(bytes: Bytes) -> Result<Self, Damaged> {
        let (before, end) = bytes.split_last_chunk().ok_or(Damaged::End)?;
        let end = End::read(end)?;
        let tail_bytes = end.tail_bytes as usize;
        if tail_bytes > TAIL_BYTES_MAX {
            return Err(Damaged::TooLarge);
        }
        let blocks_bytes = before.len().checked_sub(tail_bytes).ok_or(Damaged::Checksum)?;
        if blocks_bytes as u64 > BLOCKS_BYTES_MAX {
            return Err(Damaged::TooLarge);
        }
        let tail = Bytes::copy_from_slice(&before[blocks_bytes..]);
        if End::of(&tail).checksum != end.checksum {
            return Err(Damaged::Checksum);
        }
        let mut reader = Reader::new(&tail);
        let wrong = |section| move |_: Malformed| Damaged::Section(section);
        let place = read_place(&mut reader).map_err(wrong(Section::Tables))?;
        let commons = read_commons(&mut reader, &tail).map_err(wrong(Section::Commons))?;
        let packs = reader.bytes().map_err(wrong(Section::Packs))?;
        if !packs.len().is_multiple_of(PACK_ID_BYTES) {
            return Err(Damaged::Section(Section::Packs));
        }
        let index = reader.bytes().map_err(wrong(Section::Index))?;
        let entries = entries(index, blocks_bytes as u64).map_err(wrong(Section::Index))?;
        if !reader.rest().is_empty() {
            return Err(Damaged::Section(Section::Index));
        }
        let (packs, index) = (tail.slice_ref(packs), tail.slice_ref(index));
        Ok(Self {
            bytes,
            place,
            checksum: end.checksum,
            commons,
            packs,
            index,
            entries,
        })
    }

    /// The place of the table in its map. That of the newest table is the whole map.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The table, as a root lists it.
    pub fn listed(&self) -> Listed {
        Listed {
            number: self.place.number,
            size_bytes: self.bytes.len() as u64,
            checksum: self.checksum,
        }
    }

    /// Returns what the table says of a name.
    ///
    /// # Errors
    ///
    /// The block where the name belongs is not as it was written.
    pub fn get(&self, key: &[u8]) -> Result<Option<Row>, DamagedBlock> {
        let names = Names {
            prefix: key,
            from: key,
        };
        let found = self.rows(names).next().transpose()?;
        Ok(found.filter(|entry| entry.key == key).map(|entry| entry.row))
    }

    /// Iterates over rows, in the order of their names.
    pub fn rows<'a>(&'a self, names: Names<'a>) -> Rows<'a> {
        let from = names.from.max(names.prefix);
        let blocks = self
            .entries
            .partition_point(|&at| self.entry_at(at as usize).key <= from);
        Rows {
            table: self,
            names: Names { from, ..names },
            next_block: blocks.saturating_sub(1),
            block: Reader::new(&[]),
            limit: None,
            key: Vec::new(),
            is_over: false,
        }
    }

    pub(super) fn entry(&self, block: usize) -> Option<IndexEntry<'_>> {
        self.entries.get(block).map(|&at| self.entry_at(at as usize))
    }

    fn entry_at(&self, at: usize) -> IndexEntry<'_> {
        IndexEntry::read(&mut Reader::new(&self.index[at..])).expect("each entry was read as it was opened")
    }

    /// Returns the bytes of a block, once they match their checksum.
    fn block(&self, block: usize, entry: &IndexEntry<'_>) -> Result<&[u8], BlockProblem> {
        let before = block.checked_sub(1).and_then(|before| self.entry(before));
        let start = before.map_or(0, |before| before.end);
        let bytes = &self.bytes[start as usize..entry.end as usize];
        let is_right = crc64(bytes) == entry.checksum;
        is_right.then_some(bytes).ok_or(BlockProblem::Checksum)
    }

    /// Decodes a row without its key.
    fn row(&self, value: &[u8]) -> Result<Row, BlockProblem> {
        let mut reader = Reader::new(value);
        let common = match read_varint(&mut reader)? {
            0 => {
                let sequence = read_varint(&mut reader)?;
                let is_whole = reader.rest().is_empty();
                let tombstone = is_whole.then_some(Row::Tombstone { sequence });
                return tombstone.ok_or(BlockProblem::CutOff);
            }
            1 => self.bytes.slice_ref(about::take_common(&mut reader)?),
            number => {
                let common = self.commons.get(number as usize - 2);
                common.cloned().ok_or(BlockProblem::Reference)?
            }
        };
        let sequence = read_varint(&mut reader)?;
        let pack = read_varint(&mut reader)? as usize;
        let (packs, _) = self.packs.as_chunks::<PACK_ID_BYTES>();
        let pack = *packs.get(pack).ok_or(BlockProblem::Reference)?;
        let (start, size_bytes) = (read_varint(&mut reader)?, read_varint(&mut reader)?);
        let end = start.checked_add(size_bytes);
        let end = end
            .filter(|end| *end <= PACK_BYTES_MAX)
            .ok_or(BlockProblem::Place)?;
        Ok(Row::Packed(Packed {
            pack: Ulid::from_bytes(pack),
            range: start..end,
            crc32: reader.u32()?,
            sequence,
            common,
            own: self.bytes.slice_ref(reader.rest()),
        }))
    }
}

impl Rows<'_> {
    fn try_next(&mut self) -> Result<Option<Entry>, BlockProblem> {
        loop {
            if self.block.rest().is_empty() && !self.begin_block()? {
                return Ok(None);
            }
            self.read_key()?;
            let value = read_short(&mut self.block)?;
            if *self.key >= *self.names.from {
                let is_among = self.key.starts_with(self.names.prefix);
                let entry = is_among.then(|| {
                    let row = self.table.row(value)?;
                    let key = Bytes::copy_from_slice(&self.key);
                    Ok(Entry { key, row })
                });
                return entry.transpose();
            }
        }
    }

    /// Goes on to the next block. Returns false after the last one.
    fn begin_block(&mut self) -> Result<bool, BlockProblem> {
        let table = self.table;
        let Some(entry) = table.entry(self.next_block) else {
            return Ok(false);
        };
        // Counted first: an error is about this block.
        self.next_block += 1;
        let block = table.block(self.next_block - 1, &entry)?;
        self.limit = table.entry(self.next_block).map(|next| next.key);
        self.block = Reader::new(block);
        self.key.clear();
        let mut first = self.block;
        let is_first = read_varint(&mut first)? == 0 && read_short(&mut first)? == entry.key;
        is_first.then_some(true).ok_or(BlockProblem::Order)
    }

    fn read_key(&mut self) -> Result<(), BlockProblem> {
        let shared = read_varint(&mut self.block)? as usize;
        let suffix = read_short(&mut self.block)?;
        // The key is greater than the one before, and shares no further byte with it.
        if shared > self.key.len() || suffix.first() <= self.key.get(shared) {
            return Err(BlockProblem::Order);
        }
        if shared + suffix.len() > KEY_BYTES_MAX {
            return Err(BlockProblem::Key);
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        let is_within = self.limit.is_none_or(|limit| *self.key < *limit);
        is_within.then_some(()).ok_or(BlockProblem::Order)
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Entry, DamagedBlock>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.try_next();
        self.is_over = !matches!(next, Ok(Some(_)));
        let damaged = |problem| DamagedBlock {
            table: self.table.place.number,
            block: self.next_block.saturating_sub(1),
            problem,
        };
        next.map_err(damaged).transpose()
    }
}

fn read_place(reader: &mut Reader<'_>) -> Result<Place, Malformed> {
    let place = Place {
        number: reader.u64()?,
        newer: read_tables(reader)?,
        older: read_tables(reader)?,
    };
    let is_consistent = place.is_consistent();
    is_consistent.then_some(place).ok_or(Malformed)
}

fn read_commons(reader: &mut Reader<'_>, tail: &Bytes) -> Result<Vec<Bytes>, Malformed> {
    let mut reader = Reader::new(reader.bytes()?);
    if reader.rest().len() > COMMONS_BYTES_MAX {
        return Err(Malformed);
    }
    let mut commons = Vec::new();
    while !reader.rest().is_empty() {
        commons.push(tail.slice_ref(about::take_common(&mut reader)?));
    }
    Ok(commons)
}

/// Returns where the entries of an index begin, once their keys ascend and their blocks make up all blocks.
fn entries(index: &[u8], blocks_bytes: u64) -> Result<Vec<u32>, Malformed> {
    let mut reader = Reader::new(index);
    let mut entries = Vec::new();
    let (mut last_key, mut last_end) = (&[][..], 0);
    while !reader.rest().is_empty() {
        entries.push((index.len() - reader.rest().len()) as u32);
        let entry = IndexEntry::read(&mut reader)?;
        if entry.key <= last_key || entry.key.len() > KEY_BYTES_MAX || entry.end <= last_end {
            return Err(Malformed);
        }
        (last_key, last_end) = (entry.key, entry.end);
    }
    (last_end == blocks_bytes).then_some(entries).ok_or(Malformed)
}
