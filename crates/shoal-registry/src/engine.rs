//! The durable, linearizable map from keys to small values on which a registry is built.
//!
//! Every engine passes the same conformance suite, `tests/engines/conformance.rs`.
//!
//! - [`embedded`]: a file in a folder, for one process.
//! - [`etcd`]: a cluster of etcd.
//! - [`checked`]: either of them, once it is known to be the registry that the tier's objects are in.

pub mod checked;
pub mod embedded;
pub mod etcd;
mod looks;

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, Stream, TryStreamExt};

/// The maximum number of conditions, and of changes, in a transaction: etcd's default limit.
pub const OPERATIONS_MAX: usize = 128;

/// The maximum size of all keys and values in a transaction. etcd accepts requests of 1.5 MiB by default; the
/// rest is for the lengths and revisions in them.
pub const TRANSACTION_BYTES_MAX: usize = (3 << 19) - (32 << 10);

/// Orders the changes of a registry. Each transaction that changes anything gets a greater revision than all
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A value, and the revision at which its key last changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The value.
    pub value: Bytes,
    /// The revision of the key's last change.
    pub revision: Revision,
}

/// A session of a node. Keys that were put with it disappear when it ends: when the node closes it, or has
/// not renewed it for its time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub u64);

/// A range of keys in ascending order.
#[derive(Clone, Debug)]
pub struct Range {
    /// The prefix of the keys.
    pub prefix: Bytes,
    /// The keys are greater than this. Empty for no lower limit.
    pub after: Bytes,
    /// Maximum number of keys, at least 1. An engine may return fewer although there are more.
    pub limit: usize,
}

/// Some keys with their values, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The keys and values in ascending order of keys.
    pub entries: Vec<(Bytes, Stored)>,
    /// True if there are more keys after the last one.
    pub has_more: bool,
}

/// Changes that are carried out atomically.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// The conditions, all of which must hold. At most [`OPERATIONS_MAX`].
    pub conditions: Vec<Condition>,
    /// The changes, with distinct keys. At most [`OPERATIONS_MAX`].
    pub changes: Vec<Change>,
}

impl From<Change> for Transaction {
    /// Creates a transaction of one change without a condition.
    fn from(change: Change) -> Self {
        Self {
            conditions: Vec::new(),
            changes: vec![change],
        }
    }
}

impl Transaction {
    /// Fails if the transaction exceeds what engines accept.
    fn check(&self) -> Result<(), EngineError> {
        if self.conditions.len().max(self.changes.len()) > OPERATIONS_MAX {
            let refused = format!("a transaction has more than {OPERATIONS_MAX} conditions or changes");
            return Err(EngineError::Refused(refused));
        }
        if self.bytes() > TRANSACTION_BYTES_MAX {
            let refused = format!("a transaction has more than {TRANSACTION_BYTES_MAX} bytes");
            return Err(EngineError::Refused(refused));
        }
        let mut keys = HashSet::new();
        if self.changes.iter().all(|change| keys.insert(change.key())) {
            Ok(())
        } else {
            Err(EngineError::Refused("a transaction changes a key twice".into()))
        }
    }

    /// Returns a condition on a key that the transaction itself changes. While it still holds, the
    /// transaction has not happened, unless the key has been removed again since.
    fn changed_condition(&self) -> Option<&Condition> {
        let is_changed = |key| self.changes.iter().any(|change| change.key() == key);
        self.conditions
            .iter()
            .find(|condition| is_changed(&condition.key))
    }

    /// Returns the size of all keys and values.
    fn bytes(&self) -> usize {
        let conditions = self.conditions.iter().map(|condition| condition.key.len());
        let changes = self.changes.iter().map(|change| match change {
            Change::Put { key, value, .. } => key.len() + value.len(),
            Change::Delete { key } => key.len(),
        });
        conditions.chain(changes).sum()
    }
}

/// Requires that a key has not changed since a node read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The key.
    pub key: Bytes,
    /// The revision of the key's last change; `None` if the key did not exist.
    pub revision: Option<Revision>,
}

impl Condition {
    /// Requires that a key does not exist.
    pub fn absent(key: Bytes) -> Self {
        Self { key, revision: None }
    }
}

/// The change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets the value of a key.
    Put {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
        /// The session with which the key disappears, if any.
        session: Option<SessionId>,
    },
    /// Removes a key, if it exists.
    Delete {
        /// The key.
        key: Bytes,
    },
}

impl Change {
    /// Creates a change that sets the value of a key independent of any session.
    pub fn put(key: Bytes, value: Bytes) -> Self {
        Self::Put {
            key,
            value,
            session: None,
        }
    }

    /// Creates a change that removes a key.
    pub fn delete(key: Bytes) -> Self {
        Self::Delete { key }
    }

    /// Returns the key that changes.
    pub fn key(&self) -> &Bytes {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// How full an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The bytes in use.
    pub used_bytes: u64,
    /// The limit, at which the engine accepts nothing more.
    pub quota_bytes: u64,
}

impl Room {
    /// The reserve for operations that free room, in percent of the quota.
    const RESERVE_PERCENT: u64 = 20;
    /// The minimum of that reserve, in bytes.
    const RESERVE_BYTES_MIN: u64 = 4 << 20;

