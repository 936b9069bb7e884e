//! What requests share a permission.

use std::sync::Arc;

use shoal_s3::identity::CallerId;

/// The kind of permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// To write an object whose ETag the node can compute.
    Back,
    /// To write an object.
    Write,
    /// To remove an object.
    Remove,
    /// To change an object's ACL, tags or locks.
    Describe,
}

/// The scope of a permission: requests in the same group share it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) caller: CallerId,
    pub(super) bucket: Arc<str>,
    pub(super) rule: usize,
    pub(super) kind: Kind,
    /// The folder of the keys. Empty for permissions that extend to the whole rule.
    pub(super) folder: Box<[u8]>,
}

impl Group {
    /// The same group, for the permission to begin a write.
    pub(super) fn write(&self) -> Self {
        Self {
            kind: Kind::Write,
            folder: Box::default(),
            ..self.clone()
        }
    }
}
