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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ulid::Ulid;

    use super::{DirtyVersion, Lifetime, Trash};
    use crate::entry::{Busy, Entry, Kind, Owner};
    use crate::names::encoded;

    /// Other bytes need another `FORMAT` of the registry (decision 0061).
    #[test]
    fn entries_and_lists_have_the_same_bytes_in_every_release() {
        let current = DirtyVersion {
            id: Ulid(7),
            node: 300,
            size_bytes: 250,
            lifetime: Lifetime::Short,
            data: vec!["p1".into(), "p2".into()],
            record: Bytes::from_static(b"record"),
            is_tombstone: false,
            content: None,
        };
        let owner = Owner {
            node: 300,
            life: Ulid(5),
        };
        let busy = |kind| Busy {
            kind,
            owner,
            token: Ulid(9),
            of: Some(Ulid(7)),
        };
        let entry = Entry {
            current: Some(current),
            busy: Some(busy(Kind::Flush)),
        };
        assert_eq!(
            encoded(&entry).escape_ascii().to_string(),
            "\\x02\\x01\\x1a00000000000000000000000007\\xac\\x02\\xfa\\x01\\x01\\x02\\x02p1\\x02\
             p2\\x06record\\x00\\x01\\x00\\xac\\x02\\x1a00000000000000000000000005\\x1a000000000\
             00000000000000009\\x01\\x1a00000000000000000000000007"
        );
        assert_eq!(encoded(&Entry::<DirtyVersion>::default())[..], *b"\x02\x00\x00");
        assert_eq!(encoded(&Kind::Delete)[..], *b"\x02\x01");
        let parts = Trash::Parts {
            upload: Ulid(1),
            kept: vec![(1, 300)],
        };
        assert_eq!(
            encoded(&parts).escape_ascii().to_string(),
            "\\x02\\x01\\x1a00000000000000000000000001\\x01\\x01\\xac\\x02"
        );
        let data = Trash::Data(vec!["p1".into()]);
        assert_eq!(encoded(&data)[..], *b"\x02\x00\x01\x02p1");
    }
}
