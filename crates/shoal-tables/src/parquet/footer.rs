//! The end of a Parquet file: its columns, and where their pages are.

use super::thrift::Thrift;
use crate::error::{CUT_OFF, TableError};
use crate::unpack::Codec;

const MAGIC: &[u8] = b"PAR1";

/// The magic and the length of the description before it.
const TAIL_BYTES: usize = 8;

/// Maximum number of columns and groups of them in a file.
const COLUMNS_MAX: usize = 20_000;

/// Maximum number of rows of a file: rows without a value cost no bytes.
const ROWS_MAX: u64 = 8 << 20;

/// The description of a file.
#[derive(Debug)]
pub(super) struct Footer {
    pub(super) leaves: Vec<Leaf>,
    pub(super) groups: Vec<Group>,
}

/// A column of the schema.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Its names from the root on, with dots between them.
    pub(super) path: String,
    /// The number of its ancestors, and itself, that may be absent.
    pub(super) levels: u32,
    /// True if it, or an ancestor, may occur several times in a row.
    pub(super) is_repeated: bool,
    pub(super) kind: Option<ValueKind>,
}

/// The types of values that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Number32,
    Number64,
    Bytes,
}

/// Some rows, column by column.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) rows: u64,
    pub(super) chunks: Vec<Chunk>,
}

/// The pages of a column in a group.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) path: String,
    codec: i64,
    bytes: usize,
    data_at: usize,
    dictionary_at: Option<usize>,
}

impl Chunk {
    pub(super) fn codec(&self) -> Result<Codec, TableError> {
        Ok(match self.codec {
            0 => Codec::Plain,
            1 => Codec::Snappy,
            2 => Codec::Gzip,
            6 => Codec::Zstd,
            _ => return Err(TableError::Unknown("a codec of Parquet")),
        })
    }

    /// Returns its pages, one after the other.
    pub(super) fn pages<'a>(&self, file: &'a [u8]) -> Result<&'a [u8], TableError> {
        // Some writers name no place of the dictionary although there is one, as zero.
        let dictionary_at = self.dictionary_at.filter(|at| *at > 0);
        let start = dictionary_at.map_or(self.data_at, |at| at.min(self.data_at));
        let end = start.checked_add(self.bytes).ok_or(CUT_OFF)?;
        file.get(start..end).ok_or(CUT_OFF)
    }
}

