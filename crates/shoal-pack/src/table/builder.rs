//! Puts a table together.

use std::collections::HashMap;

use bytes::{BufMut as _, Bytes};
use shoal_base::encoding::write_bytes;

use super::records::{
    End, INDEX_ENTRY_BYTES, IndexEntry, PACK_ID_BYTES, crc64, write_short, write_tables, write_varint,
};
use super::{BLOCK_BYTES, BLOCKS_BYTES_MAX, COMMONS_BYTES_MAX, Listed, Packed, Place, Row, TAIL_BYTES_MAX};
use crate::KEY_BYTES_MAX;

/// The bytes of the tail that no row needs: the place of the table, and the lengths of the lists.
const PLACE_BYTES_MAX: usize = 24 * super::LISTED_MAX + 28;

/// The bytes of a row at most without its key, what it has in common and its own: eight numbers and a CRC.
const ROW_BYTES_MAX: usize = 8 * 10 + 4;

/// Writes rows, sorted by their keys, as a table.
#[derive(Debug, Default)]
pub struct TableBuilder {
    /// Blocks that are complete and were not taken.
    blocks: Vec<u8>,
    taken_bytes: u64,
    block: Vec<u8>,
    /// The first key of the block.
    block_key: Vec<u8>,
    last_key: Vec<u8>,
    index: Vec<u8>,
    commons: Numbered,
    packs: Numbered,
    /// The row that is being added, without its key.
    value: Vec<u8>,
}

/// The end of a table that is ready to be sent.
#[derive(Debug)]
pub struct Finished {
    /// The bytes that follow all those which [`TableBuilder::take`] returned.
    pub bytes: Bytes,
    /// The table, as the root lists it.
    pub listed: Listed,
}

/// The reason why a row is not added, or a table not finished. The builder is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Never the answer of an empty builder.
    #[error("the table is full; begin another one with this row")]
    Full,
    /// S3 has no such key.
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes")]
    Key,
    /// Rows come in the order of their keys, and each key once.
    #[error("the key does not follow the one before")]
    Order,
    /// The map would have too many tables, or two with one number, or one with a greater number.
    #[error("the map has too many tables, or numbers that do not fit the new one")]
    Place,
}

/// Byte strings, numbered in the order of their first use.
#[derive(Debug, Default)]
struct Numbered {
    numbers: HashMap<Bytes, u64>,
    /// All of them, one after the other.
    bytes: Vec<u8>,
}