    /// Returns true if more than half of the quota is used. Bytes of objects then take no more of it.
    pub fn is_half_full(self) -> bool {
        self.used_bytes > self.quota_bytes / 2
    }

    /// Returns true if only the reserve is left. It is for operations that free room: flushes, and the ends
    /// of changes and uploads.
    pub fn is_scarce(self) -> bool {
        let reserve = self.quota_bytes / 100 * Self::RESERVE_PERCENT;
        self.quota_bytes.saturating_sub(self.used_bytes) < reserve.max(Self::RESERVE_BYTES_MIN)
    }
}

/// The outcome of a transaction, if it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All changes were carried out at this revision, and survive any crash.
    Committed(Revision),
    /// A condition does not hold, and nothing changed.
    Conflict,
}

/// An engine could not carry out an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// Nothing changed: the engine was unreachable, or has no majority.
    #[error("the registry cannot be reached: {0}")]
    Unavailable(String),
    /// The response was lost: the transaction may have happened, or may still happen.
    #[error("the registry did not answer: {0}")]
    Unknown(String),
    /// Nothing changed: the engine has no room.
    #[error("the registry is full: {0}")]
    Full(String),
    /// The session has ended or never existed.
    #[error("the session of this node has ended")]
    SessionEnded,
    /// The engine rejected this node or its request; a retry does not help.
    #[error("the registry refuses: {0}")]
    Refused(String),
}

/// A store of small values that orders all changes.
/// All methods may be called concurrently, and each future may be dropped before it ends: a transaction may
/// then have happened or not.
#[async_trait]
pub trait Engine: fmt::Debug + Send + Sync {
    /// Reads a key. The result is at least as new as every transaction that ended before the call
    /// (linearizable).
    async fn get(&self, key: &[u8]) -> Result<Option<Stored>, EngineError> {
        let found = self.get_together(&[Bytes::copy_from_slice(key)]).await?;
        Ok(found.into_iter().next().flatten())
    }

    /// Reads at most [`OPERATIONS_MAX`] keys as of one moment. Returns their values in the same order.
    /// Linearizable like [`Engine::get`]. If their values are too large for one request, each key is read
    /// after those before it.
    async fn get_together(&self, keys: &[Bytes]) -> Result<Vec<Option<Stored>>, EngineError>;

    /// Reads keys in order. Linearizable like [`Engine::get`].
    async fn range(&self, range: Range) -> Result<Page, EngineError>;

    /// Counts the keys that begin with `prefix`. Linearizable.
    async fn count(&self, prefix: &[u8]) -> Result<u64, EngineError>;

    /// Carries out the changes if all conditions hold.
    async fn commit(&self, transaction: Transaction) -> Result<Outcome, EngineError>;

    /// Returns how full the engine is.
    async fn room(&self) -> Result<Room, EngineError>;

    /// Opens a session that ends when it has not been renewed for `time_to_live`. An engine may round up to
    /// seconds.
    async fn open_session(&self, time_to_live: Duration) -> Result<SessionId, EngineError>;

    /// Renews a session, for its whole time to live from now on.
    async fn renew_session(&self, session: SessionId) -> Result<(), EngineError>;

    /// Ends a session, and removes its keys.
    async fn close_session(&self, session: SessionId) -> Result<(), EngineError>;
}

impl dyn Engine {
    /// Returns all keys that begin with `prefix`, in order, read in pages of at most `limit`. A key that
    /// exists all the time is among them.
    pub(crate) fn all(
        &self,
        prefix: Bytes,
        limit: usize,
    ) -> impl Stream<Item = Result<(Bytes, Stored), EngineError>> + Send {
        self.all_after(prefix, Bytes::new(), limit)
    }

    /// Returns those of all keys that begin with `prefix` which follow `after`.
    pub(crate) fn all_after(
        &self,
        prefix: Bytes,
        after: Bytes,
        limit: usize,
    ) -> impl Stream<Item = Result<(Bytes, Stored), EngineError>> + Send {
        let pages = stream::try_unfold(Some(after), move |after| {
            let prefix = prefix.clone();
            async move {
                let Some(after) = after else { return Ok(None) };
                let page = self.range(Range { prefix, after, limit }).await?;
                let last = page.entries.last().map(|(key, _)| key.clone());
                if page.has_more && last.is_none() {
                    return Err(EngineError::Unavailable(
                        "a page is empty, but more follow".into(),
                    ));
                }
                let next = last.filter(|_| page.has_more);
                Ok(Some((stream::iter(page.entries.into_iter().map(Ok)), next)))
            }
        });
        pages.try_flatten()
    }
}

/// Returns the least key that is greater than all keys with `prefix`, or `None` if there is none.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::{Room, prefix_end};

    #[test]
    fn a_fifth_of_the_quota_is_for_what_makes_room() {
        let is_scarce = |used_bytes, quota_bytes| {
            Room {
                used_bytes,
                quota_bytes,
            }
            .is_scarce()
        };
        assert!(!is_scarce(1_638 << 20, 2 << 30) && is_scarce(1_639 << 20, 2 << 30));
        assert!(!is_scarce(12 << 20, 16 << 20) && is_scarce(13 << 20, 16 << 20));
        assert!(is_scarce(3 << 30, 2 << 30));
    }

    #[test]
    fn keys_above_a_prefix_begin_after_its_last_byte_that_can_grow() {
        assert_eq!(prefix_end(b"a"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
