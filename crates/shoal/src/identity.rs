//! Who a client is to us, and who it is to the lake.

use std::collections::HashMap;
use std::sync::Arc;

use shoal_policy::fair::Payer;

use crate::secret::Secret;

/// A key pair that signs requests to an endpoint.
#[derive(Clone, Debug)]
pub struct Account {
    /// The public half.
    pub access_key: String,
    /// The secret half.
    pub secret_key: Secret,
    /// Present for temporary credentials of the AWS chain.
    pub session_token: Option<Secret>,
}

/// A client known to this node by its access key.
#[derive(Debug)]
pub struct Identity {
    /// Position in the configuration; names the identity cheaply in grants.
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

/// Whose turns are taken by work that is not, or not yet, a client's. No identity has so high a number.
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

    /// What operators call it: the access key, or `strangers`.
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

/// All identities of the configuration, by access key.
#[derive(Debug, Default)]
pub struct Identities {
    /// Clients name keys but add none, so the hash need not withstand whoever chooses them.
    by_access_key: HashMap<String, Arc<Identity>, foldhash::fast::RandomState>,
}

impl Identities {
    /// Indexes the identities; the configuration has refused duplicates before.
    pub fn new(identities: impl IntoIterator<Item = Identity>) -> Self {
        let by_access_key = identities
            .into_iter()
            .map(|identity| (identity.access_key.clone(), Arc::new(identity)))
            .collect();
        Self { by_access_key }
    }

    /// The identity that signs with `access_key`.
    pub fn get(&self, access_key: &str) -> Option<&Arc<Identity>> {
        self.by_access_key.get(access_key)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Identity>> {
        self.by_access_key.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_access_key.len()
    }

    /// Whether every client is a stranger.
    pub fn is_empty(&self) -> bool {
        self.by_access_key.is_empty()
    }
}
