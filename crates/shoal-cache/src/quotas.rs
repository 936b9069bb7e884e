//! Quotas: the most of this node's disk, and of its link to the lake, that an identity or the objects below a
//! prefix may use.
//!
//! A read or write falls under at most one quota of its caller's identity, and under that of the longest
//! prefix that fits its object. Each of the two holds for itself. The store keeps to the room
//! ([`shoal_policy::quotas`]), and transfers from the lake to the rate ([`QuotaRate`]).
//!
//! A block that waits for the rate of a quota holds memory. All blocks that keep a rate share a part of the
//! memory window, of which each quota has a part at most, so that a slow one does not stop the others.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ring::digest::{SHA256, digest};
use shoal_net::link::{Bandwidth, QuotaRate};
use shoal_policy::quotas::{QuotaId, QuotaIds};
use shoal_s3::identity::Caller;
use shoal_s3::object::ObjectName;
use shoal_s3::prefix::ByPrefix;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The part of the memory window that the blocks of a quota may take while they keep its rate: a quarter of
/// the quarter that all such blocks share.
const MEMORY_PARTS: u64 = 16;

/// `[[quota]]`
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaConfig {
    /// The reads and writes that it limits.
    pub scope: QuotaScope,
    /// The most of this node's disk; `None` if it is not limited.
    pub room: Option<QuotaSize>,
    /// The most that this node reads from the lake in a second; `None` if it is not limited.
    pub bandwidth: Option<Bandwidth>,
}

/// The reads and writes that a quota limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum QuotaScope {
    /// Those of this caller: the access key of an identity, the ARN of a role, `anonymous` or
    /// `unverified`.
    Identity(String),
    /// Those of objects with this prefix, `s3://bucket/prefix`, but for those of a longer prefix with a
    /// quota.
    Prefix(String),
}

/// An amount of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaSize {
    /// In bytes.
    Bytes(u64),
    /// In percent of the capacity of the store.
    Percent(u8),
}

/// A quota of a node.
#[derive(Debug)]
pub struct Quota {
    /// The reads and writes that it limits.
    pub scope: QuotaScope,
    /// Its name in the store.
    pub id: QuotaId,
    /// The most bytes of disk; `None` if they are not limited.
    pub room_bytes: Option<u64>,
    /// The rate of reads from the lake; `None` if it is not limited.
    pub rate: Option<Arc<QuotaRate>>,
    /// Memory for blocks at that rate.
    memory: QuotaMemory,
}

/// The part of the memory window that the blocks of one quota may take.
#[derive(Debug)]
struct QuotaMemory {
    /// One permit is 1 KiB.
    free: Arc<Semaphore>,
    size_kib: u32,
}

/// The quotas of a node. They change while it runs.
#[derive(Debug, Default)]
pub struct Quotas(ArcSwap<Rules>);

#[derive(Debug)]
struct Rules {
    all: Vec<Arc<Quota>>,
    by_identity: HashMap<String, Arc<Quota>, foldhash::fast::RandomState>,
    by_prefix: ByPrefix<Option<Arc<Quota>>>,
}

/// The quotas that a read or a write falls under.
#[derive(Clone, Debug, Default)]
pub struct ChargedQuotas {
    of_identity: Option<Arc<Quota>>,
    of_prefix: Option<Arc<Quota>>,
}

impl QuotaScope {
    /// Returns the name of the quota in metrics and on pages: that of the identity, or the prefix.
    pub fn name(&self) -> &str {
        match self {
            Self::Identity(name) | Self::Prefix(name) => name,
        }
    }

    /// Returns the digest that names the quota in the store.
    pub fn id(&self) -> QuotaId {
        let kind = match self {
            Self::Identity(_) => "identity",
            Self::Prefix(_) => "prefix",
        };
        let digest = digest(&SHA256, format!("{kind} {}", self.name()).as_bytes());
        let first = digest.as_ref().first_chunk().expect("the digest has 32 bytes");
        QuotaId(NonZeroU64::new(u64::from_le_bytes(*first)).unwrap_or(NonZeroU64::MIN))
    }
}

