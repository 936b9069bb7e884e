//! Takes a map from the lake that the registry has lost (decision 0048, "The loss of the registry").

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::HeaderMap;
use shoal_net::endpoint::s3::{CallError, SendOptions};
use shoal_pack::table::{DamagedBlock, Listed, Names, Packed, Place, Refused, Row, Table, TableBuilder};
use shoal_pack::{Damaged, Member, Reading, read_tail};
use shoal_registry::roots::{RebuildError, Root, rebuilds_in};
use shoal_s3::range::ByteRange;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use ulid::Ulid;

use super::at_lake::{NotRead, get_range};
use super::commit::named;
use super::map::{MapError, PackMap};
use crate::dirty::lake_writer::NotWritten;
use crate::dirty::record::manifest::location;

/// The bytes of the end of a pack that are read first.
const TAIL_BYTES: u64 = 64 << 10;

/// Number of packs that are read at a time.
const PARALLEL: usize = 8;

/// The numbers that stay free before tables that are made from packs: a node that does not know of the
/// rebuild may be about to write a table.
const FREE_NUMBERS: u64 = 1 << 20;

/// The map that the registry has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rebuilt {
    pub(crate) tables: u64,
    /// Packs that cannot be read: their objects are not in the map.
    pub(crate) damaged_packs: u64,
}

