//! Multipart uploads: any node takes any part, and any node completes. A completion is one transaction, so an
//! upload becomes an object once, and every later completion tells the same.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::engine::{At, Change, Condition, EngineError, Outcome, Page, Range, Revision, Transaction};
use crate::keys::{self, Name, NodeList};
use crate::names::{ChangeError, Names, decoded, encoded};
use crate::version::{DirtyVersion, Trash};
use crate::worker::age_of;

/// The uploads of one registry, as one node sees them. Clones share the engine.
#[derive(Clone, Debug)]
pub struct Uploads {
    names: Names,
}

/// The state of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UploadState {
    /// Parts may come. With what nodes know of the upload.
    Open(Bytes),
    /// An object was made of it.
    Complete {
        /// The object.
        version: Ulid,
        /// The record that each completion tells.
        record: Bytes,
    },
}

/// An upload that was found.
#[derive(Clone, Debug)]
pub struct FoundUpload {
    /// The state.
    pub state: UploadState,
    revision: Revision,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadPart {
    /// The key of its bytes in the tier's store.
    pub data: Arc<str>,
    /// Everything else that nodes know of the part.
    pub record: Bytes,
}

/// Some open uploads of a bucket, in the order of their keys and their age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadPage {
    /// The open uploads: the name, the id, and the record that the upload began with.
    pub uploads: Vec<(Name, Ulid, Bytes)>,
    /// The last upload that was looked at, if more follow it.
    pub next: Option<(Name, Ulid)>,
}

/// An upload has changed since it was found: it is complete, or there is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadError {
    /// The registry.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// It was completed, aborted, or ended because no part came.
    #[error("the upload has ended")]
    Ended,
    /// A part was replaced since the upload was found. A completion must look at the parts again: the bytes
    /// of the earlier part are no longer kept.
    #[error("the parts of the upload have changed")]
    Changed,
}

impl UploadError {
    /// Whether nothing happened for certain.
    pub fn is_certain(&self) -> bool {
        !matches!(self, Self::Change(ChangeError::OutcomeUnknown))
    }
}

/// How a try to change an open upload ended.
enum Tried {
    /// The change happened.
    Committed,
    /// It did not happen, and the upload is as it was found.
    Conflict,
    /// It may have happened, or may still happen. The upload is as it was found.
    Unknown,
    /// The upload has changed since, or is gone.
    Changed {
        /// The upload, if there still is one.
        now: Option<FoundUpload>,
        /// Whether the change of this try may have happened, or may still happen.
        is_unknown: bool,
    },
}

impl From<EngineError> for UploadError {
    fn from(error: EngineError) -> Self {
        Self::Change(error.into())
    }
}

impl Uploads {
    /// The uploads of the registry that has these names.
    pub fn new(names: Names) -> Self {
        Self { names }
    }

    /// Begins an upload.
    ///
    /// # Errors
    ///
    /// There may be such an upload nevertheless. It ends when no part comes.
    pub async fn begin(&self, name: &Name, id: Ulid, record: Bytes) -> Result<(), EngineError> {
        let changes = vec![
            Change::put(keys::upload(name, id), encoded(&UploadState::Open(record))),
            Change::put(NodeList::Uploads.key(self.names.node, id), name.to_bytes()),
        ];
        self.commit(Vec::new(), changes).await.map(drop)
    }

    /// Looks an upload up. Linearizable.
    ///
    /// # Errors
    ///
    /// Fails if the registry cannot be asked.
    pub async fn find(&self, name: &Name, id: Ulid) -> Result<Option<FoundUpload>, EngineError> {
        let stored = self.names.engine.get(&keys::upload(name, id)).await?;
        let found = stored.map(|stored| {
            Ok(FoundUpload {
                state: decoded(&stored.value)?,
                revision: stored.revision,
            })
        });
        found.transpose()
    }