/// Reads the description of a file.
pub(super) fn read(file: &[u8]) -> Result<Footer, TableError> {
    let tail = file.len().checked_sub(TAIL_BYTES).map(|at| file.split_at(at));
    let (before, tail) = tail.ok_or(CUT_OFF)?;
    if !tail.ends_with(MAGIC) {
        return Err(TableError::Damaged("it is no file of Parquet"));
    }
    let bytes = u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]) as usize;
    let at = before.len().checked_sub(bytes).ok_or(CUT_OFF)?;
    let (mut leaves, mut groups) = (Vec::new(), Vec::new());
    Thrift::new(&before[at..]).fields(|thrift, field| {
        match field.id {
            2 => leaves = schema(thrift)?,
            4 => groups = row_groups(thrift)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Footer { leaves, groups })
}

/// A node of the schema.
#[derive(Debug, Default)]
struct Element {
    name: String,
    kind: Option<i64>,
    repetition: i64,
    children: usize,
}

/// A node whose children follow.
struct Parent {
    path: String,
    levels: u32,
    is_repeated: bool,
    /// The number of children that are still to come.
    left: usize,
}

fn schema(thrift: &mut Thrift<'_>) -> Result<Vec<Leaf>, TableError> {
    let count = thrift.structs()?;
    if count > COLUMNS_MAX {
        return Err(TableError::TooLarge("too many columns in a checkpoint"));
    }
    let root = element(thrift)?;
    let mut parents = vec![Parent {
        path: String::new(),
        levels: 0,
        is_repeated: false,
        left: root.children,
    }];
    let mut leaves = Vec::new();
    for _ in 1..count {
        let element = element(thrift)?;
        while parents.pop_if(|parent| parent.left == 0).is_some() {}
        let parent = parents
            .last_mut()
            .ok_or(TableError::Damaged("a schema with several roots"))?;
        parent.left -= 1;
        let node = child(parent, &element);
        if element.children > 0 {
            parents.push(node);
        } else {
            leaves.push(leaf(node, element.kind));
        }
    }
    Ok(leaves)
}

fn child(parent: &Parent, element: &Element) -> Parent {
    let separator = if parent.path.is_empty() { "" } else { "." };
    Parent {
        // The paths of wanted columns are short: those of a schema that is deep cost no more for it.
        path: if parent.path.len() > 1_000 {
            parent.path.clone()
        } else {
            format!("{}{separator}{}", parent.path, element.name)
        },
        levels: parent.levels + u32::from(element.repetition != 0),
        is_repeated: parent.is_repeated || element.repetition == 2,
        left: element.children,
    }
}

fn leaf(node: Parent, kind: Option<i64>) -> Leaf {
    Leaf {
        path: node.path,
        levels: node.levels,
        is_repeated: node.is_repeated,
        kind: match kind {
            Some(1) => Some(ValueKind::Number32),
            Some(2) => Some(ValueKind::Number64),
            Some(6) => Some(ValueKind::Bytes),
            _ => None,
        },
    }
}

fn element(thrift: &mut Thrift<'_>) -> Result<Element, TableError> {
    let mut element = Element::default();
    thrift.fields(|thrift, field| {
        match field.id {
            1 => element.kind = Some(thrift.number()?),
            3 => element.repetition = thrift.number()?,
            4 => element.name = name(thrift)?,
            5 => element.children = thrift.length()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(element)
}

/// Reads a name. A long one is no name of a wanted column.
fn name(thrift: &mut Thrift<'_>) -> Result<String, TableError> {
    let name = thrift.bytes()?;
    Ok(String::from_utf8_lossy(&name[..name.len().min(100)]).into_owned())
}

fn row_groups(thrift: &mut Thrift<'_>) -> Result<Vec<Group>, TableError> {
    let (mut groups, mut chunks, mut rows) = (Vec::new(), 0, 0_u64);
    for _ in 0..thrift.structs()? {
        let mut group = Group::default();
        thrift.fields(|thrift, field| {
            match field.id {
                1 => {
                    for _ in 0..thrift.structs()? {
                        chunks += 1;
                        if chunks > COLUMNS_MAX {
                            return Err(TableError::TooLarge("too many groups in a checkpoint"));
                        }
                        group.chunks.push(chunk(thrift)?);
                    }
                }
                3 => group.rows = thrift.length()? as u64,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        rows = rows.saturating_add(group.rows);
        if rows > ROWS_MAX {
            return Err(TableError::TooLarge("too many rows in a checkpoint"));
        }
        groups.push(group);
    }
    Ok(groups)
}

fn chunk(thrift: &mut Thrift<'_>) -> Result<Chunk, TableError> {
    let mut chunk = Chunk::default();
    thrift.fields(|thrift, field| {
        if field.id != 3 {
            return Ok(false);
        }
        thrift.fields(|thrift, field| {
            match field.id {
                3 => chunk.path = path(thrift)?,
                4 => chunk.codec = thrift.number()?,
                7 => chunk.bytes = thrift.length()?,
                9 => chunk.data_at = thrift.length()?,
                11 => chunk.dictionary_at = Some(thrift.length()?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(true)
    })?;
    Ok(chunk)
}

fn path(thrift: &mut Thrift<'_>) -> Result<String, TableError> {
    let mut path = String::new();
    for number in 0..thrift.items()?.count {
        let name = name(thrift)?;
        if path.len() <= 1_000 {
            path.push_str(if number == 0 { "" } else { "." });
            path.push_str(&name);
        }
    }
    Ok(path)
}
