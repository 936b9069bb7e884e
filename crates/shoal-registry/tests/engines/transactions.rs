//! Transactions for tests.

use bytes::Bytes;
use shoal_registry::engine::{Change, Condition, Revision, SessionId, Transaction};

/// Builds transactions.
pub(crate) trait Building {
    fn and(self, other: Transaction) -> Self;
    fn if_absent(self, key: &[u8]) -> Self;
    fn if_at(self, key: &[u8], revision: Revision) -> Self;
}

impl Building for Transaction {
    fn and(mut self, other: Transaction) -> Self {
        self.conditions.extend(other.conditions);
        self.changes.extend(other.changes);
        self
    }

    fn if_absent(mut self, key: &[u8]) -> Self {
        self.conditions.push(Condition {
            key: Bytes::copy_from_slice(key),
            revision: None,
        });
        self
    }

    fn if_at(mut self, key: &[u8], revision: Revision) -> Self {
        self.conditions.push(Condition {
            key: Bytes::copy_from_slice(key),
            revision: Some(revision),
        });
        self
    }
}

pub(crate) fn put(key: &[u8], value: &[u8]) -> Transaction {
    Change::put(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)).into()
}

pub(crate) fn put_with(key: &[u8], session: SessionId) -> Transaction {
    let put = Change::Put {
        key: Bytes::copy_from_slice(key),
        value: Bytes::new(),
        session: Some(session),
    };
    put.into()
}

pub(crate) fn delete(key: &[u8]) -> Transaction {
    let key = Bytes::copy_from_slice(key);
    Change::Delete { key }.into()
}
