//! The dirty state of a name: an object, or the tombstone of one.

use std::sync::Arc;

use http::HeaderMap;
use serde::{Deserialize, Serialize};
use shoal_registry::session::new_id;
use shoal_registry::{DirtyVersion, Lifetime};
use shoal_s3::identity::Caller;
use shoal_s3::object::ObjectName;

use super::format::{Unreadable, decoded, encoded, headers};
use super::manifest::{Manifest, Naming, is_writer};

/// The dirty state of a name.
#[derive(Clone, Debug)]
pub enum Dirty {
    /// An object.
    Object(Arc<Manifest>),
    /// No object; the lake is to remove its own.
    Tombstone(Arc<Tombstone>),
}

/// A removal that is acknowledged, and that the lake has not carried out yet.
#[derive(Clone, Debug)]
pub struct Tombstone {
    /// The name of the object, without a `versionId`.
    pub name: ObjectName,
    pub(crate) record: RemovalRecord,
}

/// The part of a tombstone that the registry stores as opaque bytes. Removals with equal records in one
/// bucket are one request at the lake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemovalRecord {
    /// The access key of the identity that removed the object.
    pub(crate) writer: Arc<str>,
    /// The headers to send to the lake.
    #[serde(with = "headers")]
    pub(crate) headers: HeaderMap,
}

impl Dirty {
    /// Reads what is dirty under `name` from its registry entry.
    ///
    /// # Errors
    ///
    /// The record is inconsistent, or was written by a build that this one cannot read.
    pub(crate) fn new(name: &ObjectName, dirty: &DirtyVersion, naming: &Naming) -> Result<Self, Unreadable> {
        Ok(if dirty.is_tombstone {
            Self::Tombstone(Arc::new(Tombstone::new(name, dirty)?))
        } else {
            Self::Object(Arc::new(Manifest::new(name, dirty, naming)?))
        })
    }

    /// The name, without a `versionId`.
    pub fn name(&self) -> &ObjectName {
        match self {
            Self::Object(manifest) => &manifest.name,
            Self::Tombstone(tombstone) => &tombstone.name,
        }
    }

    /// Returns true if the caller has written or removed the object.
    pub fn is_of(&self, caller: &Caller) -> bool {
        is_writer(
            caller,
            match self {
                Self::Object(manifest) => &manifest.record.writer,
                Self::Tombstone(tombstone) => &tombstone.record.writer,
            },
        )
    }

    /// Returns the object, if there is one.
    pub fn object(&self) -> Option<&Arc<Manifest>> {
        match self {
            Self::Object(manifest) => Some(manifest),
            Self::Tombstone(_) => None,
        }
    }

    /// Returns true if this is a tombstone.
    pub fn is_tombstone(&self) -> bool {
        self.object().is_none()
    }
}

impl Tombstone {
    /// Reads the tombstone of `name` from its registry entry.
    ///
    /// # Errors
    ///
    /// The record was written by a build that this one cannot read.
    pub(crate) fn new(name: &ObjectName, dirty: &DirtyVersion) -> Result<Self, Unreadable> {
        Ok(Self {
            name: name.clone(),
            record: decoded(&dirty.record)?,
        })
    }
}

impl RemovalRecord {
    /// Returns a new tombstone for the registry.
    pub(crate) fn tombstone(&self, node: u64) -> DirtyVersion {
        DirtyVersion {
            id: new_id(),
            node,
            size_bytes: 0,
            lifetime: Lifetime::Normal,
            data: Vec::new(),
            record: encoded(self),
            is_tombstone: true,
            content: None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use http::{HeaderMap, HeaderValue, header};
    use shoal_s3::object::ObjectName;

    use super::{Dirty, RemovalRecord, Tombstone};
    use crate::dirty::record::manifest::tests::naming;

    fn name(key: &str) -> ObjectName {
        ObjectName {
            bucket: "b".into(),
            key: key.as_bytes().into(),
            version: None,
        }
    }

    fn record() -> RemovalRecord {
        RemovalRecord {
            writer: "AK".into(),
            headers: HeaderMap::from_iter([(header::REFERER, HeaderValue::from_static("here"))]),
        }
    }

    /// The tombstone of an object.
    pub(crate) fn tombstone(key: &str) -> Dirty {
        Dirty::Tombstone(Arc::new(Tombstone {
            name: name(key),
            record: record(),
        }))
    }

    #[test]
    fn a_tombstone_reads_back_unchanged_and_is_no_object() {
        let version = record().tombstone(7);
        assert!(version.is_tombstone && version.node == 7 && version.data.is_empty());
        let read = Dirty::new(&name("k"), &version, &naming()).unwrap();
        assert!(read.is_tombstone() && read.object().is_none());
        let Dirty::Tombstone(read) = read else {
            unreachable!()
        };
        assert_eq!(read.record, record());
    }
}
