//! Temporary keys, which all nodes of a cluster know.
//!
//! The node that gets one from STS sends it to all nodes before the client has it, so that no request comes
//! ahead of it. A node that was away then asks the others when a request names a key that it does not know.
//! Each node keeps the keys in memory and, sealed, in a journal on its disk: clients go on with the keys that
//! they have after a restart of all nodes. Expired keys are forgotten.

mod sealed;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_net::clock;
use shoal_net::key_lookup::{Found, KeyLookup};
use shoal_net::shutdown::Shutdown;
use shoal_s3::identity::Identities;
use shoal_s3::temporary_key::TemporaryKey;
use shoal_store::journal::{Journal, JournalError};
use shoal_store::{FileRoom, Store};

use self::sealed::Sealer;
use super::cooperation::Cooperation;
use super::peer::Peer;

/// Path at which nodes send each other temporary keys.
pub const KEYS: &str = "/keys";

/// Maximum number of bytes of a message and of its answer: far more than any token of STS has.
pub const MESSAGE_BYTES_MAX: usize = 128 << 10;

/// The time that another node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The interval at which expired keys are forgotten.
const SWEEP: Duration = Duration::from_secs(30);

/// How long a node that is not a member any more may still have keys that the others do not know: it may be
/// cut off and not gone. Few keys live longer.
const MISSED_TIME: Duration = Duration::from_hours(1);

/// A message from one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Message {
    /// A sealed key to keep.
    Take(Vec<u8>),
    /// An access key, to be answered with its sealed key.
    Find(String),
}

/// The temporary keys of this node, and what it exchanges with others.
pub struct SharedKeys {
    identities: Arc<Identities>,
    cooperation: Arc<Cooperation>,
    sealer: Sealer,
    journal: Mutex<Journal>,
    lookup: KeyLookup,
}

impl SharedKeys {
    /// Opens the journal in `store` and adds its keys to `identities`. `secrets` are those of the cluster.
    ///
    /// # Errors
    ///
    /// The journal cannot be read.
    pub fn open<'s>(
        identities: &Arc<Identities>,
        cooperation: &Arc<Cooperation>,
        secrets: impl IntoIterator<Item = &'s str>,
        store: &Store,
    ) -> Result<Arc<Self>, JournalError> {
        let (sealer, now) = (Sealer::new(secrets), clock::utc_now());
        let (mut other, mut expired) = (0_usize, 0_usize);
        let path = store.node_folder().join("keys");
        let journal = Journal::open(&path, FileRoom::new(store), |sealed| match sealer.open(sealed) {
            Some(key) if key.expires > now => {
                identities.learn(key);
            }
            Some(_) => expired += 1,
            None => other += 1,
        })?;
        if other > 0 {
            tracing::warn!(
                keys = other,
                "temporary keys were sealed under another secret of the cluster; their clients need new ones"
            );
        }
        let keys = Self {
            identities: Arc::clone(identities),
            cooperation: Arc::clone(cooperation),
            sealer,
            journal: Mutex::new(journal),
            lookup: KeyLookup::new(identities, PATIENCE),
        };
        if expired > 0 {
            keys.rewrite_journal();
        }
        Ok(Arc::new(keys))
    }

    /// Keeps a key that STS gave, and sends it to all nodes that can be reached. Returns false if there is no
    /// place for it.
    pub async fn share(&self, key: TemporaryKey) -> bool {
        let sealed = self.sealer.seal(&key);
        if !self.keep(key, &sealed) {
            return false;
        }
        let message = written(&Message::Take(sealed));
        let peers = self.cooperation.peers();
        let sent = peers
            .iter()
            .filter(|peer| peer.is_reachable())
            .map(|peer| ask(peer, message.clone()));
        join_all(sent).await;
        true
    }

    /// Asks the other nodes for an access key that this one does not know.
    pub async fn find(&self, access_key: &str) -> Found {
        self.lookup.find(access_key, self.ask_others(access_key)).await
    }

    async fn ask_others(&self, access_key: &str) -> Found {
        let message = written(&Message::Find(access_key.into()));
        let peers = self.cooperation.peers();
        let answers = join_all(peers.iter().map(|peer| ask(peer, message.clone()))).await;
        let found = answers.iter().flatten().any(|sealed| self.take(sealed));
        if found && self.identities.get(access_key).is_some() {
            return Found::Known;
        }
        if answers.iter().any(Option::is_none) || self.cooperation.misses_a_member(MISSED_TIME) {
            return Found::Unsure;
        }
        Found::Unknown
    }

    /// Answers another node: with a sealed key, or with nothing.
    pub fn answer(&self, message: &[u8]) -> Option<Vec<u8>> {
        match postcard::from_bytes(message).ok()? {
            Message::Take(sealed) => {
                self.take(&sealed);
                Some(Vec::new())
            }
            Message::Find(access_key) => {
                let key = self
                    .identities
                    .get(&access_key)
                    .and_then(|identity| identity.temporary.clone());
                Some(key.map_or_else(Vec::new, |key| self.sealer.seal(&key)))
            }
        }
    }

    /// Forgets expired keys until this node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(SWEEP) => {}
                () = stopping.begun() => return,
            }
            if self.identities.forget_expired(clock::utc_now()) {
                self.rewrite_journal();
            }
        }
    }

    /// Keeps a sealed key of another node. Returns true if it is one and has a place.
    fn take(&self, sealed: &[u8]) -> bool {
        let key = self
            .sealer
            .open(sealed)
            .filter(|key| key.expires > clock::utc_now());
        key.is_some_and(|key| self.keep(key, sealed))
    }

    fn keep(&self, key: TemporaryKey, sealed: &[u8]) -> bool {
        let access_key = key.account.access_key.clone();
        let was_known = self.identities.get(&access_key).is_some();
        if !self.identities.learn(key) {
            return false;
        }
        self.lookup.learned(&access_key);
        if !was_known && let Err(error) = self.journal.lock().append(sealed) {
            tracing::warn!(%error, "a temporary key is in memory only; a restart of all nodes forgets it");
        }
        true
    }

    /// Rewrites the journal, so that no expired key stays on the disk.
    fn rewrite_journal(&self) {
        let mut journal = self.journal.lock();
        let keys = self.identities.temporary_keys();
        if let Err(error) = journal.rewrite(keys.iter().map(|key| self.sealer.seal(key))) {
            tracing::warn!(%error, "expired temporary keys are still on the disk, sealed");
        }
    }
}

fn written(message: &Message) -> Vec<u8> {
    postcard::to_stdvec(message).expect("memory takes every message")
}

/// Returns the answer of another node; `None` if there was none.
async fn ask(peer: &Peer, message: Vec<u8>) -> Option<Vec<u8>> {
    match peer.ask(KEYS, message, MESSAGE_BYTES_MAX, PATIENCE).await {
        Ok(answer) => Some(answer.to_vec()),
        Err(error) => {
            tracing::debug!(peer = peer.name, %error, "temporary keys were not exchanged");
            None
        }
    }
}
