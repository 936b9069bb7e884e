//! Parquet files: the values of some columns that occur at most once a row. No other column is read.

mod footer;
mod levels;
mod page;
mod thrift;

use self::footer::{Chunk, Group, Leaf};
use crate::bounds::{Budget, FILES_MAX, NAME_BYTES_MAX};
use crate::error::TableError;
use crate::unpack::Unpacker;

/// The value of a column in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(i64),
    Bytes(Box<[u8]>),
}

/// The rows of a column that have a value, in their order.
type Column = Vec<Cell>;

/// A value and its row.
#[derive(Clone, Debug)]
struct Cell {
    row: u64,
    value: Value,
}

/// Reads a file. Calls `each` with the values of the `wanted` columns of each row in which the first of them
/// has one; `None` where a column has none, or the file has no such column.
pub(crate) fn read(
    file: &[u8],
    wanted: &[&str],
    mut each: impl FnMut(&[Option<Value>]) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let footer = footer::read(file)?;
    let mut budget = ValueBudget {
        values: Budget::new(FILES_MAX * wanted.len(), "too many files"),
        bytes: Budget::new(NAME_BYTES_MAX, "names that are too long"),
    };
    let leaves = wanted
        .iter()
        .map(|path| footer.leaves.iter().find(|leaf| leaf.path == **path));
    let leaves: Vec<Option<&Leaf>> = leaves.collect();
    for group in &footer.groups {
        let columns = leaves.iter().map(|leaf| match leaf {
            Some(leaf) => column(file, group, leaf, &mut budget),
            None => Ok(Vec::new()),
        });
        let columns = columns.collect::<Result<Vec<Column>, _>>()?;
        rows(&columns, &mut each)?;
    }
    Ok(())
}

/// Bounds the values of a file that are kept at a time.
struct ValueBudget {
    values: Budget,
    bytes: Budget,
}

/// Reads a column of a group.
fn column(file: &[u8], group: &Group, leaf: &Leaf, budget: &mut ValueBudget) -> Result<Column, TableError> {
    let Some(kind) = leaf.kind.filter(|_| !leaf.is_repeated) else {
        return Err(TableError::Unknown("a column of another type"));
    };
    let chunk = group.chunks.iter().find(|chunk: &&Chunk| chunk.path == leaf.path);
    let chunk = chunk.ok_or(TableError::Damaged(
        "a group of Parquet without one of its columns",
    ))?;
    let mut reader = page::ChunkReader {
        leaf,
        kind,
        unpacker: Unpacker::new(chunk.codec()?),
        dictionary: Vec::new(),
        cells: Vec::new(),
        row: 0,
    };
    let mut pages = chunk.pages(file)?;
    while reader.row < group.rows {
        pages = reader.page(pages, group.rows, budget)?;
    }
    Ok(reader.cells)
}

/// Puts the columns of a group together, row by row of the first.
fn rows(
    columns: &[Column],
    each: &mut impl FnMut(&[Option<Value>]) -> Result<(), TableError>,
) -> Result<(), TableError> {
    let mut columns: Vec<_> = columns.iter().map(|cells| cells.iter().peekable()).collect();
    while let Some(row) = columns.first_mut().and_then(|cells| Some(cells.peek()?.row)) {
        let values = columns.iter_mut().map(|cells| {
            while cells.next_if(|cell| cell.row < row).is_some() {}
            cells
                .next_if(|cell| cell.row == row)
                .map(|cell| cell.value.clone())
        });
        let values: Vec<Option<Value>> = values.collect();
        each(&values)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
