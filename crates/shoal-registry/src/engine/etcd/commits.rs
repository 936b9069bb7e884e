//! Transactions that share requests to etcd.

use std::collections::HashSet;

use bytes::Bytes;

use crate::engine::batches::{Batches, Operation};
use crate::engine::{Change, EngineError, OPERATIONS_MAX, Outcome, Transaction};

/// Maximum size of all keys and values in a request that several transactions share: a third of what etcd
/// accepts, so that it stays short.
const SHARED_BYTES_MAX: usize = 512 << 10;

/// The transactions at one registry.
pub(super) type Commits = Batches<Commit>;

/// A transaction that shares its request.
pub(super) struct Commit(pub(super) Transaction);

/// The transactions of one request.
#[derive(Default)]
pub(super) struct Batch {
    count: usize,
    /// The most conditions or changes of one of them. etcd adds these to `count`.
    operations: usize,
    bytes: usize,
    /// The keys that they change.
    changed: HashSet<Bytes>,
    /// The keys that they have conditions on.
    required: HashSet<Bytes>,
}

impl Operation for Commit {
    type Answer = Result<Outcome, EngineError>;
    type Batch = Batch;

    /// Joins if no transaction touches a key that another one changes: their order does not matter then.
    fn join(&self, batch: &mut Batch) -> bool {
        let Self(transaction) = self;
        let changed = || transaction.changes.iter().map(Change::key);
        let required = || transaction.conditions.iter().map(|condition| &condition.key);
        let count = batch.count + 1;
        let operations = batch.operations.max(transaction.operations());
        let bytes = batch.bytes + transaction.bytes();
        let joins = count + operations <= OPERATIONS_MAX
            && bytes <= SHARED_BYTES_MAX
            && !changed().any(|key| batch.changed.contains(key) || batch.required.contains(key))
            && !required().any(|key| batch.changed.contains(key));
        if !joins && batch.count > 0 {
            return false;
        }
        batch.changed.extend(changed().cloned());
        batch.required.extend(required().cloned());
        (batch.count, batch.operations, batch.bytes) = (count, operations, bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Batch, Commit, SHARED_BYTES_MAX};
    use crate::engine::batches::Operation as _;
    use crate::engine::{Change, Condition, OPERATIONS_MAX, Transaction};

    /// A transaction with conditions on the first keys, and changes of the second; each letter is a key.
    fn of(conditions: &str, changes: &str) -> Commit {
        let keys = |text: &str| text.bytes().map(|key| Bytes::from(vec![key])).collect::<Vec<_>>();
        let changes = keys(changes).into_iter();
        Commit(Transaction {
            conditions: keys(conditions).into_iter().map(Condition::absent).collect(),
            changes: changes.map(|key| Change::put(key, Bytes::new())).collect(),
        })
    }

    #[test]
    fn transactions_share_a_request_unless_one_touches_what_another_changes() {
        let mut batch = Batch::default();
        assert!(of("sa", "ab").join(&mut batch));
        assert!(of("sc", "cd").join(&mut batch), "both require the same key");
        for (conditions, changes, why) in [
            ("", "b", "both change a key"),
            ("d", "e", "it requires what another one changes"),
            ("", "s", "it changes what the others require"),
        ] {
            assert!(!of(conditions, changes).join(&mut batch), "{why}");
        }
        assert!(
            of("e", "e").join(&mut batch),
            "those that stayed out left nothing"
        );
    }

    #[test]
    fn a_request_is_bounded_and_the_first_transaction_has_one_in_any_case() {
        let large = |key: u8, bytes| {
            let value = Bytes::from(vec![0; bytes]);
            Commit(Change::put(Bytes::from(vec![key]), value).into())
        };
        let mut batch = Batch::default();
        assert!(large(b'a', 2 * SHARED_BYTES_MAX).join(&mut batch));
        assert!(!large(b'b', 1).join(&mut batch));
        let mut batch = Batch::default();
        assert!(large(b'a', SHARED_BYTES_MAX - 3).join(&mut batch));
        assert!(large(b'b', 0).join(&mut batch) && !large(b'c', 1).join(&mut batch));

        let keys: String = (0..OPERATIONS_MAX as u8).map(char::from).collect();
        let mut batch = Batch::default();
        assert!(of("", &keys).join(&mut batch));
        assert!(
            !of("", "").join(&mut batch),
            "etcd adds their number to the operations"
        );
        let mut batch = Batch::default();
        for _ in 0..OPERATIONS_MAX - 2 {
            assert!(of("ab", "").join(&mut batch));
        }
        assert!(!of("ab", "").join(&mut batch));
    }
}