impl QuotaSize {
    /// Returns the size in bytes, in a store of `capacity_bytes`.
    pub fn bytes(self, capacity_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (u128::from(capacity_bytes) * u128::from(percent) / 100) as u64,
        }
    }
}

impl QuotaConfig {
    /// Returns the quotas of `configs` that limit the room of a store of `capacity_bytes`, each with its room
    /// in bytes.
    pub fn rooms(configs: &[Self], capacity_bytes: u64) -> Vec<(QuotaId, u64)> {
        let room = |config: &Self| Some((config.scope.id(), config.room?.bytes(capacity_bytes)));
        configs.iter().filter_map(room).collect()
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            by_identity: HashMap::default(),
            by_prefix: ByPrefix::new(None, std::iter::empty()),
        }
    }
}

impl Quotas {
    /// Creates the quotas of a node whose store has this capacity, and whose memory window has `fill_bytes`.
    pub fn new(configs: &[QuotaConfig], capacity_bytes: u64, fill_bytes: u64) -> Self {
        let quotas = Self::default();
        quotas.set(configs, capacity_bytes, fill_bytes);
        quotas
    }

    /// Replaces the quotas. The rate of a quota that stays is changed, also for transfers in flight; those of
    /// a quota that is gone keep their rate to their end.
    pub fn set(&self, configs: &[QuotaConfig], capacity_bytes: u64, fill_bytes: u64) {
        let before = self.0.load();
        let all: Vec<Arc<Quota>> = configs
            .iter()
            .map(|config| {
                let earlier = before.all.iter().find(|quota| quota.scope == config.scope);
                Arc::new(Quota {
                    scope: config.scope.clone(),
                    id: config.scope.id(),
                    room_bytes: config.room.map(|room| room.bytes(capacity_bytes)),
                    rate: config.bandwidth.map(|bandwidth| {
                        let rate = bandwidth.bytes_per_second;
                        let earlier = earlier.and_then(|quota| quota.rate.clone());
                        earlier
                            .inspect(|earlier| earlier.set(rate))
                            .unwrap_or_else(|| QuotaRate::new(rate))
                    }),
                    memory: QuotaMemory::new(fill_bytes),
                })
            })
            .collect();
        let by_identity = all.iter().filter_map(|quota| match &quota.scope {
            QuotaScope::Identity(name) => Some((name.clone(), Arc::clone(quota))),
            QuotaScope::Prefix(_) => None,
        });
        let by_prefix = all.iter().filter_map(|quota| match &quota.scope {
            QuotaScope::Identity(_) => None,
            QuotaScope::Prefix(prefix) => Some((prefix.as_str(), Some(Arc::clone(quota)))),
        });
        let rules = Rules {
            by_identity: by_identity.collect(),
            by_prefix: ByPrefix::new(None, by_prefix),
            all,
        };
        self.0.store(Arc::new(rules));
    }

    /// Returns all quotas, in the order of the configuration.
    pub fn all(&self) -> Vec<Arc<Quota>> {
        self.0.load().all.clone()
    }

    /// Returns the quotas that a read or write of `name` by `caller` falls under.
    pub fn of(&self, caller: &Caller, name: Option<&ObjectName>) -> ChargedQuotas {
        let rules = self.0.load();
        if rules.all.is_empty() {
            return ChargedQuotas::default();
        }
        // All temporary keys of a role have its quota.
        let names = [caller.name(), caller.payer_name()];
        let of_identity = names.iter().find_map(|name| rules.by_identity.get(*name));
        ChargedQuotas {
            of_identity: of_identity.cloned(),
            of_prefix: name.and_then(|name| rules.by_prefix.get(name).clone()),
        }
    }

