//! The tiers of a node: for each, its registry, its store of bytes, and this node's work in it.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_policy::cleaning::Fill;
use shoal_registry::changes::Changes;
use shoal_registry::engine::embedded::{Embedded, OpenError};
use shoal_registry::engine::etcd::{Etcd, SettingsError};
use shoal_registry::engine::{Engine, EngineError};
use shoal_registry::names::Names;
use shoal_registry::session::{Session, new_id};
use shoal_registry::uploads::Uploads;
use shoal_registry::worker::{Pace, Worker, age_of};
use shoal_registry::{Name, NodeList};
use shoal_s3::object::ObjectName;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use super::cleaner::{Cleaner, CleanerParts};
use super::pacing::Pacing;
use super::status::TierFigures;
use super::sweep::Sweeper;
use crate::shutdown::Shutdown;
use crate::tier::{
    ByteStore, PasswordError, ProbeError, RegistryConfig, StoreError, TierConfig, TierUnavailable,
};

/// Other nodes take this node for dead when the registry has not heard from it for this time.
const SESSION: Duration = Duration::from_secs(10);

/// The pause between two renewals of the session.
const RENEWAL: Duration = Duration::from_secs(2);

/// The pause between two probes of a store that has not passed yet.
const PROBE_PAUSE: Duration = Duration::from_secs(5);

/// The pause between two counts of what is dirty.
const COUNT_PAUSE: Duration = Duration::from_secs(2);

/// The pause between two looks at the pace of the cleaner.
const PACE_PAUSE: Duration = Duration::from_secs(1);

/// The pause between two looks at how full the store is.
const FILL_PAUSE: Duration = Duration::from_mins(5);

/// The same while the store seems to be full.
const FULL_PAUSE: Duration = Duration::from_secs(2);

/// The number of pieces on a page of the store's listing.
const LIST_PAGE: usize = 1000;

/// A tier, as one node uses it.
pub(super) struct Tier {
    /// The name in the configuration.
    pub(super) name: Arc<str>,
    pub(super) store: Arc<dyn ByteStore>,
    pub(super) names: Names,
    pub(super) uploads: Uploads,
    pub(super) changes: Arc<Changes>,
    pub(super) worker: Arc<Worker<Cleaner>>,
    session: Arc<Session>,
    /// The id of this node.
    pub(super) node: u64,
    capacity_bytes: u64,
    stored: Arc<StoredBytes>,
    pacing: Arc<Pacing>,
    sweeper: Sweeper,
    /// Whether the store has passed its probe.
    is_probed: AtomicBool,
    /// Notified when a write finds no room.
    full: Notify,
    figures: Mutex<TierFigures>,
}

/// The bytes in a tier's store, as far as this node knows: those of the last listing, and this node's own
/// writes and removals since.
#[derive(Debug, Default)]
pub(super) struct StoredBytes(AtomicU64);

impl StoredBytes {
    pub(super) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, bytes: u64) {
        let less = |stored: u64| Some(stored.saturating_sub(bytes));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The settings of a node that concern each of its tiers.
#[derive(Clone, Copy, Debug)]
pub struct TierSettings {
    /// When objects go to the lake at the latest, and how many at a time at most.
    pub pace: Pace,
    /// The time after which the lake does not carry out a request that no node waits for.
    pub fence: Duration,
    /// How long the lake's permission to write below a rule is remembered.
    pub permission: Duration,
}

/// Why a tier cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    /// The embedded registry.
    #[error("tier {tier}: {error}")]
    Embedded {
        /// The name of the tier.
        tier: Arc<str>,
        /// The reason.
        error: OpenError,
    },
    /// The settings of etcd.
    #[error("tier {tier}: {error}")]
    Etcd {
        /// The name of the tier.
        tier: Arc<str>,
        /// The reason.
        error: SettingsError,
    },
    /// The password for etcd.
    #[error("tier {tier}: {error}")]
    Password {
        /// The name of the tier.
        tier: Arc<str>,
        /// The reason.
        error: PasswordError,
    },
    /// The store of bytes.
    #[error("tier {tier}: {problem}")]
    Store {
        /// The name of the tier.
        tier: Arc<str>,
        /// The reason.
        problem: String,
    },
}

