//! Blocks on this node's disk: files, index, checksums, recovery.
//!
//! A block of 32 KiB or more is a file that describes itself (`footer`): the data come first, so that a
//! mapped block starts on a page, then a footer. The file is written under a temporary name and renamed, so
//! that a block's name always refers to a complete block. Smaller blocks are entries of segments, files of 16
//! MiB that hold thousands of them and a table of contents (`segment`). `location` has the operations on a
//! block's bytes wherever they lie; no other part distinguishes the two. No code outside this crate deals
//! with these files: a block goes in as pieces and comes out as [`Bytes`].
//!
//! **A hit costs no I/O and no copy.** [`Store::resident`] returns slices of kept mappings whose pages
//! are in memory. Operations that might wait for the disk ([`Store::load`], [`Publisher::put`],
//! [`Store::describe`]) run on the blocking pool or on the threads of the writers.
//!
//! **Bytes are checked** when they come from the disk: every load and the scrub compare them with a checksum
//! that was computed from the pieces before they were written. A block just written is served from the pages
//! into which the kernel copied those pieces, so it needs no second check. A mismatch is a miss: the file
//! goes to quarantine and is counted, and the block is fetched again.
//!
//! **Capacity is a promise** about disk blocks, kept by [`shoal_policy::residency`]. Room is reserved before
//! a file is created and released when the file is gone from the disk; an unlinked file is gone when its last
//! reader is done. A segment takes its whole room from its creation on; of segments with little in use the
//! blocks are copied to others. The folders, the files' names, files being written and the quarantine count
//! too.
//!
//! **Nothing is synced.** A cache may lose data: blocks torn by a power failure are detected by footer or
//! checksum, and fetched again. No code may ever truncate or rewrite a block's data in place, see
//! `files::pages`; the folder is locked.
//!
//! **Memory.** A small object of one block takes less than 200 bytes in all maps; a kept mapping takes about
//! 300 bytes, a pinned object about 100 bytes.
//!
//! # Parts
//!
//! Each part uses those above it.
//!
//! | part | job |
//! |---|---|
//! | `files` | block files: what is in them, the folder that they lie in, their pages in memory |
//! | `ledger` | what is here, in memory: the index of blocks, their room, mappings, readers and pins |
//! | `ground` | these two, the health of the disk and why blocks are not here: what all others share |
//! | `appender` | the segment that small blocks are appended to |
//! | `eviction` | how blocks leave: layers, worths, room made for others, removal, quarantine |
//! | `pinning` | objects whose blocks stay; files of the node that are no blocks |
//! | `blocks` | blocks on their way from the disk and to it, and the threads that write |
//! | `upkeep` | the start, checks of all blocks, the background threads |

mod appender;
mod blocks;
mod config;
mod counters;
mod eviction;
mod files;
mod ground;
mod ledger;
mod pinning;
mod upkeep;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use shoal_policy::quotas::{QuotaId, QuotaIds, QuotaRoom};
use shoal_policy::{BlockId, ObjectId, VersionId};
use shoal_s3::object::Version;

pub use self::blocks::draft::Draft;
pub use self::blocks::publish::{Publisher, Storing};
pub use self::blocks::writers::Urgency;
pub use self::config::StoreConfig;
pub use self::counters::{Counters, PinCounts, RemovalReason, ScrubCounts};
pub use self::eviction::cache_events::{CacheEvent, CacheEvents};
pub use self::eviction::evictor::Evictor;
pub use self::eviction::layers::Layers;
pub use self::eviction::removal::Removal;
pub use self::eviction::worths::{Least, NextToLeave, Ranks, Worths};
pub use self::files::error::StoreError;
pub use self::files::mapped_files;
pub use self::ground::health::Health;
pub use self::ground::{Absence, BlockEvent};
pub use self::ledger::Kept;
pub use self::ledger::pin_orders::PinOrder;
pub use self::pinning::Pinning;
pub use self::pinning::file_room::FileRoom;
pub use self::pinning::journal;
pub use self::upkeep::recovery::Recovery;
pub use shoal_policy::eviction::layered::LayerRoom;

