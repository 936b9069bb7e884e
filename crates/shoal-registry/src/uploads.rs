//! Multipart uploads: any node can accept a part, and any node can complete an upload. A completion is one
//! transaction, so an upload becomes an object once, and every later completion returns the same record.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{Stream, TryStreamExt};
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::engine::{Change, Condition, EngineError, Outcome, Revision, Transaction};
use crate::keys::{self, Name, NodeList, UploadKey};
use crate::moment::age_of;
use crate::names::{ChangeError, Names, StoredEntry, StoredReceipt, content_change, decoded, encoded};
use crate::version::{DirtyVersion, Trash};

/// Number of parts or uploads on a page.
const PAGE: usize = 256;

/// The uploads of one registry, as one node sees them. Clones share the engine.
#[derive(Clone, Debug)]
pub struct Uploads {
    names: Names,
}

/// The state of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UploadState {
    /// Accepts parts. Holds the record that the upload was begun with.
    Open(Bytes),
    /// An object was made of it.
    Complete {
        /// The object.
        version: Ulid,
        /// The record that every completion returns.
        record: Bytes,
    },
}

/// An upload as it was read.
#[derive(Clone, Debug)]
pub struct FoundUpload {
    key: UploadKey,
    /// The state.
    pub state: UploadState,
    revision: Revision,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadPart {
    /// The key of the part's bytes in the tier's store.
    pub data: Arc<str>,
    /// Opaque to the registry: everything else about the part.
    pub record: Bytes,
}

/// An upload has changed since it was found: it was completed, replaced a part, or has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadError {
    /// The registry failed.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// It was completed or aborted, or has expired without new parts.
    #[error("the upload has ended")]
    Ended,
    /// A part was replaced since the upload was found. A completion must read the parts again, because the
    /// bytes of the replaced part are no longer kept.
    #[error("the parts of the upload have changed")]
    Changed,
}

impl UploadError {
    /// Returns true if it is certain that nothing has happened.
    pub fn is_certain(&self) -> bool {
        !matches!(self, Self::Change(ChangeError::OutcomeUnknown))
    }
}

/// An attempt to change an open upload that was not committed, as far as is known.
struct NotCommitted {
    /// The upload as it is now, if it still exists.
    now: Option<FoundUpload>,
    /// True if the change may have been committed, or may still be.
    is_unknown: bool,
}

impl From<EngineError> for UploadError {
    fn from(error: EngineError) -> Self {
        Self::Change(error.into())
    }
}

impl Uploads {
    /// Creates the uploads in the registry of `names`.
    pub fn new(names: Names) -> Self {
        Self { names }
    }

    /// Begins an upload.
    ///
    /// # Errors
    ///
    /// The upload may exist nevertheless; it expires without parts.
    pub async fn begin(&self, name: &Name, id: Ulid, record: Bytes) -> Result<(), EngineError> {
        let name = name.clone();
        let changes = vec![
            Change::put(NodeList::Uploads.key(self.names.node, id), name.to_bytes()),
            Change::put(
                UploadKey { name, id }.to_bytes(),
                encoded(&UploadState::Open(record)),
            ),
        ];
        self.names.commit(Vec::new(), changes).await.map(drop)
    }

