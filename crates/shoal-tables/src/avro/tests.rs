//! Tests of files by another writer, and of files that were made to cost much.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use serde_json::{Value as Json, json};

use super::{Value, read};
use crate::bounds::PIECE_BYTES_MAX;
use crate::error::TableError;

const WANTED: [&str; 3] = ["status", "data_file.file_path", "data_file.file_size_in_bytes"];

fn file(codec: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/avro");
    fs::read(folder.join(format!("{codec}.avro"))).unwrap()
}

/// Reads the wanted fields as texts.
fn fields(file: &[u8]) -> Result<Vec<[String; 3]>, TableError> {
    let mut all = Vec::new();
    read(file, &WANTED, |values| {
        let text = |value: &Option<Value<'_>>| match value {
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            None => "-".into(),
        };
        let [status, path, size] = values else {
            panic!("as many values as fields")
        };
        all.push([text(status), text(path), text(size)]);
        Ok(())
    })?;
    Ok(all)
}

#[test]
fn named_fields_are_read_whatever_packs_them() {
    for codec in ["null", "deflate", "snappy", "zstandard"] {
        let all = fields(&file(codec)).unwrap();
        assert_eq!(all.len(), 40, "{codec}");
        for (number, record) in all.iter().enumerate() {
            let size = if number == 4 {
                "-".into()
            } else {
                (1_000 * number).to_string()
            };
            let path = format!("s3://lake/t/file-{number}");
            assert_eq!(record, &[(number % 3).to_string(), path, size], "{codec}");
        }
    }
}

/// Writes a number as Avro does.
fn number(value: i64) -> Vec<u8> {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    let mut bytes = Vec::new();
    while rest > 127 {
        bytes.push((rest & 127) as u8 | 128);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

/// Writes a file with one block.
fn container(schema: &Json, codec: &str, count: i64, block: &[u8]) -> Vec<u8> {
    let mut file = [b"Obj\x01", &*number(2)].concat();
    for (key, value) in [("avro.schema", schema.to_string()), ("avro.codec", codec.into())] {
        for text in [key, &value] {
            file.extend(number(text.len().cast_signed() as i64));
            file.extend(text.as_bytes());
        }
    }
    file.extend(number(0));
    file.extend([7; 16]);
    file.extend(number(count));
    file.extend(number(block.len().cast_signed() as i64));
    file.extend(block);
    file.extend([7; 16]);
    file
}

fn record(kind: &Json) -> Json {
    json!({ "type": "record", "name": "r", "fields": [{ "name": "status", "type": kind }] })
}

#[test]
fn a_type_within_itself_has_no_end_and_is_refused() {
    let file = container(&record(&json!("r")), "null", 1, b"x");
    assert_eq!(fields(&file), Err(TableError::Unknown("a type of Avro")));
    let mut deep = json!("int");
    for _ in 0..100 {
        deep = json!({ "type": "array", "items": deep });
    }
    let file = container(&record(&deep), "null", 1, b"x");
    assert_eq!(
        fields(&file),
        Err(TableError::TooLarge("a schema that is too deep"))
    );
}

#[test]
fn types_that_double_with_each_name_are_refused() {
    let mut kinds = vec![json!({ "type": "record", "name": "t0", "fields": [] })];
    for level in 1..30 {
        let (name, inner) = (format!("t{level}"), format!("t{}", level - 1));
        let fields = [
            json!({ "name": "a", "type": inner }),
            json!({ "name": "b", "type": inner }),
        ];
        kinds.push(json!({ "type": "record", "name": name, "fields": fields }));
    }
    let fields_of = kinds.iter().enumerate();
    let all: Vec<Json> = fields_of
        .map(|(number, kind)| json!({ "name": format!("f{number}"), "type": kind }))
        .collect();
    let schema = json!({ "type": "record", "name": "r", "fields": all });
    let file = container(&schema, "null", 1, b"x");
    assert_eq!(
        fields(&file),
        Err(TableError::TooLarge("too many types in a schema"))
    );
}

#[test]
fn values_without_bytes_cannot_be_as_many_as_a_file_likes() {
    let nothing = json!({ "type": "array", "items": "null" });
    let block = [number(1 << 40), number(0)].concat();
    let file = container(&record(&nothing), "null", 1, &block);
    assert!(matches!(fields(&file), Err(TableError::Damaged(_))));
    // Each item has a byte, and ten thousand values that have none.
    let empty: Vec<Json> = (0..10_000)
        .map(|number| json!({ "name": format!("f{number}"), "type": "null" }))
        .collect();
    let wide = json!({ "type": "record", "name": "w", "fields": empty });
    let item = json!({ "type": "record", "name": "i", "fields": [
        { "name": "a", "type": "boolean" }, { "name": "b", "type": wide },
    ] });
    let block = [number(1_000_000), vec![0; 1_000_001]].concat();
    let file = container(
        &record(&json!({ "type": "array", "items": item })),
        "null",
        1,
        &block,
    );
    assert_eq!(
        fields(&file),
        Err(TableError::TooLarge("too many values without bytes"))
    );
}

#[test]
fn a_block_that_becomes_too_long_is_refused() {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&number(1 << 28)).unwrap();
    packed.write_all(&vec![0; PIECE_BYTES_MAX]).unwrap();
    let file = container(&record(&json!("bytes")), "deflate", 1, &packed.finish().unwrap());
    assert!(file.len() < 100_000);
    assert_eq!(
        fields(&file),
        Err(TableError::TooLarge("too many bytes when it is unpacked"))
    );
}

proptest! {
    #[test]
    fn any_change_of_a_file_is_read_or_refused(at in 0..3_900_usize, bytes in vec(any::<u8>(), 1..6)) {
        let mut file = file("null");
        file.splice(at..at + bytes.len(), bytes);
        let _ = fields(&file);
        let _ = fields(&file[..at]);
    }
}
