//! A client's identity at this node, and its account at the lake.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use shoal_base::secret::Secret;
use shoal_policy::fair::Payer;

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
    /// Its own account at the lake (`lake_access_key`, `lake_secret_key`), if the configuration gives one.
    pub lake_account: Option<Arc<Account>>,
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
            lake_account: None,
        }
    }

    /// Returns true if nothing but the index differs.
    fn is_the_same_as(&self, other: &Self) -> bool {
        let other = Self {
            index: self.index,
            ..other.clone()
        };
        *self == other
    }
}

/// The sender of a request, after its signature was verified.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Without credentials; the lake decides what anonymous callers may do.
    Anonymous,
    /// Signed by a known identity.
    Identity(Arc<Identity>),
}

/// Identifies a caller in grants and per-identity limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerId(pub u32);

/// Payer IDs of work without a client, and of clients without a verified request; higher than any identity's.
const OF_THE_NODE: u32 = u32::MAX - 1;
const NOT_VERIFIED: u32 = u32::MAX - 2;

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
        }
    }

    /// Its name in metrics and logs: the access key, or `anonymous`.
    pub fn name(&self) -> &str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Identity(identity) => &identity.access_key,
        }
    }

    /// The payer that is charged for the caller's work: all anonymous callers together count as one identity.
    pub fn payer(&self) -> Payer {
        Payer {
            id: self.id().0,
            share: match self {
                Self::Anonymous => 1,
                Self::Identity(identity) => identity.share,
            },
        }
    }
}

/// All identities of the configuration, by access key. They change while the node runs.
#[derive(Debug, Default)]
pub struct Identities {
    known: ArcSwap<Known>,
    /// The index of the next identity that is new or has changed.
    next_index: AtomicU32,
}

/// Clients cannot add keys, so the hash need not resist chosen keys.
type Known = HashMap<String, Arc<Identity>, foldhash::fast::RandomState>;

impl Identities {
    /// Creates the index; the configuration has already rejected duplicates.
    pub fn new(identities: impl IntoIterator<Item = Identity>) -> Self {
        let known = Self::default();
        known.replace(identities);
        known
    }

    /// Replaces all identities. An unchanged identity keeps its index, and with it the lake's grants to it. A
    /// changed identity gets a new index, so that no grant of an earlier identity applies to it.
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

    /// The identity that signs with `access_key`.
    pub fn get(&self, access_key: &str) -> Option<Arc<Identity>> {
        self.known.load().get(access_key).cloned()
    }

    /// All identities, in no particular order.
    pub fn all(&self) -> Vec<Arc<Identity>> {
        self.known.load().values().cloned().collect()
    }

    /// The number of identities.
    pub fn len(&self) -> usize {
        self.known.load().len()
    }

    /// Returns true if there are no identities, so that every client is anonymous.
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
