//! Blocks on this node's disk: files, index, checksums, recovery.
//!
//! One file holds one block and describes itself ([`footer`]): the data come first, so that a mapped block
//! starts on a page, then a footer. The file is written aside and renamed, so a name always stands for a
//! whole block. No code outside this module knows about files: a block goes in as pieces and comes out as
//! [`Bytes`].
//!
//! **A hit costs no I/O and no copy.** [`Store::get_resident`] hands out slices of kept mappings whose pages
//! are in memory. Operations that might wait for the disk ([`Store::load`], [`Store::put`],
//! [`Store::describe`]) run on the blocking pool or on the threads of the writers.
//!
//! **Bytes are checked** when they come from the disk: every load and the scrub compare them with a checksum
//! taken from the pieces before they were written. A block just written is served from the very pages that
//! the kernel copied those pieces into, so it needs no second check. A mismatch is a miss: the file goes to
//! quarantine and is counted, and the block is fetched again.
//!
//! **Capacity is a promise** about disk blocks, kept by [`shoal_policy::residency`]. Room is reserved before
//! a file is created and given back when the file is gone from the disk; an unlinked file that readers still
//! hold is gone when the last of them is done. The folders, the files' names, files being written and the
//! quarantine count too.
//!
//! **Nothing is flushed.** A cache may forget: blocks torn by a power failure are recognised by footer or
//! checksum, and fetched again. For the same reason no code may ever shorten or rewrite a block's data in
//! place, see [`mapping`]; the folder is locked.
//!
//! **Memory.** The index takes about 100 bytes a block and about 170 bytes a version; a kept mapping takes
//! about 300 bytes.

mod config;
mod counters;
mod disk;
mod draft;
mod eviction_log;
mod folder;
mod footer;
mod index;
mod layers;
mod ledger;
mod listing;
mod maintenance;
mod mapping;
mod mappings;
mod publish;
mod quarantine;
mod records;
mod recovery;
mod removal;
mod scrub;
mod writers;

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use shoal_policy::route::Hierarchy;
use shoal_policy::{BlockId, NodeId, ObjectId, VersionId};

pub use self::config::StoreConfig;
pub use self::counters::{Counters, RemovalReason};
pub use self::disk::{DiskFault, DiskOp};
pub use self::draft::Draft;
pub use self::eviction_log::Absence;
pub use self::folder::StoreError;
pub use self::records::Protection;
pub use self::recovery::Recovery;
pub use self::writers::Urgency;
pub use shoal_policy::eviction::layered::LayerRoom;

use self::counters::LiveCounters;
use self::disk::{Disk, ReadError};
use self::eviction_log::EvictionLog;
use self::folder::FolderLock;
use self::ledger::Ledger;
use self::maintenance::Maintenance;
use self::mapping::Mapping;
use self::mappings::Mappings;
use self::quarantine::Quarantine;
use self::records::Records;
use self::removal::PendingRemoval;
use self::writers::Writers;
use crate::clock;
use crate::s3::object::Version;

/// Number of locks on file names: publishing and unlinking the same name must not overlap.
const NAME_LOCKS: usize = 64;

/// The blocks of this node.
///
/// Locks are taken in this order, and at most one of each: a name, the ledger, a shard of the mappings. The
/// quarantine, the list of departing files and the rooms of records are locked with nothing else, except that
/// the ledger may be locked after the rooms.
pub struct Store {
    disk: Disk,
    block_bytes: u64,
    /// The configured capacity. The ledger's is smaller by the room of the folders.
    capacity_bytes: u64,
    ledger: Mutex<Ledger>,
    /// The ledger's hierarchy, for lookups without its lock.
    hierarchy: ArcSwap<Hierarchy>,
    mappings: Mappings,
    names: [Mutex<()>; NAME_LOCKS],
    departing: Mutex<Vec<PendingRemoval>>,
    quarantine: Mutex<Quarantine>,
    records: Records,
    /// Sequence number of the next block written.
    sequence: AtomicU64,
    /// Whether blocks may lie in layers that they do not belong to.
    misplaced: AtomicBool,
    paused: AtomicBool,
    health: Mutex<Health>,
    live: LiveCounters,
    eviction_log: EvictionLog,
    maintenance: Maintenance,
    writers: Writers,
    /// The last field, so that the folder is free only when nothing works in it any more.
    _claim: FolderLock,
}

