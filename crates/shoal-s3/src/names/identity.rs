//! A client's identity at this node, and its account at the lake.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use parking_lot::RwLock;
use shoal_base::secret::Secret;
use shoal_policy::fair::Payer;

use super::sourced_keys::SourcedKeys;
use super::temporary_key::{TemporaryKey, TemporaryKeys};

/// A key pair that signs requests to an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The public half.
    pub access_key: String,
    /// The secret half.
    pub secret_key: Secret,
    /// Present for temporary credentials of the AWS chain.
    pub session_token: Option<Secret>,
}

/// A client known to this node by its access key.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// Identifies the identity in grants. Assigned by [`Identities`], never twice.
    pub index: u32,
    /// The access key with which the client signs.
    pub access_key: String,
    /// The secret with which the client signs.
    pub secret_key: Secret,
    /// Its share of scarce resources, relative to other identities.
    pub share: u32,
    /// The payer that is charged for its work; `None` for itself.
    pub payer: Option<u32>,
    /// Its own account at the lake (`lake_access_key`, `lake_secret_key`), if the configuration gives one.
    pub lake_account: Option<Arc<Account>>,
    /// Present if the key pair is a temporary one.
    pub temporary: Option<Arc<TemporaryKey>>,
}

impl Account {
    /// Creates an account with lasting credentials.
    pub fn new(access_key: &str, secret_key: &str) -> Self {
        Self {
            access_key: access_key.into(),
            secret_key: Secret::new(secret_key),
            session_token: None,
        }
    }
}

impl Identity {
    /// Creates an identity with a share of 1 and without an account of its own.
    pub fn new(access_key: &str, secret_key: &str) -> Self {
        Self {
            index: 0,
            access_key: access_key.into(),
            secret_key: Secret::new(secret_key),
            share: 1,
            payer: None,
            lake_account: None,
            temporary: None,
        }
    }

    /// Returns its name in logs, metrics, tasks and the entries of a tier: the access key, or the principal
    /// of a temporary key, which is the same for the next key.
    pub fn name(&self) -> &str {
        match &self.temporary {
            Some(key) => key.principal.name(),
            None => &self.access_key,
        }
    }

    /// Returns the access key that stands for it at `now`: that of the next key of its principal, once its
    /// own has expired.
    pub fn access_key_at(&self, now: SystemTime) -> String {
        match &self.temporary {
            Some(key) => key.account_at(now).access_key.clone(),
            None => self.access_key.clone(),
        }
    }

    /// Returns the name of its payer.
    fn payer_name(&self) -> &str {
        match &self.temporary {
            Some(key) => key.payer_name(),
            None => &self.access_key,
        }
    }

    /// Returns true if a configuration that names `name` means this identity: its name, or its role.
    pub fn is_called(&self, name: &str) -> bool {
        self.name() == name
            || self
                .temporary
                .as_ref()
                .is_some_and(|key| key.role() == Some(name))
    }

    /// Returns true if the identity has a temporary key that has expired at `now`.
    pub fn has_expired(&self, now: SystemTime) -> bool {
        self.temporary.as_ref().is_some_and(|key| key.expires <= now)
    }

    /// Returns true if nothing but the numbers differ.
    pub(super) fn is_the_same_as(&self, other: &Self) -> bool {
        let other = Self {
            index: self.index,
            payer: self.payer,
            ..other.clone()
        };
        *self == other
    }
}

impl From<TemporaryKey> for Identity {
    fn from(key: TemporaryKey) -> Self {
        Self {
            secret_key: key.account.secret_key.clone(),
            temporary: Some(Arc::new(key.clone())),
            ..Self::new(&key.account.access_key, "")
        }
    }
}

/// The sender of a request, after its signature was verified.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Without credentials; the lake decides what anonymous callers may do.
    Anonymous,
    /// Signed by a known identity.
    Identity(Arc<Identity>),
    /// Signed in a way that this node cannot verify, by all senders of such requests together: the lake
    /// judges each request, and a yes is valid for that request only.
    Unverified,
}

/// Identifies a caller in grants and per-identity limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerId(pub u32);

/// Payer IDs of work without a client, and of clients without a verified request; higher than any identity's.
const OF_THE_NODE: u32 = u32::MAX - 1;
const NOT_VERIFIED: u32 = u32::MAX - 2;
/// The ID of all senders whose signatures only the lake can verify.
const OF_THE_UNVERIFIED: u32 = u32::MAX - 3;

