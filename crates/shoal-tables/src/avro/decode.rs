//! Values of Avro in their binary form.

use super::schema::{Node, Shape};
use crate::error::{CUT_OFF, TableError};

/// The value of a wanted field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(i64),
    Bytes(&'a [u8]),
}

/// The steps that a byte of a block pays for, beside those that each block has. Values without bytes exist:
/// a few of them could cost any time.
const STEPS_A_BYTE: usize = 16;
const STEPS: usize = 100_000;

/// Reads bytes from their beginning.
pub(super) struct Decoder<'a> {
    rest: &'a [u8],
    steps: usize,
}

impl<'a> Decoder<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            steps: STEPS.saturating_add(bytes.len().saturating_mul(STEPS_A_BYTE)),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], TableError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(CUT_OFF)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a number, seven bits a byte.
    pub(super) fn number(&mut self) -> Result<i64, TableError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed());
            }
        }
        Err(TableError::Damaged("a number that is too long"))
    }

    /// Reads a length.
    pub(super) fn length(&mut self) -> Result<usize, TableError> {
        let negative = |_| TableError::Damaged("a length below zero");
        usize::try_from(self.number()?).map_err(negative)
    }

    /// Returns a number of values that follow, each of which has a byte at least.
    pub(super) fn count_of(&self, count: usize) -> Result<usize, TableError> {
        (count <= self.rest.len()).then_some(count).ok_or(CUT_OFF)
    }

    /// Reads the number of items in the next part of an array or a map; `None` at its end.
    pub(super) fn items(&mut self) -> Result<Option<usize>, TableError> {
        let count = self.number()?;
        if count < 0 {
            // The number of bytes follows, for readers that skip all items.
            self.length()?;
        }
        let count = usize::try_from(count.unsigned_abs()).map_err(|_| CUT_OFF)?;
        Ok(Some(self.count_of(count)?).filter(|count| *count > 0))
    }

    fn step(&mut self) -> Result<(), TableError> {
        let left = self.steps.checked_sub(1);
        self.steps = left.ok_or(TableError::TooLarge("too many values without bytes"))?;
        Ok(())
    }
}

/// Reads a value of a type, and keeps what is wanted of it. The depth of schemas bounds the recursion.
pub(super) fn read_value<'a>(
    from: &mut Decoder<'a>,
    node: &Node,
    values: &mut [Option<Value<'a>>],
) -> Result<(), TableError> {
    from.step()?;
    let value = match &node.shape {
        Shape::Null => None,
        Shape::Fixed(bytes) => from.bytes(*bytes).map(|_| None)?,
        Shape::Number => Some(Value::Number(from.number()?)),
        Shape::Bytes => {
            let bytes = from.length()?;
            Some(Value::Bytes(from.bytes(bytes)?))
        }
        Shape::Array(item) => read_items(from, item, false, values).map(|()| None)?,
        Shape::Map(item) => read_items(from, item, true, values).map(|()| None)?,
        Shape::Union(branches) => {
            let branch = branches.get(from.length()?);
            let branch = branch.ok_or(TableError::Damaged("a type that its schema does not have"))?;
            read_value(from, branch, values).map(|()| None)?
        }
        Shape::Record(fields) => {
            for field in fields {
                read_value(from, field, values)?;
            }
            None
        }
    };
    if let Some(slot) = node.slot {
        values[slot] = value;
    }
    Ok(())
}

fn read_items<'a>(
    from: &mut Decoder<'a>,
    item: &Node,
    has_keys: bool,
    values: &mut [Option<Value<'a>>],
) -> Result<(), TableError> {
    while let Some(count) = from.items()? {
        for _ in 0..count {
            if has_keys {
                let bytes = from.length()?;
                from.bytes(bytes)?;
            }
            read_value(from, item, values)?;
        }
    }
    Ok(())
}
