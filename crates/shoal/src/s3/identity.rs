//! Who a client is to us, and who it is to the lake.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;

use shoal_policy::fair::Payer;

use crate::secret::Secret;

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
    /// Names the identity cheaply in grants; given by [`Identities`] and never to two.
    pub index: u32,
    /// The access key the client signs with.
    pub access_key: String,
    /// The secret the client signs with.
    pub secret_key: Secret,
    /// How much it gets of what is scarce, compared with others.
    pub share: u32,
    /// Its own account at the lake (`lake_access_key`, `lake_secret_key`), if the configuration gives one.
    pub lake_account: Option<Arc<Account>>,
}

/// Who sent a request, after its signature was verified.
#[derive(Clone, Debug)]
pub enum Caller {
    /// Sent without credentials; the lake decides what strangers may do.
    Anonymous,
    /// Signed by a known identity.
    Identity(Arc<Identity>),
}

/// Names a caller in grants and per-identity limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallerId(pub u32);

/// The payer of work that belongs to no client, or to one without a verified request. No identity has so high a number.
const OF_THE_NODE: u32 = u32::MAX - 1;
const NOT_VERIFIED: u32 = u32::MAX - 2;

/// The node itself, as when it brings to the lake what was written back.
pub const NODE: Payer = Payer {
    id: OF_THE_NODE,
    share: 1,
};

/// Connections of which no request has been verified.
pub const NEWCOMERS: Payer = Payer {
    id: NOT_VERIFIED,
    share: 1,
};

impl Caller {
    /// A small number that stands for the caller while the process lives.
    pub fn id(&self) -> CallerId {
        match self {
            Self::Anonymous => CallerId(u32::MAX),
            Self::Identity(identity) => CallerId(identity.index),
        }
    }

    /// Its name in metrics and logs: the access key, or `strangers`.
    pub fn name(&self) -> &str {
        match self {
            Self::Anonymous => "strangers",
            Self::Identity(identity) => &identity.access_key,
        }
    }

    /// In whose turn its work is done: strangers together are as one identity.
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
    /// Of the next identity that is new or another one than before.
    next_index: AtomicU32,
}

/// Clients name keys but add none, so the hash need not withstand those who choose them.
type Known = HashMap<String, Arc<Identity>, foldhash::fast::RandomState>;

impl Identities {
    /// Indexes the identities; the configuration has refused duplicates before.
    pub fn new(identities: impl IntoIterator<Item = Identity>) -> Self {
        let known = Self::default();
        known.replace(identities);
        known
    }

    /// From now on these are known and no others. One that is as before keeps its index, and with it what the
    /// lake has granted to it. One that differs in anything gets an index that none has had: no grant of an
    /// earlier identity is its own.
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
        Identity { index, ..identity }
    }

    /// The identity that signs with `access_key`.
    pub fn get(&self, access_key: &str) -> Option<Arc<Identity>> {
        self.known.load().get(access_key).cloned()
    }

    /// All of them, in no order.
    pub fn all(&self) -> Vec<Arc<Identity>> {
        self.known.load().values().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.known.load().len()
    }

    /// Whether every client is a stranger.
    pub fn is_empty(&self) -> bool {
        self.known.load().is_empty()
    }
}

impl Identity {
    /// Whether nothing but the index differs.
    fn is_the_same_as(&self, other: &Self) -> bool {
        let other = Self {
            index: self.index,
            ..other.clone()
        };
        *self == other
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, Arc, Caller, CallerId, Identities, Identity};
    use crate::secret::Secret;

    fn identity(access_key: &str, secret_key: &str) -> Identity {
        Identity {
            index: 0,
            access_key: access_key.into(),
            secret_key: Secret::new(secret_key),
            share: 1,
            lake_account: None,
        }
    }

    fn id(identities: &Identities, access_key: &str) -> Option<CallerId> {
        identities
            .get(access_key)
            .map(|identity| Caller::Identity(identity).id())
    }

    #[test]
    fn an_identity_that_is_as_before_stays_the_same_caller_wherever_it_stands() {
        let identities = Identities::new([identity("a", "1"), identity("b", "2")]);
        let (a, b) = (id(&identities, "a"), id(&identities, "b"));
        assert_ne!(a, b);
        identities.replace([identity("c", "3"), identity("b", "2"), identity("a", "1")]);
        assert_eq!((id(&identities, "a"), id(&identities, "b")), (a, b));
        assert!(![a, b].contains(&id(&identities, "c")));
    }

    #[test]
    fn an_identity_that_is_new_or_another_one_is_a_caller_that_never_was() {
        let identities = Identities::new([identity("a", "1"), identity("b", "2")]);
        let mut seen = vec![id(&identities, "a"), id(&identities, "b")];
        let mut is_new = |access_key: &str| {
            let id = id(&identities, access_key);
            assert!(id.is_some() && !seen.contains(&id), "{access_key}");
            seen.push(id);
        };
        identities.replace([identity("b", "2"), identity("c", "3")]);
        is_new("c");
        identities.replace([identity("a", "1"), identity("b", "another secret")]);
        is_new("a");
        is_new("b");
        let mut with_account = identity("a", "1");
        with_account.lake_account = Some(Arc::new(Account {
            access_key: "lake".into(),
            secret_key: Secret::new("s"),
            session_token: None,
        }));
        identities.replace([with_account]);
        is_new("a");
        assert_eq!((id(&identities, "b"), identities.len()), (None, 1));
    }
}
