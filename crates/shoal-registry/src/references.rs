//! The bytes that a registry refers to, for the sweep of a tier's store.
//!
//! References to a piece move while nodes work: from a part to the entry of the object that a completion
//! makes of it, and from either to the trash. They never move back. So parts are read first, then entries,
//! then the trash: a piece that is referred to all the time is on one of the pages, although they are read at
//! different times.

use std::sync::Arc;

use bytes::Bytes;
use ulid::Ulid;

use crate::engine::{Change, Condition, EngineError, Outcome, Page, Range};
use crate::entry::Entry;
use crate::keys::{self, BEGAN, Name};
use crate::names::{Names, decoded};
use crate::session::new_id;
use crate::uploads::UploadPart;
use crate::version::{DirtyVersion, Trash};

/// References to bytes in the tier's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencePage {
    /// The kind of the references on this page.
    pub kind: ReferenceKind,
    /// The keys of the bytes. A key may occur on several pages, and several times on one.
    pub keys: Vec<Arc<str>>,
    /// The names of the dirty objects, on a page of entries.
    pub dirty: Vec<Name>,
    /// The position to continue from; `None` after the last page.
    pub next: Option<ReferencePosition>,
}

/// A position between two pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencePosition {
    kind: ReferenceKind,
    after: Bytes,
}

/// A kind of registry key whose value refers to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceKind {
    /// A part of an upload that is open, or has just ended.
    Part,
    /// The entry of a name.
    Entry,
    /// Bytes that are no longer needed.
    Trash,
}

impl Names {
    /// Returns the references in at most `limit` of the registry's keys, from the position `from`, or from
    /// the beginning.
    ///
    /// # Errors
    ///
    /// The registry does not answer, or this build cannot read an entry.
    pub async fn references(
        &self,
        from: Option<ReferencePosition>,
        limit: usize,
    ) -> Result<ReferencePage, EngineError> {
        let ReferencePosition { kind, after } =
            from.unwrap_or(ReferencePosition::start_of(ReferenceKind::Part));
        let prefix = Bytes::from_static(kind.prefix());
        let range = Range { prefix, after, limit };
        let Page { entries, has_more } = self.engine.range(range).await?;
        let (mut keys, mut dirty) = (Vec::with_capacity(entries.len()), Vec::new());
        for (key, stored) in &entries {
            let (is_dirty, named) = kind.named_in(&stored.value)?;
            keys.extend(named);
            dirty.extend(Name::of_entry_key(key).filter(|_| is_dirty));
        }
        let next = if has_more {
            let (last, _) = entries.last().expect("a page that has more has a key");
            let after = last.clone();
            Some(ReferencePosition { kind, after })
        } else {
            kind.next().map(ReferencePosition::start_of)
        };
        Ok(ReferencePage {
            kind,
            keys,
            dirty,
            next,
        })
    }

    /// Returns the id that records when the registry was created. The first call sets it.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn began(&self) -> Result<Ulid, EngineError> {
        let key = Bytes::from_static(BEGAN);
        loop {
            if let Some(stored) = self.engine.get(&key).await? {
                let began = keys::id_in(&stored.value);
                return began.ok_or_else(|| EngineError::Refused("its beginning cannot be read".into()));
            }
            let changes = vec![Change::put(key.clone(), new_id().to_string().into())];
            match self.commit(vec![Condition::absent(key.clone())], changes).await {
                Ok(Outcome::Committed(_) | Outcome::Conflict) | Err(EngineError::Unknown(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl ReferencePosition {
    fn start_of(kind: ReferenceKind) -> Self {
        Self {
            kind,
            after: Bytes::new(),
        }
    }
}

impl ReferenceKind {
    /// Returns the prefix of keys of this kind.
    const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Part => keys::PARTS,
            Self::Entry => keys::ENTRIES,
            Self::Trash => keys::TRASH,
        }
    }

    /// Returns the kind that references move to next, see the module.
    const fn next(self) -> Option<Self> {
        match self {
            Self::Part => Some(Self::Entry),
            Self::Entry => Some(Self::Trash),
            Self::Trash => None,
        }
    }

    /// Returns true if a value of this kind is the entry of a dirty object, and the keys of the bytes that it
    /// refers to.
    fn named_in(self, value: &Bytes) -> Result<(bool, Vec<Arc<str>>), EngineError> {
        Ok(match self {
            Self::Part => (false, vec![decoded::<UploadPart>(value)?.data]),
            Self::Entry => match decoded::<Entry<DirtyVersion>>(value)?.current {
                Some(version) => (true, version.data),
                None => (false, Vec::new()),
            },
            Self::Trash => match decoded(value)? {
                Trash::Data(data) => (false, data),
                // The parts have keys of their own until their bytes are removed.
                Trash::Parts { .. } => (false, Vec::new()),
            },
        })
    }
}
