//! The keeper of a map (decision 0048): merges tables, rewrites packs that are mostly dead, and removes from
//! the lake what no node needs any more. `shoal_policy::packing` decides, and one node at a time carries it
//! out.
//!
//! A second keeper would only do work twice: the root orders all changes of the map, and what nothing has
//! named for twice FENCE is not named again. Each keeper counts that time itself, from when it has first seen
//! an object of the lake without a name.

mod rewriting;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use shoal_base::send_permit::SendPermit;
use shoal_net::endpoint::s3::CallError;
use shoal_pack::table::{
    DamagedBlock, Live, Map, Names, Refused, RowCount, Table, TableBuilder, Tombstones, merge,
};
use shoal_policy::packing::{Leftovers, PackUse, packs_to_rewrite, tables_to_merge};
use shoal_registry::age_of;
use shoal_registry::roots::{Purpose, Root};
use shoal_s3::identity::Identities;
use shoal_s3::object::ObjectName;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use super::at_lake::ListedPack;
use super::commit::{MapChange, NotCommitted};
use super::map::{MapError, PackMap};

/// Pause between two looks at the root.
const PAUSE: Duration = Duration::from_secs(5);

/// Pause between two surveys, at least.
const SURVEY_PAUSE: Duration = Duration::from_mins(1);

/// A survey reads all rows of the map. The pause after it is as many times as long.
const SURVEY_PAUSES: u32 = 20;

/// The bytes of tables that are merged into one, at most. They are in memory.
const MERGED_BYTES_MAX: u64 = 256 << 20;

/// Number of packs that are rewritten after a survey, at most. Their rows are in memory.
const REWRITTEN_MAX: usize = 32;

/// Pause before a pack that could not be rewritten is rewritten again.
const RETRY_PAUSE: Duration = Duration::from_mins(10);

/// Keeps one map.
pub(crate) struct Keeper {
    map: Arc<PackMap>,
    /// The writers of packs are among them.
    identities: Arc<Identities>,
}

/// The state of a keeper, from when it became the keeper.
struct Watch {
    /// The origin of times.
    began: Instant,
    /// The bytes of tables that are merged into one, at most: fewer once a table turned out to be full.
    merged_bytes_max: u64,
    /// The rows of each table, as of the last survey.
    rows: BTreeMap<u64, RowCount>,
    /// The number of the map at the last survey.
    surveyed: Option<u64>,
    /// No survey begins earlier.
    rests_until: Instant,
    /// A survey may find something to remove then.
    next_removal: Option<Duration>,
    packs: Leftovers<Ulid>,
    tables: Leftovers<u64>,
    /// The reservation that the last survey has found.
    reservation: Option<Ulid>,
    /// Packs that could not be rewritten, and when they are rewritten again.
    not_rewritten: BTreeMap<Ulid, Instant>,
}

/// The map was not kept. The next attempt follows.
#[derive(Debug, thiserror::Error)]
enum NotKept {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Damaged(#[from] DamagedBlock),
    #[error(transparent)]
    Committed(#[from] NotCommitted),
    #[error("the lake does not list packs and tables: {0}")]
    Unlisted(#[from] CallError),
    #[error("the session of this node has ended")]
    SessionOver,
    #[error(
        "the lake has table {0}, which the registry has not given out: it has lost changes, or is another one, so \
         nothing is removed; run `shoal pack rebuild`"
    )]
    Newer(u64),
}

/// The result of a survey.
struct Survey {
    packs: Vec<ListedPack>,
    /// The numbers of the tables at the lake.
    tables: Vec<u64>,
    /// Read after both lists.
    root: Arc<Root>,
    map: Arc<Map>,
    live: Live,
}

impl Default for Watch {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            began: now,
            merged_bytes_max: MERGED_BYTES_MAX,
            rows: BTreeMap::new(),
            surveyed: None,
            rests_until: now,
            next_removal: None,
            packs: Leftovers::default(),
            tables: Leftovers::default(),
            reservation: None,
            not_rewritten: BTreeMap::new(),
        }
    }
}

impl Keeper {
    pub(crate) fn new(map: Arc<PackMap>, identities: Arc<Identities>) -> Self {
        Self { map, identities }
    }

    /// Keeps the map whenever no other node does, while this node runs.
    pub(crate) async fn run(&self) -> Infallible {
        let mut watch = None;
        loop {
            sleep(PAUSE).await;
            match self.map.roots.session().keep_map(self.map.name()).await {
                Ok(true) => {
                    if let Err(error) = self.keep(watch.get_or_insert_default()).await {
                        tracing::warn!(below = self.map.below(), %error, "the packs of a rule were not kept");
                    }
                }
                Ok(false) => watch = None,
                Err(error) => tracing::debug!(%error, "the keeper of a map is unknown"),
            }
        }
    }

