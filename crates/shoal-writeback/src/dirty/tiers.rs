//! The tiers of a node: for each, its registry, its store of bytes, and this node's tasks.

pub(crate) mod entries;

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_cache::write::Uncached;
use shoal_net::endpoint::{BoxError, Endpoint};
use shoal_net::shutdown::Shutdown;
use shoal_policy::cleaning::Load;
use shoal_registry::changes::Changes;
use shoal_registry::engine::checked::Checked;
use shoal_registry::engine::embedded::{Embedded, OpenError};
use shoal_registry::engine::etcd::Etcd;
use shoal_registry::engine::{Engine, EngineError, Room};
use shoal_registry::names::Names;
use shoal_registry::receipts::ReceiptStore;
use shoal_registry::roots::Roots;
use shoal_registry::session::Session;
use shoal_registry::uploads::Uploads;
use shoal_registry::worker::{Pace, Worker};
use shoal_registry::{NodeList, age_of};
use shoal_s3::identity::NODE;
use shoal_s3::object::ObjectName;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use super::flush::cleaner::Cleaner;
use super::flush::flush_transfers::FlushTransfers;
use super::flush::pacing::Pacing;
use super::lake_writer::Shared;
use super::packs::Packs;
use super::stock::receipts::StoredReceipts;
use super::stock::status::{RegistryNearlyFull, TierPage, TierStatus};
use super::stock::survey::Survey;
use super::stock::sweep::Sweeper;
use super::stock::tier_store::TierStore;
use crate::tier::{ByteStore, EtcdConfig, RegistryConfig, TierConfig, TierUnavailable};

/// Other nodes consider this node dead if its session has not been renewed for this time.
pub(super) const SESSION: Duration = Duration::from_secs(10);

/// Pause between two renewals of the session.
const RENEWAL: Duration = Duration::from_secs(2);

/// Pause between two counts of dirty objects.
const COUNT_PAUSE: Duration = Duration::from_secs(2);

/// Pause between two surveys of the whole registry.
const SURVEY_PAUSE: Duration = Duration::from_mins(5);

/// The same while writes find no room.
const SURVEY_PAUSE_MIN: Duration = Duration::from_secs(5);

/// Pause between two updates of the cleaner's pace.
const PACE_PAUSE: Duration = Duration::from_secs(1);

/// The load of a lake whose requests are not limited.
const UNBOUNDED: Load = Load {
    requests_max: usize::MAX,
    clients_wait: false,
};

/// A tier, as one node uses it.
pub(super) struct Tier {
    pub(super) store: Arc<TierStore>,
    pub(super) names: Names,
    pub(super) uploads: Uploads,
    pub(super) changes: Arc<Changes>,
    pub(super) worker: Arc<Worker<Cleaner>>,
    session: Arc<Session>,
    /// The id of this node.
    pub(super) node: u64,
    pacing: Arc<Pacing>,
    /// The flushes in flight.
    pub(super) flushes: Arc<FlushTransfers>,
    lake: Arc<Endpoint>,
    sweeper: Sweeper,
    /// The size up to which the registry keeps the bytes of objects.
    inline_bytes: u64,
    /// True if writes and removals have receipts.
    has_receipts: bool,
    /// How full the registry was when it was last asked.
    room: Mutex<Option<Room>>,
    /// How operators make more room in it.
    remedy: &'static str,
    survey: Mutex<Survey>,
    /// Notified when a write has found no room.
    was_full: Notify,
    figures: Mutex<TierFigures>,
}

/// Counts for one tier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TierFigures {
    pub(super) objects: u64,
    pub(super) removals: u64,
    uploads: u64,
    /// The age of the oldest object that is not marked short-lived and not held.
    oldest: Option<Duration>,
}

/// The parts that all tiers of a node share.
#[derive(Clone)]
pub(super) struct TierParts {
    pub(super) shared: Arc<Shared>,
    /// The maps of all rules that pack.
    pub(super) packs: Arc<Packs>,
}

/// The settings that apply to each tier of a node.
#[derive(Clone, Copy, Debug)]
pub struct TierSettings {
    /// The latest time at which objects are flushed, and the largest number of parallel flushes.
    pub pace: Pace,
    /// The time after which the lake can no longer carry out a request that its sender has abandoned.
    pub fence: Duration,
    /// How long the lake's permission to write below a rule is remembered.
    pub permission: Duration,
}

/// A tier cannot be used: its registry or its store cannot work as configured.
#[derive(Debug, thiserror::Error)]
#[error("tier {tier}: {problem}")]
pub struct TierError {
    /// The name of the tier.
    pub tier: Arc<str>,
    /// The reason.
    pub problem: String,
}

impl TierError {
    /// Creates the error of a tier from its reason.
    pub fn new(tier: &str, problem: &impl ToString) -> Self {
        Self {
            tier: tier.into(),
            problem: problem.to_string(),
        }
    }
}

