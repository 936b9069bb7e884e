//! The actions on files in commits and checkpoints.

use serde::Deserialize;

use super::deletion_vector::DeletionVector;
use crate::error::TableError;
use crate::parquet::{self, Value};

/// An action of a commit or a checkpoint on a file.
#[derive(Debug)]
pub(super) enum Action {
    Add(FileAction),
    Remove(FileAction),
    /// A part of a checkpoint is at this path.
    Sidecar(String),
}

/// A file that is added or removed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileAction {
    pub(super) path: String,
    #[serde(rename = "size")]
    pub(super) size_bytes: Option<u64>,
    pub(super) deletion_vector: Option<DeletionVector>,
}

/// A line of a commit, which has one of these, or something else.
#[derive(Deserialize)]
struct Line {
    add: Option<FileAction>,
    remove: Option<FileAction>,
    sidecar: Option<Sidecar>,
}

#[derive(Deserialize)]
struct Sidecar {
    path: String,
}

/// The columns of a checkpoint that are read, beside that of sidecars.
const COLUMNS: [&str; 6] = [
    "add.path",
    "add.size",
    "add.deletionVector.storageType",
    "add.deletionVector.pathOrInlineDv",
    "add.deletionVector.offset",
    "add.deletionVector.sizeInBytes",
];

/// Reads actions in JSON, one a line.
pub(super) fn in_lines(
    bytes: &[u8],
    mut each: impl FnMut(Action) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let lines = bytes.split(|byte| *byte == b'\n');
    for line in lines.filter(|line| !line.trim_ascii().is_empty()) {
        let damaged = |_| TableError::Damaged("a commit that is not in JSON");
        let Line { add, remove, sidecar } = serde_json::from_slice(line).map_err(damaged)?;
        add.map_or(Ok(()), |add| each(Action::Add(add)))?;
        remove.map_or(Ok(()), |remove| each(Action::Remove(remove)))?;
        sidecar.map_or(Ok(()), |sidecar| each(Action::Sidecar(sidecar.path)))?;
    }
    Ok(())
}

/// Reads the actions of a checkpoint in Parquet. Its removals are older than any
/// reader, so they are not read.
pub(super) fn in_parquet(
    bytes: &[u8],
    mut each: impl FnMut(Action) -> Result<(), TableError>,
) -> Result<(), TableError> {
    parquet::read(bytes, &COLUMNS, |values| {
        let [path, size, storage_type, path_or_inline_dv, offset, vector_size] = values else {
            unreachable!("as many values as columns")
        };
        let Some(path) = text(path.as_ref())? else {
            return Ok(());
        };
        let deletion_vector = match (text(storage_type.as_ref())?, text(path_or_inline_dv.as_ref())?) {
            (Some(storage_type), Some(path_or_inline_dv)) => Some(DeletionVector {
                storage_type,
                path_or_inline_dv,
                offset: number(offset.as_ref()),
                size_in_bytes: size_of(vector_size.as_ref()).unwrap_or_default(),
            }),
            _ => None,
        };
        each(Action::Add(FileAction {
            path,
            size_bytes: size_of(size.as_ref()),
            deletion_vector,
        }))
    })?;
    parquet::read(bytes, &["sidecar.path"], |values| {
        let path = values.first().and_then(Option::as_ref);
        text(path)?.map_or(Ok(()), |path| each(Action::Sidecar(path)))
    })
}

fn text(value: Option<&Value>) -> Result<Option<String>, TableError> {
    let Some(Value::Bytes(bytes)) = value else {
        return Ok(None);
    };
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| TableError::Damaged("a name that is no UTF-8"))?;
    Ok(Some(text.to_owned()))
}

fn number(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    }
}

fn size_of(value: Option<&Value>) -> Option<u64> {
    u64::try_from(number(value)?).ok()
}