impl Tier {
    /// Opens the registry of a tier. The registry need not answer yet.
    ///
    /// # Errors
    ///
    /// The settings cannot work, or the registry's folder is damaged or in use.
    pub(super) async fn open(
        config: &TierConfig,
        store: Arc<dyn ByteStore>,
        node: u64,
        TierSettings { pace, fence, .. }: TierSettings,
        cleaner: CleanerParts,
    ) -> Result<Self, TierError> {
        let name: Arc<str> = config.name.as_str().into();
        let engine = open_registry(&name, &config.registry).await?;
        let names = Names::new(Arc::clone(&engine), node, fence);
        let session = Arc::new(Session::new(engine, node, SESSION));
        let changes = Arc::new(Changes::new(names.clone(), Arc::clone(&session)));
        let stored = Arc::<StoredBytes>::default();
        let pacing = Arc::new(Pacing::new(pace));
        let learns = (Arc::clone(&stored), Arc::clone(&pacing));
        let cleaner = Cleaner::new(Arc::clone(&store), learns, cleaner);
        let worker = Worker::new(
            names.clone(),
            (Arc::clone(&session), Arc::clone(&changes)),
            cleaner,
            node,
            pace,
        );
        let sweeper = Sweeper::new(
            Arc::clone(&name),
            Arc::clone(&store),
            names.clone(),
            Arc::clone(&stored),
        );
        Ok(Self {
            uploads: Uploads::new(names.clone()),
            name,
            store,
            names,
            changes,
            worker,
            session,
            node,
            capacity_bytes: config.capacity_bytes,
            stored,
            pacing,
            sweeper,
            is_probed: AtomicBool::new(false),
            full: Notify::new(),
            figures: Mutex::default(),
        })
    }

    /// Keeps this node's session, and works off its lists, until the node stops.
    pub(super) async fn run(&self, stopping: Shutdown) {
        let trouble = |error: &EngineError| {
            TierUnavailable::because(error);
        };
        tokio::select! {
            () = self.keep_session() => {}
            () = self.keep_probing() => {}
            () = Arc::clone(&self.worker).run(trouble) => {}
            () = self.keep_counting() => {}
            () = self.keep_measuring() => {}
            () = self.keep_pacing() => {}
            swept = self.sweeper.run() => match swept {},
            () = stopping.begun() => {}
        }
        // Otherwise the other nodes wait for the session to end by itself.
        if let Err(error) = self.session.close().await {
            tracing::debug!(%error, tier = %self.name, "the session with the registry was not closed");
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

    /// Begins the session and probes the store, so that the node can write from its first request on. The
    /// registry and the store need not answer now.
    ///
    /// # Errors
    ///
    /// The store would lose pieces, or keep those that are removed.
    pub(super) async fn begin(&self) -> Result<(), TierError> {
        if let Err(error) = self.session.keep().await {
            TierUnavailable::because(&error);
        }
        match self.probe().await {
            Err(error) if !error.is_outage => Err(TierError::Store {
                tier: Arc::clone(&self.name),
                problem: error.to_string(),
            }),
            _ => Ok(()),
        }
    }

    async fn probe(&self) -> Result<(), ProbeError> {
        let probed = self.store.probe().await;
        match &probed {
            Ok(()) => self.is_probed.store(true, Ordering::Relaxed),
            Err(error) => tracing::warn!(tier = %self.name, %error, "a tier takes no writes"),
        }
        probed
    }

    /// Probes the store until it passes. Until then the tier takes no writes.
    async fn keep_probing(&self) {
        while !self.is_probed.load(Ordering::Relaxed) {
            tokio::time::sleep(PROBE_PAUSE).await;
            let _ = self.probe().await;
        }
        std::future::pending::<()>().await;
    }

    async fn keep_counting(&self) {
        loop {
            self.refresh().await;
            tokio::time::sleep(COUNT_PAUSE).await;
        }
    }

    /// Counts what is dirty.
    pub(super) async fn refresh(&self) {
        if let Ok(figures) = self.count().await {
            *self.figures.lock() = figures;
        }
    }

    async fn count(&self) -> Result<TierFigures, EngineError> {
        let count = |list| self.names.count(list, self.node);
        // The list is in the order of ids, which begin with the time of the write.
        let oldest = self.names.listed(NodeList::Dirty, self.node, None, 1).await?;
        Ok(TierFigures {
            objects: count(NodeList::Dirty).await? + count(NodeList::Short).await?,
            uploads: count(NodeList::Uploads).await?,
            oldest: oldest.names.first().map(|(id, _)| age_of(*id)),
        })
    }

    /// Has the cleaner follow what happens.
    async fn keep_pacing(&self) {
        let mut last = None;
        loop {
            self.pacing.died(self.names.take_deaths());
            let pace = self.pace();
            if last != Some(pace) {
                self.worker.set_pace(pace);
                last = Some(pace);
            }
            tokio::time::sleep(PACE_PAUSE).await;
        }
    }

    /// When objects go to the lake now.
    pub(super) fn pace(&self) -> Pace {
        self.pacing.pace(Fill {
            stored_bytes: self.stored.bytes(),
            capacity_bytes: self.capacity_bytes,
        })
    }

    /// Learns how full the store is. Pieces of other nodes are not counted otherwise.
    async fn keep_measuring(&self) {
        loop {
            match self.measure().await {
                Ok(bytes) => self.stored.set(bytes),
                Err(error) => tracing::debug!(%error, tier = %self.name, "the tier was not measured"),
            }
            tokio::select! {
                () = tokio::time::sleep(FILL_PAUSE) => {}
                () = self.full.notified() => tokio::time::sleep(FULL_PAUSE).await,
            }
        }
    }

    async fn measure(&self) -> Result<u64, StoreError> {
        let (mut bytes, mut after) = (0, None::<Arc<str>>);
        loop {
            let page = self.store.list(after.as_deref(), LIST_PAGE).await?;
            bytes += page.pieces.iter().map(|piece| piece.size_bytes).sum::<u64>();
            match page.pieces.last() {
                Some(last) if !page.is_last => after = Some(Arc::clone(&last.key)),
                _ => return Ok(bytes),
            }
        }
    }

    /// Whether the registry has heard from this node.
    pub(super) fn is_reachable(&self) -> bool {
        self.session.owner().is_some()
    }

    /// Whether this node may write into the tier.
    pub(super) fn takes_writes(&self) -> bool {
        self.is_reachable() && self.is_probed.load(Ordering::Relaxed)
    }

    /// Whether there is room for so many bytes more.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let is_fit = self.stored.bytes().saturating_add(bytes) <= self.capacity_bytes;
        if !is_fit {
            self.worker.hurry();
            self.full.notify_one();
        }
        is_fit
    }

    /// No object may be larger.
    pub(super) fn object_bytes_max(&self) -> u64 {
        self.capacity_bytes.min(crate::tier::PIECE_BYTES_MAX)
    }

    /// Counts the dirty objects that this node wrote.
    pub(super) async fn dirty_objects(&self) -> Result<u64, EngineError> {
        Ok(self.count().await?.objects)
    }

    pub(super) fn figures(&self) -> TierFigures {
        *self.figures.lock()
    }

    pub(super) const fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// The bytes in the store.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored.bytes()
    }