/// The registry of a tier, as one node uses it.
pub(super) struct TierRegistry {
    names: Names,
    session: Arc<Session>,
}

impl TierRegistry {
    /// Opens the registry of a tier. It need not be reachable yet.
    ///
    /// # Errors
    ///
    /// The settings are invalid, or the registry's folder is damaged or in use.
    pub(super) async fn open(
        (config, store): &(TierConfig, Arc<dyn ByteStore>),
        fence: Duration,
        shared: &Shared,
    ) -> Result<Self, TierError> {
        let name = &config.name;
        let engine = open_registry(name, &config.registry).await;
        let engine = engine.map_err(|error| TierError::new(name, &error))?;
        let receipts = Arc::new(StoredReceipts::new(Arc::clone(store), config.receipts));
        let receipts: Arc<dyn ReceiptStore> = receipts;
        let remedy = format!("shoal tier recover {name}");
        let engine: Arc<dyn Engine> = Arc::new(Checked::new(engine, Arc::clone(&receipts), remedy));
        let (node, folder) = (
            shared.parts.cache().cooperation.me.0,
            shared.parts.cache().store.node_folder(),
        );
        let names = Names::new(Arc::clone(&engine), node, fence).with_receipts(receipts);
        // The lock on the block store ensures that no other process uses the folder.
        let session = Session::new(engine, node, SESSION).kept_in(folder.join(format!("life-{name}")));
        Ok(Self {
            names,
            session: Arc::new(session),
        })
    }

    /// Returns the roots of the maps of packed objects.
    pub(super) fn roots(&self) -> Roots {
        Roots::new(self.names.clone(), Arc::clone(&self.session))
    }
}

impl Tier {
    /// Puts a tier together.
    pub(super) fn new(
        config: &TierConfig,
        TierRegistry { names, session }: TierRegistry,
        store: Arc<dyn ByteStore>,
        pace: Pace,
        TierParts { shared, packs }: TierParts,
    ) -> Self {
        let name: Arc<str> = config.name.as_str().into();
        let node = shared.parts.cache().cooperation.me.0;
        let changes = Arc::new(Changes::new(names.clone(), Arc::clone(&session)));
        let inline = Arc::clone(names.content_bytes());
        let store = TierStore::new(name, store, config.capacity_bytes, inline);
        let store = Arc::new(store);
        let pacing = Arc::new(Pacing::new(pace));
        let lake = Arc::clone(&shared.parts.cache().lake);
        let flushes = Arc::<FlushTransfers>::default();
        let cleaner = Cleaner {
            store: Arc::clone(&store),
            packs,
            pacing: Arc::clone(&pacing),
            takes_one_at_a_time: AtomicBool::default(),
            flushes: Arc::clone(&flushes),
            shared,
        };
        let worker = Worker::new(Arc::clone(&changes), cleaner, pace);
        Self {
            uploads: Uploads::new(names.clone()),
            sweeper: Sweeper::new(Arc::clone(&store), names.clone()),
            store,
            names,
            changes,
            worker,
            session,
            node,
            pacing,
            flushes,
            lake,
            inline_bytes: config.inline_bytes,
            has_receipts: config.receipts,
            room: Mutex::default(),
            remedy: remedy(&config.registry),
            survey: Mutex::default(),
            was_full: Notify::new(),
            figures: Mutex::default(),
        }
    }

    /// Keeps this node's session and runs the tier's tasks until the node stops. `covers` returns true if a
    /// rule lets an object of a name be dirty in this tier.
    pub(super) async fn run(&self, stopping: Shutdown, covers: impl Fn(&ObjectName) -> bool) {
        let trouble = |error: &EngineError| {
            TierUnavailable::because(error);
        };
        tokio::select! {
            () = self.keep_session() => {}
            probed = self.store.keep_probing() => match probed {},
            () = Arc::clone(&self.worker).run(trouble) => {}
            () = self.keep_counting() => {}
            surveyed = self.keep_surveying(covers) => match surveyed {},
            measured = self.store.keep_measuring(|| self.make_room()) => match measured {},
            () = self.keep_pacing() => {}
            swept = self.sweeper.run() => match swept {},
            swept = self.sweeper.run_for_receipts() => match swept {},
            () = stopping.begun() => {}
        }
        // Otherwise the other nodes must wait for the session to expire.
        if let Err(error) = self.session.close().await {
            tracing::debug!(%error, tier = %self.store.tier, "the session with the registry was not closed");
        }
    }

    async fn keep_session(&self) {
        let mut ticks = interval(RENEWAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.session.keep().await {
                TierUnavailable::because(&error);
            }
        }
    }

