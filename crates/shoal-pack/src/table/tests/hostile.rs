//! Bytes that are no table, or no longer, are refused with the reason.

use bytes::{BufMut as _, Bytes};
use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::sample::Index;
use shoal_base::encoding::write_bytes;

use super::{all, listed, object, packed, place, sample, table_bytes};
use crate::table::records::{END_BYTES, End, IndexEntry, crc64, write_tables};
use crate::table::{
    BlockProblem, Damaged, DamagedBlock, Entry, LISTED_MAX, Names, Row, Section, TAIL_BYTES_MAX, Table,
};

/// Parts of a table, right or not.
#[derive(Clone, Default)]
struct Forged {
    number: u64,
    newer: Vec<u8>,
    older: Vec<u8>,
    commons: Vec<u8>,
    packs: Vec<u8>,
    index: Vec<u8>,
    blocks: Vec<u8>,
    more: Vec<u8>,
}

impl Forged {
    /// Adds a block of these bytes with its entry in the index.
    fn block(mut self, key: &[u8], block: &[u8]) -> Self {
        self.blocks.extend_from_slice(block);
        let entry = IndexEntry {
            end: self.blocks.len() as u64,
            checksum: crc64(block),
            key,
        };
        entry.write(&mut self.index);
        self
    }

    fn open(&self) -> Result<Table, Damaged> {
        let mut tail = self.number.to_le_bytes().to_vec();
        for section in [&self.newer, &self.older, &self.commons, &self.packs, &self.index] {
            write_bytes(&mut tail, section);
        }
        tail.extend_from_slice(&self.more);
        Table::open([&self.blocks[..], &sealed(tail)].concat().into())
    }