    /// Returns the quota of the longest prefix that fits `name`.
    pub fn of_object(&self, name: &ObjectName) -> Option<Arc<Quota>> {
        self.0.load().by_prefix.get(name).clone()
    }
}

impl ChargedQuotas {
    /// Returns the quotas whose room a block takes.
    pub fn ids(&self) -> QuotaIds {
        let id = |quota: &Option<Arc<Quota>>| {
            let quota = quota.as_ref().filter(|quota| quota.room_bytes.is_some())?;
            Some(quota.id)
        };
        QuotaIds {
            of_identity: id(&self.of_identity),
            of_prefix: id(&self.of_prefix),
        }
    }

    /// Waits for the memory that a block of `bytes` may take while it waits for the rates.
    pub(crate) async fn reserve(&self, bytes: u64) -> Vec<OwnedSemaphorePermit> {
        let mut memory = Vec::new();
        for quota in [&self.of_identity, &self.of_prefix].into_iter().flatten() {
            if quota.rate.is_some() {
                memory.push(quota.memory.reserve(bytes).await);
            }
        }
        memory
    }

    /// Returns the rates that a transfer from the lake keeps.
    pub fn rates(&self) -> Vec<Arc<QuotaRate>> {
        let quotas = [&self.of_identity, &self.of_prefix].into_iter().flatten();
        quotas.filter_map(|quota| quota.rate.clone()).collect()
    }
}

impl QuotaMemory {
    fn new(fill_bytes: u64) -> Self {
        let size_kib = (fill_bytes / MEMORY_PARTS) >> 10;
        let size_kib = u32::try_from(size_kib.max(1)).unwrap_or(u32::MAX);
        Self {
            free: Arc::new(Semaphore::new(size_kib as usize)),
            size_kib,
        }
    }

    /// Waits for memory. A block larger than all of it takes all.
    async fn reserve(&self, bytes: u64) -> OwnedSemaphorePermit {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.free).acquire_many_owned(kib.min(self.size_kib));
        permit.await.expect("the memory of a quota is never closed")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use shoal_net::link::BandwidthScope;
    use shoal_s3::identity::{Identities, Identity};

    use super::*;

    const CAPACITY_BYTES: u64 = 1000;
    const FILL_BYTES: u64 = 16 << 20;

    fn config(scope: QuotaScope, room: Option<QuotaSize>, bytes_per_second: Option<u64>) -> QuotaConfig {
        let scope_of_rate = BandwidthScope::Node;
        QuotaConfig {
            scope,
            room,
            bandwidth: bytes_per_second.map(|bytes_per_second| Bandwidth {
                bytes_per_second,
                scope: scope_of_rate,
            }),
        }
    }

    fn identity(name: &str) -> QuotaScope {
        QuotaScope::Identity(name.into())
    }

    fn prefix(prefix: &str) -> QuotaScope {
        QuotaScope::Prefix(prefix.into())
    }

    fn object(bucket: &str, key: &str) -> ObjectName {
        ObjectName {
            bucket: bucket.into(),
            key: key.as_bytes().into(),
            version: None,
        }
    }

    fn caller(access_key: &str) -> Caller {
        let identities = Identities::new([Identity::new(access_key, "secret")]);
        Caller::Identity(identities.get(access_key).unwrap())
    }