    /// Begins the session and probes the store, so that the node can write from its first request on. Neither
    /// need be available yet.
    ///
    /// # Errors
    ///
    /// The store would lose pieces, or would keep removed ones.
    pub(super) async fn begin(&self) -> Result<(), TierError> {
        if let Err(error) = self.session.keep().await {
            TierUnavailable::because(&error);
        }
        match self.store.probe().await {
            Err(error) if !error.is_outage => Err(TierError::new(&self.store.tier, &error)),
            _ => Ok(()),
        }
    }

    async fn keep_counting(&self) {
        loop {
            self.refresh().await;
            tokio::time::sleep(COUNT_PAUSE).await;
        }
    }

    /// Surveys the whole registry periodically. Logs once if there are objects that no rule covers.
    async fn keep_surveying(&self, covers: impl Fn(&ObjectName) -> bool) -> Infallible {
        loop {
            // In a full tier, every write that finds no room requests a survey.
            tokio::time::sleep(SURVEY_PAUSE_MIN).await;
            let pause = match Survey::of(&self.names, &covers).await {
                Ok(survey) => {
                    self.note(&survey);
                    SURVEY_PAUSE
                }
                Err(error) => {
                    tracing::debug!(%error, tier = %self.store.tier, "the registry was not surveyed");
                    COUNT_PAUSE
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.was_full.notified() => {}
            }
        }
    }

    /// Speeds up flushes and requests a survey, after a write has found no room.
    fn make_room(&self) {
        self.worker.hurry();
        self.was_full.notify_one();
    }

    fn note(&self, survey: &Survey) {
        self.names.content_bytes().set(survey.inline_bytes);
        let before = std::mem::replace(&mut *self.survey.lock(), survey.clone());
        if survey.uncovered > 0 && before.uncovered == 0 {
            tracing::warn!(
                tier = %self.store.tier, objects = survey.uncovered, example = ?survey.example,
                "dirty objects are in a tier that no rule names for them: reads do not find them before they are flushed"
            );
        }
    }

    /// Counts the dirty objects, and queries how full the registry is.
    pub(super) async fn refresh(&self) {
        match self.names.engine().room().await {
            Ok(room) => *self.room.lock() = Some(room),
            Err(error) => {
                tracing::debug!(%error, tier = %self.store.tier, "the registry's fill level is unknown");
            }
        }
        if let Ok(figures) = self.count().await {
            *self.figures.lock() = figures;
        }
    }

    pub(super) async fn count(&self) -> Result<TierFigures, EngineError> {
        let count = |list| self.names.count(list, self.node);
        // The list is ordered by id, and ids begin with the time of the write.
        let after = self.worker.held_last();
        let oldest = self.names.listed(NodeList::Dirty, self.node, after, 1).await?;
        Ok(TierFigures {
            objects: count(NodeList::Dirty).await? + count(NodeList::Short).await?,
            removals: count(NodeList::Removed).await?,
            uploads: count(NodeList::Uploads).await?,
            oldest: oldest.names.first().map(|listed| age_of(listed.id)),
        })
    }

    /// Updates the cleaner's pace once a second.
    async fn keep_pacing(&self) {
        let mut last = None;
        loop {
            self.pacing.died(self.names.take_deaths());
            self.flushes.set_urgent(self.store.fill().is_urgent());
            let pace = self.pace();
            if last != Some(pace) {
                self.worker.set_pace(pace);
                last = Some(pace);
            }
            tokio::time::sleep(PACE_PAUSE).await;
        }
    }

    /// Returns the current schedule of flushes.
    fn pace(&self) -> Pace {
        let load = self.lake.turns().map_or(UNBOUNDED, |turns| Load {
            requests_max: turns.limit(),
            clients_wait: turns.waiting_beside(NODE.id) > 0,
        });
        let fill = self.store.fill();
        Pace {
            holds: !fill.is_urgent() && self.check_room().is_ok(),
            ..self.pacing.pace(fill, load)
        }
    }

    /// Checks that this node may write into the tier: the registry is reachable and the store accepts pieces.
    ///
    /// # Errors
    ///
    /// The reason why it may not.
    pub(super) fn check_writable(&self) -> Result<(), Uncached> {
        self.check_registry()?;
        self.store.check()
    }

    /// Checks that the registry is reachable, and has room for what this node acknowledges. Removals, and
    /// objects whose bytes the registry keeps itself, need the store for their receipts only.
    ///
    /// # Errors
    ///
    /// The reason why it takes nothing.
    pub(super) fn check_registry(&self) -> Result<(), Uncached> {
        if self.session.owner().is_none() {
            return Err(Uncached::TierUnavailable);
        }
        self.check_room().map_err(|_| Uncached::RegistryFull)?;
        if self.has_receipts {
            self.store.check()
        } else {
            Ok(())
        }
    }

    /// Returns true if the registry is to keep the bytes of an object of this size, so that one commit writes
    /// it. From the half of its quota on, small objects are pieces in the store, so that their bytes do not
    /// fill it up.
    pub(super) fn keeps_inline(&self, size_bytes: u64) -> bool {
        let is_half_full = || self.room.lock().is_some_and(Room::is_half_full);
        size_bytes == 0 || size_bytes <= self.inline_bytes && !is_half_full()
    }

    /// Checks that the registry has room for a new change or upload.
    ///
    /// # Errors
    ///
    /// The remaining room is reserved for what makes room.
    pub(super) fn check_room(&self) -> Result<(), RegistryNearlyFull> {
        let room = self.room.lock().filter(|room| room.is_scarce());
        room.map_or(Ok(()), |room| {
            Err(RegistryNearlyFull {
                tier: Arc::clone(&self.store.tier),
                remedy: self.remedy,
                room,
            })
        })
    }

    /// Returns the state for operators.
    pub(super) fn status(&self) -> TierStatus {
        let (figures, fill, pace) = (*self.figures.lock(), self.store.fill(), self.pace());
        let (survey, room, failed) = (
            self.survey.lock().clone(),
            *self.room.lock(),
            self.worker.failed(),
        );
        let page = TierPage {
            name: self.store.tier.to_string(),
            reachable: self.session.owner().is_some(),
            objects: figures.objects,
            removals: figures.removals,
            bytes: fill.stored_bytes,
            capacity_bytes: fill.capacity_bytes,
            uploads: figures.uploads,
            upload_bytes: survey.upload_bytes,
            without_rule: survey.uncovered,
            registry_bytes: room.map(|room| room.used_bytes),
            registry_quota_bytes: room.map(|room| room.quota_bytes),
            oldest_seconds: figures.oldest.map(|age| age.as_secs()),
            age_seconds: pace.age.as_secs(),
            short_age_seconds: pace.short_age.as_secs(),
            parallel: pace.parallel,
            adopted_nodes: self.worker.adopted().len(),
            failed: failed.len(),
        };
        TierStatus {
            page,
            store_problem: self.store.problem(),
            is_full: self.store.is_full(),
            nearly_full: self.check_room().err(),
            without_rule: survey.example,
            upload_age: pace.upload_age,
            failed,
            swept: self.sweeper.total(),
        }
    }
}

/// Returns the remedy to show to operators of a full registry.
const fn remedy(registry: &RegistryConfig) -> &'static str {
    match registry {
        RegistryConfig::Embedded(_) => "make room on the disk of its folder",
        RegistryConfig::Etcd(_) => {
            "see that etcd compacts (--auto-compaction-retention), or raise --quota-backend-bytes, and \
             registry_quota with it"
        }
    }
}

