//! Tests of files by another writer, and of files that were made to cost much.

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::{any, proptest};

use super::{Value, read};
use crate::error::TableError;

const WANTED: [&str; 4] = [
    "add.path",
    "add.size",
    "add.deletionVector.sizeInBytes",
    "add.absent",
];

fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parquet");
    fs::read(folder.join(format!("{name}.parquet"))).unwrap()
}

type Row = Vec<Option<Value>>;

fn rows(file: &[u8]) -> Result<Vec<Row>, TableError> {
    let mut all = Vec::new();
    read(file, &WANTED, |values| {
        all.push(values.to_vec());
        Ok(())
    })?;
    Ok(all)
}

#[test]
fn columns_are_read_whatever_packs_and_encodes_them() {
    let row = |number: i64| -> Row {
        let path = format!("day={}/file-{}.parquet", number % 2, number / 2);
        vec![
            Some(Value::Bytes(path.into_bytes().into())),
            Some(Value::Number(100 * number)),
            (number % 10 == 4).then_some(Value::Number(number)),
            None,
        ]
    };
    // Every third row adds no file.
    let expected: Vec<Row> = (0..60).filter(|number| number % 3 != 0).map(row).collect();
    for name in ["snappy", "gzip", "zstd-v2", "plain-v2"] {
        assert_eq!(rows(&file(name)).unwrap(), expected, "{name}");
    }
}

#[test]
fn a_column_that_may_occur_several_times_in_a_row_is_refused() {
    let read = read(&file("snappy"), &["add.tags.list.element"], |_| Ok(()));
    assert_eq!(read, Err(TableError::Unknown("a column of another type")));
}

/// Writes an element of a schema that may be absent, with a number of children.
fn element(name: &[u8], children: u8) -> Vec<u8> {
    let head = [0x35, 2, 0x18, name.len() as u8];
    [&head[..], name, &[0x15, children << 1, 0]].concat()
}

/// Writes a file that is nothing but a description with these elements.
fn described(elements: &[Vec<u8>]) -> Vec<u8> {
    let mut count = elements.len();
    let mut description = vec![0x15, 2, 0x19, 0xfc];
    while count > 127 {
        description.push((count & 127) as u8 | 128);
        count >>= 7;
    }
    description.push(count as u8);
    description.extend(elements.concat());
    description.extend([0x16, 0, 0x19, 0x0c, 0]);
    let length = (description.len() as u32).to_le_bytes();
    [b"PAR1", &*description, &length, b"PAR1"].concat()
}

#[test]
fn a_schema_of_any_depth_costs_no_stack() {
    let deep = |depth: usize| described(&vec![element(b"group", 1); depth]);
    assert_eq!(rows(&deep(10_000)), Ok(Vec::new()));
    assert_eq!(
        rows(&deep(1_000_000)),
        Err(TableError::TooLarge("too many columns in a checkpoint"))
    );
    assert!(rows(&described(&[element(b"root", 0), element(b"orphan", 0)])).is_err());
}

#[test]
fn a_dictionary_cannot_repeat_a_long_value_as_often_as_it_likes() {
    let mut budget = super::ValueBudget {
        values: crate::bounds::Budget::new(10, "values"),
        bytes: crate::bounds::Budget::new(1_000, "bytes"),
    };
    let long = Value::Bytes(vec![0; 400].into());
    assert!(budget.take(&long).is_ok() && budget.take(&long).is_ok());
    assert_eq!(budget.take(&long), Err(TableError::TooLarge("bytes")));
}

proptest! {
    #[test]
    fn any_change_of_a_file_is_read_or_refused(
        from_end in 1..4_000_usize,
        bytes in vec(any::<u8>(), 1..6),
        which in 0..4_usize,
    ) {
        let mut file = file(["snappy", "gzip", "zstd-v2", "plain-v2"][which]);
        let at = file.len().saturating_sub(from_end);
        let end = (at + bytes.len()).min(file.len());
        file.splice(at..end, bytes);
        let _ = rows(&file);
        let _ = rows(&file[..at]);
    }
}
