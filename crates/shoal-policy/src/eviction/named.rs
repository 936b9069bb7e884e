//! The eviction policies that can be configured for a store, by name.

use std::fmt;
use std::hash::Hash;

use shoal_base::words;

use super::c2p::{Closeness, Completeness};
use super::gwf::Ageing;
use super::{C2p, Duel, Eviction, Gwf, Lfu, Lfuda, Lru, S3Fifo, Sieve};
use crate::PartOf;

words! {
    /// The eviction policy of a store.
    #[derive(Default)]
    pub enum PolicyName {
        /// Evicts the least recently used block.
        Lru = "lru",
        /// Evicts the least frequently used block.
        Lfu = "lfu",
        /// LFU with dynamic ageing.
        Lfuda = "lfuda",
        /// FIFO with a hand that skips keys used since it last passed.
        Sieve = "sieve",
        /// Three FIFO queues, for keys used once and keys used again.
        S3Fifo = "s3-fifo",
        /// LRU or S3-FIFO, whichever would have missed less recently. `docs/explanation/default-policy.md`
        /// says why it is the default.
        #[default]
        Duel = "duel",
        /// Evicts by worth, which nodes share through a directory, see [`Gwf`]. For a single node use
        /// [`PolicyName::Lfuda`], which is the same without other nodes.
        Gwf = "gwf",
        /// The LRU of the C2P paper, without co-operation: counts of uses decide between blocks whose last
        /// uses are not close to each other (its Algorithm 1), see [`Closeness`].
        Closeness = "closeness",
        /// Evicts blocks of objects that are incomplete across all nodes first, then by
        /// [`PolicyName::Closeness`], see [`C2p`].
        C2p = "c2p",
        /// C2P above [`PolicyName::Lru`].
        C2pLru = "c2p+lru",
        /// C2P above [`PolicyName::Lfu`].
        C2pLfu = "c2p+lfu",
        /// C2P above [`PolicyName::Lfuda`].
        C2pLfuda = "c2p+lfuda",
        /// C2P above [`PolicyName::Sieve`].
        C2pSieve = "c2p+sieve",
        /// C2P above [`PolicyName::S3Fifo`].
        C2pS3Fifo = "c2p+s3-fifo",
        /// C2P above [`PolicyName::Duel`].
        C2pDuel = "c2p+duel",
        /// C2P above [`PolicyName::Gwf`].
        C2pGwf = "c2p+gwf",
    }
}

impl PolicyName {
    /// The policy without C2P above it, for blocks of objects that are not spread over nodes.
    #[must_use]
    pub const fn alone(self) -> Self {
        match self {
            Self::C2p => Self::Closeness,
            Self::C2pLru => Self::Lru,
            Self::C2pLfu => Self::Lfu,
            Self::C2pLfuda => Self::Lfuda,
            Self::C2pSieve => Self::Sieve,
            Self::C2pS3Fifo => Self::S3Fifo,
            Self::C2pDuel => Self::Duel,
            Self::C2pGwf => Self::Gwf,
            alone => alone,
        }
    }

    /// Returns true if the policy is C2P, alone or above another.
    pub fn is_c2p(self) -> bool {
        self.alone() != self
    }

    /// Returns true if the policy is GWF, with or without C2P above it.
    pub fn is_gwf(self) -> bool {
        self.alone() == Self::Gwf
    }

    /// Builds an empty policy.
    pub fn build<K: Copy + Default + Eq + Hash + fmt::Debug + PartOf + Send + 'static>(
        self,
    ) -> Box<Named<K>> {
        let below = self.build_below();
        if self.is_c2p() {
            Box::new(C2p::above(below, Completeness::default()))
        } else {
            below
        }
    }

    /// Builds only the policy below C2P, empty.
    pub fn build_below<K: Copy + Default + Eq + Hash + fmt::Debug + Send + 'static>(self) -> Box<Named<K>> {
        match self {
            Self::Closeness | Self::C2p => Box::new(Closeness::default()),
            Self::Lru | Self::C2pLru => Box::new(Lru::default()),
            Self::Lfu | Self::C2pLfu => Box::new(Lfu::default()),
            Self::Lfuda | Self::C2pLfuda => Box::new(Lfuda::default()),
            Self::Sieve | Self::C2pSieve => Box::new(Sieve::default()),
            Self::S3Fifo | Self::C2pS3Fifo => Box::new(S3Fifo::default()),
            Self::Duel | Self::C2pDuel => Box::new(Duel::default()),
            Self::Gwf | Self::C2pGwf => Box::new(Gwf::new(Ageing::Added)),
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A policy chosen at run time.
pub type Named<K> = dyn Eviction<K> + Send;

#[cfg(test)]
mod tests {
    use shoal_base::words::Word as _;

    use super::PolicyName;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for policy in PolicyName::ALL {
            assert_eq!(PolicyName::named(policy.as_str()), Some(policy));
        }
        assert_eq!(PolicyName::named("S3-FIFO"), Some(PolicyName::S3Fifo));
        assert_eq!(PolicyName::named("c2p+s3-fifo"), Some(PolicyName::C2pS3Fifo));
        for name in ["mru", "c2p+", "c2p+c2p", "c2p+mru", "c2p lru"] {
            assert_eq!(PolicyName::named(name), None, "{name}");
        }
    }

    #[test]
    fn a_name_builds_its_policy() {
        for policy in PolicyName::ALL {
            let below = match policy.alone() {
                PolicyName::Lfu | PolicyName::Lfuda => "LeastUsed".to_owned(),
                alone => format!("{alone:?}"),
            };
            let above = if policy.is_c2p() { "C2p { below: " } else { "" };
            let begins = format!("{above}{below}");
            let built = format!("{:?}", policy.build::<u32>());
            assert!(built.starts_with(&begins), "{policy}: {built}");
        }
    }

    #[test]
    fn a_policy_below_c2p_is_the_policy_alone() {
        for policy in PolicyName::ALL {
            let alone = policy.alone();
            assert!(!alone.is_c2p() && alone.alone() == alone);
            assert_eq!(policy.is_c2p(), policy.as_str().starts_with("c2p"));
            let name = policy.as_str().strip_prefix("c2p+");
            assert!(name.is_none_or(|name| name == alone.as_str()));
            let built = policy.build::<u32>();
            assert_eq!(built.c2p().is_some(), policy.is_c2p());
            assert_eq!(built.gwf().is_some(), policy.is_gwf());
        }
    }
}
