//! The eviction policies that can be configured for a store, by name.

use std::cmp::Ordering;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::c2p::{Closeness, Completeness};
use super::gwf::Ageing;
use super::{C2p, Duel, Eviction, Gwf, Lfu, Lfuda, Lru, Ranking, S3Fifo, Sieve};
use crate::PartOf;

/// The eviction policy of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyName {
    /// Evicts the least recently used block.
    Lru,
    /// Evicts the least frequently used block.
    Lfu,
    /// LFU with dynamic ageing.
    Lfuda,
    /// FIFO with a hand that skips keys used since it last passed.
    Sieve,
    /// Three FIFO queues, for keys used once and keys used again.
    S3Fifo,
    /// LRU or S3-FIFO, whichever would have missed less recently. `docs/explanation/default-policy.md` says
    /// why it is the default.
    #[default]
    Duel,
    /// Evicts by worth, which nodes share through a directory, see [`Gwf`]. For a single node use
    /// [`PolicyName::Lfuda`], which is the same without other nodes.
    Gwf,
    /// Evicts blocks of objects that are incomplete across all nodes first, then by the paper's own
    /// comparator, see [`C2p`].
    C2p,
    /// C2P above [`PolicyName::Lru`].
    C2pLru,
    /// C2P above [`PolicyName::Lfu`].
    C2pLfu,
    /// C2P above [`PolicyName::Lfuda`].
    C2pLfuda,
    /// C2P above [`PolicyName::Sieve`].
    C2pSieve,
    /// C2P above [`PolicyName::S3Fifo`].
    C2pS3Fifo,
    /// C2P above [`PolicyName::Duel`].
    C2pDuel,
    /// C2P above [`PolicyName::Gwf`].
    C2pGwf,
}

impl PolicyName {
    /// Every policy, in the order of the documentation.
    pub const ALL: &'static [Self] = &[
        Self::Lru,
        Self::Lfu,
        Self::Lfuda,
        Self::Sieve,
        Self::S3Fifo,
        Self::Duel,
        Self::Gwf,
        Self::C2p,
        Self::C2pLru,
        Self::C2pLfu,
        Self::C2pLfuda,
        Self::C2pSieve,
        Self::C2pS3Fifo,
        Self::C2pDuel,
        Self::C2pGwf,
    ];

    /// The name used in settings, on the command line, in experiments and in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::Lfuda => "lfuda",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3-fifo",
            Self::Duel => "duel",
            Self::Gwf => "gwf",
            Self::C2p => "c2p",
            Self::C2pLru => "c2p+lru",
            Self::C2pLfu => "c2p+lfu",
            Self::C2pLfuda => "c2p+lfuda",
            Self::C2pSieve => "c2p+sieve",
            Self::C2pS3Fifo => "c2p+s3-fifo",
            Self::C2pDuel => "c2p+duel",
            Self::C2pGwf => "c2p+gwf",
        }
    }

    /// Parses the name of a policy, ignoring case.
    pub fn from_name(name: &str) -> Option<Self> {
        let named = |policy: &&Self| policy.as_str().eq_ignore_ascii_case(name);
        Self::ALL.iter().find(named).copied()
    }

    /// The policy without C2P above it, for blocks of objects that are not spread over nodes. LRU for
    /// [`PolicyName::C2p`].
    #[must_use]
    pub const fn alone(self) -> Self {
        match self {
            Self::C2p | Self::C2pLru => Self::Lru,
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
    pub fn build<K: Copy + Eq + Hash + fmt::Debug + PartOf + Send + 'static>(self) -> Named<K> {
        let below = self.build_below();
        Named {
            name: self,
            policy: if self.is_c2p() {
                Policy::Above(Box::new(C2p::above(below, Completeness::default())))
            } else {
                Policy::Alone(Box::new(below))
            },
        }
    }

    /// Builds only the policy below C2P, empty. For [`PolicyName::C2p`] that is the paper's own comparator.
    pub fn build_below<K: Copy + Eq + Hash + fmt::Debug + Send + 'static>(self) -> Below<K> {
        match self {
            Self::C2p => Below::ByUse(Box::new(Closeness::default())),
            _ => self.alone().below(),
        }
    }

    fn below<K: Copy + Eq + Hash + fmt::Debug + Send + 'static>(self) -> Below<K> {
        Below::ByUse(match self {
            Self::Lru => Box::new(Lru::default()),
            Self::Lfu => Box::new(Lfu::default()),
            Self::Lfuda => Box::new(Lfuda::default()),
            Self::Sieve => Box::new(Sieve::default()),
            Self::S3Fifo => Box::new(S3Fifo::default()),
            // `docs/decisions/0030-gwf-live.md` says why uses add the age once.
            Self::Gwf => return Below::ByWorth(Gwf::new(Ageing::Added)),
            _ => Box::new(Duel::default()),
        })
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A policy chosen at run time.
pub struct Named<K: PartOf> {
    name: PolicyName,
    policy: Policy<K>,
}

enum Policy<K: PartOf> {
    Alone(Box<Below<K>>),
    Above(Box<C2p<K, Below<K>>>),
}

/// A policy that may be used below C2P.
#[derive(Debug)]
pub enum Below<K> {
    /// Needs only the keys that are held and used.
    ByUse(Box<dyn Ranking<K> + Send>),
    /// Also needs information from other nodes.
    ByWorth(Gwf<K>),
}

