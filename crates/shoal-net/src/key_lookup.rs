//! Asks others for access keys that a node does not know: one question about a key at a time, a few keys at a
//! time, and none about a key that nobody knew a moment ago.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use shoal_s3::identity::Identities;

use crate::time::clock;

/// Access keys that nobody knows are remembered: at most this number, each for this time. Whoever sends
/// requests with made-up keys causes one question for each key and second.
const UNKNOWN: NonZeroUsize = NonZeroUsize::new(4096).expect("it is not zero");
const UNKNOWN_TIME: Duration = Duration::from_secs(1);

/// The number of access keys that are asked for at a time.
const LANES: usize = 16;

/// The outcome of asking others for an access key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is an identity of this node now.
    Known,
    /// Nobody knows it.
    Unknown,
    /// Somebody who may know it does not answer, or cannot be asked just now.
    Unsure,
}

/// Questions for access keys.
pub struct KeyLookup {
    identities: Arc<Identities>,
    /// How long a request waits for its turn.
    patience: Duration,
    /// Access keys that nobody knows, and when that was found out.
    unknown: Mutex<LruCache<String, Duration>>,
    /// Requests with one unknown access key wait in one lane.
    lanes: [tokio::sync::Mutex<()>; LANES],
}

impl KeyLookup {
    /// Creates a lookup of keys that `identities` does not have. A request waits at most `patience` for its
    /// turn.
    pub fn new(identities: &Arc<Identities>, patience: Duration) -> Self {
        Self {
            identities: Arc::clone(identities),
            patience,
            unknown: Mutex::new(LruCache::new(UNKNOWN)),
            lanes: Default::default(),
        }
    }

    /// Asks for an access key by `ask`, unless the answer is known by then.
    pub async fn find(&self, access_key: &str, ask: impl Future<Output = Found>) -> Found {
        let lane = access_key
            .bytes()
            .fold(0, |sum, byte| (sum * 31 + usize::from(byte)) % LANES);
        let Ok(_place) = tokio::time::timeout(self.patience, self.lanes[lane].lock()).await else {
            return Found::Unsure;
        };
        if self.identities.get(access_key).is_some() {
            return Found::Known;
        }
        let now = clock::monotonic();
        let found_out = self.unknown.lock().get(access_key).copied();
        if found_out.is_some_and(|at| now.saturating_sub(at) < UNKNOWN_TIME) {
            return Found::Unknown;
        }
        let found = ask.await;
        if found == Found::Unknown {
            self.unknown.lock().put(access_key.into(), now);
        }
        found
    }

    /// Records that an access key has become known: it is asked for again once it is not.
    pub fn learned(&self, access_key: &str) {
        self.unknown.lock().pop(access_key);
    }
}
