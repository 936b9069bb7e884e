//! Objects that come in parts and may be dirty: from their creation until they are complete and like every
//! other dirty object.
//!
//! ```text
//! Create ─▶ this node keeps the upload; its id says so
//! UploadPart, by any node ─▶ blocks on that node's disk ─▶ noted by the keeper ─▶ 200
//! Complete, by any node ─▶ the list is held against what the keeper has
//!                          ▼
//!                        keeper: parts ─▶ blocks of the object ─▶ as for every write back ─▶ parts forgotten
//! ```
//!
//! A part is a version of its own, whose blocks are found and moved as all are. What it is a part of is known
//! at completion: then its bytes are cut anew.

mod completion;
mod inquiry;
mod keeper;
mod record;
mod request;
mod selection;
mod table;
mod taking;
mod tidying;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shoal_policy::admission::Refusal;
use shoal_policy::{NodeId, VersionId};
use shoal_store::Store;

pub(in crate::dirty) use self::request::PREFIX;
pub use self::request::UploadRequest;
pub(super) use self::selection::Selection;

use self::record::Record;
use self::table::Table;
use crate::clock;
use crate::dirty::multipart::{OpenUpload, Part, Upload, UploadEnd, UploadId};

/// What this node keeps of uploads that are not complete.
pub(in crate::dirty) struct Uploads {
    table: Mutex<Table>,
    store: Arc<Store>,
    me: NodeId,
    /// Names the lake in the digests of its objects.
    lake: Arc<str>,
    /// Bytes of parts here, which take of the room for what is dirty.
    aside_bytes: Arc<AtomicU64>,
    /// Of these, those whose room an object takes that is being made of them.
    yielded_bytes: AtomicU64,
}

/// Room that is given to the object that is made of parts, until this is dropped.
pub(in crate::dirty) struct Yielded<'a> {
    uploads: &'a Uploads,
    bytes: u64,
}

impl Uploads {
    /// What the disk holds from the node's last life. Parts whose blocks are not all here any more are
    /// forgotten, and must be uploaded again.
    pub(in crate::dirty) async fn load(
        store: Arc<Store>,
        me: NodeId,
        lake: Arc<str>,
        aside_bytes: Arc<AtomicU64>,
        records: Vec<(VersionId, Vec<u8>)>,
    ) -> Self {
        let uploads = Self {
            table: Mutex::default(),
            store,
            me,
            lake,
            aside_bytes,
            yielded_bytes: AtomicU64::new(0),
        };
        let mut parts = Vec::new();
        for (version, record) in records {
            match Record::of_bytes(&record) {
                Ok(Record::Upload(upload)) if upload.id.keeper == me => {
                    uploads.table.lock().keep(upload, clock::instant());
                }
                Ok(Record::Part(id, part)) if part.version.id == version => parts.push((id, part)),
                _ => uploads.drop_record(version).await,
            }
        }
        // Of two parts with one number the later one counts.
        parts.sort_by_key(|(_, part)| part.version.last_modified);
        for (id, part) in parts {
            uploads.revive(id, Arc::new(part)).await;
        }
        uploads.account();
        uploads
    }

    async fn revive(&self, id: UploadId, part: Arc<Part>) {
        let version = &part.version;
        let mut blocks = (0..version.block_count()).map(|index| version.block(index));
        let (is_kept, is_held) = (id.keeper == self.me, part.holder == self.me);
        if is_held && !blocks.all(|block| self.store.contains(block)) {
            tracing::warn!(upload = %id, part = part.number, "a part of an upload has lost blocks on this node: it must be uploaded again");
            return self.drop_record(version.id).await;
        }
        let now = clock::instant();
        let noted = is_kept.then(|| self.table.lock().note(id, &part, u64::MAX, now));
        match noted {
            Some(Err(_)) => return self.drop_record(version.id).await,
            Some(Ok(Some(replaced))) => self.release(replaced.version.id).await,
            Some(Ok(None)) | None => {}
        }
        if is_held {
            self.table.lock().hold(id, part, now);
        }
    }

    /// Keeps an upload that begins.
    pub(in crate::dirty) async fn keep(&self, upload: Upload) -> Result<(), Refusal> {
        let record = Record::of_upload(&upload);
        self.store
            .keep_record(record::name_of(&upload, &self.lake), record)
            .await?;
        self.table.lock().keep(upload, clock::instant());
        Ok(())
    }

    /// Holds a part whose blocks are here; they stay from now on.
    async fn hold(&self, id: UploadId, part: &Arc<Part>) -> Result<(), Refusal> {
        let record = Record::of_part(id, part);
        self.store.keep_record(part.version.id, record).await?;
        self.table.lock().hold(id, Arc::clone(part), clock::instant());
        self.account();
        Ok(())
    }

    /// Lets go of what is here of a part.
    async fn release(&self, version: VersionId) {
        self.table.lock().release(version);
        self.account();
        self.drop_record(version).await;
        self.store.remove_version(version);
    }

    /// Notes on the disk that a part which another node holds belongs to an upload that is kept here.
    async fn write_part(&self, id: UploadId, part: &Part) -> Result<(), Refusal> {
        let record = Record::of_part(id, part);
        self.store.keep_record(part.version.id, record).await
    }

    async fn drop_record(&self, version: VersionId) {
        // Found again after a restart, it is of no upload, or its upload expires.
        if let Err(error) = self.store.drop_record(version).await {
            tracing::warn!(%version, %error, "the record of an upload cannot be removed");
        }
    }

    /// Gives the room of parts that are here to the object that is made of them.
    fn yield_room(&self, parts: &[Arc<Part>]) -> Yielded<'_> {
        let here = parts.iter().filter(|part| part.holder == self.me);
        let bytes = here.map(|part| part.size_bytes()).sum();
        self.yielded_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.account();
        Yielded { uploads: self, bytes }
    }

    fn account(&self) {
        let held_bytes = self.table.lock().held_bytes();
        let yielded_bytes = self.yielded_bytes.load(Ordering::Relaxed);
        let aside_bytes = held_bytes.saturating_sub(yielded_bytes);
        self.aside_bytes.store(aside_bytes, Ordering::Relaxed);
    }

    /// Whether a record is one of these.
    pub(in crate::dirty) fn is_record(bytes: &[u8]) -> bool {
        Record::is_one(bytes)
    }

    /// Uploads that are kept here and not complete, with their parts.
    pub(in crate::dirty) fn open(&self) -> Vec<OpenUpload> {
        self.table.lock().open()
    }

    /// How many uploads that were kept here ended how since the node started.
    pub(in crate::dirty) fn ends(&self) -> [(UploadEnd, u64); UploadEnd::ALL.len()] {
        self.table.lock().ends()
    }

    /// Bytes of parts that are here.
    pub(in crate::dirty) fn held_bytes(&self) -> u64 {
        self.table.lock().held_bytes()
    }
}

impl Drop for Yielded<'_> {
    fn drop(&mut self) {
        self.uploads
            .yielded_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
        self.uploads.account();
    }
}
