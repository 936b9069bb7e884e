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

mod member;
mod messages;
mod refusal;
mod settings;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

pub use settings::{Settings, SettingsError, User};

use member::{Answer, Member, Post, Token};
use messages::{
    AuthenticateResponse, LeaseResponse, RangeResponse, StatusResponse, Streamed, TxnResponse, base64,
    error_message, range,
};
use refusal::Refusal;

use super::looks::Looks;
use super::{
    Change, Condition, Engine, EngineError, Outcome, Page, Range, Revision, Room, SessionId, Stored,
    Transaction, prefix_end,
};

/// Maximum number of concurrent reads of keys. With more, each would serve fewer lookups, at a higher cost
/// for etcd.
const LOOKS: usize = 4;

/// `--quota-backend-bytes` by default.
const QUOTA_BYTES: u64 = 2 << 30;

/// Time between two rounds over all members.
const PAUSE: Duration = Duration::from_millis(50);

/// A registry in etcd.
pub struct Etcd {
    members: Vec<Member>,
    /// The member that answered last.
    preferred: AtomicUsize,
    prefix: Bytes,
    timeout: Duration,
    user: Option<User>,
    quota_bytes: Option<u64>,
    looks: Looks,
}

/// The consequence of a lost answer: a request may be sent again, or never.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Safe,
    Never,
}

/// A request failed at all members that were asked.
enum Failed {
    /// The answer is too large.
    TooLarge,
    /// Any other reason.
    Error(EngineError),
}

