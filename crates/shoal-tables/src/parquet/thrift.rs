//! The compact protocol of Thrift, in which Parquet keeps what describes a file.

use crate::error::{CUT_OFF, TableError};

/// Maximum depth of values that are skipped.
const DEPTH_MAX: usize = 16;

/// Reads values from their beginning.
pub(super) struct Thrift<'a> {
    rest: &'a [u8],
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    True,
    False,
    Byte,
    Number,
    Double,
    Bytes,
    List,
    Map,
    Struct,
}

/// A field of a struct.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) id: i64,
    pub(super) kind: Kind,
}

/// The items of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items {
    pub(super) count: usize,
    pub(super) kind: Kind,
}

const DAMAGED: TableError = TableError::Damaged("what describes a Parquet file cannot be read");

impl Kind {
    fn of(code: u8) -> Result<Self, TableError> {
        Ok(match code {
            1 => Self::True,
            2 => Self::False,
            3 => Self::Byte,
            4..=6 => Self::Number,
            7 => Self::Double,
            8 => Self::Bytes,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            _ => return Err(DAMAGED),
        })
    }
}

impl<'a> Thrift<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that were not read.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads a struct: calls `each` with each of its fields, which reads the value or returns false to have
    /// it skipped.
    pub(super) fn fields(
        &mut self,
        mut each: impl FnMut(&mut Self, Field) -> Result<bool, TableError>,
    ) -> Result<(), TableError> {
        let mut last = 0;
        while let Some(field) = self.field(last)? {
            last = field.id;
            if !each(self, field)? {
                self.skip(field.kind, 0)?;
            }
        }
        Ok(())
    }

    /// Reads a number that may be below zero.
    pub(super) fn number(&mut self) -> Result<i64, TableError> {
        let number = self.unsigned()?;
        Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// Reads a number of bytes or values.
    pub(super) fn length(&mut self) -> Result<usize, TableError> {
        usize::try_from(self.number()?).map_err(|_| DAMAGED)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], TableError> {
        let length = usize::try_from(self.unsigned()?).map_err(|_| DAMAGED)?;
        self.take(length)
    }

    /// Reads the head of a list. Each item has a byte at least.
    pub(super) fn items(&mut self) -> Result<Items, TableError> {
        let head = self.take(1)?[0];
        let count = match head >> 4 {
            15 => usize::try_from(self.unsigned()?).map_err(|_| DAMAGED)?,
            count => usize::from(count),
        };
        if count > self.rest.len() {
            return Err(CUT_OFF);
        }
        let kind = Kind::of(head & 15)?;
        Ok(Items { count, kind })
    }

    /// Reads the head of a list of structs.
    pub(super) fn structs(&mut self) -> Result<usize, TableError> {
        let Items { count, kind } = self.items()?;
        (kind == Kind::Struct || count == 0)
            .then_some(count)
            .ok_or(DAMAGED)
    }

    fn field(&mut self, last: i64) -> Result<Option<Field>, TableError> {
        let head = self.take(1)?[0];
        if head == 0 {
            return Ok(None);
        }
        let id = match head >> 4 {
            0 => self.number()?,
            more => last.saturating_add(i64::from(more)),
        };
        let kind = Kind::of(head & 15)?;
        Ok(Some(Field { id, kind }))
    }

    fn skip(&mut self, kind: Kind, depth: usize) -> Result<(), TableError> {
        if depth > DEPTH_MAX {
            return Err(DAMAGED);
        }
        match kind {
            Kind::True | Kind::False => {}
            Kind::Byte => drop(self.take(1)?),
            Kind::Number => drop(self.unsigned()?),
            Kind::Double => drop(self.take(8)?),
            Kind::Bytes => drop(self.bytes()?),
            Kind::List => {
                let Items { count, kind } = self.items()?;
                for _ in 0..count {
                    self.skip_item(kind, depth)?;
                }
            }
            Kind::Map => self.skip_map(depth)?,
            Kind::Struct => {
                let mut last = 0;
                while let Some(field) = self.field(last)? {
                    last = field.id;
                    self.skip(field.kind, depth + 1)?;
                }
            }
        }
        Ok(())
    }

    /// Skips an item of a list. A field has its yes or no in its kind, an item has a byte for it.
    fn skip_item(&mut self, kind: Kind, depth: usize) -> Result<(), TableError> {
        match kind {
            Kind::True | Kind::False => self.take(1).map(drop),
            kind => self.skip(kind, depth + 1),
        }
    }

    fn skip_map(&mut self, depth: usize) -> Result<(), TableError> {
        let count = self.unsigned()?;
        if count == 0 {
            return Ok(());
        }
        let kinds = self.take(1)?[0];
        let (key, value) = (Kind::of(kinds >> 4)?, Kind::of(kinds & 15)?);
        for _ in 0..count {
            self.skip_item(key, depth)?;
            self.skip_item(value, depth)?;
        }
        Ok(())
    }

    fn unsigned(&mut self) -> Result<u64, TableError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DAMAGED)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], TableError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(CUT_OFF)?;
        self.rest = rest;
        Ok(bytes)
    }
}