    async fn keep(&self, watch: &mut Watch) -> Result<(), NotKept> {
        while self.merge_tables(watch).await? {}
        let newest = self.map.newest().await?;
        let Some(root) = newest.root else {
            // The map has not begun, or has ended. What is at the lake may be named by the next one.
            *watch = Watch::default();
            return Ok(());
        };
        if watch.is_survey_due(&root) {
            let began = Instant::now();
            watch.rests_until = began + SURVEY_PAUSE;
            self.tidy(watch).await?;
            watch.rests_until = Instant::now() + SURVEY_PAUSE.max(began.elapsed() * SURVEY_PAUSES);
        }
        Ok(())
    }

    fn permit(&self) -> Result<SendPermit, NotKept> {
        self.map.roots.session().permit().ok_or(NotKept::SessionOver)
    }

    /// Merges some tables into one, if there are enough. Returns true if there may be more.
    async fn merge_tables(&self, watch: &mut Watch) -> Result<bool, NotKept> {
        let map = self.map.newest().await?.map;
        let sizes: Vec<_> = map.tables().iter().map(|table| watch.size(table)).collect();
        let Some(range) = tables_to_merge(&sizes, watch.merged_bytes_max) else {
            return Ok(false);
        };
        let tables = map.tables()[range.clone()].to_vec();
        let replaced: Vec<_> = tables.iter().map(|table| table.place().number).collect();
        // Made before the number is reserved: other nodes commit tables meanwhile.
        let is_oldest = range.end == map.tables().len();
        let merging = spawn_blocking(move || merged(&tables, is_oldest));
        let table = match merging.await.expect("merging tables does not panic") {
            Ok(table) => table,
            Err(NotMerged::Full) => {
                watch.merged_bytes_max = sum(&sizes, range) / 2;
                return Ok(true);
            }
            Err(NotMerged::Damaged(damaged)) => return Err(self.damaged(damaged)),
        };
        let count = replaced.len();
        let change = move |map: &Map| {
            let oldest = map.tables().last().map(|table| table.place().number);
            // Tables only come before others, so those that were the oldest are, unless the map was rebuilt.
            if is_oldest && oldest != replaced.last().copied() {
                return Ok(MapChange::Nothing);
            }
            Ok(MapChange::Replace { replaced, table })
        };
        self.map.commit(Purpose::Upkeep, &self.permit()?, change).await?;
        tracing::debug!(
            below = self.map.below(),
            tables = count,
            "tables of packs were merged"
        );
        Ok(true)
    }

    /// Returns the error for a damaged table, which is then brought from the lake again.
    fn damaged(&self, damaged: DamagedBlock) -> NotKept {
        self.map.forget(&damaged);
        damaged.into()
    }

    /// Surveys the map and the lake, removes what no node needs, and rewrites packs.
    async fn tidy(&self, watch: &mut Watch) -> Result<(), NotKept> {
        let Some(survey) = self.survey().await? else {
            return Ok(());
        };
        self.remove(watch, &survey).await?;
        let rows = survey.map.tables().iter().zip(&survey.live.tables);
        watch.rows = rows.map(|(table, rows)| (table.place().number, *rows)).collect();
        watch.surveyed = Some(survey.root.number);
        // An ending map has fewer objects soon.
        if !survey.root.is_ending {
            self.rewrite_some(watch, &survey).await?;
        }
        Ok(())
    }

    /// Reads all of the map. Returns `None` if there is no root.
    async fn survey(&self) -> Result<Option<Survey>, NotKept> {
        // Listed first: the root, read after that, has given out the number of each table.
        let (packs, tables) = (self.map.at_lake.packs().await?, self.map.at_lake.tables().await?);
        let newest = self.map.newest().await?;
        let Some(root) = newest.root else {
            return Ok(None);
        };
        if let Some(newer) = tables.iter().find(|number| **number >= root.next) {
            return Err(NotKept::Newer(*newer));
        }
        let map = Arc::clone(&newest.map);
        let live = spawn_blocking(move || map.live())
            .await
            .expect("counting rows does not panic");
        Ok(Some(Survey {
            packs,
            tables,
            root,
            map: newest.map,
            live: live.map_err(|damaged| self.damaged(damaged))?,
        }))
    }

