//! Receipts: pieces in the tier's store from which a lost registry is recovered (dissertation 4.5.4).
//!
//! A receipt has a dirty version and its name. Five rules let the newest receipt of a name stand for its
//! entry:
//!
//! 1. A version is committed after its receipt is stored.
//! 2. The versions of an entry have ascending ids, so the newest receipt is that of the current version.
//! 3. The receipt of a replaced version is removed after the commit that replaces it.
//! 4. Before the commit that leaves a name without a dirty version, its receipts are removed: those of
//!    replaced versions first, so that none of them is ever the newest; then the last one, which the lake no
//!    longer needs.
//! 5. A commit is sent within the fence of its receipt.
//!
//! An entry lists the receipts of its name. One that no entry lists belongs to a write that was not
//! committed: its node crashed, or could not remove the receipt. By the last rule it may be swept after twice
//! the fence. `tests/receipts/` searches all short schedules for a registry that would be recovered wrongly.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::entry::{Entry, Versioned};
use crate::keys::Name;
use crate::names::{decoded, encoded};
use crate::version::{Content, DirtyVersion};

/// The most receipts of replaced versions that an entry lists. Before one more, a write removes them.
pub const REPLACED_MAX: usize = 8;

/// The receipt of a dirty version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReceiptId {
    /// The id of the version.
    pub id: Ulid,
    /// The node that accepted it.
    pub node: u64,
}

/// The prefix of the keys of all receipts in a tier's store.
pub const RECEIPTS: &str = "receipt-";

impl ReceiptId {
    /// Returns the key of the receipt in the tier's store.
    pub fn key(self) -> Arc<str> {
        format!("{RECEIPTS}{:016x}-{}", self.node, self.id).into()
    }
}

/// The receipts of a name that may be in the tier's store, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Receipts(Vec<ReceiptId>);

impl Receipts {
    /// Returns true if the name has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the receipts.
    pub fn ids(&self) -> &[ReceiptId] {
        &self.0
    }

    /// Adds the receipt of another version, newer or not.
    #[must_use]
    pub fn with(&self, receipt: ReceiptId) -> Self {
        let mut all = self.0.clone();
        if let Err(place) = all.binary_search(&receipt) {
            all.insert(place, receipt);
        }
        Self(all)
    }

    /// Returns the receipts of versions before `id`.
    #[must_use]
    pub fn before(&self, id: Ulid) -> Self {
        Self(self.0.iter().filter(|receipt| receipt.id < id).copied().collect())
    }

    /// Returns the receipts of `id` and of versions after it.
    #[must_use]
    pub fn since(&self, id: Ulid) -> Self {
        Self(
            self.0
                .iter()
                .filter(|receipt| receipt.id >= id)
                .copied()
                .collect(),
        )
    }

    /// Returns the receipts of versions after `id`: those that remain when the change that was about `id` is
    /// done.
    #[must_use]
    pub fn after(&self, id: Ulid) -> Self {
        Self(self.0.iter().filter(|receipt| receipt.id > id).copied().collect())
    }

    /// Returns the receipt of this version.
    pub fn of(&self, id: Ulid) -> Option<ReceiptId> {
        self.0.iter().find(|receipt| receipt.id == id).copied()
    }
}

/// Returns the bytes of a receipt: a version and its name, with the bytes of an inline object.
pub fn encoded_receipt(name: &Name, version: &DirtyVersion) -> Bytes {
    let content = version.content.as_ref().map(|Content(content)| content);
    encoded(&(name.to_bytes(), version, content))
}

/// Inverse of [`encoded_receipt`].
///
/// # Errors
///
/// The bytes are no receipt, or a build wrote it that this one cannot read.
pub fn decoded_receipt(bytes: &Bytes) -> Result<(Name, DirtyVersion), ReceiptError> {
    let receipt: Result<(Bytes, DirtyVersion, Option<Bytes>), _> = decoded(bytes);
    let (name, mut version, content) = receipt.map_err(|error| ReceiptError(error.to_string().into()))?;
    let name = Name::from_bytes(name).ok_or_else(|| ReceiptError("one has no name".into()))?;
    version.content = content.map(Content);
    let size_bytes = version
        .content
        .as_ref()
        .map_or(0, |Content(content)| content.len() as u64);
    if version.is_inline() && size_bytes != version.size_bytes {
        return Err(ReceiptError("one has other bytes than its object".into()));
    }
    Ok((name, version))
}

