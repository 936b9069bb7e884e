//! Tables are read as they were written, and nothing else is read as a table.

mod bounds;
mod hostile;
mod merges;
mod round_trips;

use std::collections::BTreeMap;

use bytes::Bytes;
use ulid::Ulid;

use super::{DamagedBlock, Entry, Listed, Names, Packed, Place, Row, Table, TableBuilder};
use crate::tests::{headers, part};
use crate::{Description, Member};

fn description(sequence: u64) -> Description {
    Description {
        headers: headers(&[("content-type", b"text/plain"), ("x-amz-meta-mtime", b"1.5")]),
        ..crate::tests::description(sequence)
    }
}

/// An object of six bytes with this description; every third one is in another pack.
fn packed(description: &Description) -> Packed {
    let start = 100 * (description.sequence % 3) + 40;
    let member = Member {
        key: Bytes::from_static(b"not looked at"),
        range: start..start + 6,
        crc32: description.sequence as u32 ^ 0xdead_beef,
        description: description.encode().into(),
    };
    Packed::new(Ulid(u128::from(description.sequence / 3)), &member)
}

fn object(sequence: u64) -> Row {
    Row::Packed(packed(&description(sequence)))
}

fn tombstone(sequence: u64) -> Row {
    Row::Tombstone { sequence }
}

fn listed(number: u64) -> Listed {
    Listed {
        number,
        size_bytes: number + 100,
        checksum: number << 40,
    }
}

fn place(number: u64) -> Place {
    Place {
        number,
        ..Place::default()
    }
}

fn table_bytes<'a>(rows: impl IntoIterator<Item = (&'a [u8], &'a Row)>, place: &Place) -> Bytes {
    let mut builder = TableBuilder::default();
    for (key, row) in rows {
        builder.add(key, row).unwrap();
    }
    let finished = builder.finish(place).unwrap();
    assert_eq!(finished.listed.size_bytes, finished.bytes.len() as u64);
    finished.bytes
}

/// A table of these rows.
fn table(rows: &BTreeMap<Vec<u8>, Row>, number: u64) -> Table {
    let rows = rows.iter().map(|(key, row)| (&key[..], row));
    Table::open(table_bytes(rows, &place(number))).unwrap()
}

/// Two objects of one writer, one of another in two parts, and a tombstone, in one block.
fn sample() -> Bytes {
    let in_parts = Description {
        writer: "AKIAOTHER".into(),
        etag: "\"0123-2\"".into(),
        parts: vec![part(1, 4), part(3, 2)],
        ..description(3)
    };
    let rows = [
        (&b"data/a"[..], object(1)),
        (b"data/b", object(2)),
        (b"data/gone", tombstone(9)),
        (b"e", Row::Packed(packed(&in_parts))),
    ];
    let place = Place {
        number: 7,
        newer: vec![listed(6)],
        older: vec![listed(3), listed(2)],
    };
    table_bytes(rows.iter().map(|(key, row)| (*key, row)), &place)
}

fn all(table: &Table) -> Result<Vec<Entry>, DamagedBlock> {
    table.rows(Names::default()).collect()
}