use self::blocks::loader::Loader;
use self::blocks::writers::Writers;
use self::files::disk::Disk;
use self::ground::Ground;
use self::ground::blocking::run_blocking;
use self::upkeep::maintenance::{self, Maintenance};

/// The blocks of this node.
///
/// The store assembles its parts, and gives them or delegates to them. A part owns its fields and its
/// locks.
///
/// Locks are taken in this order, and at most one of each: the journal of pins (`pinning`), a block's name
/// (`disk`) or the marks of a segment, the segment that is being filled (`appender`), the `ledger`, a shard
/// of the `mappings`. While a block is moved, the marks of its new segment may be locked after those of its
/// old one. No other two locks of the store are held at a time.
pub struct Store {
    /// The configured capacity. The ledger's is smaller by the room of the folders.
    capacity_bytes: u64,
    ground: Arc<Ground>,
    /// The layers of this node, which share the room.
    pub layers: Arc<Layers>,
    /// Block events to exchange with other nodes under C2P.
    pub cache_events: CacheEvents,
    /// The worths of the blocks under GWF.
    pub worths: Worths,
    /// The part that removes blocks.
    pub removal: Arc<Removal>,
    /// The part that makes room for blocks.
    pub evictor: Arc<Evictor>,
    /// The pins of objects.
    pub pinning: Arc<Pinning>,
    loader: Arc<Loader>,
    /// The part that stores blocks.
    pub publisher: Arc<Publisher>,
    writers: Arc<Writers>,
    maintenance: Maintenance,
}

/// Watching and closing.
impl Store {
    /// Calls `watcher` for each block that is stored or removed from now on, with its length in bytes. It
    /// runs on the threads that change the store, so it must not block. Later calls of `watch` have no
    /// effect.
    pub fn watch(&self, watcher: impl Fn(BlockId, u64, BlockEvent) + Send + Sync + 'static) {
        let _ = self.ground.watcher.set(Box::new(watcher));
    }

    /// Stops the background threads; stored blocks stay. The folder is unlocked once the last `Arc`, the last
    /// [`Draft`] and the last call are gone.
    pub async fn shutdown(&self) {
        let threads = self.maintenance.stop(&self.writers);
        run_blocking(move || threads.into_iter().for_each(maintenance::join)).await;
    }
}

/// Reading.
impl Store {
    /// Returns the block if its bytes are mapped and in memory. Never blocks on I/O. Reports a use to the
    /// policy if `is_used`; otherwise the use counts elsewhere.
    pub fn resident(&self, block: BlockId, is_used: bool) -> Option<Bytes> {
        self.ground.ledger.resident(block, is_used)
    }

    /// Reads the block from disk, verifies and maps it. `None` if it is not stored or is damaged. `is_used`
    /// as in [`Store::resident`].
    pub async fn load(&self, block: BlockId, is_used: bool) -> Option<Bytes> {
        if !self.contains(block) {
            return None;
        }
        read(&self.loader, move |loader| loader.load(block, is_used)).await
    }

    /// Returns true if the block is stored.
    pub fn contains(&self, block: BlockId) -> bool {
        self.ground.ledger.contains(block)
    }

    /// Returns true if the block is mapped, so that it can be a hit.
    pub fn is_mapped(&self, block: BlockId) -> bool {
        self.ground.ledger.mappings.contains(block)
    }

    /// Returns the lake's description of the latest stored version of `object`, read from the footer of one
    /// of its blocks.
    pub async fn describe(&self, object: ObjectId) -> Option<Arc<Version>> {
        self.ground.ledger.any_block_of(object)?;
        read(&self.loader, move |loader| loader.describe(object)).await
    }

    /// Returns the lake's description of the version that a block belongs to, read from the block's footer.
    /// `None` if the block is not stored.
    pub async fn version_of(&self, block: BlockId) -> Option<Arc<Version>> {
        read(&self.loader, move |loader| loader.version_of(block)).await
    }

