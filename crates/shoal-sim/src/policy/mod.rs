//! The eviction and admission policies by name.

mod admission;

use std::fmt;

use serde::{Serialize, Serializer};
use shoal_policy::eviction::{self, Gwf, Life, Named};

pub use self::admission::{AdmissionName, AnyAdmission};
use crate::block::Block;

/// An eviction policy that a user can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyName {
    /// A policy that the store of a node can follow.
    OfStores(eviction::PolicyName),
    /// Evicts blocks of incomplete objects first (`PACMan`).
    Life,
    /// D4N's GWF on a single node.
    Gwf,
}

impl PolicyName {
    /// Evicts the least recently used block.
    pub const LRU: Self = Self::OfStores(eviction::PolicyName::Lru);

    /// The policy that the store of a node follows by default.
    pub fn of_nodes() -> Self {
        Self::OfStores(eviction::PolicyName::default())
    }

    /// Every policy, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        let of_stores = eviction::PolicyName::ALL.into_iter();
        // A single simulated node follows GWF as printed.
        let of_stores = of_stores.filter(|policy| !policy.is_gwf());
        let of_stores = of_stores.map(Self::OfStores);
        of_stores.chain([Self::Life, Self::Gwf])
    }

    /// The name on the command line, in experiments and in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OfStores(policy) => policy.as_str(),
            Self::Life => "life",
            Self::Gwf => "gwf",
        }
    }

    /// The policies that a node by itself may follow: C2P is for nodes that hold parts of the same objects,
    /// and its paper's LRU is the reference of its experiments.
    pub fn of_lone_nodes() -> impl Iterator<Item = Self> + Clone {
        let is_of_c2p =
            |policy: eviction::PolicyName| policy.is_c2p() || policy == eviction::PolicyName::Closeness;
        Self::all().filter(move |policy| !matches!(policy, Self::OfStores(policy) if is_of_c2p(*policy)))
    }

    /// Creates the policy without blocks.
    pub fn build(self) -> Box<Named<Block>> {
        match self {
            Self::OfStores(policy) => policy.build(),
            Self::Life => Box::new(Life::default()),
            Self::Gwf => Box::new(Gwf::default()),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for PolicyName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
