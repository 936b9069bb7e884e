//! The keys of one registry in etcd.

use bytes::Bytes;
use serde_json::{Value, json};

use super::members::{Failed, Members, Repeat};
use super::messages::{RangeResponse, TxnResponse, base64, range};
use crate::engine::{Change, Condition, EngineError, Outcome, Revision, Stored, Transaction, prefix_end};

/// The keys with a prefix.
pub(super) struct Keys {
    pub(super) members: Members,
    pub(super) prefix: Bytes,
}

impl Keys {
    pub(super) fn key(&self, key: &[u8]) -> Bytes {
        [&self.prefix, key].concat().into()
    }

    /// The end of the range of keys that begin with `prefix`, as etcd encodes it.
    pub(super) fn end(&self, prefix: &[u8]) -> Bytes {
        prefix_end(&self.key(prefix)).map_or(Bytes::from_static(b"\0"), Bytes::from)
    }

    /// The least key that etcd accepts, which is not empty but a zero byte.
    pub(super) fn first_key(&self, key: &[u8]) -> Bytes {
        let key = self.key(key);
        if key.is_empty() {
            Bytes::from_static(b"\0")
        } else {
            key
        }
    }

    /// Reads keys with one request, or one after the other if their values are too large together.
    pub(super) async fn read_keys(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Stored>>, EngineError> {
        if keys.len() > 1 {
            let reads = keys
                .iter()
                .map(|key| json!({ "request_range": range(key, b"", 0, false) }));
            let request = json!({ "success": reads.collect::<Vec<_>>() });
            match self.members.ask("/v3/kv/txn", &request, Repeat::Safe).await {
                Ok(TxnResponse { responses, .. }) if responses.len() == keys.len() => {
                    let found = responses.into_iter();
                    return Ok(found.map(|read| read.response_range?.stored()).collect());
                }
                Ok(_) => {
                    let reason = "its answer lacks keys that it was asked about";
                    return Err(EngineError::Unavailable(reason.into()));
                }
                Err(Failed::TooLarge) => {}
                Err(failed) => return Err(failed.into_error()),
            }
        }
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let answer: RangeResponse = self
                .members
                .call("/v3/kv/range", &range(&key, b"", 0, false))
                .await?;
            found.push(answer.stored());
        }
        Ok(found)
    }

    /// Carries out transactions, none of which touches a key that another one changes. Returns their outcomes
    /// in the same order.
    ///
    /// Several are the parts of one transaction. etcd evaluates the conditions of all parts before it changes
    /// anything, which is as if they came one after the other, since no condition is about another's change.
    pub(super) async fn commit(&self, transactions: Vec<Transaction>) -> Vec<Result<Outcome, EngineError>> {
        let parts = match &transactions[..] {
            [alone] => return vec![self.commit_alone(alone).await],
            parts => parts.iter(),
        };
        let parts = parts.map(|part| json!({ "request_txn": self.request_of(part) }));
        let request = json!({ "success": parts.collect::<Vec<_>>() });
        let error = match self.members.ask("/v3/kv/txn", &request, Repeat::Never).await {
            Ok(TxnResponse {
                header, responses, ..
            }) if responses.len() == transactions.len() => {
                let parts = responses.into_iter().map(|response| match response.response_txn {
                    Some(part) => Ok(outcome(part.succeeded, header.revision)),
                    None => Err(EngineError::Unknown("its answer lacks an outcome".into())),
                });
                return parts.collect();
            }
            Ok(_) => EngineError::Unknown("its answer lacks outcomes".into()),
            Err(failed) => failed.into_error(),
        };
        let mut outcomes = Vec::with_capacity(transactions.len());
        for transaction in &transactions {
            outcomes.push(match &error {
                // Nothing changed. One of them may be the reason.
                EngineError::Refused(_) | EngineError::SessionEnded => self.commit_alone(transaction).await,
                EngineError::Full(reason) => {
                    match self.not_committed_for_room(transaction, reason.clone()).await {
                        EngineError::Full(_) => self.commit_alone(transaction).await,
                        unknown => Err(unknown),
                    }
                }
                EngineError::Unavailable(_) | EngineError::Unknown(_) => Err(error.clone()),
            });
        }
        outcomes
    }

    async fn commit_alone(&self, transaction: &Transaction) -> Result<Outcome, EngineError> {
        let request = self.request_of(transaction);
        match self.members.ask("/v3/kv/txn", &request, Repeat::Never).await {
            Ok(TxnResponse {
                header, succeeded, ..
            }) => Ok(outcome(succeeded, header.revision)),
            Err(Failed::Error(EngineError::Full(reason))) => {
                Err(self.not_committed_for_room(transaction, reason).await)
            }
            Err(failed) => Err(failed.into_error()),
        }
    }

    /// Determines the outcome of a transaction that etcd answered with NOSPACE. A member checks its quota
    /// before it proposes a transaction and again when it applies it. In the second case the transaction is
    /// applied despite the error.
    async fn not_committed_for_room(&self, transaction: &Transaction, reason: String) -> EngineError {
        let Some(Condition { key, revision }) = transaction.changed_condition() else {
            return EngineError::Unknown(reason);
        };
        let now = self.read_keys(vec![self.key(key)]).await;
        let now = now.map(|mut found| found.pop().flatten().map(|stored| stored.revision));
        if now == Ok(*revision) {
            EngineError::Full(reason)
        } else {
            EngineError::Unknown(reason)
        }
    }

    pub(super) fn request_of(&self, transaction: &Transaction) -> Value {
        let key = |key: &[u8]| base64(&self.key(key));
        let compare = transaction.conditions.iter().map(|condition| {
            let revision = condition.revision.map_or(0, |revision| revision.0);
            json!({
                "key": key(&condition.key),
                "target": "MOD",
                "result": "EQUAL",
                "mod_revision": revision.to_string(),
            })
        });
        let success = transaction.changes.iter().map(|change| match change {
            Change::Put { value, session, .. } => {
                let lease = session.map_or(0, |session| session.0).to_string();
                let put = json!({ "key": key(change.key()), "value": base64(value), "lease": lease });
                json!({ "request_put": put })
            }
            Change::Delete { .. } => json!({ "request_delete_range": { "key": key(change.key()) } }),
        });
        json!({
            "compare": compare.collect::<Vec<_>>(),
            "success": success.collect::<Vec<_>>(),
        })
    }
}

fn outcome(succeeded: bool, revision: u64) -> Outcome {
    if succeeded {
        Outcome::Committed(Revision(revision))
    } else {
        Outcome::Conflict
    }
}
