//! An engine in a cluster of etcd, version 3.4 or later, by its JSON gateway.
//!
//! # Durability
//!
//! etcd acknowledges a transaction when a majority of its members has it on disk. Members may die, freeze and
//! lose their disks as long as a majority remains; without a majority nothing is read or written.
//!
//! # Set-up
//!
//! - A user with the right to read and write all keys with the prefix of this registry.
//! - Automatic compaction (`--auto-compaction-retention`), because etcd keeps all revisions otherwise. No
//!   earlier revision is read.
//! - The limits of etcd may stay at their defaults: 128 operations a transaction (`--max-txn-ops`), 1.5 MiB a
//!   request (`--max-request-bytes`), 2 GiB in all (`--quota-backend-bytes`; 8 GiB are sensible).

mod commits;
mod keys;
mod member;
mod members;
mod messages;
mod refusal;
mod settings;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::json;

pub use settings::{Settings, SettingsError, User};

use commits::{Commit, Commits};
use keys::Keys;
use member::Member;
use members::{Failed, Members, Repeat};
use messages::{LeaseResponse, RangeResponse, StatusResponse, Streamed, range};

use super::looks::Looks;
use super::{Engine, EngineError, Outcome, Page, Range, Room, SessionId, Stored, Transaction};

/// Maximum number of concurrent reads of keys. With more, each would serve fewer lookups, at a higher cost
/// for etcd.
const LOOKS: usize = 4;

/// Maximum number of concurrent requests with transactions, for the same reason.
const COMMITS: usize = 4;

/// `--quota-backend-bytes` by default.
const QUOTA_BYTES: u64 = 2 << 30;

/// A registry in etcd.
pub struct Etcd {
    keys: Arc<Keys>,
    quota_bytes: Option<u64>,
    looks: Looks,
    commits: Commits,
}

impl Etcd {
    /// Creates a registry in the etcd of `settings`. Connects at the first request.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let tls = settings::tls(settings)?;
        let endpoints = settings::endpoints(&settings.endpoints)?.into_iter();
        let members = endpoints.map(|endpoint| Member::new(endpoint, tls.clone()));
        let keys = Keys {
            members: Members::new(members.collect(), settings.timeout, settings.user.clone()),
            prefix: Bytes::copy_from_slice(settings.prefix.as_bytes()),
        };
        Ok(Self {
            keys: Arc::new(keys),
            quota_bytes: settings.quota_bytes,
            looks: Looks::new(LOOKS),
            commits: Commits::new(COMMITS),
        })
    }
}

#[async_trait]
impl Engine for Etcd {
    async fn get_together(&self, keys: &[Bytes]) -> Result<Vec<Option<Stored>>, EngineError> {
        let keys = keys.iter().map(|key| self.keys.key(key)).collect();
        let read = |keys| {
            let registry = Arc::clone(&self.keys);
            async move { registry.read_keys(keys).await }
        };
        self.looks.look(keys, read).await
    }

    async fn range(&self, wanted: Range) -> Result<Page, EngineError> {
        // The successor of a key is the key with a zero byte appended.
        let first = if wanted.after < wanted.prefix {
            self.keys.first_key(&wanted.prefix)
        } else {
            self.keys.first_key(&[&wanted.after[..], b"\0"].concat())
        };
        let (end, mut limit) = (self.keys.end(&wanted.prefix), wanted.limit.max(1) as u64);
        if end != b"\0"[..] && first >= end {
            return Ok(Page::default());
        }
        let answer: RangeResponse = loop {
            let request = range(&first, &end, limit, false);
            match self
                .keys
                .members
                .ask("/v3/kv/range", &request, Repeat::Safe)
                .await
            {
                Ok(answer) => break answer,
                Err(Failed::TooLarge) if limit > 1 => limit = limit.div_ceil(4).min(256),
                Err(failed) => return Err(failed.into_error()),
            }
        };
        let entries = answer
            .kvs
            .into_iter()
            .map(|found| (found.key.slice(self.keys.prefix.len()..), found.stored()));
        Ok(Page {
            entries: entries.collect(),
            has_more: answer.more,
        })
    }

    async fn count(&self, prefix: &[u8]) -> Result<u64, EngineError> {
        let request = range(&self.keys.first_key(prefix), &self.keys.end(prefix), 0, true);
        let answer: RangeResponse = self.keys.members.call("/v3/kv/range", &request).await?;
        Ok(answer.count)
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, EngineError> {
        transaction.check()?;
        let commit = |commits: Vec<Commit>| {
            let registry = Arc::clone(&self.keys);
            async move {
                registry
                    .commit(commits.into_iter().map(|Commit(one)| one).collect())
                    .await
            }
        };
        let outcome = self.commits.run(Commit(transaction), commit).await;
        outcome.unwrap_or_else(|| Err(EngineError::Unknown("the node stops".into())))
    }

    /// The answer of any member: all have the same data. Free pages of the file are reused, so they count as
    /// room.
    async fn room(&self) -> Result<Room, EngineError> {
        let status: StatusResponse = self
            .keys
            .members
            .call("/v3/maintenance/status", &json!({}))
            .await?;
        let of_member = Some(status.quota).filter(|quota| *quota > 0);
        let used = Some(status.used).filter(|used| *used > 0);
        Ok(Room {
            used_bytes: used.unwrap_or(status.file),
            quota_bytes: self.quota_bytes.or(of_member).unwrap_or(QUOTA_BYTES),
        })
    }

    async fn open_session(&self, time_to_live: Duration) -> Result<SessionId, EngineError> {
        let seconds = time_to_live.as_secs() + u64::from(time_to_live.subsec_nanos() > 0);
        // A lease whose grant was lost expires.
        let request = json!({ "TTL": seconds.to_string() });
        let lease: LeaseResponse = self.keys.members.call("/v3/lease/grant", &request).await?;
        Ok(SessionId(lease.id))
    }

    async fn renew_session(&self, session: SessionId) -> Result<(), EngineError> {
        let request = json!({ "ID": session.0.to_string() });
        let answer: Streamed<LeaseResponse> = self.keys.members.call("/v3/lease/keepalive", &request).await?;
        if answer.result.seconds > 0 {
            Ok(())
        } else {
            Err(EngineError::SessionEnded)
        }
    }

    async fn close_session(&self, session: SessionId) -> Result<(), EngineError> {
        let request = json!({ "ID": session.0.to_string() });
        let closed = self
            .keys
            .members
            .ask("/v3/lease/revoke", &request, Repeat::Never)
            .await;
        closed.map(|IgnoredAny| ()).map_err(Failed::into_error)
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("members", &self.keys.members.names())
            .finish_non_exhaustive()
    }
}
