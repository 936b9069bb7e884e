//! The bytes that a registry names, for the sweep of a tier's store.
//!
//! The name of a piece moves on while nodes work: from a part to the entry of the object that a completion
//! makes of it, and from either to the trash. It never moves back. So parts are read first, then entries,
//! then the trash: a piece that is named all the time is on one of the pages, although they were read at
//! different times.

use std::sync::Arc;

use bytes::Bytes;
use ulid::Ulid;

use crate::engine::{At, Change, Condition, EngineError, Outcome, Page, Range, Transaction};
use crate::entry::Entry;
use crate::keys::{self, BEGAN, Name};
use crate::names::{Names, decoded};
use crate::session::new_id;
use crate::uploads::UploadPart;
use crate::version::{DirtyVersion, Trash};

/// Some keys of bytes in the tier's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencePage {
    /// What names the bytes on this page.
    pub kind: ReferenceKind,
    /// The keys. One may be on several pages, and more than once on one.
    pub keys: Vec<Arc<str>>,
    /// The names of the dirty objects, on a page of entries.
    pub dirty: Vec<Name>,
    /// Where to go on; `None` after the last page.
    pub next: Option<ReferencePosition>,
}

/// A place between two pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferencePosition {
    kind: ReferenceKind,
    after: Bytes,
}

/// A kind of key of the registry whose value names bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceKind {
    /// A part of an upload that is open, or ended a moment ago.
    Part,
    /// The entry of a name.
    Entry,
    /// Bytes that are no longer needed.
    Trash,
}

impl Names {
    /// The bytes that the registry names, from at most `limit` of its keys. The first page has no `from`.
    ///
    /// # Errors
    ///
    /// Fails if the registry cannot be asked, or if this build cannot read an entry.
    pub async fn references(
        &self,
        from: Option<ReferencePosition>,
        limit: usize,
    ) -> Result<ReferencePage, EngineError> {
        let ReferencePosition { kind, after } =
            from.unwrap_or(ReferencePosition::start_of(ReferenceKind::Part));
        let range = Range {
            prefix: Bytes::from_static(kind.prefix()),
            after,
            limit,
            at: At::Newest,
        };
        let Page {
            entries, has_more, ..
        } = self.engine.range(range).await?;
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

    /// The id that tells when the registry was new. The first call sets it.
    ///
    /// # Errors
    ///
    /// Fails if the registry cannot be asked.
    pub async fn began(&self) -> Result<Ulid, EngineError> {
        let key = Bytes::from_static(BEGAN);
        loop {
            if let Some(stored) = self.engine.get(&key).await? {
                let began = keys::id_in(&stored.value);
                return began.ok_or_else(|| EngineError::Refused("its beginning cannot be read".into()));
            }
            let transaction = Transaction {
                conditions: vec![Condition {
                    key: key.clone(),
                    revision: None,
                }],
                changes: vec![Change::put(key.clone(), new_id().to_string().into())],
            };
            match self.engine.commit(transaction).await {
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
    /// The beginning of the keys of this kind.
    const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Part => keys::PARTS,
            Self::Entry => keys::ENTRIES,
            Self::Trash => keys::TRASH,
        }
    }

    /// The kind that a name of bytes moves to, see the module.
    const fn next(self) -> Option<Self> {
        match self {
            Self::Part => Some(Self::Entry),
            Self::Entry => Some(Self::Trash),
            Self::Trash => None,
        }
    }

    /// Returns whether a value of this kind is the entry of a dirty object, and the bytes that it names.
    fn named_in(self, value: &Bytes) -> Result<(bool, Vec<Arc<str>>), EngineError> {
        Ok(match self {
            Self::Part => (false, vec![decoded::<UploadPart>(value)?.data]),
            Self::Entry => match decoded::<Entry<DirtyVersion>>(value)?.current {
                Some(version) => (true, version.data),
                None => (false, Vec::new()),
            },
            Self::Trash => match decoded(value)? {
                Trash::Data(data) => (false, data),
                // Their parts have keys of their own until their bytes are gone.
                Trash::Parts { .. } => (false, Vec::new()),
            },
        })
    }
}
