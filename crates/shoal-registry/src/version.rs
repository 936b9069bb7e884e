//! A dirty object in the registry.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::entry::Versioned;
use crate::keys::NodeList;
use crate::receipts::ReceiptId;

/// A dirty object, or the tombstone of an object that the lake may still have. The registry orders it, finds
/// it when it is due, and counts its bytes; `record` is opaque.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirtyVersion {
    /// The unique id of the object. It begins with the time of the write by its node's clock, in
    /// milliseconds. The ids of the versions of an entry ascend; of two names, the order is wrong if the
    /// clocks of their nodes differ or were set back.
    pub id: Ulid,
    /// The node that accepted the write and flushes the object.
    pub node: u64,
    /// The size of the object in bytes.
    pub size_bytes: u64,
    /// How long the object stays before it is flushed.
    pub lifetime: Lifetime,
    /// The keys of the object's bytes in the tier's store. Empty if it has no bytes, or is
    /// [inline](Self::is_inline).
    pub data: Vec<Arc<str>>,
    /// Opaque to the registry: everything else about the object.
    pub record: Bytes,
    /// True if this is a tombstone: the name has no object, and the lake is to remove its own. It has no
    /// bytes.
    pub is_tombstone: bool,
    /// The bytes of an inline object. Lists of objects do not bring them.
    #[serde(skip)]
    pub content: Option<Content>,
}

/// The bytes of an object that the registry keeps itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(pub Bytes);

/// The bytes belong to a client, and into no log.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// How long an object stays dirty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Lifetime {
    /// Until the cleaner's age.
    #[default]
    Normal,
    /// The object is expected to be removed soon, so it stays several times as long as such objects usually
    /// live (dissertation 4.5.2, "short-lived").
    Short,
}

impl DirtyVersion {
    /// Returns true if the registry has the bytes of the object itself, beside its entry (dissertation
    /// 4.6.1).
    pub fn is_inline(&self) -> bool {
        self.data.is_empty() && self.size_bytes > 0
    }

    /// Returns the receipt of the object.
    pub fn receipt(&self) -> ReceiptId {
        ReceiptId {
            id: self.id,
            node: self.node,
        }
    }

    /// Returns the list of its node that has the object.
    pub fn list(&self) -> NodeList {
        match self.lifetime {
            _ if self.is_tombstone => NodeList::Removed,
            Lifetime::Normal => NodeList::Dirty,
            Lifetime::Short => NodeList::Short,
        }
    }
}

/// Bytes that are no longer needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trash {
    /// The bytes under these keys.
    Data(Vec<Arc<str>>),
    /// The parts of an upload that has ended, except for the bytes of those that an object was made of.
    Parts {
        /// The upload.
        upload: Ulid,
        /// The parts whose bytes belong to an object, as runs of first and last number.
        kept: Vec<(u16, u16)>,
    },
}

impl Versioned for DirtyVersion {
    fn id(&self) -> Ulid {
        self.id
    }
}
