//! Opens the store: assembles its parts and recovers the blocks on the disk.

use std::sync::Arc;
use std::time::Duration;

use shoal_policy::NodeId;
use shoal_policy::route::Hierarchy;

use super::cache_events::CacheEvents;
use super::config::StoreConfig;
use super::counters::LiveCounters;
use super::disk::{Disk, DiskFault};
use super::draft::Drafts;
use super::eviction_log::EvictionLog;
use super::evictor::Evictor;
use super::folder::StoreError;
use super::health::DiskHealth;
use super::layers::Layers;
use super::ledger::Ledger;
use super::loader::Loader;
use super::maintenance::{Housekeeping, Maintenance};
use super::pinning::Pinning;
use super::publish::Publisher;
use super::recovery::{Recoverer, Recovery};
use super::removal::Removal;
use super::scrub::Scrub;
use super::signal::Signal;
use super::staging::Staging;
use super::watch::Watch;
use super::writers::{self, Writers};
use super::{Store, room_bytes};

/// Opening.
impl Store {
    /// Opens the store, rebuilds its index and starts its background work. Blocks while it reads footers.
    ///
    /// `mapped_bytes` bounds the bytes kept mapped for hits. `layers` is one on a node that caches alone; see
    /// [`Store::set_hierarchy`].
    ///
    /// # Errors
    ///
    /// Fails if the folder is in use, is not a store of this format, is too small, or cannot be used.
    pub fn open(
        config: &StoreConfig,
        mapped_bytes: u64,
        layers: usize,
    ) -> Result<(Arc<Self>, Recovery), StoreError> {
        Self::open_with(config, mapped_bytes, layers, None, writers::PATIENCE)
    }

    /// As [`Store::open`], with disk operations that fail if `fault` returns an error, and writers that wait
    /// up to `patience` for the end of a burst.
    ///
    /// # Errors
    ///
    /// Fails as [`Store::open`] does.
    pub fn open_with(
        config: &StoreConfig,
        mapped_bytes: u64,
        layers: usize,
        fault: Option<Arc<DiskFault>>,
        patience: Duration,
    ) -> Result<(Arc<Self>, Recovery), StoreError> {
        let failed = |action| StoreError::io(&config.path, action);
        let disk = Arc::new(Disk::open(&config.path, fault)?);
        let room_bytes = room_bytes(config, &disk)?;
        // The hierarchy of a single node, until another one is set.
        let hierarchy = Arc::new(Hierarchy::alone(NodeId(0)));
        let ledger = Ledger::new(
            room_bytes,
            config.pinned_share.part_of(room_bytes),
            mapped_bytes,
            config.policy.unwrap_or_default(),
            layers,
            &hierarchy,
        );
        let (store, staging) = Self::assemble(config, &disk, &Arc::new(ledger), &hierarchy, patience);
        let pins = store
            .pinning
            .recover(&store.node_folder().join("pins"), store.file_room());
        if let Err(error) = pins {
            return Err(StoreError::Journal {
                path: config.path.clone(),
                error,
            });
        }
        let recoverer = Recoverer {
            disk: &disk,
            ledger: &store.ledger,
            removal: &store.removal,
            staging: &staging,
            block_bytes: config.block_bytes,
        };
        let recovery = recoverer.recover().map_err(failed("read its folders"))?;
        store
            .maintenance
            .start(&store.housekeeping, &store.scrub, &store.writers)
            .map_err(failed("start its threads"))?;
        Ok((Arc::new(store), recovery))
    }

    /// Assembles the parts, each after those that it uses.
    fn assemble(
        config: &StoreConfig,
        disk: &Arc<Disk>,
        ledger: &Arc<Ledger>,
        hierarchy: &Arc<Hierarchy>,
        patience: Duration,
    ) -> (Self, Arc<Staging>) {
        let room = &Arc::new(Signal::default());
        let counters = &Arc::new(LiveCounters::default());
        let writers = &Arc::new(Writers::new(patience));
        let watch = &Arc::<Watch>::default();
        let log = &Arc::new(EvictionLog::new(counters, watch));
        let health = &Arc::new(DiskHealth::new(disk, counters));
        let layers = &Arc::new(Layers::new(ledger, hierarchy, room));
        let removal = &Arc::new(Removal::new(disk, ledger, health, counters, log, room));
        let evictor = &Arc::new(Evictor::new(ledger, removal, room));
        let pinning = &Arc::new(Pinning::new(ledger, health, log));
        let loader = &Arc::new(Loader::new(disk, ledger, health, removal));
        let staging = Staging::new(disk, ledger, health, evictor, removal, counters, room);
        let staging = &Arc::new(staging);
        let publisher = Publisher::new(ledger, staging, loader, writers, (log, watch), config.block_bytes);
        let publisher = &Arc::new(publisher);
        let drafts = Drafts::new(staging, publisher, writers, counters);
        let store = Self {
            capacity_bytes: config.capacity_bytes,
            disk: Arc::clone(disk),
            pinning: Arc::clone(pinning),
            ledger: Arc::clone(ledger),
            layers: Arc::clone(layers),
            health: Arc::clone(health),
            counters: Arc::clone(counters),
            eviction_log: Arc::clone(log),
            watch: Arc::clone(watch),
            cache_events: CacheEvents::new(ledger),
            removal: Arc::clone(removal),
            evictor: Arc::clone(evictor),
            loader: Arc::clone(loader),
            publisher: Arc::clone(publisher),
            drafts: Arc::new(drafts),
            scrub: Arc::new(Scrub::new(disk, ledger, health, loader, counters)),
            writers: Arc::clone(writers),
            housekeeping: Arc::new(Housekeeping::new(evictor, removal, layers, health, pinning)),
            maintenance: Maintenance::new(room),
        };
        (store, Arc::clone(staging))
    }
}