    #[test]
    fn a_read_falls_under_the_quota_of_its_identity_and_of_the_longest_prefix() {
        let room = Some(QuotaSize::Percent(10));
        let quotas = Quotas::new(
            &[
                config(identity("A"), room, Some(7)),
                config(identity("anonymous"), room, None),
                config(prefix("s3://b/"), room, None),
                config(prefix("s3://b/x/"), None, Some(5)),
            ],
            CAPACITY_BYTES,
            FILL_BYTES,
        );
        let names = |caller: &Caller, name: &ObjectName| {
            let charged = quotas.of(caller, Some(name));
            let name = |quota: Option<Arc<Quota>>| quota.map(|quota| quota.scope.name().to_owned());
            (name(charged.of_identity), name(charged.of_prefix))
        };
        let some = |name: &str| Some(name.to_owned());
        let (a, b) = (caller("A"), caller("B"));
        assert_eq!(names(&a, &object("b", "x/1")), (some("A"), some("s3://b/x/")));
        assert_eq!(names(&b, &object("b", "y")), (None, some("s3://b/")));
        assert_eq!(names(&b, &object("c", "x/1")), (None, None));
        assert_eq!(names(&Caller::Anonymous, &object("c", "y")).0, some("anonymous"));
        let charged = quotas.of(&a, Some(&object("b", "x/1")));
        let expected = QuotaIds {
            of_identity: Some(identity("A").id()),
            of_prefix: None,
        };
        assert_eq!((charged.ids(), charged.rates().len()), (expected, 2));
    }

    #[test]
    fn an_identity_and_a_prefix_of_one_name_are_two_quotas() {
        assert_ne!(identity("a").id(), prefix("a").id());
        assert_ne!(identity("a").id(), identity("b").id());
        // Blocks on disk carry the digest.
        assert_eq!(identity("a").id().0.get(), 0x2482_889b_bdf6_a0b0);
    }

    #[test]
    fn room_is_a_part_of_the_capacity_or_a_number_of_bytes() {
        let rooms = QuotaConfig::rooms(
            &[
                config(identity("a"), Some(QuotaSize::Percent(20)), None),
                config(identity("b"), None, Some(9)),
                config(identity("c"), Some(QuotaSize::Bytes(77)), None),
            ],
            CAPACITY_BYTES,
        );
        assert_eq!(rooms, [(identity("a").id(), 200), (identity("c").id(), 77)]);
        assert_eq!(QuotaSize::Percent(100).bytes(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_quota_that_stays_keeps_its_rate_and_its_counts() {
        let quotas = Quotas::new(
            &[config(identity("a"), None, Some(1_000_000))],
            CAPACITY_BYTES,
            FILL_BYTES,
        );
        let before = quotas.of(&caller("a"), None).rates().remove(0);
        quotas.set(
            &[
                config(prefix("s3://b/"), None, Some(3)),
                config(identity("a"), None, Some(2_000_000)),
            ],
            CAPACITY_BYTES,
            FILL_BYTES,
        );
        let after = quotas.of(&caller("a"), None).rates().remove(0);
        assert!(Arc::ptr_eq(&before, &after));
        assert_eq!(after.bytes_per_second(), 2_000_000);
        quotas.set(&[], CAPACITY_BYTES, FILL_BYTES);
        assert!(quotas.of(&caller("a"), None).rates().is_empty());
    }

    #[tokio::test]
    async fn the_blocks_of_one_quota_leave_memory_for_those_of_others() {
        let quotas = Quotas::new(
            &[
                config(identity("a"), None, Some(1)),
                config(identity("b"), None, Some(1)),
                config(identity("c"), Some(QuotaSize::Bytes(1)), None),
            ],
            CAPACITY_BYTES,
            FILL_BYTES,
        );
        let charged = |name: &str| quotas.of(&caller(name), None);
        let held = charged("a").reserve(FILL_BYTES).await;
        assert!(charged("a").reserve(1).now_or_never().is_none());
        let mut others = Vec::new();
        for _ in 0..4 {
            let of_b = charged("b").reserve(FILL_BYTES / MEMORY_PARTS / 4).now_or_never();
            others.push(of_b.expect("it has memory of its own"));
        }
        assert!(charged("b").reserve(1).now_or_never().is_none());
        let unlimited = charged("c").reserve(FILL_BYTES).now_or_never();
        assert!(
            unlimited.is_some_and(|memory| memory.is_empty()),
            "it keeps no rate"
        );
        drop(held);
        assert!(charged("a").reserve(1).now_or_never().is_some());
    }
}
