//! Builders refuse each kind of bad input, and make tables up to the largest size.

use http::HeaderValue;

use super::{all, description, listed, object, packed, place, tombstone};
use crate::KEY_BYTES_MAX;
use crate::table::{
    BLOCKS_BYTES_MAX, Finished, LISTED_MAX, Place, Refused, Row, TAIL_BYTES_MAX, Table, TableBuilder,
};

#[test]
fn a_refused_row_leaves_the_builder_as_it_was() {
    let mut builder = TableBuilder::default();
    builder.add(b"b", &object(1)).unwrap();
    for key in [&b"b"[..], b"a", b"B"] {
        assert_eq!(builder.add(key, &object(2)), Err(Refused::Order));
    }
    for key in [&b""[..], &[b'k'; KEY_BYTES_MAX + 1]] {
        assert_eq!(builder.add(key, &object(2)), Err(Refused::Key));
    }
    let longest = [b'k'; KEY_BYTES_MAX];
    builder.add(&longest, &tombstone(3)).unwrap();
    let table = Table::open(builder.finish(&place(1)).unwrap().bytes).unwrap();
    assert_eq!(table.get(b"b").unwrap(), Some(object(1)));
    assert_eq!(table.get(&longest).unwrap(), Some(tombstone(3)));
    assert_eq!(all(&table).unwrap().len(), 2);
}

#[test]
fn a_place_that_no_map_has_is_refused() {
    let finish = |newer: &[u64], older: &[u64]| {
        let place = Place {
            number: 5,
            newer: newer.iter().map(|&number| listed(number)).collect(),
            older: older.iter().map(|&number| listed(number)).collect(),
        };
        TableBuilder::default().finish(&place).map(|finished| {
            let table = Table::open(finished.bytes).unwrap();
            assert_eq!((table.place(), table.listed()), (&place, finished.listed));
        })
    };
    assert_eq!(finish(&[4, 1], &[3, 2]), Ok(()));
    for (newer, older) in [(&[5][..], &[][..]), (&[], &[6]), (&[4], &[4]), (&[], &[3, 3])] {
        assert_eq!(finish(newer, older), Err(Refused::Place));
    }
    let many = |tables| Place {
        number: u64::MAX,
        newer: Vec::new(),
        older: (0..tables).map(listed).collect(),
    };
    let finished = TableBuilder::default().finish(&many(LISTED_MAX as u64)).unwrap();
    assert_eq!(
        Table::open(finished.bytes).unwrap().place().older.len(),
        LISTED_MAX
    );
    let refused = TableBuilder::default().finish(&many(LISTED_MAX as u64 + 1));
    assert_eq!(refused.unwrap_err(), Refused::Place);
}

/// Adds rows until the table is full, and returns the number of them.
fn fill(row: &Row, key: impl Fn(u32) -> Vec<u8>) -> (u32, Vec<u8>, Finished) {
    let (mut builder, mut bytes) = (TableBuilder::default(), Vec::new());
    for number in 0.. {
        match builder.add(&key(number), row) {
            Ok(()) => bytes.extend_from_slice(&builder.take()),
            refused => {
                assert_eq!(refused, Err(Refused::Full));
                return (number, bytes, builder.finish(&place(1)).unwrap());
            }
        }
    }
    unreachable!("tables have bounds")
}

#[test]
fn a_table_is_full_before_its_tail_is_too_large_to_be_read() {
    let key = |number: u32| [&number.to_be_bytes()[..], &[b'k'; KEY_BYTES_MAX - 4]].concat();
    let (rows, mut bytes, finished) = fill(&tombstone(1), key);
    let tail_bytes = finished.bytes.len();
    assert!(
        (TAIL_BYTES_MAX - (200 << 10)..TAIL_BYTES_MAX).contains(&tail_bytes),
        "{tail_bytes}"
    );
    bytes.extend_from_slice(&finished.bytes);
    let table = Table::open(bytes.into()).unwrap();
    assert_eq!(table.get(&key(rows - 1)), Ok(Some(tombstone(1))));
    assert_eq!(table.get(&key(rows)), Ok(None));
}

#[test]
fn a_table_is_full_before_its_blocks_are_too_large_to_be_read() {
    let mut large = description(1);
    let value = HeaderValue::from_str(&"v".repeat(60 << 10)).unwrap();
    large.headers.insert("x-amz-meta-large", value);
    let key = |number: u32| number.to_be_bytes().to_vec();
    let (rows, bytes, finished) = fill(&Row::Packed(packed(&large)), key);
    assert!((17_000..18_000).contains(&rows), "{rows}");
    let blocks_bytes = bytes.len() as u64;
    assert!(blocks_bytes > BLOCKS_BYTES_MAX - (200 << 10) && blocks_bytes <= BLOCKS_BYTES_MAX);
    assert!(finished.listed.size_bytes > blocks_bytes);
}
