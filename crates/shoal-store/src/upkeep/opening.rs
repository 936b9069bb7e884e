//! Opens the store: assembles its parts and recovers the blocks on the disk.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use shoal_policy::NodeId;
use shoal_policy::residency::FreeRoom;
use shoal_policy::route::Hierarchy;

use super::maintenance::Maintenance;
use super::recovery::{Recoverer, Recovery};
use crate::appender::{self, Appender};
use crate::blocks::loader::Loader;
use crate::blocks::publish::Publisher;
use crate::blocks::writers::{self, Writers};
use crate::config::StoreConfig;
use crate::eviction::cache_events::CacheEvents;
use crate::eviction::emptying::Emptying;
use crate::eviction::evictor::Evictor;
use crate::eviction::layers::Layers;
use crate::eviction::removal::Removal;
use crate::eviction::worths::Worths;
use crate::files::disk::{Disk, DiskFault};
use crate::files::error::StoreError;
use crate::ground::Ground;
use crate::ledger::Ledger;
use crate::pinning::Pinning;
use crate::pinning::file_room::FileRoom;
use crate::{Store, block_charge_bytes, room_bytes};

/// Opening.
impl Store {
    /// Opens the store, rebuilds its index and starts its background work. Blocks while it reads footers.
    ///
    /// `mapped_bytes` bounds the bytes kept mapped for hits. `layers` is one on a node that caches alone; see
    /// [`Layers::set_hierarchy`].
    ///
    /// # Errors
    ///
    /// Fails if the folder is in use, is not a store of this format, is too small, or cannot be used.
    pub fn open(
        config: &StoreConfig,
        mapped_bytes: u64,
        layers: usize,
    ) -> Result<(Arc<Self>, Recovery), StoreError> {
        open(config, mapped_bytes, layers, Conditions::default())
    }
}

/// Parameters that are fixed in a node, and that tests vary.
pub(crate) struct Conditions {
    /// Disk operations fail if this returns an error.
    pub(crate) fault: Option<Arc<DiskFault>>,
    /// How long writers wait for the end of a burst.
    pub(crate) patience: Duration,
    /// The size of segments, given the room for blocks.
    pub(crate) segment_bytes: fn(u64) -> Option<u64>,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            fault: None,
            patience: writers::PATIENCE,
            segment_bytes: appender::segment_bytes,
        }
    }
}

/// As [`Store::open`], under these conditions.
pub(crate) fn open(
    config: &StoreConfig,
    mapped_bytes: u64,
    layers: usize,
    conditions: Conditions,
) -> Result<(Arc<Store>, Recovery), StoreError> {
    let failed = |action| StoreError::io(&config.path, action);
    let disk = Disk::open(&config.path, conditions.fault)?;
    let room_bytes = room_bytes(config, &disk)?;
    // The hierarchy of a single node, until another one is set.
    let hierarchy = Arc::new(Hierarchy::alone(NodeId(0)));
    let ledger = Ledger::new(
        config.block_bytes,
        room_bytes,
        (u128::from(room_bytes) * u128::from(config.pinned_percent) / 100) as u64,
        mapped_bytes,
        config.policy.unwrap_or_default(),
        layers,
        &hierarchy,
    );
    let segment_bytes = (conditions.segment_bytes)(room_bytes);
    ledger.set_quotas(&config.quotas);
    ledger.keep_free(free_room(config, &disk, segment_bytes));
    let ground = Arc::new(Ground::new(disk, ledger));
    let appender = Appender::new(&ground, segment_bytes, config.block_bytes);
    let writers = Writers::new(conditions.patience);
    let store = assemble(config, ground, &hierarchy, appender, writers);
    let pins = store
        .pinning
        .recover(&store.node_folder().join("pins"), FileRoom::new(&store));
    if let Err(error) = pins {
        return Err(StoreError::Journal {
            path: config.path.clone(),
            error,
        });
    }
    let recoverer = Recoverer(&store.publisher);
    let recovery = recoverer.recover().map_err(failed("read its folders"))?;
    let store = Arc::new(store);
    let started = store.maintenance.start(&store);
    started.map_err(failed("start its threads"))?;
    // The room of a quota may have become smaller.
    store.ground.maintenance.wake();
    Ok((store, recovery))
}

/// Returns the room to keep free ahead of demand, given the size of segments if there are any.
fn free_room(config: &StoreConfig, disk: &Disk, segment_bytes: Option<u64>) -> FreeRoom {
    // Each of two threads writes a block, and some file systems allocate up to as much again for it.
    const BLOCKS: u64 = 4;
    // Blocks of the full length leave one at a time, and those of a hundredth of it by dozens.
    const BATCHES_A_BLOCK: u64 = 4;
    // The next segment takes all of its room at once.
    let segment_bytes = segment_bytes.map_or(0, |bytes| disk.charge_bytes(bytes));
    FreeRoom::Bytes {
        start_bytes: BLOCKS * block_charge_bytes(config, disk) + segment_bytes,
        batch_bytes: config.block_bytes / BATCHES_A_BLOCK,
    }
}

/// Assembles the parts, each after those that it uses.
fn assemble(
    config: &StoreConfig,
    ground: Arc<Ground>,
    hierarchy: &Arc<Hierarchy>,
    appender: Appender,
    writers: Writers,
) -> Store {
    let (appender, writers) = (Arc::new(appender), Arc::new(writers));
    let layers = Arc::new(Layers::new(&ground, hierarchy));
    let removal = Arc::new(Removal::new(&ground));
    let emptying = Emptying::new(&ground, &appender, &removal);
    let evictor = Arc::new(Evictor::new(&ground, &removal, emptying));
    let pinning = Arc::new(Pinning::new(&ground));
    let loader = Arc::new(Loader {
        ground: Arc::clone(&ground),
        removal: Arc::clone(&removal),
    });
    let publisher = Arc::new(Publisher {
        ground: Arc::clone(&ground),
        appender,
        evictor: Arc::clone(&evictor),
        removal: Arc::clone(&removal),
        loader: Arc::clone(&loader),
        writers: Arc::clone(&writers),
        block_bytes: config.block_bytes,
        sequence: AtomicU64::new(0),
    });
    Store {
        capacity_bytes: config.capacity_bytes,
        cache_events: CacheEvents(Arc::clone(&ground)),
        worths: Worths(Arc::clone(&ground)),
        maintenance: Maintenance::new(&ground.maintenance),
        ground,
        layers,
        removal,
        evictor,
        pinning,
        loader,
        publisher,
        writers,
    }
}
