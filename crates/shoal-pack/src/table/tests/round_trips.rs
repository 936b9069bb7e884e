//! Tables return the rows that were written.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_DISPOSITION;
use proptest::collection::{btree_map, vec};
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::select;

use super::{all, description, headers, object, packed, part, place, sample, table, table_bytes, tombstone};
use crate::Description;
use crate::table::records::{read_varint, write_varint};
use crate::table::{BLOCK_BYTES, COMMONS_BYTES_MAX, Entry, Names, Row, Table, TableBuilder};
use shoal_base::encoding::Reader;

/// A table of format 1, as an earlier build wrote it. Tables of this format stay at lakes: a change that
/// fails this test needs a format of its own.
const FORMAT_1: &[u8] = include_bytes!("../../../tests/golden/map-format-1");

#[test]
fn a_table_of_an_earlier_build_is_written_in_the_same_bytes_and_read() {
    assert_eq!(sample(), FORMAT_1);
    let table = Table::open(Bytes::from_static(FORMAT_1)).unwrap();
    assert_eq!(table.get(b"data/b").unwrap(), Some(object(2)));
    assert_eq!(table.get(b"data/gone").unwrap(), Some(tombstone(9)));
    assert_eq!((table.place().newer.len(), table.place().older[1].number), (1, 2));
}

#[test]
fn a_table_without_rows_is_one() {
    let table = Table::open(table_bytes([], &place(1))).unwrap();
    assert_eq!((all(&table), table.get(b"a")), (Ok(Vec::new()), Ok(None)));
}

#[test]
fn what_is_taken_early_and_the_rest_are_the_whole_table() {
    let (mut one, mut other) = (TableBuilder::default(), TableBuilder::default());
    let mut taken = Vec::new();
    for number in 0..1000 {
        let key = format!("{number:05}");
        one.add(key.as_bytes(), &object(number)).unwrap();
        other.add(key.as_bytes(), &object(number)).unwrap();
        if number % 300 == 0 {
            taken.extend_from_slice(&other.take());
        }
    }
    assert!(taken.len() > BLOCK_BYTES);
    let (one, other) = (one.finish(&place(3)).unwrap(), other.finish(&place(3)).unwrap());
    taken.extend_from_slice(&other.bytes);
    assert_eq!((taken, other.listed), (one.bytes.to_vec(), one.listed));
    assert_eq!(Table::open(one.bytes).unwrap().listed(), one.listed);
}

#[test]
fn blocks_are_as_large_as_they_may_be() {
    let rows: BTreeMap<_, _> = (0..1000)
        .map(|number| (format!("{number:05}").into_bytes(), object(number)))
        .collect();
    let table = table(&rows, 1);
    let mut start = 0;
    let ends = (0..)
        .map_while(|block| table.entry(block))
        .map(|entry| entry.end as usize);
    let mut sizes: Vec<usize> = ends.map(|end| end - std::mem::replace(&mut start, end)).collect();
    assert!(sizes.len() > 10);
    sizes.pop();
    assert!(
        sizes
            .iter()
            .all(|size| (BLOCK_BYTES - 150..=BLOCK_BYTES).contains(size))
    );
}

/// Writers and sets of headers stand once.
#[test]
fn what_objects_have_in_common_takes_no_room() {
    let common = Description {
        headers: headers(&[("content-type", b"text/plain"), ("x-amz-meta-mtime", b"1.5")]),
        ..description(1)
    };
    let mut with_long_header = common.clone();
    let long = HeaderValue::from_str(&"x".repeat(1000)).unwrap();
    with_long_header.headers.insert("content-disposition", long);
    let size = |description: &Description| {
        let row = Row::Packed(packed(description));
        let rows: BTreeMap<_, _> = (0..30).map(|key| (vec![b'a' + key], row.clone())).collect();
        table(&rows, 1).listed().size_bytes
    };
    let more = size(&with_long_header) - size(&common);
    assert!((1000..1100).contains(&more), "{more}");
}

/// More of it than a table keeps once goes into the rows.
#[test]
fn sets_of_headers_that_never_repeat_are_read() {
    let rows: BTreeMap<_, _> = (0..40)
        .map(|number| {
            let long = HeaderValue::from_str(&format!("{number:060000}")).unwrap();
            let headers = [(CONTENT_DISPOSITION, long)].into_iter().collect();
            let description = Description {
                headers,
                ..description(number)
            };
            (
                format!("{number:05}").into_bytes(),
                Row::Packed(packed(&description)),
            )
        })
        .collect();
    const { assert!(40 * 60_000 > 2 * COMMONS_BYTES_MAX) };
    let table = table(&rows, 1);
    assert_eq!(all(&table), Ok(entries(&rows)));
    for (key, row) in &rows {
        assert_eq!(table.get(key).unwrap().as_ref(), Some(row));
    }
}

