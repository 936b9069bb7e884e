//! Commits tables of a map (steps 3 to 5 of a round, decision 0048): reserves the next number, writes the
//! table to the lake, and names it in the root.
//!
//! While a number is reserved, no other node changes the map. So a table is made from the map as it was
//! reserved, and the reservation always has a definite end: the root names the table, or the lake does not
//! have it and will not get it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use shoal_base::send_permit::SendPermit;
use shoal_net::endpoint::s3::SendOptions;
use shoal_pack::table::{DamagedBlock, Listed, Map, Place, Refused, TableBuilder};
use shoal_registry::roots::{MapTable, Purpose, ReserveError, Reserved, Root};
use tokio::time::{Instant, sleep};

use super::at_lake::size;
use super::map::{MapError, PackMap, listed};
use crate::dirty::lake_writer::NotWritten;

/// How long a table waits for those of other nodes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Pause between two attempts to reserve a number.
const RESERVE_PAUSE: Duration = Duration::from_millis(50);

/// Pause between two questions to a lake that does not say if it has a table.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A change of a map, made from the map as it is while the next number is reserved.
pub(crate) enum MapChange {
    /// None: the reservation ends.
    Nothing,
    /// A table that goes before all others.
    Add(TableBuilder),
    /// A table in place of some that follow one another.
    Replace {
        /// The numbers of the replaced tables.
        replaced: Vec<u64>,
        /// Their rows, merged.
        table: TableBuilder,
    },
}

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// The map has the change.
    Table,
    /// There was nothing to change.
    Nothing,
}