    /// Makes a part one of the upload's, in the place of an earlier one with its number. If there is one, the
    /// upload changes, too, so that no completion that has read the earlier part happens.
    ///
    /// # Errors
    ///
    /// The part is not the upload's, or that is not known.
    pub async fn put_part(
        &self,
        (name, id): (&Name, Ulid),
        found: &FoundUpload,
        number: u16,
        part: &UploadPart,
    ) -> Result<(), UploadError> {
        let key = keys::part(id, number);
        let mut found = found.clone();
        // The part as it was before a try that may have happened.
        let mut unsure: Option<Condition> = None;
        loop {
            let earlier = self.names.engine.get(&key).await;
            let earlier = earlier.map_err(|error| ChangeError::of(error, unsure.is_some()))?;
            let mut changes = vec![Change::put(key.clone(), encoded(part))];
            if let Some(earlier) = &earlier {
                let replaced: UploadPart = decoded(&earlier.value)?;
                if replaced.data == part.data {
                    // An earlier try happened, and only its answer was lost.
                    return Ok(());
                }
                changes.push(self.names.trashed(&Trash::Data(vec![replaced.data])));
                changes.push(Change::put(keys::upload(name, id), encoded(&found.state)));
            }
            let unchanged = Condition {
                key: key.clone(),
                revision: earlier.map(|earlier| earlier.revision),
            };
            if unsure.as_ref().is_some_and(|before| *before != unchanged) {
                // Another part has come. If it replaced this one, then the bytes of this one are trash.
                return Err(ChangeError::OutcomeUnknown.into());
            }
            let conditions = vec![found.condition(name, id), unchanged.clone()];
            let transaction = Transaction { conditions, changes };
            match self
                .try_to_change((name, id), &found, transaction, unsure.is_some())
                .await?
            {
                Tried::Committed => return Ok(()),
                Tried::Conflict => {}
                Tried::Unknown => unsure = Some(unchanged),
                Tried::Changed {
                    now: Some(now),
                    is_unknown,
                } if matches!(now.state, UploadState::Open(_)) => {
                    if is_unknown {
                        unsure = Some(unchanged);
                    }
                    found = now;
                }
                Tried::Changed { .. } => return Err(UploadError::Ended),
            }
        }
    }

    /// Tries to change an open upload, and looks at it again if the transaction is not known to have
    /// happened. `unsure` tells that an earlier try may have happened.
    async fn try_to_change(
        &self,
        (name, id): (&Name, Ulid),
        found: &FoundUpload,
        transaction: Transaction,
        unsure: bool,
    ) -> Result<Tried, UploadError> {
        let tried = match self.names.engine.commit(transaction).await {
            Ok(Outcome::Committed(_)) => return Ok(Tried::Committed),
            Ok(Outcome::Conflict) => Tried::Conflict,
            Err(EngineError::Unknown(_)) => Tried::Unknown,
            Err(error) => return Err(ChangeError::of(error, unsure).into()),
        };
        let unsure = unsure || matches!(tried, Tried::Unknown);
        let now = self.find(name, id).await;
        let now = now.map_err(|error| ChangeError::of(error, unsure))?;
        let is_as_found = now.as_ref().is_some_and(|now| now.revision == found.revision);
        let is_unknown = matches!(tried, Tried::Unknown);
        Ok(if is_as_found {
            tried
        } else {
            Tried::Changed { now, is_unknown }
        })
    }

    /// Some parts of an upload, at most `limit`, in the order of their numbers, behind `after`. There may be
    /// more unless there are none.
    ///
    /// # Errors
    ///
    /// Fails if the registry cannot be asked.
    pub async fn parts(
        &self,
        id: Ulid,
        after: Option<u16>,
        limit: usize,
    ) -> Result<Vec<(u16, UploadPart)>, EngineError> {
        let range = Range {
            prefix: keys::parts(id),
            after: after.map_or_else(Bytes::new, |number| keys::part(id, number)),
            limit,
            at: At::Newest,
        };
        let page = self.names.engine.range(range).await?.entries.into_iter();
        let parts = page.filter_map(|(key, stored)| {
            let number = keys::number_in(&key)?;
            Some(decoded(&stored.value).map(|part| (number, part)))
        });
        parts.collect()
    }