/// The node itself, for example when it flushes dirty objects to the lake.
pub const NODE: Payer = Payer {
    id: OF_THE_NODE,
    share: 1,
};

/// Connections without a verified request.
pub const NEWCOMERS: Payer = Payer {
    id: NOT_VERIFIED,
    share: 1,
};

impl Caller {
    /// The caller's ID, valid while the process runs.
    pub fn id(&self) -> CallerId {
        match self {
            Self::Anonymous => CallerId(u32::MAX),
            Self::Identity(identity) => CallerId(identity.index),
            Self::Unverified => CallerId(OF_THE_UNVERIFIED),
        }
    }

    /// Its name in logs: that of the identity, `anonymous` or `unverified`.
    pub fn name(&self) -> &str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Identity(identity) => identity.name(),
            Self::Unverified => "unverified",
        }
    }

    /// The payer that is charged for the caller's work: all anonymous callers together count as one identity,
    /// and so do all unverified ones, and all temporary keys of a role.
    pub fn payer(&self) -> Payer {
        match self {
            Self::Anonymous | Self::Unverified => Payer {
                id: self.id().0,
                share: 1,
            },
            Self::Identity(identity) => Payer {
                id: identity.payer.unwrap_or(identity.index),
                share: identity.share,
            },
        }
    }

    /// The name of the payer in metrics.
    pub fn payer_name(&self) -> &str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Identity(identity) => identity.payer_name(),
            Self::Unverified => "unverified",
        }
    }
}

/// All identities, by access key: those of the configuration, temporary keys, and those that a service names.
/// They change while the node runs.
#[derive(Debug, Default)]
pub struct Identities {
    known: ArcSwap<Known>,
    temporary: RwLock<TemporaryKeys>,
    sourced: RwLock<SourcedKeys>,
    /// The index of the next identity that is new or has changed.
    next_index: AtomicU32,
}

/// Clients cannot choose keys, so the hash need not resist chosen ones.
pub(super) type Known = HashMap<String, Arc<Identity>, foldhash::fast::RandomState>;

impl Identities {
    /// Creates the index; the configuration has already rejected duplicates.
    pub fn new(identities: impl IntoIterator<Item = Identity>) -> Self {
        let known = Self::default();
        known.replace(identities);
        known
    }

    /// Replaces all identities of the configuration. An unchanged identity keeps its index, and with it the
    /// lake's grants to it. A changed identity gets a new index, so that no grant of an earlier identity
    /// applies to it.
    pub fn replace(&self, identities: impl IntoIterator<Item = Identity>) {
        let before = self.known.load();
        let known = identities.into_iter().map(|identity| {
            let earlier = before.get(&identity.access_key);
            let unchanged = earlier.filter(|earlier| earlier.is_the_same_as(&identity));
            let identity = unchanged.map_or_else(|| Arc::new(self.numbered(identity)), Arc::clone);
            (identity.access_key.clone(), identity)
        });
        self.known.store(Arc::new(known.collect()));
    }

    fn numbered(&self, identity: Identity) -> Identity {
        let index = self.next_index.fetch_add(1, Ordering::Relaxed);
        assert!(index < NOT_VERIFIED, "an identity has an ID of its own");
        Identity { index, ..identity }
    }

    /// Adds a temporary key. Returns false if it has no place: there are too many, or the configuration has
    /// an identity with this access key.
    pub fn learn(&self, key: TemporaryKey) -> bool {
        if self.known.load().contains_key(&key.account.access_key) {
            return false;
        }
        let mut temporary = self.temporary.write();
        let principal = temporary.principal_of(&key);
        let identity = Identity::from(TemporaryKey { principal, ..key });
        let earlier = temporary.get(&identity.access_key);
        if earlier.is_some_and(|earlier| earlier.temporary == identity.temporary) {
            return true;
        }
        let numbered = self.numbered(identity);
        // A key of `GetSessionToken` is the identity that asked for it, for a time.
        let lasting = self.known.load().get(numbered.name()).cloned();
        let (payer, share) = lasting.map_or_else(
            || {
                (
                    temporary.payer(numbered.index, numbered.payer_name()),
                    numbered.share,
                )
            },
            |lasting| (lasting.index, lasting.share),
        );
        temporary.add(Identity {
            payer: Some(payer),
            share,
            ..numbered
        })
    }