    /// Reads an upload. Linearizable.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn find(&self, name: &Name, id: Ulid) -> Result<Option<FoundUpload>, EngineError> {
        let key = UploadKey {
            name: name.clone(),
            id,
        };
        let Some(stored) = self.names.engine.get(&key.to_bytes()).await? else {
            return Ok(None);
        };
        Ok(Some(FoundUpload {
            key,
            state: decoded(&stored.value)?,
            revision: stored.revision,
        }))
    }

    /// Adds a part to the upload, replacing an earlier one with its number. A replacement also changes the
    /// upload, so that no completion that has read the earlier part can be committed.
    ///
    /// # Errors
    ///
    /// The part was not added, or the outcome is unknown.
    pub async fn put_part(
        &self,
        found: &FoundUpload,
        number: u16,
        part: &UploadPart,
    ) -> Result<(), UploadError> {
        let key = keys::part(found.key.id, number);
        let mut found = found.clone();
        // The condition on the part, from before an attempt that may have happened.
        let mut unsure: Option<Condition> = None;
        loop {
            let earlier = self.names.engine.get(&key).await;
            let earlier = earlier.map_err(|error| ChangeError::from_engine(error, unsure.is_some()))?;
            let mut changes = vec![Change::put(key.clone(), encoded(part))];
            if let Some(earlier) = &earlier {
                let replaced: UploadPart = decoded(&earlier.value)?;
                if replaced.data == part.data {
                    // An earlier attempt was committed, and only its response was lost.
                    return Ok(());
                }
                changes.push(self.names.trashed(&Trash::Data(vec![replaced.data])));
                changes.push(Change::put(found.key.to_bytes(), encoded(&found.state)));
            }
            let unchanged = Condition {
                key: key.clone(),
                revision: earlier.map(|earlier| earlier.revision),
            };
            if unsure.as_ref().is_some_and(|before| *before != unchanged) {
                // Another part was added. If it has replaced this one, the bytes of this one are already in
                // the trash.
                return Err(ChangeError::OutcomeUnknown.into());
            }
            let conditions = vec![found.condition(), unchanged.clone()];
            let transaction = Transaction { conditions, changes };
            let tried = self.try_to_change(&found, transaction, unsure.is_some()).await?;
            let Some(NotCommitted { now, is_unknown }) = tried else {
                return Ok(());
            };
            if is_unknown {
                unsure = Some(unchanged);
            }
            let is_open = |now: &FoundUpload| matches!(now.state, UploadState::Open(_));
            found = now.filter(is_open).ok_or_else(|| match unsure {
                // The upload may have been completed with this part.
                Some(_) => ChangeError::OutcomeUnknown.into(),
                None => UploadError::Ended,
            })?;
        }
    }

    /// Tries to change an open upload. Returns `None` if the transaction was committed. `unsure` is true if
    /// an earlier attempt may have happened.
    async fn try_to_change(
        &self,
        found: &FoundUpload,
        transaction: Transaction,
        unsure: bool,
    ) -> Result<Option<NotCommitted>, UploadError> {
        let is_unknown = match self.names.engine.commit(transaction).await {
            Ok(Outcome::Committed(_)) => return Ok(None),
            Ok(Outcome::Conflict) => false,
            Err(EngineError::Unknown(_)) => true,
            Err(error) => return Err(ChangeError::from_engine(error, unsure).into()),
        };
        let now = self.find(&found.key.name, found.key.id).await;
        let now = now.map_err(|error| ChangeError::from_engine(error, unsure || is_unknown))?;
        Ok(Some(NotCommitted { now, is_unknown }))
    }

    /// Returns the parts of an upload, ordered by number.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub fn parts(&self, id: Ulid) -> impl Stream<Item = Result<(u16, UploadPart), EngineError>> + Send {
        let all = self.names.engine.all(keys::parts(id), PAGE);
        all.try_filter_map(async |(key, stored)| {
            let part = keys::number_in(&key).map(|number| Ok((number, decoded(&stored.value)?)));
            part.transpose()
        })
    }

    /// Removes up to 64 parts of an upload that has ended.
    ///
    /// # Errors
    ///
    /// They may remain.
    pub async fn forget_parts(
        &self,
        id: Ulid,
        numbers: impl Iterator<Item = u16>,
    ) -> Result<(), EngineError> {
        let changes = numbers.map(|number| Change::delete(keys::part(id, number)));
        self.names.commit(Vec::new(), changes.collect()).await.map(drop)
    }

    /// Makes `version` the current object of the name, and ends the upload. `kept` are the parts that it is
    /// made of, and `record` is what every later completion returns. Returns the record of the completion
    /// that was committed: this one, or an earlier one.
    ///
    /// # Errors
    ///
    /// The upload is still open, or has ended without an object, or the outcome is unknown.
    pub async fn complete(
        &self,
        found: &FoundUpload,
        version: &DirtyVersion,
        kept: Vec<(u16, u16)>,
        record: &Bytes,
    ) -> Result<Bytes, UploadError> {
        let receipt = self.names.with_receipt(&found.key.name, version).await?;
        let why = match self.complete_with(found, version, kept, record, receipt).await {
            Ok((of, record)) if of == version.id => return Ok(record),
            Ok((_, record)) => {
                // An earlier completion was committed, and not this one.
                self.names.take_back(receipt, ChangeError::Contended).await;
                return Ok(record);
            }
            Err(why) => why,
        };
        let reason = match &why {
            UploadError::Change(error) => error.clone(),
            UploadError::Changed | UploadError::Ended => ChangeError::Contended,
        };
        Err(match self.names.take_back(receipt, reason).await {
            ChangeError::OutcomeUnknown => ChangeError::OutcomeUnknown.into(),
            _ => why,
        })
    }

    /// Completes an upload. Returns the version and the record of the completion that was committed.
    async fn complete_with(
        &self,
        found: &FoundUpload,
        version: &DirtyVersion,
        kept: Vec<(u16, u16)>,
        record: &Bytes,
        receipt: Option<StoredReceipt>,
    ) -> Result<(Ulid, Bytes), UploadError> {
        let complete = UploadState::Complete {
            version: version.id,
            record: record.clone(),
        };
        let name = &found.key.name;
        let parts = self.parts_trashed(found.key.id, kept);
        let mut unsure = false;
        loop {
            let entry = self.names.find_entry(name).await;
            let entry = entry.map_err(|error| ChangeError::from_engine(error, unsure))?;
            let receipts = match self.names.receipts_after(&entry, version, receipt).await {
                Ok(receipts) => receipts,
                Err(_) if unsure => return Err(ChangeError::OutcomeUnknown.into()),
                Err(error) => return Err(error.into()),
            };
            let next = StoredEntry {
                entry: entry.entry.written(version.clone()),
                receipts,
            };
            let mut changes = vec![
                Change::put(name.entry_key(), next.encoded()),
                Change::put(version.list().key(version.node, version.id), name.to_bytes()),
                Change::put(found.key.to_bytes(), encoded(&complete)),
                parts.clone(),
            ];
            let before = entry.entry.current.as_ref();
            changes.extend(self.names.discard(before));
            changes.extend(content_change(name, before, Some(version)));
            let conditions = vec![found.condition(), entry.condition(name)];
            let transaction = Transaction { conditions, changes };
            let tried = self.try_to_change(found, transaction, unsure).await?;
            let Some(NotCommitted { now, is_unknown }) = tried else {
                self.names.deaths.note(before);
                self.names.count_content(before, Some(version));
                return Ok((version.id, record.clone()));
            };
            let now = now.ok_or(UploadError::Ended)?;
            match now.state {
                UploadState::Complete { version, record } => return Ok((version, record)),
                UploadState::Open(_) if now.revision != found.revision => return Err(UploadError::Changed),
                UploadState::Open(_) => unsure |= is_unknown,
            }
        }
    }

    /// Ends an upload whose object was written to the lake. Every later completion returns `record`.
    ///
    /// # Errors
    ///
    /// The upload may still be open.
    pub async fn completed_at_lake(
        &self,
        found: &FoundUpload,
        version: Ulid,
        record: Bytes,
    ) -> Result<(), UploadError> {
        let complete = UploadState::Complete { version, record };
        let end = Change::put(found.key.to_bytes(), encoded(&complete));
        self.end(found, end).await
    }

    /// Ends an upload without an object.
    ///
    /// # Errors
    ///
    /// The upload may still be open.
    pub async fn abort(&self, found: &FoundUpload) -> Result<(), UploadError> {
        self.end(found, Change::delete(found.key.to_bytes())).await
    }

    /// Ends an upload without a dirty object, so that none of its parts is needed.
    async fn end(&self, found: &FoundUpload, end: Change) -> Result<(), UploadError> {
        let changes = vec![end, self.parts_trashed(found.key.id, Vec::new())];
        match self.names.commit(vec![found.condition()], changes).await? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Conflict => Err(UploadError::Ended),
        }
    }

    /// Returns the open uploads of a bucket whose objects' keys begin with `prefix`, ordered by key and age,
    /// each with the record that it was begun with.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub fn list(
        &self,
        bucket: &str,
        prefix: &[u8],
    ) -> impl Stream<Item = Result<(UploadKey, Bytes), EngineError>> + Send + use<'_> {
        let all = self.names.engine.all(keys::uploads(bucket, prefix), PAGE);
        all.try_filter_map(async |(key, stored)| {
            let UploadState::Open(record) = decoded(&stored.value)? else {
                return Ok(None);
            };
            Ok(UploadKey::from_bytes(&key).map(|key| (key, record)))
        })
    }

    /// Ends an upload on a node's list that got no part within `lifetime`, and removes a completed one. An
    /// upload that changes concurrently stays on the list.
    pub(crate) async fn expire(
        &self,
        name: &Name,
        id: Ulid,
        node: u64,
        lifetime: Duration,
    ) -> Result<(), EngineError> {
        let unlist = Change::delete(NodeList::Uploads.key(node, id));
        let Some(found) = self.find(name, id).await? else {
            return self.names.commit(Vec::new(), vec![unlist]).await.map(drop);
        };
        let mut changes = vec![Change::delete(found.key.to_bytes()), unlist];
        if matches!(found.state, UploadState::Open(_)) {
            if self.is_in_use(id, lifetime).await? {
                return Ok(());
            }
            changes.push(self.parts_trashed(id, Vec::new()));
        }
        // After a conflict, the next scan sees the new state of the upload.
        let conditions = vec![found.condition()];
        self.names.commit(conditions, changes).await.map(drop)
    }

    /// Returns true if a part was added within `lifetime`.
    async fn is_in_use(&self, id: Ulid, lifetime: Duration) -> Result<bool, EngineError> {
        let is_young = |part: UploadPart| id_in(&part.data).is_some_and(|id| age_of(id) < lifetime);
        let mut parts = pin!(self.parts(id));
        while let Some((_, part)) = parts.try_next().await? {
            if is_young(part) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the change that puts the parts of an ending upload on this node's trash list, except for the
    /// bytes of `kept`.
    fn parts_trashed(&self, upload: Ulid, kept: Vec<(u16, u16)>) -> Change {
        self.names.trashed(&Trash::Parts { upload, kept })
    }
}

impl FoundUpload {
    fn condition(&self) -> Condition {
        Condition {
            key: self.key.to_bytes(),
            revision: Some(self.revision),
        }
    }
}

/// Returns the id at the end of a key of the tier's store, which records when the bytes were written.
fn id_in(data: &str) -> Option<Ulid> {
    Ulid::from_string(data.get(data.len().checked_sub(ulid::ULID_LEN)?..)?).ok()
}
