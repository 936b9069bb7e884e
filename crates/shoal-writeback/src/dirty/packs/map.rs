//! The map of one rule, as this node has it: which objects are in which packs.
//!
//! The root in the registry lists the tables of the map. This node keeps them as files, shared by all
//! readers, and reads the root to find out if others have come. Two rules keep reads fresh (decision 0048):
//!
//! - a name that has an entry, but no dirty object in it, has changed within FENCE: it is read by a map at
//!   least as new as the number that was read with the entry;
//! - a name without an entry has not changed within FENCE: it is read by a map that was current less than
//!   half of FENCE ago, which leaves the read the other half.

use std::cmp::max;
use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, pending};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::StatusCode;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use shoal_base::encoding::Malformed;
use shoal_cache::write::PackSettings;
use shoal_net::endpoint::s3::CallError;
use shoal_pack::table::{BLOCKS_BYTES_MAX, DamagedBlock, Listed, Map, TAIL_BYTES_MAX, Table};
use shoal_registry::roots::{MapTable, Root, Roots};
use shoal_registry::{MapName, Moment};

use super::at_lake::{self, NotRead, PacksAtLake};
use super::files::{NotReceived, TableFiles};
use crate::dirty::record::manifest::location;
use crate::tier::{Damages, TierUnavailable};

/// Pause between two looks at the number of the map, so that few reads wait for a new table.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Pause before a damaged table is brought from the lake again.
const DAMAGE_PAUSE: Duration = Duration::from_secs(10);

/// The size of a table in bytes is less.
const TABLE_BYTES_MAX: u64 = BLOCKS_BYTES_MAX + 2 * TAIL_BYTES_MAX as u64;

/// Number of tables that are brought from the lake at a time.
const PARALLEL: usize = 4;

/// The remedy for a table that cannot be used.
const MEND_TABLE: &str = "restore the table at the lake, where a lifecycle rule or a person may have removed or \
                          changed it, or run `shoal pack rebuild --from-packs`";

/// The map of one rule.
pub(crate) struct PackMap {
    name: MapName,
    pub(crate) settings: Arc<PackSettings>,
    pub(super) roots: Roots,
    /// The packs and tables of the map.
    pub(crate) at_lake: PacksAtLake,
    pub(super) files: TableFiles,
    pub(super) fence: Duration,
    /// The packs and tables that are not as they were written.
    pub(crate) damages: Arc<Damages>,
    state: Mutex<State>,
    flight: Mutex<Option<Flight>>,
    /// Held while tables are brought, so that each comes once.
    loading: tokio::sync::Mutex<()>,
}

/// The parts of a node that a map uses.
pub(crate) struct MapParts {
    pub(crate) settings: Arc<PackSettings>,
    pub(crate) roots: Roots,
    pub(crate) at_lake: PacksAtLake,
    pub(crate) files: TableFiles,
    /// The time after which the lake can no longer carry out a request that its sender has abandoned.
    pub(crate) fence: Duration,
    pub(crate) damages: Arc<Damages>,
}

/// A name that was looked up in the registry together with the number of its map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// The number of the map; `None` if it has no tables.
    pub(crate) number: Option<u64>,
    /// True if the registry has an entry of the name.
    pub(crate) has_entry: bool,
    /// From before the registry was asked.
    pub(crate) at: Moment,
}

/// A map with its root.
#[derive(Clone, Debug)]
pub(crate) struct RootedMap {
    /// The root; `None` if the registry has none, and the lake no table.
    pub(crate) root: Option<Arc<Root>>,
    pub(crate) map: Arc<Map>,
}

