//! Several tables are one map, in which the newest row of a name is the one.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::{any, prop_assert_eq, proptest};
use proptest::sample::Index;
use ulid::Ulid;

use super::round_trips::{entries, rows};
use super::{description, object, place, table, table_bytes, tombstone};
use crate::PackBuilder;
use crate::table::{
    BlockProblem, DamagedBlock, Live, Map, Names, NotListed, Packed, Row, RowCount, Table, Tombstones, merge,
};

type Model = BTreeMap<Vec<u8>, Row>;

/// Tables, newest first: the first one has the greatest number.
fn tables(models: &[Model]) -> Vec<Arc<Table>> {
    let numbers = (1..=models.len() as u64).rev();
    let tables = numbers
        .zip(models)
        .map(|(number, rows)| Arc::new(table(rows, number)));
    tables.collect()
}

fn map(models: &[Model]) -> Map {
    let tables = tables(models);
    let listed: Vec<_> = tables.iter().map(|table| table.listed()).collect();
    Map::new(&listed, tables).unwrap()
}

fn model<const N: usize>(rows: [(&str, Row); N]) -> Model {
    rows.map(|(key, row)| (key.as_bytes().to_vec(), row)).into()
}

#[test]
fn the_newest_row_of_a_name_is_the_one_whatever_its_sequence() {
    let models = [
        model([("a", object(1)), ("b", tombstone(2))]),
        model([("a", object(5)), ("b", object(3)), ("c", tombstone(9))]),
        model([("c", object(4)), ("d", object(6))]),
    ];
    let map = map(&models);
    let get = |key: &str| map.get(key.as_bytes()).unwrap().map(|packed| packed.sequence);
    assert_eq!(
        ["a", "b", "c", "d", "e"].map(get),
        [Some(1), None, None, Some(6), None]
    );
    let names: Vec<Bytes> = map
        .objects(Names::default())
        .map(|entry| entry.unwrap().key)
        .collect();
    assert_eq!(names, ["a", "d"]);
}

#[test]
fn what_is_alive_is_what_the_map_finds() {
    // Packs have three objects: sequences 3 to 5 are in the second.
    let models = [
        model([("a", object(3)), ("b", object(4)), ("c", tombstone(9))]),
        model([("b", object(1)), ("c", object(5)), ("d", object(2))]),
    ];
    let bytes = |key: &str, row: &Row| match row {
        Row::Packed(packed) => packed.bytes_in_pack(key.as_bytes()),
        Row::Tombstone { .. } => 0,
    };
    let expected = Live {
        packs: BTreeMap::from([
            (Ulid(0), bytes("d", &object(2))),
            (Ulid(1), bytes("a", &object(3)) + bytes("b", &object(4))),
        ]),
        tables: vec![RowCount { all: 3, found: 3 }, RowCount { all: 3, found: 1 }],
    };
    assert_eq!(map(&models).live(), Ok(expected));
}

#[test]
fn the_members_of_a_pack_make_up_its_bytes() {
    let mut builder = PackBuilder::default();
    for number in 0..500_u64 {
        let key = format!("data/{number}");
        builder
            .add(
                key.as_bytes(),
                &description(number),
                Bytes::from(vec![7; number as usize % 9]),
            )
            .unwrap();
    }
    let pack = builder.finish();
    let rows = pack.members.iter();
    let bytes: u64 = rows
        .map(|member| Packed::new(Ulid(0), member).bytes_in_pack(&member.key))
        .sum();
    assert!(
        (bytes * 98..bytes * 102).contains(&(pack.size_bytes * 100)),
        "{bytes} of {}",
        pack.size_bytes
    );
}

#[test]
fn a_map_of_other_tables_than_those_that_are_listed_is_refused() {
    let models = [model([("a", object(1))]), model([("b", object(2))])];
    let tables = tables(&models);
    let listed: Vec<_> = tables.iter().map(|table| table.listed()).collect();
    let error = |listed: &[_], tables: &[_]| Map::new(listed, tables.to_vec()).unwrap_err();
    assert_eq!(error(&listed, &tables[..1]), NotListed(1));
    assert_eq!(error(&listed[..1], &tables), NotListed(1));
    assert_eq!(
        error(&listed, &[tables[1].clone(), tables[0].clone()]),
        NotListed(2)
    );
    // The same number with other rows.
    let other = Arc::new(table(&model([("a", object(9))]), 2));
    assert_eq!(error(&listed, &[other, tables[1].clone()]), NotListed(2));
}

#[test]
fn a_damaged_table_ends_a_merge_with_its_number_and_hides_no_newer_row() {
    let models = [
        model([("a", object(1))]),
        model([("a", object(2)), ("b", object(3))]),
    ];
    let mut tables = tables(&models);
    let mut bytes = table_bytes(models[1].iter().map(|(key, row)| (&key[..], row)), &place(1)).to_vec();
    bytes[0] ^= 1;
    tables[1] = Arc::new(Table::open(bytes.into()).unwrap());
    let damaged = DamagedBlock {
        table: 1,
        block: 0,
        problem: BlockProblem::Checksum,
    };
    let mut merged = merge(&tables, Names::default(), Tombstones::Keep);
    assert_eq!((merged.next(), merged.next()), (Some(Err(damaged)), None));
    let listed: Vec<_> = tables.iter().map(|table| table.listed()).collect();
    let map = Map::new(&listed, tables).unwrap();
    assert_eq!(map.get(b"a").unwrap().map(|packed| packed.sequence), Some(1));
    assert_eq!(map.get(b"b"), Err(damaged));
    assert_eq!(map.live(), Err(damaged));
}

/// The newest row of each name.
fn overwritten(models: &[Model]) -> Model {
    models.iter().rev().flat_map(Model::clone).collect()
}

proptest! {
    #[test]
    fn a_merge_is_what_a_map_of_all_rows_has(
        models in vec(rows(), 0..5),
        from in vec(any::<u8>(), 0..2),
        prefix in vec(97..99_u8, 0..2),
        split in any::<Index>(),
    ) {
        let map = map(&models);
        let mut expected = overwritten(&models);
        let merged: Result<Vec<_>, _> = merge(map.tables(), Names::default(), Tombstones::Keep).collect();
        prop_assert_eq!(merged, Ok(entries(&expected)));

        // Tables that are merged are the same map, in any part of it.
        let at = split.index(models.len() + 1);
        let oldest = &map.tables()[at..];
        let dropped: Result<Vec<_>, _> = merge(oldest, Names::default(), Tombstones::Drop).collect();
        let mut oldest = overwritten(&models[at..]);
        oldest.retain(|_, row| matches!(row, Row::Packed(_)));
        prop_assert_eq!(dropped, Ok(entries(&oldest)));
        let fewer = self::map(&[&models[..at], &[oldest]].concat());

        for key in models.iter().flat_map(BTreeMap::keys) {
            let row = match &expected[key] {
                Row::Packed(packed) => Some(packed.clone()),
                Row::Tombstone { .. } => None,
            };
            prop_assert_eq!(map.get(key), Ok(row.clone()));
            prop_assert_eq!(fewer.get(key), Ok(row));
        }
        expected.retain(|key, row| {
            key.starts_with(&prefix) && *key >= from && matches!(row, Row::Packed(_))
        });
        let names = Names { prefix: &prefix, from: &from };
        for map in [&map, &fewer] {
            let read = map.objects(names).map(|entry| {
                let entry = entry.unwrap();
                (entry.key.to_vec(), Row::Packed(entry.row))
            });
            prop_assert_eq!(read.collect::<Model>(), expected.clone());
        }
    }
}
