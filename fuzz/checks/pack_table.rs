//! Promises about the reader of tables: it never panics, names ascend, each is found, and a table of what was
//! read says the same.

use std::sync::Arc;

use bytes::Bytes;
use shoal_pack::KEY_BYTES_MAX;
use shoal_pack::table::{Entry, Map, Names, Row, Table, TableBuilder, Tombstones, merge};

use super::crc64::crc64_nvme;

/// The bytes of the end: the length of the tail, the mark, the checksum.
const END: usize = 32;
const CHECKSUM: usize = 8;

/// Panics when a promise is broken.
pub(crate) fn check(data: &[u8]) {
    check_table(data);
    // An attacker makes the checksums fit.
    if let Some(sealed) = sealed(data) {
        check_table(&sealed);
    }
}

fn check_table(bytes: &[u8]) {
    let Ok(table) = Table::open(Bytes::copy_from_slice(bytes)) else {
        return;
    };
    let table = Arc::new(table);
    assert_eq!(table.listed().size_bytes, bytes.len() as u64);
    let map = Map::new(&[table.listed()], vec![Arc::clone(&table)]).unwrap();
    let (mut rows, mut is_whole) = (Vec::new(), true);
    for row in table.rows(Names::default()) {
        assert!(is_whole, "an error is the last item");
        match row {
            Ok(row) => rows.push(row),
            Err(_) => is_whole = false,
        }
    }
    assert!(rows.is_sorted_by(|one, next| one.key < next.key));
    for Entry { key, row } in &rows {
        assert!((1..=KEY_BYTES_MAX).contains(&key.len()));
        assert_eq!(table.get(key).as_ref(), Ok(&Some(row.clone())));
        let packed = map.get(key).unwrap();
        assert_eq!(packed.is_some(), matches!(row, Row::Packed(_)));
        if let Some(packed) = packed {
            assert!(packed.range.start <= packed.range.end);
            let _ = packed.description();
        }
    }
    if is_whole {
        check_again(&table, &rows);
    }
}

/// Builds a table of the rows that were read.
fn check_again(table: &Arc<Table>, rows: &[Entry]) {
    let mut builder = TableBuilder::default();
    for entry in merge(std::slice::from_ref(table), Names::default(), Tombstones::Keep) {
        let entry = entry.unwrap();
        builder.add(&entry.key, &entry.row).unwrap();
    }
    let again = builder.finish(table.place()).unwrap();
    let again = Table::open(again.bytes).unwrap();
    assert!(again.rows(Names::default()).eq(rows.iter().cloned().map(Ok)));
    assert_eq!(again.place(), table.place());
}

/// Returns the bytes with the checksums that their blocks and their tail would have.
fn sealed(data: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = data.to_vec();
    let end = bytes.len().checked_sub(END)?;
    let tail = end.checked_sub(number(&bytes, end)?)?;
    let mut at = tail + 8;
    // The lists of tables, of what rows have in common, and of packs.
    for _ in 0..4 {
        at = after(&bytes, at)?;
    }
    at += 4;
    let mut start = 0;
    while at < end {
        let block_end = u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize;
        let checksum = crc64_nvme(bytes[..tail].get(start..block_end)?);
        bytes
            .get_mut(at + 8..at + 16)?
            .copy_from_slice(&checksum.to_le_bytes());
        start = block_end;
        at = after(&bytes, at + 16)?;
    }
    let checksum = bytes.len() - CHECKSUM;
    let sum = crc64_nvme(&bytes[tail..checksum]);
    bytes[checksum..].copy_from_slice(&sum.to_le_bytes());
    Some(bytes)
}

/// Returns where the field at `at` ends: a length, and as many bytes.
fn after(bytes: &[u8], at: usize) -> Option<usize> {
    (at + 4).checked_add(number(bytes, at)?)
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize)
}