    /// Removes the packs and tables from the lake that no node needs any more.
    async fn remove(&self, watch: &mut Watch, survey: &Survey) -> Result<(), NotKept> {
        let (root, fence, now) = (&survey.root, self.map.fence, watch.began.elapsed());
        let packs = survey.packs.iter();
        // Both clocks may be wrong, but hardly both in the same way.
        let packs = packs
            .map(|pack| (pack.id, pack.age.min(age_of(pack.id))))
            .collect();
        let named = survey.live.packs.keys().copied().collect();
        let packs = watch.packs.look(&packs, named, now, fence);
        // A table that others have replaced, or that was not committed, is never listed again.
        let tables = survey
            .tables
            .iter()
            .map(|number| (*number, Duration::MAX))
            .collect();
        let listed = root.tables.iter().map(|table| table.number);
        let reserved = root.reservation.map(|reservation| reservation.number);
        let tables = watch
            .tables
            .look(&tables, listed.chain(reserved).collect(), now, fence);
        watch.next_removal = packs.next.into_iter().chain(tables.next).min();

        let token = root.reservation.map(|reservation| reservation.token);
        let is_lasting = token.is_some() && token == watch.reservation;
        watch.reservation = token;
        let at_lake = &self.map.at_lake;
        // A reservation that lasts is one of a dead node, and may still name packs that are old.
        let packs = packs.removed.iter().filter(|_| !is_lasting);
        let packs = packs.map(|id| at_lake.pack(*id));
        let tables = tables.removed.iter().map(|number| at_lake.table(*number));
        let unneeded: Vec<_> = packs.chain(tables).collect();
        if is_lasting || !unneeded.is_empty() {
            // The next survey looks again.
            watch.next_removal = Some(now);
        }
        self.remove_all(&unneeded).await
    }

    async fn remove_all(&self, names: &[ObjectName]) -> Result<(), NotKept> {
        if !names.is_empty() {
            let left = self.map.at_lake.remove_all(names, &self.permit()?).await;
            let (below, count) = (self.map.below(), names.len() - left);
            tracing::info!(below, count, "obsolete packs and tables were removed");
        }
        Ok(())
    }

    async fn rewrite_some(&self, watch: &mut Watch, survey: &Survey) -> Result<(), NotKept> {
        let now = Instant::now();
        watch.not_rewritten.retain(|_, until| *until > now);
        let packs = survey.packs.iter().filter_map(|pack| {
            Some(PackUse {
                pack: pack.id,
                bytes: pack.size_bytes,
                live_bytes: *survey.live.packs.get(&pack.id)?,
            })
        });
        let packs = packs_to_rewrite(packs.collect())
            .into_iter()
            .map(|pack| pack.pack);
        let packs = packs.filter(|pack| !watch.not_rewritten.contains_key(pack));
        let packs: BTreeSet<_> = packs.take(REWRITTEN_MAX).collect();
        if packs.is_empty() {
            return Ok(());
        }
        let failed = self.rewrite(Arc::clone(&survey.map), packs).await?;
        let until = Instant::now() + RETRY_PAUSE;
        watch
            .not_rewritten
            .extend(failed.into_iter().map(|pack| (pack, until)));
        Ok(())
    }
}

impl Watch {
    /// Returns true if a survey may find something new.
    fn is_survey_due(&self, root: &Root) -> bool {
        let is_changed = self.surveyed != Some(root.number);
        let has_unneeded = || self.next_removal.is_some_and(|at| self.began.elapsed() >= at);
        Instant::now() >= self.rests_until && (is_changed || has_unneeded())
    }

    /// Returns the size of a table without the rows that newer tables hide, as of the last survey.
    fn size(&self, table: &Table) -> u64 {
        let listed = table.listed();
        let rows = self.rows.get(&listed.number).filter(|rows| rows.all > 0);
        rows.map_or(listed.size_bytes, |rows| {
            (u128::from(listed.size_bytes) * u128::from(rows.found) / u128::from(rows.all)) as u64
        })
    }
}

/// Tables were not merged.
enum NotMerged {
    /// One table does not take their rows.
    Full,
    Damaged(DamagedBlock),
}

/// Merges tables, newest first, into one.
fn merged(tables: &[Arc<Table>], is_oldest: bool) -> Result<TableBuilder, NotMerged> {
    let tombstones = if is_oldest {
        Tombstones::Drop
    } else {
        Tombstones::Keep
    };
    let mut merged = TableBuilder::default();
    for entry in merge(tables, Names::default(), tombstones) {
        let entry = entry.map_err(NotMerged::Damaged)?;
        match merged.add(&entry.key, &entry.row) {
            Ok(()) => {}
            Err(Refused::Full) => return Err(NotMerged::Full),
            Err(refused) => unreachable!("rows of tables are valid and in order: {refused}"),
        }
    }
    Ok(merged)
}

fn sum(sizes: &[u64], range: Range<usize>) -> u64 {
    sizes[range].iter().sum()
}
