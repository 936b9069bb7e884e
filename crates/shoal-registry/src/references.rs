//! The bytes that a registry refers to, for the sweep of a tier's store.
//!
//! References to a piece move while nodes work: from a part to the entry of the object that a completion
//! makes of it, and from either to the trash. They never move back. So parts are read first, then entries,
//! then the trash: a piece that is referred to all the time is found, although references are read at
//! different times.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use ulid::Ulid;

use crate::engine::{Change, Condition, EngineError, Outcome, Stored};
use crate::keys::{self, BEGAN, Name};
use crate::names::{Names, StoredEntry, decoded};
use crate::receipts::ReceiptId;
use crate::uploads::UploadPart;
use crate::version::{DirtyVersion, Trash};

/// References of one of the registry's keys to bytes in the tier's store. The same bytes may be referred to
/// several times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A part of an upload that is open, or has just ended.
    Part(Arc<str>),
    /// The dirty object of this name. An inline one is without its bytes.
    Object(Name, Box<DirtyVersion>),
    /// The receipts of a name.
    Receipts(Vec<Arc<str>>),
    /// Bytes that are no longer needed.
    Trash(Vec<Arc<str>>),
}

impl Reference {
    /// Returns the keys of the bytes.
    pub fn keys(&self) -> &[Arc<str>] {
        match self {
            Self::Part(key) => std::slice::from_ref(key),
            Self::Object(_, version) => &version.data,
            Self::Receipts(keys) | Self::Trash(keys) => keys,
        }
    }

    /// Returns the references of a key with this value.
    fn of(key: &Bytes, value: &Bytes) -> Result<Vec<Self>, EngineError> {
        if key.starts_with(keys::PARTS) {
            return Ok(vec![Self::Part(decoded::<UploadPart>(value)?.data)]);
        }
        if key.starts_with(keys::TRASH) {
            return Ok(match decoded(value)? {
                Trash::Data(keys) => vec![Self::Trash(keys)],
                // The parts have keys of their own until their bytes are removed.
                Trash::Parts { .. } => Vec::new(),
            });
        }
        let StoredEntry { entry, receipts } = StoredEntry::decoded(value)?;
        let mut references = Vec::new();
        if let Some(version) = entry.current {
            let name = Name::of_entry_key(key);
            let unreadable = || EngineError::Refused(format!("the key {key:?} is not the name of an object"));
            references.push(Self::Object(name.ok_or_else(unreadable)?, Box::new(version)));
        }
        if !receipts.is_empty() {
            let keys = receipts.ids().iter().copied().map(ReceiptId::key);
            references.push(Self::Receipts(keys.collect()));
        }
        Ok(references)
    }
}

impl Names {
    /// Returns all references, those of parts first, then those of entries, then those of the trash. Reads
    /// the registry in pages of at most `limit` keys.
    ///
    /// # Errors
    ///
    /// The registry does not answer, or this build cannot read an entry.
    pub fn references(&self, limit: usize) -> impl Stream<Item = Result<Reference, EngineError>> + Send {
        let prefixes = [keys::PARTS, keys::ENTRIES, keys::TRASH].map(Bytes::from_static);
        let all = stream::iter(prefixes).flat_map(move |prefix| self.engine.all(prefix, limit));
        let references = all.and_then(async |(key, stored)| {
            let references = Reference::of(&key, &stored.value)?;
            Ok(stream::iter(references.into_iter().map(Ok)))
        });
        references.try_flatten()
    }

    /// Returns the id that records when the registry was created; `None` before the first node has used it.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn beginning(&self) -> Result<Option<Ulid>, EngineError> {
        let stored = self.engine.get(BEGAN).await?;
        let unreadable = || EngineError::Refused("its beginning cannot be read".into());
        let began = |stored: Stored| keys::id_in(&stored.value).ok_or_else(unreadable);
        stored.map(began).transpose()
    }

    /// Returns the id that records when the registry was created. The first call sets it to `new`.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn began(&self, new: Ulid) -> Result<Ulid, EngineError> {
        let key = Bytes::from_static(BEGAN);
        loop {
            if let Some(began) = self.beginning().await? {
                return Ok(began);
            }
            let changes = vec![Change::put(key.clone(), new.to_string().into())];
            match self.commit(vec![Condition::absent(key.clone())], changes).await {
                Ok(Outcome::Committed(_) | Outcome::Conflict) | Err(EngineError::Unknown(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