    /// Notes bytes that this node has written.
    pub(super) fn note_stored(&self, bytes: u64) {
        self.stored.add(bytes);
    }

    /// Removes bytes that no entry names. A sweep removes the rest later.
    pub(super) async fn discard(&self, keys: &[Arc<str>]) {
        match self.store.remove(keys).await {
            Ok(()) => self.stored.remove(keys.iter().map(|key| size_in(key)).sum()),
            Err(error) => tracing::debug!(%error, ?keys, "bytes without an object stay in the tier"),
        }
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The name of an object as registries spell it.
pub(super) fn registry_name(name: &ObjectName) -> Name {
    Name::new(&name.bucket, &name.key)
}

/// Inverse of [`registry_name`]. `None` if no object is called so.
pub(super) fn object_name(name: &Name) -> Option<ObjectName> {
    let (bucket, key) = name.parts();
    Some(ObjectName {
        bucket: std::str::from_utf8(bucket).ok()?.into(),
        key: key.into(),
        version: None,
    })
}

/// A new key for bytes. It tells how many there are, and when the write began.
pub(super) fn new_key(size_bytes: u64) -> Arc<str> {
    format!("{size_bytes:x}-{}", new_id()).into()
}

/// The number of bytes under a key.
pub(super) fn size_in(key: &str) -> u64 {
    let digits = key.split('-').next().unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or_default()
}

async fn open_registry(tier: &Arc<str>, config: &RegistryConfig) -> Result<Arc<dyn Engine>, TierError> {
    match config {
        RegistryConfig::Embedded(folder) => {
            let folder = folder.clone();
            let opening = tokio::task::spawn_blocking(move || open_embedded(&folder));
            let opened = opening.await.expect("opening a registry does not panic");
            opened
                .map(|embedded| embedded as Arc<dyn Engine>)
                .map_err(|error| {
                    let tier = Arc::clone(tier);
                    TierError::Embedded { tier, error }
                })
        }
        RegistryConfig::Etcd(etcd) => {
            let settings = etcd.settings(tier).map_err(|error| TierError::Password {
                tier: Arc::clone(tier),
                error,
            })?;
            let etcd = Etcd::new(&settings).map_err(|error| TierError::Etcd {
                tier: Arc::clone(tier),
                error,
            })?;
            Ok(Arc::new(etcd))
        }
    }
}

/// Opens a registry in a folder. The nodes of one process share it.
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
    use shoal_s3::object::ObjectName;

    use super::{StoredBytes, new_key, object_name, registry_name, size_in};

    #[test]
    fn a_key_tells_how_many_bytes_are_under_it() {
        for size_bytes in [0, 1, 4096, 5 << 30] {
            assert_eq!(size_in(&new_key(size_bytes)), size_bytes);
        }
        assert_eq!(size_in("no key"), 0);
        assert_ne!(new_key(1), new_key(1));
    }

    #[test]
    fn a_name_in_a_registry_is_that_of_its_object() {
        let name = ObjectName {
            bucket: "b".into(),
            key: b"x//\xff".as_slice().into(),
            version: None,
        };
        assert_eq!(object_name(&registry_name(&name)), Some(name));
    }

    #[test]
    fn no_more_bytes_are_removed_than_are_known() {
        let stored = StoredBytes::default();
        stored.add(5);
        stored.remove(7);
        assert_eq!(stored.bytes(), 0);
    }
}
