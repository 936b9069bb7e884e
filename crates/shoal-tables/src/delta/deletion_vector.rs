//! The rows that are removed of a file, without writing it again: where they are kept.

use std::fmt::Write as _;

use serde::Deserialize;
use shoal_s3::uri::S3Uri;

use crate::error::TableError;
use crate::names::{below, encoded};
use crate::search::TableObject;

/// The letters of Z85, in which the id of a file is written.
const Z85: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// The letters of an id, which are the end of a name. A folder may stand before them.
const ID_LETTERS: usize = 20;

/// A deletion vector.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeletionVector {
    pub(super) storage_type: String,
    pub(super) path_or_inline_dv: String,
    pub(super) offset: Option<i64>,
    #[serde(default)]
    pub(super) size_in_bytes: u64,
}

const UNKNOWN: TableError = TableError::Unknown("a deletion vector");

impl DeletionVector {
    /// Returns what distinguishes it from others of the same file.
    pub(super) fn id(&self) -> String {
        let offset = self.offset.map_or(String::new(), |offset| format!("@{offset}"));
        format!("{}{}{offset}", self.storage_type, self.path_or_inline_dv)
    }

    /// Returns the object that has it; `None` if the log itself does.
    pub(super) fn file(&self, table: &S3Uri) -> Result<Option<TableObject>, TableError> {
        let object = match &*self.storage_type {
            "i" => return Ok(None),
            "p" => encoded(table, &self.path_or_inline_dv)?,
            "u" => below(table, &relative(&self.path_or_inline_dv).ok_or(UNKNOWN)?)?,
            _ => return Err(UNKNOWN),
        };
        let size_bytes = Some(self.size_in_bytes);
        Ok(Some(TableObject { object, size_bytes }))
    }
}

/// Returns the path of a file below the table, by its folder and its id.
fn relative(name: &str) -> Option<String> {
    let (folder, id) = name.split_at_checked(name.len().checked_sub(ID_LETTERS)?)?;
    let folder = if folder.is_empty() {
        String::new()
    } else {
        format!("{folder}/")
    };
    Some(format!("{folder}deletion_vector_{}.bin", uuid(id.as_bytes())?))
}

/// Returns the UUID of twenty letters.
fn uuid(letters: &[u8]) -> Option<String> {
    let mut digits = String::new();
    for group in letters.chunks(5) {
        let mut number = 0_u64;
        for letter in group {
            let value = Z85.iter().position(|known| known == letter)?;
            number = number * 85 + value as u64;
        }
        let number = u32::try_from(number).ok()?;
        write!(digits, "{number:08x}").ok()?;
    }
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| digits.get(range));
    let groups: Option<Vec<&str>> = groups.into_iter().collect();
    Some(groups?.join("-"))
}

#[cfg(test)]
mod tests {
    use super::DeletionVector;

    fn file(kind: &str, name: &str) -> Option<String> {
        let vector = DeletionVector {
            storage_type: kind.into(),
            path_or_inline_dv: name.into(),
            offset: Some(4),
            size_in_bytes: 40,
        };
        let object = vector.file(&"s3://lake/t".parse().unwrap()).unwrap();
        object.map(|object| object.object.key)
    }

    /// The examples of the protocol.
    #[test]
    fn a_deletion_vector_is_in_a_file_of_the_table_or_elsewhere_or_in_the_log() {
        let id = "d2c639aa-8816-431a-aaf6-d3fe2512ff61";
        assert_eq!(
            file("u", "ab^-aqEH.-t@S}K{vb[*k^").unwrap(),
            format!("t/ab/deletion_vector_{id}.bin")
        );
        assert_eq!(
            file("u", "^-aqEH.-t@S}K{vb[*k^").unwrap(),
            format!("t/deletion_vector_{id}.bin")
        );
        let absolute = format!("s3://mytable/deletion_vector_{id}.bin");
        assert_eq!(file("p", &absolute).unwrap(), format!("deletion_vector_{id}.bin"));
        assert_eq!(
            file("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"),
            None
        );
    }
}