    /// Forgets parts of an upload that has ended; at most 64.
    ///
    /// # Errors
    ///
    /// They may still be there.
    pub async fn forget_parts(
        &self,
        id: Ulid,
        numbers: impl Iterator<Item = u16>,
    ) -> Result<(), EngineError> {
        let changes = numbers.map(|number| Change::Delete {
            key: keys::part(id, number),
        });
        self.commit(Vec::new(), changes.collect()).await.map(drop)
    }

    /// Makes `version` the object that reads of the name find, and ends the upload. `kept` are the parts that
    /// it was made of, and `record` is what each completion tells. Returns the record of the completion that
    /// happened: this one, or one before it.
    ///
    /// # Errors
    ///
    /// The upload is still open, or has ended without an object, or that is not known.
    pub async fn complete(
        &self,
        (name, id): (&Name, Ulid),
        found: &FoundUpload,
        version: &DirtyVersion,
        kept: Vec<(u16, u16)>,
        record: &Bytes,
    ) -> Result<Bytes, UploadError> {
        let complete = UploadState::Complete {
            version: version.id,
            record: record.clone(),
        };
        let parts = self.parts_trashed(id, kept);
        let mut unsure = false;
        loop {
            let entry = self.names.find(name).await;
            let entry = entry.map_err(|error| ChangeError::of(error, unsure))?;
            let mut changes = vec![
                Change::put(name.entry_key(), encoded(&entry.entry.written(version.clone()))),
                Change::put(version.list().key(version.node, version.id), name.to_bytes()),
                Change::put(keys::upload(name, id), encoded(&complete)),
                parts.clone(),
            ];
            changes.extend(self.names.discard(entry.entry.current.as_ref()));
            let conditions = vec![found.condition(name, id), entry.condition(name)];
            let transaction = Transaction { conditions, changes };
            match self.try_to_change((name, id), found, transaction, unsure).await? {
                Tried::Committed => {
                    self.names.deaths.note(entry.entry.current.as_ref());
                    return Ok(record.clone());
                }
                Tried::Conflict => {}
                Tried::Unknown => unsure = true,
                Tried::Changed { now: None, .. } => return Err(UploadError::Ended),
                Tried::Changed { now: Some(now), .. } => match now.state {
                    UploadState::Complete { record, .. } => return Ok(record),
                    UploadState::Open(_) => return Err(UploadError::Changed),
                },
            }
        }
    }

    /// Ends an upload whose object went to the lake: every later completion tells `record`.
    ///
    /// # Errors
    ///
    /// The upload may still be open.
    pub async fn completed_at_lake(
        &self,
        (name, id): (&Name, Ulid),
        found: &FoundUpload,
        version: Ulid,
        record: Bytes,
    ) -> Result<(), UploadError> {
        let complete = UploadState::Complete { version, record };
        let end = Change::put(keys::upload(name, id), encoded(&complete));
        self.end((name, id), found, end).await
    }

    /// Ends an upload without an object.
    ///
    /// # Errors
    ///
    /// The upload may still be open.
    pub async fn abort(&self, (name, id): (&Name, Ulid), found: &FoundUpload) -> Result<(), UploadError> {
        let end = Change::Delete {
            key: keys::upload(name, id),
        };
        self.end((name, id), found, end).await
    }