/// A table was not committed. Its reservation has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotCommitted {
    /// The number was not reserved.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    /// The map cannot be read.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A table of the map is damaged.
    #[error(transparent)]
    Damaged(#[from] DamagedBlock),
    /// The table would not be a valid one.
    #[error("the new table of the map is refused: {0}")]
    Table(#[from] Refused),
    /// The lake has no such table.
    #[error("the table of the map was not written: {0}")]
    Lake(#[from] NotWritten),
    /// Another node has resolved the reservation. The map may have the change.
    #[error("it is not known whether the map has the change: the session of this node ended")]
    Unknown,
}

/// A table that is ready to be written.
struct Prepared {
    pieces: Vec<Bytes>,
    listed: Listed,
    /// The map with it, newest first.
    tables: Vec<MapTable>,
}

impl PackMap {
    /// Commits the change of the map that `change` makes of the map as it is reserved. Nothing is sent to the
    /// lake without `permit`.
    ///
    /// Does not return before the reservation has ended, and goes on if the future is dropped.
    ///
    /// # Errors
    ///
    /// The map does not have the change, unless the error is [`NotCommitted::Unknown`].
    pub(crate) async fn commit(
        self: &Arc<Self>,
        purpose: Purpose,
        permit: &SendPermit,
        change: impl FnOnce(&Map) -> Result<MapChange, NotCommitted> + Send + 'static,
    ) -> Result<Committed, NotCommitted> {
        let (this, permit) = (Arc::clone(self), permit.clone());
        let committed = tokio::spawn(async move {
            let reserved = this.reserve(purpose).await?;
            match this.prepare(&reserved, change).await {
                Ok(Some(prepared)) => this.write(&reserved, prepared, &permit).await,
                unprepared => {
                    this.roots.release(&reserved).await;
                    unprepared.map(|_nothing| Committed::Nothing)
                }
            }
        });
        committed.await.unwrap_or(Err(NotCommitted::Unknown))
    }

    /// Returns the map that the table of a reserved number lists, newest first, if the lake has the table. It
    /// can no longer get it.
    ///
    /// # Errors
    ///
    /// The lake does not answer, or the table is damaged.
    pub(crate) async fn map_of_table(&self, number: u64) -> Result<Option<Vec<MapTable>>, MapError> {
        let table = self.table(number).await?;
        Ok(table.map(|table| tables_of(table.place(), &table.listed())))
    }

    /// Reserves the next number. Waits for tables of other nodes, and creates the root if there is none.
    async fn reserve(self: &Arc<Self>, purpose: Purpose) -> Result<Reserved, NotCommitted> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.roots.reserve(self.name(), purpose).await {
                Ok(reserved) => return Ok(reserved),
                Err(ReserveError::NoRoot) => {
                    // The lake must have no table of a map whose root is lost, and may have listed late.
                    self.compare(None).await?;
                    self.roots.create(self.name()).await.map_err(ReserveError::from)?;
                }
                Err(ReserveError::Busy(_)) if Instant::now() < deadline => sleep(RESERVE_PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes the table. Returns `None` if there is nothing to change.
    async fn prepare(
        &self,
        reserved: &Reserved,
        change: impl FnOnce(&Map) -> Result<MapChange, NotCommitted> + Send + 'static,
    ) -> Result<Option<Prepared>, NotCommitted> {
        let (root, number) = (reserved.root().clone(), reserved.number());
        let map = self.load(&root).await?;
        // Merging tables takes the processor for long.
        let prepared = tokio::task::spawn_blocking(move || prepared(&root, number, change(&map)?));
        prepared.await.expect("the change of a map does not panic")
    }

    /// Writes the table and names it.
    async fn write(
        &self,
        reserved: &Reserved,
        Prepared {
            pieces,
            listed,
            tables,
        }: Prepared,
        permit: &SendPermit,
    ) -> Result<Committed, NotCommitted> {
        let options = SendOptions::permitted_by(Some(permit));
        let written = self.at_lake.put_table(listed.number, pieces.clone(), options);
        if let Err(failure) = written.await
            && !(failure.may_exist && self.is_at_lake(listed).await)
        {
            self.roots.release(reserved).await;
            return Err(failure.into());
        }
        // This node need not read it from the lake.
        let pieces = stream::iter(pieces.into_iter().map(Ok::<_, Infallible>));
        if let Err(error) = self.files.receive(listed.size_bytes, pieces).await {
            tracing::debug!(%error, "a new table of packs is not kept here");
        }
        match self.roots.commit(reserved, tables).await {
            Ok(_) => Ok(Committed::Table),
            Err(_taken_over) => Err(NotCommitted::Unknown),
        }
    }

    /// Returns true if the lake has a table whose PUT had no answer, once it can no longer get it.
    async fn is_at_lake(&self, listed: Listed) -> bool {
        sleep(self.fence).await;
        let name = self.at_lake.table(listed.number);
        loop {
            match size(&self.at_lake.keeper(), &name).await {
                // No other table ever has this number.
                Ok(found) => return found == Some(listed.size_bytes),
                Err(error) => {
                    tracing::debug!(%error, table = ?name, "the lake does not say if it has a table");
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
}

fn prepared(root: &Root, number: u64, change: MapChange) -> Result<Option<Prepared>, NotCommitted> {
    let before: Vec<_> = root.tables.iter().map(listed).collect();
    let (mut table, newer, older) = match change {
        MapChange::Nothing => return Ok(None),
        MapChange::Add(table) => (table, 0, 0),
        MapChange::Replace { replaced, table } => {
            let is_replaced = |listed: &Listed| replaced.contains(&listed.number);
            let newer = before.iter().position(is_replaced).ok_or(Refused::Place)?;
            let older = newer + replaced.len();
            if !before
                .get(newer..older)
                .is_some_and(|tables| tables.iter().all(is_replaced))
            {
                return Err(Refused::Place.into());
            }
            (table, newer, older)
        }
    };
    let place = Place {
        number,
        newer: before[..newer].to_vec(),
        older: before[older..].to_vec(),
    };
    let blocks = table.take();
    let finished = table.finish(&place)?;
    Ok(Some(Prepared {
        tables: tables_of(&place, &finished.listed),
        listed: finished.listed,
        pieces: vec![blocks, finished.bytes],
    }))
}

/// Returns a map, newest first, from the place of its newest table.
fn tables_of(place: &Place, newest: &Listed) -> Vec<MapTable> {
    let tables = place.newer.iter().chain([newest]).chain(&place.older);
    tables.map(named).collect()
}

/// Returns a table as a root lists it.
pub(super) fn named(listed: &Listed) -> MapTable {
    MapTable {
        number: listed.number,
        size_bytes: listed.size_bytes,
        checksum: listed.checksum,
    }
}