    /// Adds an identity that a service names, until a time. One that is as before keeps its index.
    pub fn learn_sourced(&self, identity: Identity, until: SystemTime) {
        self.sourced.write().learn(identity, until, |identity| {
            let numbered = self.numbered(identity);
            let payer = self.temporary.write().payer(numbered.index, &numbered.access_key);
            Identity {
                payer: Some(payer),
                ..numbered
            }
        });
    }

    /// Removes an identity that its service has withdrawn.
    pub fn forget_sourced(&self, access_key: &str) {
        self.sourced.write().forget(access_key);
    }

    /// Ends those of the identities that a service has named whose time has passed at `now`: the service must
    /// be asked again.
    pub fn expire_sourced(&self, now: SystemTime) {
        self.sourced.write().expire(now);
    }

    /// Forgets the temporary keys that have expired at `now`. Returns true if there were any.
    pub fn forget_expired(&self, now: SystemTime) -> bool {
        self.temporary.write().forget_expired(now)
    }

    /// The identity that signs with `access_key`.
    pub fn get(&self, access_key: &str) -> Option<Arc<Identity>> {
        let known = self.known.load().get(access_key).cloned();
        known
            .or_else(|| self.temporary.read().get(access_key).cloned())
            .or_else(|| self.sourced.read().get(access_key))
    }

    /// The identity in whose name the work of `name` goes on: the one of the configuration with this access
    /// key, else the temporary key that lives longest of those of this principal, else of its role.
    pub fn named(&self, name: &str, now: SystemTime) -> Option<Arc<Identity>> {
        let known = self.known.load().get(name).cloned();
        known
            .or_else(|| self.temporary.read().named(name, now))
            .or_else(|| self.sourced.read().get(name))
    }

    /// All identities of the configuration, in no particular order.
    pub fn all(&self) -> Vec<Arc<Identity>> {
        self.known.load().values().cloned().collect()
    }

    /// All temporary keys, in no particular order.
    pub fn temporary_keys(&self) -> Vec<Arc<TemporaryKey>> {
        self.temporary.read().all()
    }

    /// The number of identities of the configuration.
    pub fn len(&self) -> usize {
        self.known.load().len()
    }

    /// Returns true if the configuration has no identities, so that every client is anonymous.
    pub fn is_empty(&self) -> bool {
        self.known.load().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, Arc, Caller, CallerId, Identities, Identity};

    fn id(identities: &Identities, access_key: &str) -> Option<CallerId> {
        identities
            .get(access_key)
            .map(|identity| Caller::Identity(identity).id())
    }

    #[test]
    fn an_identity_that_is_as_before_stays_the_same_caller_wherever_it_stands() {
        let identities = Identities::new([Identity::new("a", "1"), Identity::new("b", "2")]);
        let (a, b) = (id(&identities, "a"), id(&identities, "b"));
        assert_ne!(a, b);
        identities.replace([
            Identity::new("c", "3"),
            Identity::new("b", "2"),
            Identity::new("a", "1"),
        ]);
        assert_eq!((id(&identities, "a"), id(&identities, "b")), (a, b));
        assert!(![a, b].contains(&id(&identities, "c")));
    }

    #[test]
    fn an_identity_that_is_new_or_another_one_is_a_caller_that_never_was() {
        let identities = Identities::new([Identity::new("a", "1"), Identity::new("b", "2")]);
        let mut seen = vec![id(&identities, "a"), id(&identities, "b")];
        let mut is_new = |access_key: &str| {
            let id = id(&identities, access_key);
            assert!(id.is_some() && !seen.contains(&id), "{access_key}");
            seen.push(id);
        };
        identities.replace([Identity::new("b", "2"), Identity::new("c", "3")]);
        is_new("c");
        identities.replace([Identity::new("a", "1"), Identity::new("b", "another secret")]);
        is_new("a");
        is_new("b");
        let mut with_account = Identity::new("a", "1");
        with_account.lake_account = Some(Arc::new(Account::new("lake", "s")));
        identities.replace([with_account]);
        is_new("a");
        assert_eq!((id(&identities, "b"), identities.len()), (None, 1));
    }
}