    /// Ends an upload without an object here: none of its parts is needed.
    async fn end(
        &self,
        (name, id): (&Name, Ulid),
        found: &FoundUpload,
        end: Change,
    ) -> Result<(), UploadError> {
        let changes = vec![end, self.parts_trashed(id, Vec::new())];
        match self.commit(vec![found.condition(name, id)], changes).await? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Conflict => Err(UploadError::Ended),
        }
    }

    /// The open uploads of a bucket whose keys begin with `prefix` and that follow the upload `after`, from
    /// at most `limit` uploads.
    ///
    /// # Errors
    ///
    /// Fails if the registry cannot be asked.
    pub async fn list(
        &self,
        bucket: &str,
        prefix: &[u8],
        after: Option<(&Name, Ulid)>,
        limit: usize,
    ) -> Result<UploadPage, EngineError> {
        let range = Range {
            prefix: keys::uploads(bucket, prefix),
            after: after.map_or_else(Bytes::new, |(name, id)| keys::upload(name, id)),
            limit,
            at: At::Newest,
        };
        let Page {
            entries, has_more, ..
        } = self.names.engine.range(range).await?;
        let last = entries.last().and_then(|(key, _)| keys::of_upload_key(key));
        let mut uploads = Vec::with_capacity(entries.len());
        for (key, stored) in entries {
            if let (Some((name, id)), UploadState::Open(record)) =
                (keys::of_upload_key(&key), decoded(&stored.value)?)
            {
                uploads.push((name, id, record));
            }
        }
        Ok(UploadPage {
            uploads,
            next: last.filter(|_| has_more),
        })
    }

    /// Ends an upload of a node's list that got no part for `lifetime`, and forgets a complete one. An upload
    /// that changes meanwhile stays in the list.
    pub(crate) async fn expire(
        &self,
        name: &Name,
        id: Ulid,
        (node, lifetime): (u64, Duration),
    ) -> Result<(), EngineError> {
        let unlist = Change::Delete {
            key: NodeList::Uploads.key(node, id),
        };
        let Some(found) = self.find(name, id).await? else {
            return self.commit(Vec::new(), vec![unlist]).await.map(drop);
        };
        let mut changes = vec![
            Change::Delete {
                key: keys::upload(name, id),
            },
            unlist,
        ];
        if matches!(found.state, UploadState::Open(_)) {
            if self.is_in_use(id, lifetime).await? {
                return Ok(());
            }
            changes.push(self.parts_trashed(id, Vec::new()));
        }
        // After a conflict the next look sees what the upload has become.
        let conditions = vec![found.condition(name, id)];
        self.commit(conditions, changes).await.map(drop)
    }

    /// Whether a part came within `lifetime`.
    async fn is_in_use(&self, id: Ulid, lifetime: Duration) -> Result<bool, EngineError> {
        let mut after = None;
        loop {
            let parts = self.parts(id, after, 256).await?;
            let is_young = |part: &UploadPart| id_in(&part.data).is_some_and(|id| age_of(id) < lifetime);
            if parts.iter().any(|(_, part)| is_young(part)) {
                return Ok(true);
            }
            match parts.last() {
                Some((last, _)) => after = Some(*last),
                None => return Ok(false),
            }
        }
    }

    /// Puts the parts of an upload that ends into this node's trash, but for the bytes of `kept`.
    fn parts_trashed(&self, upload: Ulid, kept: Vec<(u16, u16)>) -> Change {
        self.names.trashed(&Trash::Parts { upload, kept })
    }

    async fn commit(&self, conditions: Vec<Condition>, changes: Vec<Change>) -> Result<Outcome, EngineError> {
        self.names
            .engine
            .commit(Transaction { conditions, changes })
            .await
    }
}

impl FoundUpload {
    fn condition(&self, name: &Name, id: Ulid) -> Condition {
        Condition {
            key: keys::upload(name, id),
            revision: Some(self.revision),
        }
    }
}

/// The id that a key of the tier's store ends with: it tells when the bytes were written.
fn id_in(data: &str) -> Option<Ulid> {
    Ulid::from_string(data.get(data.len().checked_sub(ulid::ULID_LEN)?..)?).ok()
}
