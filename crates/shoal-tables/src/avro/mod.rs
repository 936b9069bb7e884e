//! Container files of Avro: named fields of their records. All else is skipped.

mod decode;
mod schema;

use self::decode::Decoder;
pub(crate) use self::decode::Value;
use crate::error::{CUT_OFF, TableError};
use crate::unpack::{Codec, Unpacker};

const MAGIC: &[u8] = b"Obj\x01";

/// The bytes between two blocks.
const SYNC_BYTES: usize = 16;

/// Maximum number of entries in the head of a file.
const HEAD_ENTRIES_MAX: usize = 1_000;

/// Reads the records of a file. Calls `each` with the values of the `wanted` fields of each record; `None`
/// for a field that it does not have.
pub(crate) fn read(
    file: &[u8],
    wanted: &[&str],
    mut each: impl FnMut(&[Option<Value<'_>>]) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let rest = file
        .strip_prefix(MAGIC)
        .ok_or(TableError::Damaged("it is no file of Avro"))?;
    let mut file = Decoder::new(rest);
    let Head { schema, codec } = head(&mut file)?;
    let node = schema::read(schema, wanted)?;
    let sync = file.bytes(SYNC_BYTES)?;
    let mut unpacker = Unpacker::new(codec);
    while !file.is_empty() {
        let (count, bytes) = (file.length()?, file.length()?);
        let mut piece = file.bytes(bytes)?;
        if codec == Codec::Snappy {
            // A checksum follows the piece.
            piece = piece.get(..bytes.saturating_sub(4)).ok_or(CUT_OFF)?;
        }
        let block = unpacker.unpack(piece)?;
        let mut block = Decoder::new(&block);
        let mut values = vec![None; wanted.len()];
        for _ in 0..block.count_of(count)? {
            values.fill(None);
            decode::read_value(&mut block, &node, &mut values)?;
            each(&values)?;
        }
        if file.bytes(SYNC_BYTES)? != sync {
            return Err(TableError::Damaged(
                "a block of Avro does not end where it should",
            ));
        }
    }
    Ok(())
}

/// The head of a file.
struct Head<'a> {
    schema: &'a [u8],
    codec: Codec,
}

fn head<'a>(file: &mut Decoder<'a>) -> Result<Head<'a>, TableError> {
    let (mut schema, mut codec, mut entries) = (None, Codec::Plain, 0);
    while let Some(count) = file.items()? {
        entries += count;
        if entries > HEAD_ENTRIES_MAX {
            return Err(TableError::TooLarge("a head of Avro that is too long"));
        }
        for _ in 0..count {
            let key = file.length().and_then(|bytes| file.bytes(bytes))?;
            let value = file.length().and_then(|bytes| file.bytes(bytes))?;
            match key {
                b"avro.schema" => schema = Some(value),
                b"avro.codec" => codec = codec_of(value)?,
                _ => {}
            }
        }
    }
    let schema = schema.ok_or(TableError::Damaged("a file of Avro without a schema"))?;
    Ok(Head { schema, codec })
}

fn codec_of(name: &[u8]) -> Result<Codec, TableError> {
    Ok(match name {
        b"null" => Codec::Plain,
        b"deflate" => Codec::Deflate,
        b"snappy" => Codec::Snappy,
        b"zstandard" => Codec::Zstd,
        _ => return Err(TableError::Unknown("a codec of Avro")),
    })
}

#[cfg(test)]
mod tests;