#[test]
fn etags_of_all_forms_are_kept() {
    for etag in [
        "",
        "\"",
        "\"\"",
        "plain",
        "\"9E107D9D372BB6826BD81D3542A419D6\"",
        "\"+e107d9d372bb6826bd81d3542a419d6\"",
        "\"00000000000000000000000000000001\"",
        "\"0000000000000000000000000000001\"",
        "9e107d9d372bb6826bd81d3542a419d6",
        "\"9e107d9d372bb6826bd81d3542a419d6-2\"",
    ] {
        let description = Description {
            etag: etag.into(),
            ..description(1)
        };
        assert_eq!(packed(&description).description().unwrap(), description);
    }
}

#[test]
fn numbers_have_one_form() {
    for value in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::MAX >> 1, u64::MAX] {
        let mut bytes = Vec::new();
        write_varint(&mut bytes, value);
        let mut reader = Reader::new(&bytes);
        assert_eq!((read_varint(&mut reader), reader.rest()), (Ok(value), &[][..]));
    }
    let overflowing = [&[0xff; 9][..], &[2]].concat();
    let endless = [0x80; 11];
    for bytes in [
        &[][..],
        &[0x80],
        &[0x80, 0],
        &[0xff, 0x80, 0],
        &overflowing,
        &endless,
    ] {
        assert!(read_varint(&mut Reader::new(bytes)).is_err(), "{bytes:?}");
    }
}

/// Keys of few bytes share prefixes often; some are as long as blocks allow few of.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    let short = vec(select(&b"ab/\0\xff"[..]), 1..6);
    let long = (short.clone(), 0..1000_usize).prop_map(|(key, more)| [&key[..], &vec![b'k'; more]].concat());
    prop_oneof![4 => short, 1 => long]
}

pub(super) fn rows() -> impl Strategy<Value = BTreeMap<Vec<u8>, Row>> {
    let modified = (any::<u32>(), 0..1_000_000_000_u32)
        .prop_map(|(seconds, nanos)| SystemTime::UNIX_EPOCH + Duration::new(seconds.into(), nanos));
    let writer = select(&["AKIAONE", "AKIATWO", ""][..]);
    let meta = select(&["", "1", "two"][..]);
    let parts = prop_oneof![
        Just(Vec::new()),
        Just(vec![part(2, 6)]),
        Just(vec![part(1, 2), part(4, 4)])
    ];
    let object = (any::<u64>(), modified, writer, meta, parts).prop_map(
        |(sequence, modified, writer, meta, parts)| {
            let description = Description {
                writer: writer.into(),
                modified,
                headers: headers(&[
                    ("x-amz-meta-a", meta.as_bytes()),
                    ("cache-control", meta.as_bytes()),
                ]),
                parts,
                ..description(sequence)
            };
            let row = packed(&description);
            assert_eq!(row.description(), Ok(description));
            Row::Packed(row)
        },
    );
    let row = prop_oneof![3 => object, 1 => any::<u64>().prop_map(tombstone)];
    btree_map(keys(), row, 0..60)
}

pub(super) fn entries(rows: &BTreeMap<Vec<u8>, Row>) -> Vec<Entry> {
    let entries = rows.iter().map(|(key, row)| Entry {
        key: Bytes::copy_from_slice(key),
        row: row.clone(),
    });
    entries.collect()
}

proptest! {
    #[test]
    fn all_rows_are_read_as_they_were_added(
        rows in rows(),
        others in vec(keys(), 20),
        prefix in vec(select(&b"ab/"[..]), 0..3),
    ) {
        let table = table(&rows, 1);
        prop_assert_eq!(all(&table), Ok(entries(&rows)));
        for key in rows.keys().chain(&others) {
            prop_assert_eq!(table.get(key), Ok(rows.get(key).cloned()));
        }
        for from in &others {
            let read: Result<Vec<_>, _> = table.rows(Names { prefix: &prefix, from }).collect();
            let mut expected = entries(&rows);
            expected.retain(|entry| entry.key.starts_with(&prefix) && entry.key[..] >= from[..]);
            prop_assert_eq!(read, Ok(expected));
        }
    }
}
