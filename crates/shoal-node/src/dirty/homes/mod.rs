//! Dirty objects on the disks of nodes: the home of a name orders what is done to it, other nodes ask that
//! node.
//!
//! ```text
//! committing   blocks on disk, and ahead of the rest at their homes in the last layer
//!    ▼
//! home         of the name: a manifest at both homes and at every holder ─▶ 200
//!    │ when it is due, on order, when room is short
//!    ▼
//! flushing     blocks ─▶ lake, ETag compared ─▶ manifest forgotten ─▶ blocks are like all others
//! ```
//!
//! What comes in parts is kept by `uploads` until it is complete, and is an object like others then. One
//! node, the home of its name, orders what happens to an object ([`Home`]); others ask that node
//! ([`Directory`]).

mod ahead;
mod committing;
mod desk;
mod directory;
mod drain;
mod flushing;
mod held;
mod home;
mod intake;
mod messenger;
mod page;
mod records;
mod request;
mod settling;
mod target;
mod uploads;
mod view;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::uri::PathAndQuery;
use shoal_store::{Store, StoreConfig};

pub use self::desk::Desk;
pub use self::held::Held;
pub use self::messenger::Answer;
pub use self::request::{PREFIX, Request};
pub use self::uploads::UploadRequest;

use self::directory::Directory;
use self::home::Home;
use self::records::Records;
use self::uploads::Uploads;
use super::lake_writer::LakeWriter;
use super::objects::Parts;
use crate::endpoint::Endpoint;
use crate::fetch::Fetcher;
use crate::shutdown::Shutdown;
use crate::write::OBJECT_PART_OF_CAPACITY;

/// Dirty blocks may take this part of a node's disk.
const DIRTY_PART_OF_CAPACITY: u64 = 4;

/// Dirty objects, as this node and its neighbours keep them.
pub struct Homes {
    directory: Directory,
    home: Arc<Home>,
    uploads: Uploads,
    lake: Arc<Endpoint>,
    store: Arc<Store>,
    fetcher: Arc<Fetcher>,
    block_bytes: u64,
    object_bytes_max: u64,
}

impl Homes {
    /// Finds on the disk what was dirty when the node stopped.
    pub(super) async fn open(parts: Parts, config: &StoreConfig, flush_interval: Duration) -> Self {
        let Parts {
            lake,
            store,
            fetcher,
            cooperation,
            grants,
            identities,
            rules: _,
        } = parts;
        let capacity_bytes = config.capacity_bytes;
        let limit_bytes = capacity_bytes / DIRTY_PART_OF_CAPACITY;
        let (me, aside_bytes) = (cooperation.me(), Arc::<AtomicU64>::default());
        let found = store.records().await.into_iter();
        let (of_uploads, of_objects) = found.partition(|(_, record)| Uploads::is_record(record));
        let uploads = Uploads::load(
            Arc::clone(&store),
            me,
            lake.url().into(),
            Arc::clone(&aside_bytes),
            of_uploads,
        );
        let uploads = uploads.await;
        let records = Records::load(Arc::clone(&store), me, limit_bytes, aside_bytes, of_objects).await;
        let lake_writer = LakeWriter::new(
            Arc::clone(&lake),
            Arc::clone(&store),
            Arc::clone(&fetcher),
            identities,
        );
        let home = Home::new(
            records,
            cooperation,
            lake_writer,
            grants,
            lake.url().into(),
            flush_interval,
        );
        let home = Arc::new(home);
        Self {
            directory: Directory(Arc::clone(&home)),
            home,
            uploads,
            lake,
            store,
            fetcher,
            block_bytes: config.block_bytes,
            object_bytes_max: capacity_bytes / OBJECT_PART_OF_CAPACITY,
        }
    }

    /// Whether nothing dirty is here.
    pub(super) fn is_empty(&self) -> bool {
        self.home.size().0 == 0 && self.uploads.open().is_empty() && self.uploads.held_bytes() == 0
    }

    /// Keeps this node sure of what it is home to, and brings dirty objects to the lake when they are due,
    /// until the node stops.
    pub(super) async fn run(self: &Arc<Self>, cooperates: bool, stopping: Shutdown) {
        let settled = Arc::clone(&self.home).keep_settled(cooperates, stopping.clone());
        let flushed = Arc::clone(&self.home).flush_when_due(stopping.clone());
        let pressed = self.heed_pressure(stopping.clone());
        let tidied = self.tidy_uploads(stopping);
        tokio::join!(settled, flushed, pressed, tidied);
    }

    /// Dirty blocks that are in the way of others go to the lake before their time.
    async fn heed_pressure(&self, stopping: Shutdown) {
        loop {
            tokio::select! {
                () = self.store.pressed() => self.home.hurry.notify_one(),
                () = stopping.begun() => return,
            }
        }
    }

    /// Whether a request of another node is about what is dirty.
    pub(super) fn is_asked(target: &PathAndQuery) -> bool {
        [PREFIX, uploads::PREFIX]
            .iter()
            .any(|prefix| target.path().starts_with(prefix))
    }

    /// Whether there is room for so many bytes more. If not, what is dirty is flushed before its time.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let has_room = !self.home.records.is_full(bytes);
        if !has_room {
            self.home.hurry.notify_one();
        }
        has_room
    }

    /// No dirty object may be larger.
    pub(super) fn object_bytes_max(&self) -> u64 {
        self.object_bytes_max
    }

    /// Where objects are found.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// What this node does for the names that are at home here.
    pub(super) fn home(&self) -> &Arc<Home> {
        &self.home
    }
}
