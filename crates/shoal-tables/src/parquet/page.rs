//! The pages of a column.

use std::borrow::Cow;

use super::footer::{Leaf, ValueKind};
use super::levels::Levels;
use super::thrift::{Kind, Thrift};
use super::{Cell, Value, ValueBudget};
use crate::error::{CUT_OFF, TableError};
use crate::unpack::Unpacker;

/// Reads the pages of a column in a group.
pub(super) struct ChunkReader<'f> {
    pub(super) leaf: &'f Leaf,
    pub(super) kind: ValueKind,
    pub(super) unpacker: Unpacker,
    /// The values that pages name by their numbers.
    pub(super) dictionary: Vec<Value>,
    /// The values that were read.
    pub(super) cells: Vec<Cell>,
    /// The first row of the next page.
    pub(super) row: u64,
}

/// The head of a page.
#[derive(Debug, Default)]
struct Head {
    kind: i64,
    bytes: usize,
    values: usize,
    encoding: i64,
    /// The bytes of levels before the values, of a page of version 2.
    levels_bytes: [usize; 2],
    is_plain: bool,
}

/// Kinds of pages.
const DATA: i64 = 0;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;

/// Encodings of values.
const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const RLE_DICTIONARY: i64 = 8;

impl ChunkReader<'_> {
    /// Reads the first of some pages. Returns the others.
    pub(super) fn page<'p>(
        &mut self,
        pages: &'p [u8],
        rows: u64,
        budget: &mut ValueBudget,
    ) -> Result<&'p [u8], TableError> {
        let mut thrift = Thrift::new(pages);
        let head = head(&mut thrift)?;
        let (page, rest) = thrift.rest().split_at_checked(head.bytes).ok_or(CUT_OFF)?;
        match head.kind {
            DICTIONARY => self.read_dictionary(&head, page, budget)?,
            DATA | DATA_V2 => {
                if head.values as u64 > rows - self.row {
                    return Err(TableError::Damaged("a page of Parquet with too many rows"));
                }
                self.read_data(&head, page, budget)?;
                self.row += head.values as u64;
            }
            _ => {}
        }
        Ok(rest)
    }

    fn read_dictionary(
        &mut self,
        head: &Head,
        page: &[u8],
        budget: &mut ValueBudget,
    ) -> Result<(), TableError> {
        let page = self.unpacker.unpack(page)?;
        let mut values = Plain {
            rest: &page,
            kind: self.kind,
        };
        self.dictionary.clear();
        for _ in 0..head.values {
            let value = values.next()?;
            budget.take(&value)?;
            self.dictionary.push(value);
        }
        Ok(())
    }

    fn read_data(&mut self, head: &Head, page: &[u8], budget: &mut ValueBudget) -> Result<(), TableError> {
        let width = u32::BITS - self.leaf.levels.leading_zeros();
        let body;
        let (levels, values) = if head.kind == DATA_V2 {
            let [repetition, definition] = head.levels_bytes;
            let (_, page) = page.split_at_checked(repetition).ok_or(CUT_OFF)?;
            let (levels, values) = page.split_at_checked(definition).ok_or(CUT_OFF)?;
            let is_packed = !head.is_plain && !values.is_empty();
            body = if is_packed {
                self.unpacker.unpack(values)?
            } else {
                Cow::Borrowed(values)
            };
            (levels, &*body)
        } else {
            body = self.unpacker.unpack(page)?;
            split_levels(&body, self.leaf.levels)?
        };
        let mut levels = Levels::new(levels, width)?;
        let plain = Plain {
            rest: values,
            kind: self.kind,
        };
        let mut values = Values::new(head.encoding, plain, &self.dictionary)?;
        for row in self.row..self.row + head.values as u64 {
            let is_there = self.leaf.levels == 0 || levels.next()? == self.leaf.levels;
            if is_there {
                let value = values.next()?;
                budget.take(&value)?;
                self.cells.push(Cell { row, value });
            }
        }
        Ok(())
    }
}

/// The values of a page.
enum Values<'v> {
    Plain(Plain<'v>),
    /// Numbers of values of a dictionary.
    Numbered {
        numbers: Levels<'v>,
        dictionary: &'v [Value],
    },
}

impl<'v> Values<'v> {
    fn new(encoding: i64, plain: Plain<'v>, dictionary: &'v [Value]) -> Result<Self, TableError> {
        match encoding {
            PLAIN => Ok(Self::Plain(plain)),
            PLAIN_DICTIONARY | RLE_DICTIONARY => {
                // A page without values may have no width either.
                let (width, numbers) = plain.rest.split_first().unwrap_or((&0, &[]));
                let numbers = Levels::new(numbers, u32::from(*width))?;
                Ok(Self::Numbered { numbers, dictionary })
            }
            _ => Err(TableError::Unknown("an encoding of Parquet")),
        }
    }

    fn next(&mut self) -> Result<Value, TableError> {
        match self {
            Self::Plain(plain) => plain.next(),
            Self::Numbered { numbers, dictionary } => {
                let value = dictionary.get(numbers.next()? as usize);
                let absent = TableError::Damaged("a value that its dictionary does not have");
                value.cloned().ok_or(absent)
            }
        }
    }
}

/// Values as they are, one after the other.
struct Plain<'v> {
    rest: &'v [u8],
    kind: ValueKind,
}

impl Plain<'_> {
    fn next(&mut self) -> Result<Value, TableError> {
        Ok(match self.kind {
            ValueKind::Number32 => Value::Number(i64::from(i32::from_le_bytes(self.array()?))),
            ValueKind::Number64 => Value::Number(i64::from_le_bytes(self.array()?)),
            ValueKind::Bytes => {
                let count = u32::from_le_bytes(self.array()?) as usize;
                let (bytes, rest) = self.rest.split_at_checked(count).ok_or(CUT_OFF)?;
                self.rest = rest;
                Value::Bytes(bytes.into())
            }
        })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TableError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(CUT_OFF)?;
        self.rest = rest;
        Ok(*array)
    }
}

impl ValueBudget {
    /// Takes the room for a value.
    pub(super) fn take(&mut self, value: &Value) -> Result<(), TableError> {
        self.values.take(1)?;
        match value {
            Value::Number(_) => Ok(()),
            Value::Bytes(bytes) => self.bytes.take(bytes.len()),
        }
    }
}

/// Splits a page of version 1 into its levels and its values. Without levels nothing is absent.
fn split_levels(page: &[u8], levels: u32) -> Result<(&[u8], &[u8]), TableError> {
    if levels == 0 {
        return Ok((&[], page));
    }
    let (length, rest) = page.split_first_chunk().ok_or(CUT_OFF)?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
        .ok_or(CUT_OFF)
}

fn head(thrift: &mut Thrift<'_>) -> Result<Head, TableError> {
    let mut head = Head::default();
    thrift.fields(|thrift, field| {
        match field.id {
            1 => head.kind = thrift.number()?,
            3 => head.bytes = thrift.length()?,
            5 | 7 => thrift.fields(|thrift, field| {
                match field.id {
                    1 => head.values = thrift.length()?,
                    2 => head.encoding = thrift.number()?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            8 => thrift.fields(|thrift, field| {
                match field.id {
                    1 => head.values = thrift.length()?,
                    4 => head.encoding = thrift.number()?,
                    5 => head.levels_bytes[1] = thrift.length()?,
                    6 => head.levels_bytes[0] = thrift.length()?,
                    7 => head.is_plain = field.kind == Kind::False,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(head)
}