/// Whether the disk takes new blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It takes blocks.
    Serving,
    /// It failed or is full: blocks are still read, none are written until a probe succeeds.
    Paused {
        /// The error of the disk.
        why: String,
    },
}

impl Store {
    /// Opens the store, rebuilds its index and starts its background work. Blocks while it reads footers.
    ///
    /// `mapped_bytes` bounds the bytes kept mapped for hits. `layers` is one on a node that caches alone; see
    /// [`Store::place`].
    pub fn open(
        config: &StoreConfig,
        mapped_bytes: u64,
        layers: usize,
    ) -> Result<(Arc<Self>, Recovery), StoreError> {
        Self::open_with(config, mapped_bytes, layers, None, writers::PATIENCE)
    }

    /// Opens the store on a disk that fails when `fault` says so, with writers that wait up to `patience` for
    /// a burst to be over.
    pub fn open_with(
        config: &StoreConfig,
        mapped_bytes: u64,
        layers: usize,
        fault: Option<Arc<DiskFault>>,
        patience: Duration,
    ) -> Result<(Arc<Self>, Recovery), StoreError> {
        let claim = folder::claim(&config.path)?;
        let failed = |action| {
            let path = config.path.clone();
            move |error| StoreError::Io { path, action, error }
        };
        let disk = Disk::new(config.path.clone(), fault).map_err(failed("create its folders"))?;
        let room_bytes = room_bytes(config, &disk)
            .map_err(failed("measure its folders"))?
            .map_err(|least_bytes| {
                let (path, capacity_bytes) = (config.path.clone(), config.capacity_bytes);
                StoreError::TooSmall {
                    path,
                    capacity_bytes,
                    least_bytes,
                }
            })?;
        // The hierarchy of a lone node, until another one is set.
        let hierarchy = Hierarchy::alone(NodeId(0));
        let mut store = Self {
            disk,
            block_bytes: config.block_bytes,
            capacity_bytes: config.capacity_bytes,
            ledger: Mutex::new(Ledger::new(
                room_bytes,
                mapped_bytes,
                config.policy,
                layers,
                hierarchy.clone().into(),
            )),
            hierarchy: ArcSwap::from_pointee(hierarchy),
            mappings: Mappings::new(),
            names: std::array::from_fn(|_| Mutex::new(())),
            departing: Mutex::default(),
            quarantine: Mutex::new(Quarantine::new(room_bytes)),
            records: Records::default(),
            sequence: AtomicU64::new(0),
            misplaced: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            health: Mutex::new(Health::Serving),
            live: LiveCounters::default(),
            eviction_log: EvictionLog::default(),
            maintenance: Maintenance::default(),
            writers: Writers::new(patience),
            _claim: claim,
        };
        let recovery = store.recover().map_err(failed("read its folders"))?;
        let store = Arc::new(store);
        Maintenance::start(&store).map_err(failed("start its threads"))?;
        Ok((store, recovery))
    }

    /// Returns the block, if its bytes can be had without waiting for the disk. Never blocks on I/O.
    pub fn get_resident(&self, block: BlockId) -> Option<Bytes> {
        let hit = self.mappings.get(block, clock::instant())?;
        if let Some(uses) = hit.uses {
            self.ledger.lock().touch(&uses);
        }
        Some(hit.bytes)
    }

    /// Returns the block, read from disk, verified and mapped. `None` if it is not here or is damaged.
    pub async fn load(self: &Arc<Self>, block: BlockId) -> Option<Bytes> {
        if !self.contains(block) {
            return None;
        }
        let store = Arc::clone(self);
        on_pool(move || store.load_now(block)).await.flatten()
    }

    /// Whether the block is here.
    pub fn contains(&self, block: BlockId) -> bool {
        self.ledger.lock().residency.contains(&block)
    }