impl TableBuilder {
    /// Adds a row behind all others.
    pub fn add(&mut self, key: &[u8], row: &Row) -> Result<(), Refused> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(Refused::Key);
        }
        if *self.last_key >= *key {
            return Err(Refused::Order);
        }
        if !self.has_room(key, row) {
            return Err(Refused::Full);
        }
        self.write_value(row);
        let shared = shared_bytes(&self.last_key, key);
        let before = self.block.len();
        self.write_row(shared, key);
        if before > 0 && self.block.len() > BLOCK_BYTES {
            self.block.truncate(before);
            self.end_block();
            self.write_row(0, key);
        }
        if self.block_key.is_empty() {
            self.block_key.extend_from_slice(key);
        }
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        Ok(())
    }

    /// Returns the bytes that are complete, for a table that is not to be in memory as a whole.
    pub fn take(&mut self) -> Bytes {
        self.taken_bytes += self.blocks.len() as u64;
        std::mem::take(&mut self.blocks).into()
    }

    /// Returns the rest of the table, at this place in its map.
    pub fn finish(mut self, place: &Place) -> Result<Finished, Refused> {
        if !place.is_consistent() {
            return Err(Refused::Place);
        }
        self.end_block();
        let mut tail = Vec::with_capacity(PLACE_BYTES_MAX + self.tail_bytes());
        tail.put_u64_le(place.number);
        write_tables(&mut tail, &place.newer);
        write_tables(&mut tail, &place.older);
        write_bytes(&mut tail, &self.commons.bytes);
        write_bytes(&mut tail, &self.packs.bytes);
        write_bytes(&mut tail, &self.index);
        let end = End::of(&tail);
        end.write(&mut tail);
        let mut bytes = self.blocks;
        bytes.extend_from_slice(&tail);
        let listed = Listed {
            number: place.number,
            size_bytes: self.taken_bytes + bytes.len() as u64,
            checksum: end.checksum,
        };
        Ok(Finished {
            bytes: bytes.into(),
            listed,
        })
    }

    /// Returns true if the table stays within its bounds with this row, wherever its block and what it has in
    /// common go.
    fn has_room(&self, key: &[u8], row: &Row) -> bool {
        let (common_bytes, own_bytes) = match row {
            Row::Packed(packed) => (packed.common.len(), packed.own.len()),
            Row::Tombstone { .. } => (0, 0),
        };
        let row_bytes = ROW_BYTES_MAX + key.len() + common_bytes + own_bytes;
        let blocks_bytes = self.blocks_bytes() + (self.block.len() + row_bytes) as u64;
        // Two entries of the index: the block that has begun has none yet.
        let index_bytes = 2 * (INDEX_ENTRY_BYTES + KEY_BYTES_MAX);
        let tail_bytes = self.tail_bytes() + index_bytes + common_bytes + PACK_ID_BYTES;
        blocks_bytes <= BLOCKS_BYTES_MAX && PLACE_BYTES_MAX + tail_bytes <= TAIL_BYTES_MAX
    }

    fn blocks_bytes(&self) -> u64 {
        self.taken_bytes + self.blocks.len() as u64
    }

    fn tail_bytes(&self) -> usize {
        self.index.len() + self.commons.bytes.len() + self.packs.bytes.len()
    }

    /// Writes the row without its key into `value`.
    fn write_value(&mut self, row: &Row) {
        self.value.clear();
        let out = &mut self.value;
        let packed = match row {
            Row::Packed(packed) => packed,
            Row::Tombstone { sequence } => {
                out.push(0);
                return write_varint(out, *sequence);
            }
        };
        let Packed { range, common, .. } = packed;
        if let Some(number) = self.commons.number(common, COMMONS_BYTES_MAX) {
            write_varint(out, number + 2);
        } else {
            out.push(1);
            out.extend_from_slice(common);
        }
        write_varint(out, packed.sequence);
        let pack = self.packs.number(&packed.pack.to_bytes(), TAIL_BYTES_MAX);
        write_varint(out, pack.expect("there is room"));
        write_varint(out, range.start);
        write_varint(out, range.end - range.start);
        out.put_u32_le(packed.crc32);
        out.extend_from_slice(&packed.own);
    }

    /// Writes the row in `value`, the key of which begins with `shared` bytes of the one before.
    fn write_row(&mut self, shared: usize, key: &[u8]) {
        write_varint(&mut self.block, shared as u64);
        write_short(&mut self.block, &key[shared..]);
        write_short(&mut self.block, &self.value);
    }

    fn end_block(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let entry = IndexEntry {
            end: self.blocks_bytes() + self.block.len() as u64,
            checksum: crc64(&self.block),
            key: &self.block_key,
        };
        entry.write(&mut self.index);
        self.blocks.append(&mut self.block);
        self.block_key.clear();
    }
}

impl Numbered {
    /// Returns the number of `item`. `None` if it is new and all items together would exceed the bound.
    fn number(&mut self, item: &[u8], bytes_max: usize) -> Option<u64> {
        if let Some(number) = self.numbers.get(item) {
            return Some(*number);
        }
        if self.bytes.len() + item.len() > bytes_max {
            return None;
        }
        let number = self.numbers.len() as u64;
        self.numbers.insert(Bytes::copy_from_slice(item), number);
        self.bytes.extend_from_slice(item);
        Some(number)
    }
}

fn shared_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter()
        .zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}
