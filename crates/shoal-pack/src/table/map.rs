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

/// The living bytes and rows of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// The bytes that the objects which the map finds take in their packs, see [`Packed::bytes_in_pack`]. The
    /// map finds nothing in other packs.
    pub packs: BTreeMap<Ulid, u64>,
    /// The rows of each table, newest first.
    pub tables: Vec<RowCount>,
}

/// The rows of a table in a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCount {
    /// All of them.
    pub all: u64,
    /// Those that no newer table hides.
    pub found: u64,
}

/// The rows of several tables, in the order of their names. An error is the last item.
#[derive(Debug)]
pub struct Merge<'a> {
    /// Newest first.
    tables: Vec<Peekable<Rows<'a>>>,
    /// The rows that were read, of each table.
    counts: Vec<RowCount>,
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

    /// Counts what the map finds. Reads all rows of all tables.
    pub fn live(&self) -> Result<Live, DamagedBlock> {
        let mut merge = merge(&self.tables, Names::default(), Tombstones::Keep);
        let mut packs = BTreeMap::new();
        for entry in &mut merge {
            let Entry { key, row } = entry?;
            if let Row::Packed(packed) = row {
                *packs.entry(packed.pack).or_default() += packed.bytes_in_pack(&key);
            }
        }
        Ok(Live {
            packs,
            tables: merge.counts,
        })
    }
}

/// Iterates over the rows of tables, newest first. Of several rows with one name, that of the newest table is
/// the one.
pub fn merge<'a>(tables: &'a [Arc<Table>], names: Names<'a>, tombstones: Tombstones) -> Merge<'a> {
    Merge {
        tables: tables.iter().map(|table| table.rows(names).peekable()).collect(),
        counts: vec![RowCount::default(); tables.len()],
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
        self.counts[newest].all += 1;
        self.counts[newest].found += 1;
        if let Ok(entry) = &row {
            let is_hidden =
                |other: &Result<Entry, _>| other.as_ref().is_ok_and(|other| other.key == entry.key);
            for (rows, count) in older.iter_mut().zip(&mut self.counts[newest + 1..]) {
                count.all += u64::from(rows.next_if(is_hidden).is_some());
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