    /// Whether the block is here and mapped, so that it can be a hit.
    pub fn is_mapped(&self, block: BlockId) -> bool {
        self.mappings.contains(block)
    }

    /// Returns the version of `object` that was stored last, among those that still have a block here.
    pub fn recall(&self, object: ObjectId) -> Option<VersionId> {
        self.ledger.lock().index.newest(object)
    }

    /// Returns the lake's description of the version that [`Store::recall`] names, read from the footer of
    /// one of its blocks.
    pub async fn describe(self: &Arc<Self>, object: ObjectId) -> Option<Arc<Version>> {
        self.recall(object)?;
        let store = Arc::clone(self);
        on_pool(move || store.describe_now(object)).await.flatten()
    }

    /// Returns the indexes of the blocks of `version` that are here, ascending.
    pub fn blocks_of(&self, version: VersionId) -> Vec<u32> {
        self.ledger.lock().index.blocks_of(version)
    }

    /// Whether the disk takes new blocks.
    pub fn health(&self) -> Health {
        self.health.lock().clone()
    }

    /// Returns a snapshot of all counts.
    pub fn counters(&self) -> Counters {
        let (resident_bytes, room_bytes, taken_bytes, blocks, (mapped_blocks, mapped_bytes)) = {
            let ledger = self.ledger.lock();
            let residency = &ledger.residency;
            let (room, taken) = (residency.capacity_bytes(), residency.taken_bytes());
            (
                residency.used_bytes(),
                room,
                taken,
                residency.len() as u64,
                ledger.mapped_size(),
            )
        };
        let live = &self.live;
        Counters {
            resident_bytes,
            taken_bytes: taken_bytes + (self.capacity_bytes - room_bytes),
            capacity_bytes: self.capacity_bytes,
            blocks,
            mapped_blocks,
            mapped_bytes,
            stored_blocks: live.stored_blocks.get(),
            evictions: live.evictions(),
            refusals: live.refusals(),
            corrupt_blocks: live.corrupt_blocks.get(),
            quarantined: live.quarantined.get(),
            io_errors: live.io_errors.get(),
            scrubbed_blocks: live.scrubbed_blocks.get(),
            scrub_passes: live.scrub_passes.get(),
            scrub_percent: live.scrub_percent.get(),
        }
    }

    /// Ends the background work; stored blocks stay. The folder is free for another node once the last `Arc`
    /// is dropped.
    pub async fn shutdown(&self) {
        let threads = self.stop();
        on_pool(move || threads.into_iter().for_each(maintenance::join)).await;
    }

    /// Tells the threads to end, and returns them so that the caller can wait for them.
    fn stop(&self) -> Vec<JoinHandle<()>> {
        self.maintenance.stop();
        self.writers.stop();
        self.maintenance.take_threads()
    }

