//! Identities that a service names, each for a time.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::SystemTime;

use lru::LruCache;

use super::identity::Identity;

/// Maximum number of identities; the one that was asked for longest ago is dropped first.
const KEYS_MAX: NonZeroUsize = NonZeroUsize::new(32 << 10).expect("it is not zero");

/// The identities that services have named.
#[derive(Debug)]
pub(super) struct SourcedKeys(LruCache<String, Sourced>);

#[derive(Debug)]
struct Sourced {
    identity: Arc<Identity>,
    /// `None` once the time has passed: the service must be asked again.
    until: Option<SystemTime>,
}

impl Default for SourcedKeys {
    fn default() -> Self {
        Self(LruCache::new(KEYS_MAX))
    }
}

impl SourcedKeys {
    /// Returns the identity that signs with `access_key`, if its time has not passed.
    pub(super) fn get(&self, access_key: &str) -> Option<Arc<Identity>> {
        let sourced = self.0.peek(access_key)?;
        sourced.until.map(|_| Arc::clone(&sourced.identity))
    }

    /// Adds an identity until a time. One that is as before stays the same caller. `numbered` gives an
    /// identity that is new its numbers.
    pub(super) fn learn(
        &mut self,
        identity: Identity,
        until: SystemTime,
        numbered: impl FnOnce(Identity) -> Identity,
    ) {
        let earlier = self.0.get(&identity.access_key);
        let same = earlier.filter(|earlier| earlier.identity.is_the_same_as(&identity));
        let identity = match same {
            Some(same) => Arc::clone(&same.identity),
            None => Arc::new(numbered(identity)),
        };
        self.0.put(
            identity.access_key.clone(),
            Sourced {
                identity,
                until: Some(until),
            },
        );
    }

    /// Ends the time of those that end before `now`.
    pub(super) fn expire(&mut self, now: SystemTime) {
        for (_, sourced) in &mut self.0 {
            sourced.until = sourced.until.filter(|until| *until > now);
        }
    }

    /// Removes an identity that its service has withdrawn.
    pub(super) fn forget(&mut self, access_key: &str) {
        self.0.pop(access_key);
    }
}