/// Returns the entry and the receipts of a name after one of its receipts is found, as a lost registry is
/// recovered: receipts come in any order, and the newest version is the current one. A name may have been
/// written to since.
pub fn restored<V: Versioned + Clone>(
    (entry, receipts): (&Entry<V>, &Receipts),
    version: V,
    receipt: ReceiptId,
) -> (Entry<V>, Receipts) {
    let is_newest = entry.current_id() < Some(version.id());
    let entry = if is_newest {
        entry.written(version)
    } else {
        entry.clone()
    };
    (entry, receipts.with(receipt))
}

/// The receipts in the store of a tier.
#[async_trait]
pub trait ReceiptStore: fmt::Debug + Send + Sync {
    /// Returns true if new versions get receipts. Those that exist are removed in any case.
    fn are_written(&self) -> bool;

    /// Stores the receipt of a version, with the bytes of an inline object. Once this returns `Ok`, it is as
    /// durable as the bytes of objects.
    ///
    /// # Errors
    ///
    /// The receipt may be stored or not.
    async fn write(&self, name: &Name, version: &DirtyVersion) -> Result<(), ReceiptError>;

    /// Returns true if there is a receipt.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    async fn exist(&self) -> Result<bool, ReceiptError>;

    /// Removes receipts, in any order. One that does not exist counts as removed.
    ///
    /// # Errors
    ///
    /// Some may remain.
    async fn remove(&self, receipts: &[ReceiptId]) -> Result<(), ReceiptError>;
}

/// The tier's store did not store or remove a receipt. The message is for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("receipts: {0}")]
pub struct ReceiptError(pub Arc<str>);

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::{ReceiptId, Receipts, decoded_receipt, encoded_receipt};
    use crate::keys::Name;
    use crate::version::{Content, DirtyVersion, Lifetime};

    fn receipt(id: u128) -> ReceiptId {
        ReceiptId {
            id: Ulid(id),
            node: 7 - id as u64,
        }
    }

    fn receipts(ids: &[u128]) -> Receipts {
        Receipts(ids.iter().map(|id| receipt(*id)).collect())
    }

    #[test]
    fn receipts_ascend_by_their_versions_and_are_listed_once() {
        let all = [2, 1, 3, 2].into_iter();
        let all = all.fold(Receipts::default(), |all, id| all.with(receipt(id)));
        assert_eq!(all, receipts(&[1, 2, 3]));
        assert_eq!(all.before(Ulid(2)), receipts(&[1]));
        assert_eq!(all.since(Ulid(2)), receipts(&[2, 3]));
        assert_eq!(all.after(Ulid(2)), receipts(&[3]));
        assert_eq!(all.of(Ulid(3)), Some(receipt(3)));
        assert!(all.after(Ulid(3)).is_empty() && all.of(Ulid(4)).is_none());
    }

    #[test]
    fn a_receipt_reads_back_with_the_bytes_of_an_inline_object_and_nothing_else_does() {
        let name = Name::new("bucket", b"k/\xff");
        let version = DirtyVersion {
            id: Ulid(5),
            node: 3,
            size_bytes: 4,
            lifetime: Lifetime::Short,
            data: Vec::new(),
            record: "opaque".into(),
            is_tombstone: false,
            content: Some(Content("tiny".into())),
        };
        let bytes = encoded_receipt(&name, &version);
        assert_eq!(decoded_receipt(&bytes), Ok((name.clone(), version.clone())));
        for end in 0..bytes.len() {
            assert!(decoded_receipt(&bytes.slice(..end)).is_err(), "{end}");
        }
        let short = DirtyVersion {
            size_bytes: 5,
            ..version
        };
        assert!(decoded_receipt(&encoded_receipt(&name, &short)).is_err());
    }

    #[test]
    fn the_key_of_a_receipt_ends_in_its_id() {
        let receipt = ReceiptId {
            id: Ulid::from_parts(1, 2),
            node: 0xabc,
        };
        let key = receipt.key();
        assert_eq!(&*key, "receipt-0000000000000abc-00000000010000000000000002");
    }
}