    fn load_now(&self, block: BlockId) -> Option<Bytes> {
        let _pin = self.pin(block)?;
        // Another reader may have loaded it while this one waited for a thread.
        if let Some(bytes) = self.get_resident(block) {
            return Some(bytes);
        }
        match self.read_in(block) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.read_failed(block, &error);
                None
            }
        }
    }

    /// Reads a block through the page cache, where a failing disk is an error, and only then through a
    /// mapping.
    fn read_in(&self, block: BlockId) -> Result<Option<Bytes>, ReadError> {
        let (file, footer) = self.disk.open_block(block)?;
        self.disk.verify(&file, &footer)?;
        if let Some(mapping) = self.mappings.mapping(block) {
            mapping.populate()?;
            return Ok(self.mappings.refreshed(block, clock::instant()));
        }
        let mapping = Mapping::of(&file, footer.data_bytes as usize)?;
        Ok(self.keep_mapped(block, mapping))
    }

    /// Returns `None` if the block was invalidated in the meantime: its room may already belong to other
    /// blocks.
    fn keep_mapped(&self, block: BlockId, mapping: Mapping) -> Option<Bytes> {
        let length = mapping.as_ref().len() as u64;
        let mut ledger = self.ledger.lock();
        if !ledger.residency.contains(&block) {
            return None;
        }
        let bytes = self.mappings.insert(block, mapping, clock::instant());
        ledger.touch(&[block]);
        let unmapped = ledger.mapped(block, length, &self.mappings);
        drop(ledger);
        // Unmapping takes a while; no other thread should wait for it.
        drop(unmapped);
        Some(bytes)
    }

    fn describe_now(&self, object: ObjectId) -> Option<Arc<Version>> {
        loop {
            let block = {
                let ledger = self.ledger.lock();
                let version = ledger.index.newest(object)?;
                ledger.index.any_block_of(version)?
            };
            match self.disk.open_block(block) {
                Ok((_, footer)) => return Some(Arc::new(footer.version)),
                // The failed block left the index, so the next round tries another one.
                Err(error) if self.read_failed(block, &error) => {}
                Err(_) => return None,
            }
        }
    }

    /// Records what a failed read says about the block and about the disk. Returns `true` if the block was
    /// removed for it.
    fn read_failed(&self, block: BlockId, error: &ReadError) -> bool {
        let reason = match error {
            ReadError::Io(error) if is_exhaustion(error) => {
                self.live.io_errors.add(1);
                tracing::warn!(?block, %error, "a block could not be read for want of something other than the disk");
                return false;
            }
            // The disk works, and has another file there, or none.
            ReadError::Io(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::IsADirectory
                ) =>
            {
                RemovalReason::Unreadable
            }
            ReadError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                self.disk_failed("read a block", error);
                RemovalReason::Unreadable
            }
            ReadError::Io(_) | ReadError::Footer(_) | ReadError::OtherBlock | ReadError::Checksum => {
                RemovalReason::Corrupt
            }
        };
        self.condemn(block, reason, error);
        true
    }

    /// Marks the disk as failed: fills pause until [`Store::probe`] succeeds.
    fn disk_failed(&self, action: &str, error: &io::Error) {
        self.live.io_errors.add(1);
        let why = format!("{action}: {error}");
        let mut health = self.health.lock();
        if *health == Health::Serving {
            tracing::error!(
                why,
                "the store's disk fails; blocks are not stored until it works again"
            );
        }
        *health = Health::Paused { why };
        self.paused.store(true, Ordering::Release);
    }

    /// If fills are paused, asks the disk whether it works again. Blocks; the background work calls it
    /// regularly.
    pub fn probe(&self) -> Health {
        if self.paused.load(Ordering::Acquire) {
            match self.disk.probe() {
                Ok(()) => {
                    *self.health.lock() = Health::Serving;
                    self.paused.store(false, Ordering::Release);
                    tracing::info!("the store's disk works again");
                }
                Err(error) => self.disk_failed("write a file to see whether it works", &error),
            }
        }
        self.health()
    }

    fn pin(&self, block: BlockId) -> Option<Pin<'_>> {
        let here = self.ledger.lock().pin(block);
        here.then(|| Pin { store: self, block })
    }

    fn lock_name(&self, block: BlockId) -> MutexGuard<'_, ()> {
        self.names[(usize::from(disk::folder_of(block))) % NAME_LOCKS].lock()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}

/// A block that must not leave while it is read.
struct Pin<'a> {
    store: &'a Store,
    block: BlockId,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.store.ledger.lock().unpin(self.block);
    }
}

/// Returns the room for files: the capacity without the files that always exist. `Err` is the least capacity
/// that suffices.
fn room_bytes(config: &StoreConfig, disk: &Disk) -> io::Result<Result<u64, u64>> {
    // Room to write one block while another one is read, and a third one leaves.
    const BLOCKS_LEAST: u64 = 4;
    let fixed_bytes = disk.fixed_bytes()?;
    let least_bytes = fixed_bytes + BLOCKS_LEAST * disk.charge_bytes(config.block_bytes + 4096);
    if config.capacity_bytes < least_bytes {
        return Ok(Err(least_bytes));
    }
    Ok(Ok(config.capacity_bytes - fixed_bytes))
}

/// Whether the process, rather than the disk, lacks something.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN)
    )
}

/// Runs work that may wait for the disk on a thread where waiting does no harm. Returns `None` only when the
/// runtime is shutting down.
async fn on_pool<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => Some(value),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}
