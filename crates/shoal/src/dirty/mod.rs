//! Objects that were acknowledged before the lake has them (D3N, IV; dissertation 4.4): *dirty* ones, for data that can be made again.
//!
//! ```text
//! PUT ─▶ writing      may the writer? ─▶ blocks on disk, and ahead of the rest at their homes in the last layer
//!          ▼
//!        home         of the name: a manifest at both homes and at every holder ─▶ 200
//!          │ when it is due, on order, when room is short
//!          ▼
//!        flushing     blocks ─▶ lake, ETag compared ─▶ manifest forgotten ─▶ blocks are like all others
//! ```
//!
//! What comes in parts is kept by `uploads` until it is complete, and is an object like others then.
//!
//! A [`Manifest`] makes an object exist. One node, the home of its name, orders what happens to it ([`Home`]); others ask that
//! node ([`Directory`]). `docs/explanation/write-back.md` holds the reasons.

mod ahead;
mod checksums;
mod desk;
mod directory;
mod drain;
mod fates;
mod flushing;
mod held;
mod home;
mod intake;
mod lake_upload;
mod listing;
mod manifest;
mod messenger;
mod orders;
mod page;
mod permission;
mod reading;
mod records;
mod request;
mod settling;
mod structure;
mod target;
mod upload;
mod uploads;
mod view;
mod writing;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use http::uri::PathAndQuery;

pub use self::checksums::{Checksum, ChecksumType, Checksummed, element_name};
pub use self::desk::Desk;
pub use self::directory::{Directory, Found, Unknown, Unsettled};
pub use self::fates::Standing;
pub use self::flushing::FlushError;
pub use self::held::Held;
pub use self::home::{Home, Outcome};
pub use self::intake::IntakeError;
pub use self::listing::{Listing, UploadListing, described};
pub use self::manifest::Manifest;
pub use self::messenger::Answer;
pub use self::orders::{FlushOrders, FlushProgress};
pub use self::request::{PREFIX, Request};
pub use self::structure::{PlacedPart, Structure};
pub use self::upload::UploadError;
pub use self::uploads::{
    Completed, Incomplete, Inquiry, ListError, ListedPart, Open, PART_BYTES_MIN, Part, PartError, Place,
    Progress, Selection, Upload, UploadEnd, UploadId, UploadLost, UploadRequest, select,
};
pub use self::writing::{Order, WriteError, Written};

use self::records::Records;
use self::upload::Uploader;
use self::uploads::Uploads;
use crate::catalog::Catalog;
use crate::config::Config;
use crate::cooperation::Cooperation;
use crate::endpoint::Endpoint;
use crate::fetch::Fetcher;
use crate::s3::identity::Identities;
use crate::shutdown::Shutdown;
use crate::store::Store;
use crate::write::{OBJECT_PART_OF_CAPACITY, WriteRules};

/// Dirty blocks may take this part of a node's disk.
const DIRTY_PART_OF_CAPACITY: u64 = 4;

/// Writes back, and everything that has to do with objects that were.
pub struct Dirty {
    rules: WriteRules,
    /// Where objects are found.
    pub directory: Directory,
    home: Arc<Home>,
    uploads: Uploads,
    lake: Arc<Endpoint>,
    store: Arc<Store>,
    fetcher: Arc<Fetcher>,
    block_bytes: u64,
    object_bytes_max: u64,
    /// Read-ahead of one reader, in blocks.
    ahead: usize,
}

/// What [`Dirty`] is made of.
pub struct Parts {
    /// Where objects may be dirty.
    pub rules: WriteRules,
    /// The store behind us.
    pub lake: Arc<Endpoint>,
    /// Blocks and manifests on disk.
    pub store: Arc<Store>,
    /// Blocks from other nodes.
    pub fetcher: Arc<Fetcher>,
    /// Who is there.
    pub cooperation: Arc<Cooperation>,
    /// Versions and grants, void once an object is written.
    pub catalog: Arc<Catalog>,
    /// Who may have written what is flushed here.
    pub identities: Arc<Identities>,
}

impl Dirty {
    /// Finds on the disk what was dirty when the node stopped.
    pub async fn open(parts: Parts, config: &Config) -> Self {
        let Parts {
            rules,
            lake,
            store,
            fetcher,
            cooperation,
            catalog,
            identities,
        } = parts;
        let capacity_bytes = config.store.capacity_bytes;
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
        let uploader = Uploader::new(
            Arc::clone(&lake),
            Arc::clone(&store),
            Arc::clone(&fetcher),
            identities,
        );
        let home = Home::new(
            records,
            cooperation,
            uploader,
            catalog,
            lake.url().into(),
            config.write.flush_interval,
        );
        let home = Arc::new(home);
        Self {
            rules,
            directory: Directory(Arc::clone(&home)),
            home,
            uploads,
            lake,
            store,
            fetcher,
            block_bytes: config.store.block_bytes,
            object_bytes_max: capacity_bytes / OBJECT_PART_OF_CAPACITY,
            ahead: config.limits.read_ahead_blocks,
        }
    }

    /// Where objects may be dirty.
    pub fn rules(&self) -> &WriteRules {
        &self.rules
    }

    /// Keeps this node sure of what it is home to, and brings dirty objects to the lake when they are due, until the node stops. A node on
    /// which nothing is dirty and nothing may be does neither.
    pub async fn run(self: Arc<Self>, cooperates: bool, stopping: Shutdown) {
        let has_none =
            self.home.size().0 == 0 && self.uploads.open().is_empty() && self.uploads.held_bytes() == 0;
        let idle = has_none && !self.rules.allow_back_anywhere();
        if idle {
            return;
        }
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
    pub fn is_asked(target: &PathAndQuery) -> bool {
        [PREFIX, uploads::PREFIX]
            .iter()
            .any(|prefix| target.path().starts_with(prefix))
    }

    /// What this node does for others.
    pub fn home(&self) -> &Arc<Home> {
        &self.home
    }
}