/// Opens the engine of a tier's registry.
pub(super) async fn open_registry(tier: &str, config: &RegistryConfig) -> Result<Arc<dyn Engine>, BoxError> {
    match config {
        RegistryConfig::Embedded(folder) => {
            let folder = folder.clone();
            let opening = tokio::task::spawn_blocking(move || open_embedded(&folder));
            Ok(opening.await.expect("opening a registry does not panic")?)
        }
        RegistryConfig::Etcd(etcd) => Ok(Arc::new(Etcd::new(&of_tier(tier, etcd))?)),
    }
}

/// Returns the settings of a tier's registry in etcd, which several tiers can share.
fn of_tier(tier: &str, etcd: &EtcdConfig) -> EtcdConfig {
    let prefix = format!("shoal/{tier}/");
    EtcdConfig {
        prefix,
        ..etcd.clone()
    }
}

/// Opens a registry in a folder. All nodes of one process share it.
fn open_embedded(folder: &Path) -> Result<Arc<Embedded>, OpenError> {
    static OPEN: Mutex<Option<HashMap<PathBuf, Weak<Embedded>>>> = Mutex::new(None);
    let mut open = OPEN.lock();
    let open = open.get_or_insert_default();
    open.retain(|_, engine| engine.strong_count() > 0);
    if let Some(engine) = open.get(folder).and_then(Weak::upgrade) {
        return Ok(engine);
    }
    let engine = Arc::new(Embedded::open(folder)?);
    open.insert(folder.into(), Arc::downgrade(&engine));
    Ok(engine)
}

#[cfg(test)]
mod tests {
    use super::{EtcdConfig, of_tier};

    #[test]
    fn tiers_in_one_etcd_have_keys_of_their_own() {
        let etcd = EtcdConfig::at("http://etcd:2379");
        let of = |tier| of_tier(tier, &etcd);
        assert_eq!((&*of("a").prefix, &*of("b").prefix), ("shoal/a/", "shoal/b/"));
        assert_eq!(of("a").endpoints, etcd.endpoints);
    }
}