impl<K: PartOf> Named<K> {
    /// The GWF policy, for methods that only it has; `None` for any other policy.
    pub fn gwf(&self) -> Option<&Gwf<K>> {
        match self.below() {
            Below::ByUse(_) => None,
            Below::ByWorth(gwf) => Some(gwf),
        }
    }

    /// As [`Named::gwf`], mutable.
    pub fn gwf_mut(&mut self) -> Option<&mut Gwf<K>> {
        let below = match &mut self.policy {
            Policy::Alone(below) => below,
            Policy::Above(c2p) => c2p.below_mut(),
        };
        match below {
            Below::ByUse(_) => None,
            Below::ByWorth(gwf) => Some(gwf),
        }
    }

    /// The C2P policy, for methods that only it has; `None` for any other policy.
    pub fn c2p(&self) -> Option<&C2p<K, Below<K>>> {
        match &self.policy {
            Policy::Alone(_) => None,
            Policy::Above(c2p) => Some(c2p),
        }
    }

    /// As [`Named::c2p`], mutable.
    pub fn c2p_mut(&mut self) -> Option<&mut C2p<K, Below<K>>> {
        match &mut self.policy {
            Policy::Alone(_) => None,
            Policy::Above(c2p) => Some(c2p),
        }
    }

    fn below(&self) -> &Below<K> {
        match &self.policy {
            Policy::Alone(below) => below,
            Policy::Above(c2p) => c2p.below(),
        }
    }
}

impl<K> Below<K> {
    fn policy(&self) -> &dyn Ranking<K>
    where
        K: Copy + Eq + Hash + fmt::Debug,
    {
        match self {
            Self::ByUse(policy) => &**policy,
            Self::ByWorth(gwf) => gwf,
        }
    }

    fn policy_mut(&mut self) -> &mut dyn Ranking<K>
    where
        K: Copy + Eq + Hash + fmt::Debug,
    {
        match self {
            Self::ByUse(policy) => &mut **policy,
            Self::ByWorth(gwf) => gwf,
        }
    }
}

/// Implements every method by delegating to the policy that `$of` and `$of_mut` return.
macro_rules! pass_on {
    ($of:ident, $of_mut:ident) => {
        fn insert(&mut self, key: K, bytes: u64) {
            self.$of_mut().insert(key, bytes);
        }

        fn bring(&mut self, key: K, bytes: u64) {
            self.$of_mut().bring(key, bytes);
        }

        fn touch(&mut self, key: &K) {
            self.$of_mut().touch(key);
        }

        fn remove(&mut self, key: &K) -> Option<u64> {
            self.$of_mut().remove(key)
        }

        fn set_aside(&mut self, key: &K) -> Option<u64> {
            self.$of_mut().set_aside(key)
        }

        fn take_back(&mut self, key: K, bytes: u64)
        where
            K: Copy,
        {
            self.$of_mut().take_back(key, bytes);
        }

        fn left_aside(&mut self, key: &K) {
            self.$of_mut().left_aside(key);
        }

        fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)> {
            self.$of_mut().evict(may_leave)
        }

        fn advance(&mut self, now: Duration) {
            self.$of_mut().advance(now);
        }

        fn contains(&self, key: &K) -> bool {
            self.$of().contains(key)
        }

        fn len(&self) -> usize {
            self.$of().len()
        }
    };
}

impl<K: Copy + Eq + Hash + fmt::Debug> Eviction<K> for Below<K> {
    pass_on!(policy, policy_mut);
}

impl<K: Copy + Eq + Hash + fmt::Debug> Ranking<K> for Below<K> {
    fn compare(&self, one: &K, other: &K) -> Ordering {
        self.policy().compare(one, other)
    }

    fn evict_key(&mut self, key: &K) -> Option<u64> {
        self.policy_mut().evict_key(key)
    }
}

impl<K: Copy + Eq + Hash + fmt::Debug + PartOf> Named<K> {
    fn policy(&self) -> &dyn Eviction<K> {
        match &self.policy {
            Policy::Alone(below) => &**below,
            Policy::Above(c2p) => &**c2p,
        }
    }

    fn policy_mut(&mut self) -> &mut dyn Eviction<K> {
        match &mut self.policy {
            Policy::Alone(below) => &mut **below,
            Policy::Above(c2p) => &mut **c2p,
        }
    }
}

impl<K: Copy + Eq + Hash + fmt::Debug + PartOf> Eviction<K> for Named<K> {
    pass_on!(policy, policy_mut);
}

impl<K: Copy + Eq + Hash + fmt::Debug + PartOf> fmt::Debug for Named<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} over {} keys", self.name, self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::PolicyName;

    #[test]
    fn every_policy_is_found_by_its_name() {
        for &policy in PolicyName::ALL {
            assert_eq!(PolicyName::from_name(policy.as_str()), Some(policy));
            assert_eq!(
                format!("{:?}", policy.build::<u32>()),
                format!("{policy} over 0 keys")
            );
        }
        assert_eq!(PolicyName::from_name("S3-FIFO"), Some(PolicyName::S3Fifo));
        assert_eq!(PolicyName::from_name("c2p+s3-fifo"), Some(PolicyName::C2pS3Fifo));
        for name in ["mru", "c2p+", "c2p+c2p", "c2p+mru", "c2p lru"] {
            assert_eq!(PolicyName::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_policy_below_c2p_is_the_policy_alone() {
        for &policy in PolicyName::ALL {
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