/// The map cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum MapError {
    /// The registry does not answer.
    #[error(transparent)]
    Registry(#[from] TierUnavailable),
    /// The registry has lost the root, or changes of it.
    #[error(
        "the lake has table {table} of the packs below {below}, and the registry has no such table: it has lost \
         the map, or is another registry; run `shoal pack rebuild`"
    )]
    Lost {
        /// The newest table.
        table: u64,
        /// The prefix of the rule.
        below: String,
    },
    /// A table cannot be used.
    #[error("table {table} of the packs below {below} cannot be used: {why}")]
    Table {
        /// The table.
        table: u64,
        /// The prefix of the rule.
        below: String,
        /// The reason.
        why: Arc<str>,
        /// True if the lake does not have the table, or has another one.
        is_damage: bool,
    },
    /// A block of a table is damaged.
    #[error(transparent)]
    Block(#[from] DamagedBlock),
    /// A row was not written by Shoal.
    #[error("a row of the map of packs describes no object")]
    Row(#[from] Malformed),
    /// The lake does not list the tables.
    #[error("the lake does not list the tables of the packs below {below}: {why}")]
    Unlisted {
        /// The prefix of the rule.
        below: String,
        /// The reason.
        why: Arc<str>,
    },
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    /// Maps that were current before this are too old for a name that has an entry.
    needed: Option<Moment>,
    /// The last comparison of the registry with the tables at the lake.
    compared: Compared,
    /// The table that was damaged on this node's disk, and when that was noticed.
    forgotten: Option<(u64, Moment)>,
    /// The table that the lake did not have as it was written, and when it was asked.
    missing: Option<(MapError, Moment)>,
    /// The last error, for operators.
    trouble: Option<MapError>,
}

struct Held {
    map: RootedMap,
    /// The latest time at which the map is known to have been the newest.
    current_at: Moment,
}

/// The last comparison of the registry with the tables at the lake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Compared {
    #[default]
    Never,
    WithoutRoot,
    WithRoot,
}

/// A look at the root that is under way, for all who wait for it.
#[derive(Clone)]
struct Flight {
    began: Moment,
    outcome: Shared<BoxFuture<'static, Result<RootedMap, MapError>>>,
}

/// For readers.
impl PackMap {
    pub(crate) fn new(name: MapName, parts: MapParts) -> Self {
        Self {
            name,
            settings: parts.settings,
            roots: parts.roots,
            at_lake: parts.at_lake,
            files: parts.files,
            fence: parts.fence,
            damages: parts.damages,
            state: Mutex::default(),
            flight: Mutex::default(),
            loading: tokio::sync::Mutex::default(),
        }
    }

    /// The name of the map in the registry.
    pub(crate) fn name(&self) -> &MapName {
        &self.name
    }

    /// Takes note of the number that a lookup of a name has found. If the name has an entry,
    /// [`current`](Self::current) returns a map at least as new from now on.
    pub(crate) fn seen(&self, look: Look) {
        let mut state = self.state.lock();
        let State { held, needed, .. } = &mut *state;
        match held {
            Some(held) if held.number() == look.number => held.current_at = max(held.current_at, look.at),
            _ if look.has_entry => *needed = max(*needed, Some(look.at)),
            _ => {}
        }
    }

    /// Returns a map that is right about each name that was looked up before: it is at least as new as each
    /// number that was seen with an entry, and was current less than half of FENCE ago.
    ///
    /// # Errors
    ///
    /// There is no such map here. The lake must not be asked instead: it may have older objects.
    pub(crate) async fn current(self: &Arc<Self>) -> Result<Arc<Map>, MapError> {
        let needed = {
            let state = self.state.lock();
            let held = state.held.as_ref();
            let held = held.filter(|held| {
                let is_young = held.current_at.elapsed() < self.fence / 2;
                is_young && state.needed.is_none_or(|needed| held.current_at >= needed)
            });
            if let Some(held) = held {
                return Ok(Arc::clone(&held.map.map));
            }
            state.needed
        };
        Ok(self.looked_since(needed).await?.map)
    }

    /// Returns the map as it is after this call has begun, and its root.
    ///
    /// # Errors
    ///
    /// The registry does not answer, or the map is not whole.
    pub(crate) async fn newest(self: &Arc<Self>) -> Result<RootedMap, MapError> {
        self.looked_since(Some(Moment::now())).await
    }

