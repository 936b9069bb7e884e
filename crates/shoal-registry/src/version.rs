//! A dirty object as the registry keeps it.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::entry::Versioned;
use crate::keys::NodeList;

/// A dirty object. The registry orders it, finds it when it is due, and counts its bytes; the rest is opaque.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirtyVersion {
    /// Names the object; no two objects share an id. It begins with the time of the write by its node's
    /// clock, in milliseconds. The order of ids is the order of these times: it says nothing about two writes
    /// within a millisecond, and is wrong about two between which the clock was set back.
    pub id: Ulid,
    /// The node that took the write and brings it to the lake.
    pub node: u64,
    /// The size of the object in bytes.
    pub size_bytes: u64,
    /// How long the object stays before it goes to the lake.
    pub lifetime: Lifetime,
    /// The keys of its bytes in the tier's store.
    pub data: Vec<Arc<str>>,
    /// Everything else that nodes know of the object.
    pub record: Bytes,
}

/// How long an object stays dirty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Lifetime {
    /// As long as the cleaner's age.
    #[default]
    Normal,
    /// The object is expected to be removed soon: it stays several times as long as such objects live
    /// (dissertation 4.5.2, "short-lived").
    Short,
}

impl DirtyVersion {
    /// The list of its node that the object is in.
    pub fn list(&self) -> NodeList {
        match self.lifetime {
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
    /// The parts of an upload that has ended, but for the bytes of those that an object was made of.
    Parts {
        /// The upload.
        upload: Ulid,
        /// The parts whose bytes are an object's: runs of numbers, each by its first and last.
        kept: Vec<(u16, u16)>,
    },
}

impl Versioned for DirtyVersion {
    fn id(&self) -> Ulid {
        self.id
    }
}