    /// Returns the stored blocks of at least `data_bytes_min`, most recently used first: mapped blocks by
    /// last use (a use maps a block, so these were used after all others), then the others by the time at
    /// which their version was stored.
    pub async fn blocks_by_use(&self, data_bytes_min: u64) -> Vec<BlockId> {
        let ground = Arc::clone(&self.ground);
        run_blocking(move || ground.ledger.blocks_by_use(data_bytes_min))
            .await
            .unwrap_or_default()
    }

    /// Returns the indexes of the stored blocks of `version`, ascending.
    pub fn blocks_of(&self, version: VersionId) -> Vec<u32> {
        self.ground.ledger.lock().index.blocks_of(version)
    }

    /// Returns the indexes of the stored blocks of the newest stored version of an object, ascending.
    pub fn newest_blocks_of(&self, object: ObjectId) -> Vec<u32> {
        let state = self.ground.ledger.lock();
        let newest = state.index.newest(object);
        newest.map_or_else(Vec::new, |version| state.index.blocks_of(version))
    }

    /// Lets the blocks of an object leave before all others when room is needed, unless they are used again
    /// or pinned. Returns their number, without pinned ones.
    pub fn release(&self, object: ObjectId) -> u64 {
        self.ground.ledger.release(object)
    }

    /// Returns why a block is not stored; `None` if the store has no record of it.
    pub fn absence(&self, block: BlockId) -> Option<Absence> {
        self.ground.absences.lock().peek(&block).copied()
    }
}

/// Quotas.
impl Store {
    /// Replaces the quotas and their room in bytes. A quota that stays keeps its blocks; a block of one that
    /// is gone is like any other. Blocks of quotas that take more than their room leave in the background.
    pub fn set_quotas(&self, rooms: &[(QuotaId, u64)]) {
        self.ground.ledger.set_quotas(rooms);
        self.ground.maintenance.wake();
    }

    /// Returns what each quota allows and holds.
    pub fn quota_rooms(&self) -> Vec<QuotaRoom> {
        self.ground.ledger.quota_rooms()
    }

    /// Returns the quotas that a block counts in; none if it is not stored.
    pub fn quotas_of(&self, block: BlockId) -> QuotaIds {
        self.ground.ledger.quotas_of(block)
    }
}

/// Reads from the disk on a thread that may block.
async fn read<T: Send + 'static>(
    loader: &Arc<Loader>,
    work: impl FnOnce(&Loader) -> Option<T> + Send + 'static,
) -> Option<T> {
    let loader = Arc::clone(loader);
    run_blocking(move || work(&loader)).await.flatten()
}

/// Operation.
impl Store {
    /// The folder for the node's other files, which share the capacity with blocks, see [`FileRoom`].
    pub fn node_folder(&self) -> PathBuf {
        self.ground.disk.node_folder()
    }

    /// Returns whether the disk accepts new blocks.
    pub fn health(&self) -> Health {
        self.ground.health.current()
    }

    /// If writing is paused, probes the disk and resumes if it works again. Blocks; a background thread calls
    /// it regularly.
    pub fn probe(&self) -> Health {
        self.ground.health.probe(&self.ground.disk)
    }

    /// Returns a snapshot of all counters.
    pub fn counters(&self) -> Counters {
        self.ground.counters(self.capacity_bytes)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.maintenance.stop(&self.writers));
    }
}

/// Returns the room that a file of one full block takes.
fn block_charge_bytes(config: &StoreConfig, disk: &Disk) -> u64 {
    disk.charge_bytes(config.block_bytes + 4096)
}

/// Returns the room for files: the capacity minus the files that always exist.
fn room_bytes(config: &StoreConfig, disk: &Disk) -> Result<u64, StoreError> {
    // Room to write one block while another one is read and a third one is evicted.
    const BLOCKS_LEAST: u64 = 4;
    let fixed_bytes = disk
        .fixed_bytes()
        .map_err(StoreError::io(&config.path, "measure its folders"))?;
    let least_bytes = fixed_bytes + BLOCKS_LEAST * block_charge_bytes(config, disk);
    if config.capacity_bytes < least_bytes {
        return Err(StoreError::TooSmall {
            path: config.path.clone(),
            capacity_bytes: config.capacity_bytes,
            least_bytes,
        });
    }
    Ok(config.capacity_bytes - fixed_bytes)
}