    /// Returns the map of a root, which need not be the newest.
    ///
    /// # Errors
    ///
    /// The map is not whole.
    pub(crate) async fn load(&self, root: &Root) -> Result<Arc<Map>, MapError> {
        let listed: Vec<_> = root.tables.iter().map(listed).collect();
        let _loading = self.loading.lock().await;
        let tables = stream::iter(listed.clone()).map(|listed| self.table_listed(listed));
        let tables = tables.buffered(PARALLEL).try_collect().await?;
        let map = Map::new(&listed, tables).expect("each table is the one that is listed");
        Ok(Arc::new(map))
    }

    /// Returns the table with a number as the lake has it; `None` if it has none. For a table that was
    /// reserved, this is final once it can no longer appear.
    ///
    /// # Errors
    ///
    /// The lake does not answer, or the table is damaged.
    pub(crate) async fn table(&self, number: u64) -> Result<Option<Arc<Table>>, MapError> {
        let _loading = self.loading.lock().await;
        match self.receive(number, 0..=TABLE_BYTES_MAX).await {
            Ok(table) => Ok(Some(table)),
            Err(NotBrought::Read(NotRead::Gone)) => Ok(None),
            Err(error) => Err(self.unusable(number, &error)),
        }
    }

    /// Removes a table from this node's disk that turned out to be damaged there, so that the next map has it
    /// from the lake. A reader calls this, gets a map again, and gives up if that is damaged, too.
    pub(crate) fn forget(&self, damaged: &DamagedBlock) {
        let mut state = self.state.lock();
        let again = state.forgotten.filter(|(table, _)| *table == damaged.table);
        if again.is_some_and(|(_, at)| at.elapsed() < DAMAGE_PAUSE) {
            return;
        }
        tracing::warn!(%damaged, "a table of packs is damaged on this node's disk, and read from the lake again");
        state.forgotten = Some((damaged.table, Moment::now()));
        state.held = None;
        self.files.forget(damaged.table);
    }