/// The registry has the map that it had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRebuilt {
    #[error("the lake does not list packs and tables: {0}")]
    Unlisted(#[from] CallError),
    #[error("the lake has no table; `--from-packs` makes the map from packs, if there are some")]
    NoTables,
    #[error("the lake has no pack")]
    NoPacks,
    #[error("{0}; if the table is lost for good, use `--from-packs`")]
    Map(#[from] MapError),
    #[error("{0}; use `--from-packs`")]
    Block(#[from] DamagedBlock),
    #[error("pack {pack} cannot be read: {error}")]
    Pack { pack: String, error: NotRead },
    #[error("a table of the map was not written: {0}")]
    Written(#[from] NotWritten),
    #[error("the map does not fit into tables: {0}")]
    Refused(#[from] Refused),
    #[error("the session of this node has ended")]
    SessionOver,
    #[error(transparent)]
    Registry(#[from] RebuildError),
}

/// A map as the lake has it.
struct Found {
    /// Newest first.
    tables: Vec<Listed>,
    /// The greatest number of rebuilds in a sequence.
    rebuilds: u16,
    damaged_packs: u64,
}

impl PackMap {
    /// Makes the map that the newest table at the lake lists the map of the registry, or if `from_packs`, one
    /// of the newest objects in packs, which brings removed objects back.
    ///
    /// # Errors
    ///
    /// The registry has lost nothing, or the map at the lake is not whole.
    pub(crate) async fn rebuild(&self, from_packs: bool) -> Result<Rebuilt, NotRebuilt> {
        let found = if from_packs {
            self.found_in_packs().await?
        } else {
            self.found_in_tables().await?
        };
        let tables: Vec<_> = found.tables.iter().map(named).collect();
        self.roots
            .rebuild(self.name(), &tables, found.rebuilds.saturating_add(1))
            .await?;
        Ok(Rebuilt {
            tables: tables.len() as u64,
            damaged_packs: found.damaged_packs,
        })
    }

    async fn found_in_tables(&self) -> Result<Found, NotRebuilt> {
        let numbers = self.agreed(|| self.at_lake.tables()).await?;
        let number = *numbers.last().ok_or(NotRebuilt::NoTables)?;
        let newest = self.table(number).await?.ok_or(NotRebuilt::NoTables)?;
        let (place, listed) = (newest.place(), newest.listed());
        let tables = place.newer.iter().chain([&listed]).chain(&place.older).copied();
        let tables: Vec<_> = tables.collect();
        let root = Root {
            tables: tables.iter().map(named).collect(),
            ..Root::default()
        };
        let map = self.load(&root).await?;
        let counted = spawn_blocking(move || rebuilds_of(map.tables()));
        Ok(Found {
            tables,
            rebuilds: counted.await.expect("reading tables does not panic")?,
            damaged_packs: 0,
        })
    }

    async fn found_in_packs(&self) -> Result<Found, NotRebuilt> {
        let listed = || async {
            let packs = self.at_lake.packs().await?;
            Ok(packs.into_iter().map(|pack| (pack.id, pack.size_bytes)).collect())
        };
        let packs: Vec<(Ulid, u64)> = self.agreed(listed).await?;
        if packs.is_empty() {
            return Err(NotRebuilt::NoPacks);
        }
        let mut newest: BTreeMap<Bytes, Packed> = BTreeMap::new();
        let mut damaged_packs = 0;
        let reads = packs
            .into_iter()
            .map(|(pack, size_bytes)| async move { (pack, self.members(pack, size_bytes).await) });
        let reads: Vec<_> = reads.collect();
        let mut reads = std::pin::pin!(stream::iter(reads).buffer_unordered(PARALLEL));
        while let Some((pack, members)) = reads.next().await {
            match members? {
                Ok(members) => add_members(&mut newest, pack, &members),
                Err(damaged) => {
                    let pack = location(&self.at_lake.pack(pack));
                    tracing::error!(pack, %damaged, "a pack is damaged, and its objects are not in the map");
                    damaged_packs += 1;
                }
            }
        }
        let rebuilds = newest
            .values()
            .map(|row| rebuilds_in(row.sequence))
            .max()
            .unwrap_or_default();
        Ok(Found {
            tables: self.write_tables(newest).await?,
            rebuilds,
            damaged_packs,
        })
    }

    /// Reads the directory of a pack.
    async fn members(&self, pack: Ulid, size_bytes: u64) -> Result<Result<Vec<Member>, Damaged>, NotRebuilt> {
        let (client, name) = (self.at_lake.keeper(), self.at_lake.pack(pack));
        let mut tail_bytes = TAIL_BYTES.min(size_bytes);
        loop {
            let tail = if tail_bytes == 0 {
                Bytes::new()
            } else {
                let range = ByteRange::new(size_bytes - tail_bytes, size_bytes);
                let read = get_range(&client, &name, range, HeaderMap::new()).await;
                read.map_err(|error| NotRebuilt::Pack {
                    pack: location(&name),
                    error,
                })?
            };
            match read_tail(size_bytes, &tail) {
                Ok(Reading::Members(members)) => return Ok(Ok(members)),
                Ok(Reading::Needs { tail_bytes: needed }) => tail_bytes = needed,
                Err(damaged) => return Ok(Err(damaged)),
            }
        }
    }

    /// Writes tables of these objects to the lake. Returns them, newest first.
    async fn write_tables(&self, rows: BTreeMap<Bytes, Packed>) -> Result<Vec<Listed>, NotRebuilt> {
        let numbers = self.at_lake.tables().await?;
        let root = self.roots.read(self.name()).await.map_err(RebuildError::from)?;
        let next = root.map_or(0, |root| root.next);
        let mut number = next.max(numbers.last().map_or(0, |last| last + 1)) + FREE_NUMBERS;
        let mut tables = Vec::new();
        let mut table = TableBuilder::default();
        for (key, row) in rows {
            let row = Row::Packed(row);
            if table.add(&key, &row) == Err(Refused::Full) {
                tables.insert(
                    0,
                    self.write_table(std::mem::take(&mut table), number, &tables)
                        .await?,
                );
                number += 1;
                table.add(&key, &row)?;
            }
        }
        tables.insert(0, self.write_table(table, number, &tables).await?);
        Ok(tables)
    }

    async fn write_table(
        &self,
        mut table: TableBuilder,
        number: u64,
        older: &[Listed],
    ) -> Result<Listed, NotRebuilt> {
        let permit = self.roots.session().permit().ok_or(NotRebuilt::SessionOver)?;
        let place = Place {
            number,
            newer: Vec::new(),
            older: older.to_vec(),
        };
        let blocks = table.take();
        let finished = table.finish(&place)?;
        let (pieces, options) = (
            vec![blocks, finished.bytes],
            SendOptions::permitted_by(Some(&permit)),
        );
        self.at_lake.put_table(number, pieces, options).await?;
        Ok(finished.listed)
    }

    /// Lists twice, FENCE apart, until both lists agree: a lake may list late.
    async fn agreed<T, F>(&self, list: impl Fn() -> F) -> Result<Vec<T>, NotRebuilt>
    where
        T: PartialEq,
        F: Future<Output = Result<Vec<T>, CallError>>,
    {
        let mut before = list().await?;
        loop {
            sleep(self.fence).await;
            let listed = list().await?;
            if listed == before {
                return Ok(listed);
            }
            before = listed;
        }
    }
}

/// Returns the greatest number of rebuilds in the rows of tables.
fn rebuilds_of(tables: &[Arc<Table>]) -> Result<u16, DamagedBlock> {
    let mut greatest = 0;
    for table in tables {
        for entry in table.rows(Names::default()) {
            let sequence = match entry?.row {
                Row::Packed(packed) => packed.sequence,
                Row::Tombstone { sequence } => sequence,
            };
            greatest = greatest.max(rebuilds_in(sequence));
        }
    }
    Ok(greatest)
}

/// Adds the members of a pack that are newer than the objects of their names so far. A pack that was
/// rewritten and not removed yet has the same ones; then the newer pack counts.
fn add_members(newest: &mut BTreeMap<Bytes, Packed>, pack: Ulid, members: &[Member]) {
    for member in members {
        let row = Packed::new(pack, member);
        match newest.entry(member.key.clone()) {
            Entry::Vacant(free) => drop(free.insert(row)),
            Entry::Occupied(mut known) => {
                let so_far = known.get();
                if (so_far.sequence, so_far.pack) < (row.sequence, row.pack) {
                    known.insert(row);
                }
            }
        }
    }
}