    fn section(&self) -> Option<Section> {
        match self.open() {
            Ok(_) => None,
            Err(Damaged::Section(section)) => Some(section),
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// The tail with an end that fits it.
fn sealed(mut tail: Vec<u8>) -> Vec<u8> {
    let end = End::of(&tail);
    end.write(&mut tail);
    tail
}

fn tables(numbers: &[u64]) -> Vec<u8> {
    let tables: Vec<_> = numbers.iter().map(|&number| listed(number)).collect();
    let mut bytes = Vec::new();
    write_tables(&mut bytes, &tables);
    bytes.split_off(4)
}

/// Removes the last byte.
fn cut(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len() - 1);
}

/// A writer `w` without headers.
const COMMON: &[u8] = b"\x01\0\0\0w\0\0\0\0\0\0\0\0";
/// A row of a tombstone, but for its key.
const TOMBSTONE: &[u8] = b"\x02\0\x07";

#[test]
fn a_tail_that_contradicts_the_format_is_named() {
    let right = Forged {
        number: 9,
        newer: tables(&[8]),
        older: tables(&[2]),
        commons: COMMON.repeat(2),
        packs: vec![7; 32],
        ..Forged::default()
    };
    let right = right.block(b"a", b"a block").block(b"b", b"another");
    assert_eq!(right.section(), None);
    let wrong = |change: fn(&mut Forged)| {
        let mut forged = right.clone();
        change(&mut forged);
        forged.section()
    };
    let of = |changes: &[fn(&mut Forged)], section| {
        for (number, change) in changes.iter().enumerate() {
            assert_eq!(wrong(*change), Some(section), "change {number}");
        }
    };
    of(
        &[
            |forged| forged.number = 8,
            |forged| forged.older = tables(&[8]),
            |forged| cut(&mut forged.newer),
            |forged| forged.older.push(0),
            |forged| forged.older = tables(&(0..=LISTED_MAX as u64).collect::<Vec<_>>()),
        ],
        Section::Tables,
    );
    of(
        &[
            |forged| cut(&mut forged.commons),
            |forged| forged.commons.push(0),
            |forged| forged.commons = COMMON.repeat(100_000),
            // One header, neither common nor of its own.
            |forged| forged.commons = b"\0\0\0\0\x01\0\0\0\x01\0\0\0n\x02\0\0\0\0".to_vec(),
            |forged| forged.commons = b"\0\0\0\0\xff\xff\xff\xff".to_vec(),
            |forged| forged.commons = b"\x01\0\0\0\xff\0\0\0\0\0\0\0\0".to_vec(),
        ],
        Section::Commons,
    );
    of(
        &[|forged| cut(&mut forged.packs), |forged| forged.packs.push(0)],
        Section::Packs,
    );
    of(
        &[
            |forged| cut(&mut forged.index),
            |forged| forged.index.push(0),
            |forged| forged.blocks.push(0),
            |forged| cut(&mut forged.blocks),
            |forged| forged.blocks = forged.blocks.split_off(1),
            |forged| forged.index.clear(),
            |forged| forged.more.push(0),
            // Keys: twice, none, too long. A block of no bytes, and one that ends before it begins.
            |forged| *forged = forged.clone().block(b"b", b"x"),
            |forged| *forged = Forged::default().block(b"", b"x"),
            |forged| *forged = Forged::default().block(&[b'k'; 1025], b"x"),
            |forged| *forged = forged.clone().block(b"c", b""),
            |forged| forged.index[0] = u8::MAX,
            |forged| forged.index[7] = u8::MAX,
        ],
        Section::Index,
    );
}

/// The problem of the second row, the first one being a tombstone of `ab`.
fn problem(row: &[u8]) -> Option<BlockProblem> {
    let block = [b"\0\x02ab", TOMBSTONE, row].concat();
    let forged = Forged {
        commons: COMMON.to_vec(),
        packs: vec![7; 16],
        ..Forged::default()
    };
    let table = forged.block(b"ab", &block).open().unwrap();
    let mut rows = table.rows(Names::default());
    assert!(rows.next().unwrap().is_ok());
    let problem = rows.next().unwrap().err();
    assert!(problem.is_none() || rows.next().is_none());
    problem.map(|damaged| damaged.problem)
}

#[test]
fn a_row_that_contradicts_the_format_is_named() {
    let row = |key: &[u8], value: &[u8]| [key, &[value.len() as u8], value].concat();
    let with_key = |key: &[u8]| problem(&row(key, b"\0\x07"));
    assert_eq!(with_key(b"\x01\x01c"), None);
    assert_eq!(with_key(b"\x02\x01\0"), None);
    // The same key, a lower one, one that shares more than it says, one that shares more than there is.
    for key in [
        &b"\x02\0"[..],
        b"\x01\x01a",
        b"\x01\x01b",
        b"\x01\x02bc",
        b"\x01\0",
        b"\0\0",
        b"\x03\x01a",
    ] {
        assert_eq!(with_key(key), Some(BlockProblem::Order), "{key:?}");
    }
    let long = [b"\x02\xff\x07", &[b'k'; 1023][..]].concat();
    assert_eq!(with_key(&long), Some(BlockProblem::Key));
    for key in [
        &b"\x82\0\x01c"[..],
        b"\x02",
        b"\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01c",
    ] {
        assert_eq!(with_key(key), Some(BlockProblem::CutOff), "{key:?}");
    }

    let with_value = |value: &[u8]| problem(&row(b"\x01\x01c", value));
    // Common, sequence, pack, offset, size, CRC.
    assert_eq!(with_value(b"\x02\x07\0\x08\x09crc!"), None);
    let inline = [b"\x01", COMMON, b"\x07\0\x08\x09crc!"].concat();
    assert_eq!(with_value(&inline), None);
    for value in [
        &b""[..],
        b"\0",
        b"\0\x07\0",
        b"\0\x80\0",
        b"\x02",
        b"\x02\x07\0\x08\x09crc",
        &inline[..COMMON.len()],
    ] {
        assert_eq!(with_value(value), Some(BlockProblem::CutOff), "{value:?}");
    }
    for value in [&b"\x03\x07\0\x08\x09crc!"[..], b"\x02\x07\x01\x08\x09crc!"] {
        assert_eq!(with_value(value), Some(BlockProblem::Reference), "{value:?}");
    }
    // 1 GiB and a byte; an end that exceeds 64 bits.
    let huge = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    for place in [&b"\x08\xf9\xff\xff\xff\x03"[..], &[&huge[..], huge].concat()] {
        let value = [b"\x02\x07\0", place, b"crc!"].concat();
        assert_eq!(with_value(&value), Some(BlockProblem::Place), "{value:?}");
    }
    assert_eq!(with_value(b"\x02\x07\0\x08\xf8\xff\xff\xff\x03crc!"), None);
}

#[test]
fn a_description_that_does_not_decode_is_an_error_of_its_object() {
    let Row::Packed(right) = object(1) else {
        unreachable!("it is an object")
    };
    assert!(right.description().is_ok());
    let other = super::Description {
        parts: vec![super::part(1, 7)],
        ..super::description(1)
    };
    assert!(packed(&other).description().is_err(), "parts that do not add up");
    for length in 0..right.own.len() {
        let mut shorter = right.clone();
        shorter.own.truncate(length);
        assert!(shorter.description().is_err(), "{length}");
    }
    for (common, own) in [
        (&right.common[..], [&right.own[..], b"\0"].concat()),
        (COMMON, right.own.to_vec()),
    ] {
        let mut other = right.clone();
        (other.common, other.own) = (Bytes::copy_from_slice(common), own.into());
        assert!(other.description().is_err());
    }
    // The ETag of an MD5 as text, behind the id and the time.
    let etag = [&[35], super::description(1).etag.as_bytes()].concat();
    let (before, after) = (&right.own[..29], &right.own[29 + 17..]);
    let mut longer = right.clone();
    longer.own = [before, &etag, after].concat().into();
    assert!(longer.description().is_err());
    longer.own = [before, &etag.to_ascii_uppercase(), after].concat().into();
    assert!(longer.description().is_ok());
}

#[test]
fn blocks_that_are_not_those_of_the_index_are_refused() {
    let first = |table: &Table| all(table).unwrap_err();
    let block = [b"\0\x01b", TOMBSTONE, b"\0\x01d", TOMBSTONE].concat();
    let table = |keys: [&[u8]; 2]| {
        let forged = Forged::default().block(keys[0], &block);
        forged
            .block(keys[1], &[b"\0\x01e", TOMBSTONE].concat())
            .open()
            .unwrap()
    };
    assert_eq!(all(&table([b"b", b"e"])).map(|rows| rows.len()), Ok(3));
    let order = |block| DamagedBlock {
        table: 0,
        block,
        problem: BlockProblem::Order,
    };
    assert_eq!(first(&table([b"a", b"e"])), order(0));
    assert_eq!(first(&table([b"b", b"f"])), order(1));
    // The last key of the first block belongs to the second one: it is not among the rows before the error.
    let table = table([b"b", b"d"]);
    assert_eq!(first(&table), order(0));
    assert_eq!(table.rows(Names::default()).count(), 2);
}

#[test]
fn a_damaged_block_leaves_the_others() {
    let rows: Vec<_> = (0..200)
        .map(|number| (format!("{number:04}"), object(number)))
        .collect();
    let bytes = table_bytes(rows.iter().map(|(key, row)| (key.as_bytes(), row)), &place(4));
    let mut bytes = bytes.to_vec();
    bytes[5000] ^= 1;
    let table = Table::open(bytes.into()).unwrap();
    let damaged = DamagedBlock {
        table: 4,
        block: 1,
        problem: BlockProblem::Checksum,
    };
    assert_eq!(all(&table), Err(damaged));
    let got: Vec<_> = rows.iter().map(|(key, _)| table.get(key.as_bytes())).collect();
    assert_eq!(
        (&got[0], &got[199]),
        (&Ok(Some(object(0))), &Ok(Some(object(199))))
    );
    assert!(got.iter().any(|row| *row == Err(damaged)));
}

#[test]
fn a_table_that_was_cut_or_extended_at_either_end_is_refused() {
    let table = sample();
    for cut in 1..=table.len() {
        assert_eq!(
            Table::open(table.slice(..table.len() - cut)).err(),
            Some(Damaged::End)
        );
        assert!(Table::open(table.slice(cut..)).is_err(), "{cut}");
    }
    let longer = |parts: &[&[u8]]| Table::open(parts.concat().into()).err();
    assert_eq!(longer(&[&table, b"\0"]), Some(Damaged::End));
    assert_eq!(longer(&[b"\0", &table]), Some(Damaged::Section(Section::Index)));
    assert_eq!(longer(&[&table, &table]), Some(Damaged::Section(Section::Index)));
}

#[test]
fn another_format_and_a_tail_that_is_too_large_are_named() {
    let table = sample();
    let format_at = table.len() - 8 - 2;
    for (format, expected) in [
        (b'2', Damaged::Format(2)),
        (b'0', Damaged::Format(0)),
        (b'x', Damaged::End),
    ] {
        let mut table = table.to_vec();
        table[format_at] = format;
        assert_eq!(Table::open(table.into()).err(), Some(expected));
    }
    let claiming = |tail_bytes: u32| {
        let mut table = table.to_vec();
        let at = table.len() - END_BYTES;
        (&mut table[at..]).put_u32_le(tail_bytes);
        Table::open(table.into()).err()
    };
    assert_eq!(claiming(TAIL_BYTES_MAX as u32), Some(Damaged::Checksum));
    assert_eq!(claiming(TAIL_BYTES_MAX as u32 + 1), Some(Damaged::TooLarge));
}

#[test]
fn each_bit_of_a_table_is_checked() {
    let table = sample();
    for at in 0..table.len() {
        for bit in 0..8 {
            let mut table = table.to_vec();
            table[at] ^= 1 << bit;
            let read = Table::open(table.into()).map(|table| all(&table));
            assert!(!matches!(read, Ok(Ok(_))), "bit {bit} of byte {at}");
        }
    }
}

/// Reads all that there is, and panics if it contradicts itself.
fn check(table: &Table) {
    let Ok(rows) = all(table) else { return };
    assert!(rows.is_sorted_by(|one, next| one.key < next.key));
    for Entry { key, row } in &rows {
        assert_eq!(table.get(key).as_ref(), Ok(&Some(row.clone())));
        if let Row::Packed(packed) = row {
            let _ = packed.description();
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused(bytes in vec(any::<u8>(), 0..300)) {
        assert!(Table::open(bytes.into()).is_err());
    }

    /// An attacker makes the checksums fit.
    #[test]
    fn any_tail_with_its_checksum_is_refused_or_read(
        changes in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let mut table = sample().to_vec();
        let end = End::read(table.last_chunk().unwrap()).unwrap();
        table.truncate(table.len() - END_BYTES);
        let mut tail = table.split_off(table.len() - end.tail_bytes as usize);
        for (at, byte) in changes {
            let at = at.index(tail.len());
            tail[at] = byte;
        }
        if let Ok(table) = Table::open([table, sealed(tail)].concat().into()) {
            check(&table);
        }
    }

    #[test]
    fn any_block_with_its_checksum_is_refused_or_read(
        changes in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let table = Table::open(sample()).unwrap();
        let end = table.entry(0).unwrap().end as usize;
        let mut block = sample()[..end].to_vec();
        for (at, byte) in changes {
            let at = at.index(block.len());
            block[at] = byte;
        }
        let forged = Forged {
            commons: [COMMON, COMMON].concat(),
            packs: vec![7; 32],
            ..Forged::default()
        };
        check(&forged.block(b"data/a", &block).open().unwrap());
    }
}