    /// Looks at the number of the map each second, so that few reads wait for a new table.
    pub(crate) async fn keep_current(self: &Arc<Self>) -> Infallible {
        loop {
            let at = Moment::now();
            if let Ok(number) = self.roots.number(&self.name).await {
                let has_entry = true;
                self.seen(Look {
                    number,
                    has_entry,
                    at,
                });
                if let Err(error) = self.current().await {
                    tracing::debug!(%error, "a map of packs is not current");
                }
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }

    /// Returns the reason, for operators, why names of the map cannot be read.
    pub(crate) fn trouble(&self) -> Option<MapError> {
        self.state.lock().trouble.clone()
    }

    /// Returns the prefix of the rule, for messages to operators.
    pub(crate) fn below(&self) -> String {
        let (bucket, prefix) = self.name.parts();
        format!("s3://{}/{}", bucket.escape_ascii(), prefix.escape_ascii())
    }
}

/// Looks at the root.
impl PackMap {
    /// Returns the newest map of a look that began at `since` or later; any that is under way will do if that
    /// is `None`.
    async fn looked_since(self: &Arc<Self>, since: Option<Moment>) -> Result<RootedMap, MapError> {
        loop {
            let flight = self.join();
            let outcome = flight.outcome.await;
            if since.is_none_or(|since| flight.began >= since) {
                return outcome;
            }
        }
    }

    /// Returns the look that is under way, or a new one. It is a task of its own: a reader that hangs up does
    /// not cancel it for the others.
    fn join(self: &Arc<Self>) -> Flight {
        let mut flight = self.flight.lock();
        if let Some(flight) = flight.as_ref().filter(|flight| flight.outcome.peek().is_none()) {
            return flight.clone();
        }
        let (this, began) = (Arc::clone(self), Moment::now());
        let looking = tokio::spawn(async move { this.look().await });
        let outcome = async move {
            match looking.await {
                Ok(looked) => looked,
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                // The node stops.
                Err(_) => pending().await,
            }
        };
        let outcome = outcome.boxed().shared();
        flight.insert(Flight { began, outcome }).clone()
    }

    async fn look(&self) -> Result<RootedMap, MapError> {
        let looked = self.look_until_current().await;
        match &looked {
            // Operators see with its tier that the registry does not answer.
            Err(MapError::Registry(_)) => return looked,
            Err(MapError::Table {
                table,
                why,
                is_damage: true,
                ..
            }) => {
                let name = location(&self.at_lake.table(*table)).into();
                self.damages.note(&name, why.to_string(), MEND_TABLE);
            }
            _ => {}
        }
        self.state.lock().trouble = looked.as_ref().err().cloned();
        looked
    }

    async fn look_until_current(&self) -> Result<RootedMap, MapError> {
        let mut failed = None;
        loop {
            let at = Moment::now();
            let root = self.compared_root().await?;
            let number = number_of(root.as_deref());
            let loaded = match &root {
                Some(root) => self.load(root).await,
                None => Ok(Arc::default()),
            };
            match loaded {
                Ok(map) => {
                    // Many tables can take longer; then others may have come. These need not come again.
                    if at.elapsed() < self.fence / 2 {
                        return Ok(self.hold(RootedMap { root, map }, at));
                    }
                }
                // Tables that others replace are removed from the lake some time after.
                Err(MapError::Table { is_damage: true, .. }) if failed != Some(number) => {
                    failed = Some(number);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a map that was current at a time the one that reads use, unless a newer one came meanwhile.
    fn hold(&self, map: RootedMap, current_at: Moment) -> RootedMap {
        let mut state = self.state.lock();
        if state
            .held
            .as_ref()
            .is_none_or(|held| held.current_at <= current_at)
        {
            let tables = map.map.tables().iter().map(|table| table.listed());
            self.files.retain(&tables.collect::<Vec<_>>());
            let map = map.clone();
            state.held = Some(Held { map, current_at });
        }
        map
    }

    /// Reads the root, and compares it with the tables at the lake when this node first reads it, and when it
    /// is gone.
    async fn compared_root(&self) -> Result<Option<Arc<Root>>, MapError> {
        let root = self.root().await?;
        let compared = match &root {
            Some(_) => Compared::WithRoot,
            None => Compared::WithoutRoot,
        };
        let before = self.state.lock().compared;
        let root = match (before, compared) {
            (Compared::Never, _) | (Compared::WithRoot, Compared::WithoutRoot) => self.compare(root).await?,
            _ => root,
        };
        self.state.lock().compared = compared;
        Ok(root)
    }

    /// Checks that the registry knows of all tables that the lake has.
    ///
    /// # Errors
    ///
    /// It does not, or the lake does not list them.
    pub(super) async fn compare(&self, root: Option<Arc<Root>>) -> Result<Option<Arc<Root>>, MapError> {
        let tables = match self.at_lake.tables().await {
            Ok(tables) => tables,
            // The lake itself answers requests for a bucket that it does not have.
            Err(CallError::Refused(refusal)) if refusal.code() == "NoSuchBucket" => Vec::new(),
            Err(error) => {
                return Err(MapError::Unlisted {
                    below: self.below(),
                    why: unlisted(&error).into(),
                });
            }
        };
        let Some(table) = tables.last().copied() else {
            return Ok(root);
        };
        // A map that has ended may have left tables.
        let is_known = self.roots.has_given_out(&self.name, table).await;
        if !is_known.map_err(TierUnavailable::from)? {
            let below = self.below();
            return Err(MapError::Lost { table, below });
        }
        // The number may have been reserved since the root was read.
        self.root().await
    }

    async fn root(&self) -> Result<Option<Arc<Root>>, MapError> {
        let root = self.roots.read(&self.name).await;
        let root = root.map_err(TierUnavailable::from)?;
        Ok(root.map(Arc::new))
    }
}

/// Brings tables.
impl PackMap {
    async fn table_listed(&self, listed: Listed) -> Result<Arc<Table>, MapError> {
        if let Some(table) = self.files.find(&listed) {
            return Ok(table);
        }
        if let Some(error) = self.recently_missing(listed.number) {
            return Err(error);
        }
        let brought = self
            .receive(listed.number, listed.size_bytes..=listed.size_bytes)
            .await;
        let brought = brought.and_then(|table| {
            let is_it = table.listed() == listed;
            is_it.then_some(table).ok_or(NotBrought::Other)
        });
        brought.map_err(|error| self.unusable(listed.number, &error))
    }

    fn recently_missing(&self, number: u64) -> Option<MapError> {
        let state = self.state.lock();
        let (error, at) = state.missing.as_ref()?;
        let is_it = matches!(error, MapError::Table { table, .. } if *table == number);
        (is_it && at.elapsed() < DAMAGE_PAUSE).then(|| error.clone())
    }

    /// Receives a table whose size in bytes is in this range: a greater one must not take the room of blocks.
    async fn receive(&self, number: u64, bytes: RangeInclusive<u64>) -> Result<Arc<Table>, NotBrought> {
        let (client, name) = (self.at_lake.keeper(), self.at_lake.table(number));
        let (size_bytes, body) = at_lake::open(&client, &name).await?;
        if !bytes.contains(&size_bytes) {
            return Err(NotBrought::Other);
        }
        Ok(self.files.receive(size_bytes, body.into_data_stream()).await?)
    }

    /// Returns the error for a table that was not brought.
    fn unusable(&self, table: u64, error: &NotBrought) -> MapError {
        let is_damage = error.is_damage();
        let unusable = MapError::Table {
            table,
            below: self.below(),
            why: error.to_string().into(),
            is_damage,
        };
        if is_damage {
            self.state.lock().missing = Some((unusable.clone(), Moment::now()));
        }
        unusable
    }
}

/// A table was not brought from the lake.
#[derive(Debug, thiserror::Error)]
enum NotBrought {
    #[error(transparent)]
    Read(#[from] NotRead),
    #[error(transparent)]
    Received(#[from] NotReceived),
    #[error("the lake has another one than the registry lists")]
    Other,
}

impl NotBrought {
    /// Returns true if the lake does not have the table as it was written.
    fn is_damage(&self) -> bool {
        match self {
            Self::Read(error) => matches!(error, NotRead::Gone | NotRead::Wrong(_)),
            Self::Received(error) => matches!(
                error,
                NotReceived::Damaged(_) | NotReceived::DamagedBlock(_) | NotReceived::OtherLength
            ),
            Self::Other => true,
        }
    }
}

impl RootedMap {
    /// Returns the root, or that of a map that is about to begin.
    pub(crate) fn root_or_default(&self) -> Root {
        self.root.as_deref().cloned().unwrap_or_default()
    }
}

impl Held {
    fn number(&self) -> Option<u64> {
        number_of(self.map.root.as_deref())
    }
}

/// Returns the number that the registry keeps beside the root.
fn number_of(root: Option<&Root>) -> Option<u64> {
    let root = root.filter(|root| !root.tables.is_empty());
    root.map(|root| root.number)
}

/// Returns a table of a root as other tables list it.
pub(super) fn listed(table: &MapTable) -> Listed {
    Listed {
        number: table.number,
        size_bytes: table.size_bytes,
        checksum: table.checksum,
    }
}

fn unlisted(error: &CallError) -> String {
    match error {
        CallError::Refused(refusal) if refusal.status == StatusCode::FORBIDDEN => {
            "it refuses the keeper; let the identity in pack_as list and read below the prefix".into()
        }
        error => error.to_string(),
    }
}