impl Etcd {
    /// Creates a registry in the etcd of `settings`. Connects at the first request.
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let tls = settings::tls(settings)?;
        let endpoints = settings::endpoints(&settings.endpoints)?;
        Ok(Self {
            members: endpoints
                .into_iter()
                .map(|endpoint| Member::new(endpoint, tls.clone()))
                .collect(),
            preferred: AtomicUsize::new(0),
            prefix: Bytes::copy_from_slice(settings.prefix.as_bytes()),
            timeout: settings.timeout,
            user: settings.user.clone(),
            quota_bytes: settings.quota_bytes,
            looks: Looks::new(LOOKS),
        })
    }

    /// Sends a request that may be repeated. Returns its answer.
    async fn call<A: DeserializeOwned>(&self, path: &'static str, request: &Value) -> Result<A, EngineError> {
        let answered = self.ask(path, request, Repeat::Safe).await;
        answered.map_err(Failed::into_error)
    }

    /// Sends a request to the members in turn, starting with the one that answered last, until one answers or
    /// the time is over.
    async fn ask<A: DeserializeOwned>(
        &self,
        path: &'static str,
        request: &Value,
        repeat: Repeat,
    ) -> Result<A, Failed> {
        let body = Bytes::from(request.to_string());
        let deadline = Instant::now() + self.timeout;
        let mut error = EngineError::Unavailable("no member was asked".into());
        loop {
            let mut untrusted = 0;
            for _ in 0..self.members.len() {
                let preferred = self.preferred.load(Ordering::Relaxed);
                let member = &self.members[preferred];
                let of_member = |reason: &str| format!("{}: {reason}", member.name());
                let unavailable = |reason: &str| EngineError::Unavailable(of_member(reason));
                error = match self.ask_member(member, path, &body, repeat, deadline).await {
                    Ok(answer) => return Ok(answer),
                    Err(Refusal::TooLarge) => return Err(Failed::TooLarge),
                    Err(Refusal::Never(error)) => return Err(Failed::Error(error)),
                    Err(Refusal::Unsure(reason)) if repeat == Repeat::Never => {
                        self.leave(preferred);
                        return Err(Failed::Error(EngineError::Unknown(of_member(&reason))));
                    }
                    Err(Refusal::Unsure(reason) | Refusal::NotNow(reason)) => unavailable(&reason),
                    Err(Refusal::Token) => unavailable("it does not accept its own token"),
                    Err(Refusal::Untrusted(reason)) => {
                        untrusted += 1;
                        EngineError::Refused(of_member(&reason))
                    }
                };
                self.leave(preferred);
                if Instant::now() >= deadline {
                    return Err(Failed::Error(error));
                }
            }
            if untrusted == self.members.len() {
                return Err(Failed::Error(error));
            }
            sleep_until((Instant::now() + PAUSE).min(deadline)).await;
        }
    }

    /// Starts the next request at another member, unless another request has changed it already.
    fn leave(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        // Another request may have found a better one.
        let _ = self
            .preferred
            .compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Sends a request to one member, with a new token if it rejects the old one.
    async fn ask_member<A: DeserializeOwned>(
        &self,
        member: &Member,
        path: &'static str,
        body: &Bytes,
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<A, Refusal> {
        // Each member gets a share of the time, unless no other member can answer.
        let share = (Instant::now() + self.timeout / (self.members.len() as u32 + 1)).min(deadline);
        let answer_by = if repeat == Repeat::Safe { share } else { deadline };
        let mut is_retry = false;
        loop {
            let token = self.token(member, share).await?;
            let post = Post {
                path,
                body: body.clone(),
                token: token.as_deref(),
                connect_by: share,
                answer_by,
            };
            match ask_once(member, post).await {
                Err(Refusal::Token) if !is_retry => forget(member, token.as_ref()).await,
                answered => return answered,
            }
            is_retry = true;
        }
    }

    /// Returns the user's token at a member, if a user is configured.
    async fn token(&self, member: &Member, by: Instant) -> Result<Option<Arc<Token>>, Refusal> {
        let Some(User { name, password, .. }) = &self.user else {
            return Ok(None);
        };
        let mut token = member.token.lock().await;
        if let Some(token) = &*token {
            return Ok(Some(Arc::clone(token)));
        }
        let request = json!({ "name": name, "password": password.expose() });
        let post = Post {
            path: "/v3/auth/authenticate",
            body: request.to_string().into(),
            token: None,
            connect_by: by,
            answer_by: by,
        };
        let answered = ask_once(member, post).await;
        let answer: AuthenticateResponse = answered.map_err(|refusal| match refusal {
            Refusal::Never(EngineError::Refused(reason)) => {
                Refusal::Never(EngineError::Refused(format!("user {name}: {reason}")))
            }
            // A lost answer is harmless: the request that needs the token has not been sent.
            Refusal::Unsure(reason) => Refusal::NotNow(reason),
            // No token is long: another server stands at this address.
            Refusal::TooLarge => Refusal::NotNow("its answer is too large".into()),
            other => other,
        })?;
        Ok(Some(Arc::clone(token.insert(Arc::new(Token::new(answer.token))))))
    }

    fn key(&self, key: &[u8]) -> Bytes {
        [&self.prefix, key].concat().into()
    }

    /// The end of the range of keys that begin with `prefix`, as etcd encodes it.
    fn end(&self, prefix: &[u8]) -> Bytes {
        prefix_end(&self.key(prefix)).map_or(Bytes::from_static(b"\0"), Bytes::from)
    }

    /// Reads keys with one request, or one after the other if their values are too large together.
    async fn read_keys(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Stored>>, EngineError> {
        if keys.len() > 1 {
            let reads = keys
                .iter()
                .map(|key| json!({ "request_range": range(key, b"", 0, false) }));
            let request = json!({ "success": reads.collect::<Vec<_>>() });
            match self.ask("/v3/kv/txn", &request, Repeat::Safe).await {
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
            let answer: RangeResponse = self.call("/v3/kv/range", &range(&key, b"", 0, false)).await?;
            found.push(answer.stored());
        }
        Ok(found)
    }

    /// The least key that etcd accepts, which is not empty but a zero byte.
    fn first_key(&self, key: &[u8]) -> Bytes {
        let key = self.key(key);
        if key.is_empty() {
            Bytes::from_static(b"\0")
        } else {
            key
        }
    }

    /// Determines the outcome of a transaction that etcd answered with NOSPACE. A member checks its quota
    /// before it proposes a transaction and again when it applies it. In the second case the transaction is
    /// applied despite the error. `changed` is [`Transaction::changed_condition`].
    async fn not_committed_for_room(&self, changed: Option<&Condition>, reason: String) -> EngineError {
        let Some(Condition { key, revision }) = changed else {
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

    fn request_of(&self, transaction: &Transaction) -> Value {
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

#[async_trait]
impl Engine for Etcd {
    async fn get_together(&self, keys: &[Bytes]) -> Result<Vec<Option<Stored>>, EngineError> {
        let keys = keys.iter().map(|key| self.key(key)).collect();
        self.looks.look(keys, |keys| self.read_keys(keys)).await
    }

    async fn range(&self, wanted: Range) -> Result<Page, EngineError> {
        // The successor of a key is the key with a zero byte appended.
        let first = if wanted.after < wanted.prefix {
            self.first_key(&wanted.prefix)
        } else {
            self.first_key(&[&wanted.after[..], b"\0"].concat())
        };
        let (end, mut limit) = (self.end(&wanted.prefix), wanted.limit.max(1) as u64);
        if end != b"\0"[..] && first >= end {
            return Ok(Page::default());
        }
        let answer: RangeResponse = loop {
            let request = range(&first, &end, limit, false);
            match self.ask("/v3/kv/range", &request, Repeat::Safe).await {
                Ok(answer) => break answer,
                Err(Failed::TooLarge) if limit > 1 => limit = limit.div_ceil(4).min(256),
                Err(failed) => return Err(failed.into_error()),
            }
        };
        let entries = answer
            .kvs
            .into_iter()
            .map(|found| (found.key.slice(self.prefix.len()..), found.stored()));
        Ok(Page {
            entries: entries.collect(),
            has_more: answer.more,
        })
    }

    async fn count(&self, prefix: &[u8]) -> Result<u64, EngineError> {
        let request = range(&self.first_key(prefix), &self.end(prefix), 0, true);
        let answer: RangeResponse = self.call("/v3/kv/range", &request).await?;
        Ok(answer.count)
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, EngineError> {
        transaction.check()?;
        let request = self.request_of(&transaction);
        match self.ask("/v3/kv/txn", &request, Repeat::Never).await {
            Ok(TxnResponse {
                header, succeeded, ..
            }) => Ok(if succeeded {
                Outcome::Committed(Revision(header.revision))
            } else {
                Outcome::Conflict
            }),
            Err(Failed::Error(EngineError::Full(reason))) => Err(self
                .not_committed_for_room(transaction.changed_condition(), reason)
                .await),
            Err(failed) => Err(failed.into_error()),
        }
    }

    /// The answer of any member: all have the same data. Free pages of the file are reused, so they count as
    /// room.
    async fn room(&self) -> Result<Room, EngineError> {
        let status: StatusResponse = self.call("/v3/maintenance/status", &json!({})).await?;
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
        let lease: LeaseResponse = self.call("/v3/lease/grant", &request).await?;
        Ok(SessionId(lease.id))
    }

    async fn renew_session(&self, session: SessionId) -> Result<(), EngineError> {
        let request = json!({ "ID": session.0.to_string() });
        let answer: Streamed<LeaseResponse> = self.call("/v3/lease/keepalive", &request).await?;
        if answer.result.seconds > 0 {
            Ok(())
        } else {
            Err(EngineError::SessionEnded)
        }
    }

    async fn close_session(&self, session: SessionId) -> Result<(), EngineError> {
        let request = json!({ "ID": session.0.to_string() });
        let closed = self.ask("/v3/lease/revoke", &request, Repeat::Never).await;
        closed.map(|IgnoredAny| ()).map_err(Failed::into_error)
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<_> = self.members.iter().map(Member::name).collect();
        f.debug_struct("Etcd")
            .field("members", &members)
            .finish_non_exhaustive()
    }
}

impl Failed {
    fn into_error(self) -> EngineError {
        match self {
            Self::Error(error) => error,
            Self::TooLarge => EngineError::Refused("a value is larger than what etcd's gateway gives".into()),
        }
    }
}

/// Sends a request to a member once, and interprets its answer. A stream reports errors in its answers.
async fn ask_once<A: DeserializeOwned>(member: &Member, post: Post<'_>) -> Result<A, Refusal> {
    let Answer { status, body } = member.post(post).await?;
    if status.is_redirection() {
        return Err(Refusal::Untrusted("it answers with a redirect".into()));
    }
    let refusal = || error_message(&body).map(|message| Refusal::from_message(&message));
    if !status.is_success() {
        return Err(refusal().unwrap_or_else(|| Refusal::Unsure("its answer cannot be read".into())));
    }
    serde_json::from_slice(&body).map_err(|error| match refusal() {
        Some(refusal @ Refusal::Never(_)) => refusal,
        Some(refusal) => Refusal::Unsure(format!("{refusal:?}")),
        None => Refusal::Unsure(format!("its answer cannot be read: {error}")),
    })
}

/// Drops a token, unless another request has replaced it.
async fn forget(member: &Member, token: Option<&Arc<Token>>) {
    let mut known = member.token.lock().await;
    if let (Some(old), Some(now)) = (token, &*known)
        && Arc::ptr_eq(old, now)
    {
        *known = None;
    }
}
