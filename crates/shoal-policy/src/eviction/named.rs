//! The policies that a store can be told to follow, by their common names.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use super::gwf::Ageing;
use super::{Duel, Eviction, Gwf, Lfu, Lfuda, Lru, S3Fifo, Sieve};

/// A policy that needs to know only which keys are held and used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyName {
    /// The least recently used leaves first.
    Lru,
    /// The least often used leaves first.
    Lfu,
    /// LFU whose counts age.
    Lfuda,
    /// FIFO that spares keys used since the hand last passed.
    Sieve,
    /// Three FIFO queues, for keys used once and keys used again.
    S3Fifo,
    /// LRU or S3-FIFO, whichever would have missed less lately. `docs/explanation/default-policy.md` says why
    /// it is the default.
    #[default]
    Duel,
    /// By a worth that nodes with a directory share, see [`Gwf`]. A node by itself is better served by
    /// [`PolicyName::Lfuda`], which is the same without other nodes.
    Gwf,
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
        }
    }

    /// The policy with this name, in upper or lower case.
    pub fn of(name: &str) -> Option<Self> {
        let named = |policy: &&Self| policy.as_str().eq_ignore_ascii_case(name);
        Self::ALL.iter().find(named).copied()
    }

    /// Builds the policy, empty.
    pub fn build<K: Copy + Eq + Hash + Send + 'static>(self) -> Named<K> {
        Named {
            name: self,
            policy: match self {
                Self::Lru => Policy::ByUse(Box::new(Lru::default())),
                Self::Lfu => Policy::ByUse(Box::new(Lfu::default())),
                Self::Lfuda => Policy::ByUse(Box::new(Lfuda::default())),
                Self::Sieve => Policy::ByUse(Box::new(Sieve::default())),
                Self::S3Fifo => Policy::ByUse(Box::new(S3Fifo::default())),
                Self::Duel => Policy::ByUse(Box::new(Duel::default())),
                // `docs/decisions/0030-gwf-live.md` says why uses add the age once.
                Self::Gwf => Policy::ByWorth(Gwf::new(Ageing::Added)),
            },
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A policy chosen at run time.
pub struct Named<K> {
    name: PolicyName,
    policy: Policy<K>,
}

enum Policy<K> {
    /// Which keys are held and used is all that it learns.
    ByUse(Box<dyn Eviction<K> + Send>),
    /// It learns what other nodes know, too.
    ByWorth(Gwf<K>),
}

impl<K> Named<K> {
    /// GWF, for facts that only this policy takes; `None` if another policy was chosen.
    pub const fn gwf(&self) -> Option<&Gwf<K>> {
        match &self.policy {
            Policy::ByUse(_) => None,
            Policy::ByWorth(gwf) => Some(gwf),
        }
    }

    /// As [`Named::gwf`], to change it.
    pub const fn gwf_mut(&mut self) -> Option<&mut Gwf<K>> {
        match &mut self.policy {
            Policy::ByUse(_) => None,
            Policy::ByWorth(gwf) => Some(gwf),
        }
    }
}

impl<K: Copy + Eq + Hash> Named<K> {
    fn policy(&self) -> &dyn Eviction<K> {
        match &self.policy {
            Policy::ByUse(policy) => &**policy,
            Policy::ByWorth(gwf) => gwf,
        }
    }

    fn policy_mut(&mut self) -> &mut dyn Eviction<K> {
        match &mut self.policy {
            Policy::ByUse(policy) => &mut **policy,
            Policy::ByWorth(gwf) => gwf,
        }
    }
}

impl<K: Copy + Eq + Hash> Eviction<K> for Named<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        self.policy_mut().insert(key, bytes);
    }

    fn touch(&mut self, key: &K) {
        self.policy_mut().touch(key);
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        self.policy_mut().remove(key)
    }

    fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)> {
        self.policy_mut().evict(may_leave)
    }

    fn advance(&mut self, now: Duration) {
        self.policy_mut().advance(now);
    }

    fn contains(&self, key: &K) -> bool {
        self.policy().contains(key)
    }

    fn len(&self) -> usize {
        self.policy().len()
    }
}

impl<K: Copy + Eq + Hash> fmt::Debug for Named<K> {
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
            assert_eq!(PolicyName::of(policy.as_str()), Some(policy));
            assert_eq!(
                format!("{:?}", policy.build::<u32>()),
                format!("{policy} over 0 keys")
            );
        }
        assert_eq!(PolicyName::of("S3-FIFO"), Some(PolicyName::S3Fifo));
        assert_eq!(PolicyName::of("mru"), None);
    }
}
