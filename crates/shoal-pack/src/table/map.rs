//! Several tables as one.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;

use ulid::Ulid;

use super::{DamagedBlock, Entry, Listed, Names, Packed, Row, Rows, Table};

/// All tables of a root.
#[derive(Clone, Debug, Default)]
pub struct Map {
    tables: Vec<Arc<Table>>,
}

/// The tables are not those that are listed: this one is missing, another one, or in another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("table {0} of the map is not the one that is listed")]
pub struct NotListed(pub u64);

/// The treatment of tombstones as tables are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tombstones {
    /// They stay, for the sake of tables that are older than those which are merged.
    Keep,
    /// They go: no table is older.
    Drop,
}

/// The rows of several tables, in the order of their names. An error is the last item.
#[derive(Debug)]
pub struct Merge<'a> {
    /// Newest first.
    tables: Vec<Peekable<Rows<'a>>>,
    tombstones: Tombstones,
}

impl Map {
    /// Makes a map of the tables that are listed, newest first.
    pub fn new(listed: &[Listed], tables: Vec<Arc<Table>>) -> Result<Self, NotListed> {
        let mut opened = tables.iter().map(|table| table.listed());
        for expected in listed {
            if opened.next() != Some(*expected) {
                return Err(NotListed(expected.number));
            }
        }
        match opened.next() {
            Some(more) => Err(NotListed(more.number)),
            None => Ok(Self { tables }),
        }
    }

    /// Its tables, newest first.
    pub fn tables(&self) -> &[Arc<Table>] {
        &self.tables
    }

    /// Returns the packed object of this name.
    ///
    /// # Errors
    ///
    /// A block where the name belongs is not as it was written, and no newer table has the name.
    pub fn get(&self, key: &[u8]) -> Result<Option<Packed>, DamagedBlock> {
        for table in &self.tables {
            match table.get(key)? {
                Some(Row::Packed(packed)) => return Ok(Some(packed)),
                Some(Row::Tombstone { .. }) => return Ok(None),
                None => {}
            }
        }
        Ok(None)
    }

    /// Iterates over the packed objects, in the order of their names.
    pub fn objects<'a>(
        &'a self,
        names: Names<'a>,
    ) -> impl Iterator<Item = Result<Entry<Packed>, DamagedBlock>> + 'a {
        merge(&self.tables, names, Tombstones::Drop).filter_map(|entry| match entry {
            Ok(Entry { key, row }) => match row {
                Row::Packed(row) => Some(Ok(Entry { key, row })),
                Row::Tombstone { .. } => None,
            },
            Err(damaged) => Some(Err(damaged)),
        })
    }

    /// Counts the bytes of objects that the map finds in each pack. A pack that it does not name has none.
    pub fn live_bytes(&self) -> Result<BTreeMap<Ulid, u64>, DamagedBlock> {
        let mut packs = BTreeMap::new();
        for object in self.objects(Names::default()) {
            let Packed { pack, range, .. } = object?.row;
            *packs.entry(pack).or_default() += range.end - range.start;
        }
        Ok(packs)
    }
}

/// Iterates over the rows of tables, newest first. Of several rows with one name, that of the newest table is
/// the one.
pub fn merge<'a>(tables: &'a [Arc<Table>], names: Names<'a>, tombstones: Tombstones) -> Merge<'a> {
    Merge {
        tables: tables.iter().map(|table| table.rows(names).peekable()).collect(),
        tombstones,
    }
}

impl Merge<'_> {
    /// Returns the next row; the others of its name are passed over.
    fn next_row(&mut self) -> Option<Result<Entry, DamagedBlock>> {
        let mut first: Option<(usize, &Entry)> = None;
        for (number, rows) in self.tables.iter_mut().enumerate() {
            match rows.peek() {
                Some(Ok(entry)) if first.is_none_or(|(_, first)| entry.key < first.key) => {
                    first = Some((number, entry));
                }
                Some(Err(damaged)) => {
                    let damaged = *damaged;
                    self.tables.clear();
                    return Some(Err(damaged));
                }
                Some(Ok(_)) | None => {}
            }
        }
        let (newest, _) = first?;
        let (newer, older) = self.tables.split_at_mut(newest + 1);
        let row = newer[newest].next()?;
        if let Ok(entry) = &row {
            for rows in older {
                rows.next_if(|other| other.as_ref().is_ok_and(|other| other.key == entry.key));
            }
        }
        Some(row)
    }
}

impl Iterator for Merge<'_> {
    type Item = Result<Entry, DamagedBlock>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let row = self.next_row()?;
            let is_tombstone = matches!(&row, Ok(entry) if matches!(entry.row, Row::Tombstone { .. }));
            if !is_tombstone || self.tombstones == Tombstones::Keep {
                return Some(row);
            }
        }
    }
}
