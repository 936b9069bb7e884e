//! The room that quotas allow: which keys count in which quota, and which key leaves when a quota is full.
//!
//! **A quota is a limit, not a share.** It reserves nothing: below its limit, its keys leave by the policy of
//! the cache like all others. At its limit, what it brings in replaces its own keys, the one that was used
//! longest ago first. A quota therefore keeps an order of its own: the policy's order would have to be
//! searched past the keys of everyone else.
//!
//! Per quota, `used + reserved <= room` after every step that brings keys in. Only a restart with a smaller
//! room, or a change of the room, may leave a quota above its limit, until [`Quotas::over`] is empty.
//!
//! Nothing here evicts a key. The caller removes the [`Quotas::victim`] from the cache and from here.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::num::NonZeroU64;

use crate::eviction::{Eviction as _, Lru};
use crate::hash::KeyMap;

/// Names a quota: a digest that is the same in every process, because blocks on disk carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QuotaId(pub NonZeroU64);

/// The quotas that a key counts in: at most one of an identity, and one of a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaIds {
    /// The quota of the identity that brought the key.
    pub of_identity: Option<QuotaId>,
    /// The quota of the prefix that the key's object lies below.
    pub of_prefix: Option<QuotaId>,
}

impl QuotaIds {
    /// Returns the quotas.
    pub fn iter(self) -> impl Iterator<Item = QuotaId> {
        [self.of_identity, self.of_prefix].into_iter().flatten()
    }

    /// Returns true if the key counts in no quota.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// Why a quota has no room for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// A key of this quota has to leave first.
    Full(QuotaId),
    /// Not even after all keys that may leave have left: the key is too large, or the rest is pinned or on
    /// its way.
    Never,
}

/// What a quota allows, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaRoom {
    /// The quota.
    pub id: QuotaId,
    /// The most bytes that its keys may take.
    pub room_bytes: u64,
    /// The bytes that its keys take.
    pub used_bytes: u64,
}

/// The quotas of a cache, and the keys that count in them.
#[derive(Debug)]
pub struct Quotas<K> {
    quotas: BTreeMap<QuotaId, Quota<K>>,
    /// The keys that count in any quota.
    members: KeyMap<K, Member>,
}

#[derive(Debug)]
struct Quota<K> {
    room_bytes: u64,
    used_bytes: u64,
    reserved_bytes: u64,
    /// The part of `used_bytes` whose keys are set aside.
    aside_bytes: u64,
    /// The keys that are not set aside.
    order: Lru<K>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    ids: QuotaIds,
    bytes: u64,
    is_aside: bool,
}

impl<K> Default for Quotas<K> {
    fn default() -> Self {
        Self {
            quotas: BTreeMap::new(),
            members: KeyMap::default(),
        }
    }
}

impl<K: Copy + Eq + Hash + Debug> Quotas<K> {
    /// Replaces the quotas and their room in bytes. A quota that stays keeps its keys; the keys of one that
    /// is gone no longer count.
    pub fn set(&mut self, rooms: &[(QuotaId, u64)]) {
        let stays = |id: QuotaId| rooms.iter().any(|(other, _)| *other == id);
        self.quotas.retain(|id, _| stays(*id));
        self.members.retain(|_, member| {
            for id in [&mut member.ids.of_identity, &mut member.ids.of_prefix] {
                *id = id.filter(|id| stays(*id));
            }
            !member.ids.is_empty()
        });
        for &(id, room_bytes) in rooms {
            let quota = self.quotas.entry(id).or_insert_with(|| Quota {
                room_bytes,
                used_bytes: 0,
                reserved_bytes: 0,
                aside_bytes: 0,
                order: Lru::default(),
            });
            quota.room_bytes = room_bytes;
        }
    }

    /// Reserves `bytes` in each of these quotas, or in none. Quotas that do not exist are ignored.
    ///
    /// # Errors
    ///
    /// Fails with the [`Shortage`] if one of them has no room.
    pub fn reserve(&mut self, ids: QuotaIds, bytes: u64) -> Result<(), Shortage> {
        let mut full = None;
        for id in ids.iter() {
            let Some(quota) = self.quotas.get(&id) else {
                continue;
            };
            let staying_bytes = quota.aside_bytes.saturating_add(quota.reserved_bytes);
            if staying_bytes.saturating_add(bytes) > quota.room_bytes {
                return Err(Shortage::Never);
            }
            let taken_bytes = quota.used_bytes.saturating_add(quota.reserved_bytes);
            if taken_bytes.saturating_add(bytes) > quota.room_bytes {
                full = full.or(Some(id));
            }
        }
        if let Some(id) = full {
            return Err(Shortage::Full(id));
        }
        for id in ids.iter() {
            if let Some(quota) = self.quotas.get_mut(&id) {
                quota.reserved_bytes += bytes;
            }
        }
        Ok(())
    }

    /// Ends a reservation, whether or not its key was [inserted](Self::insert). The caller does both in one
    /// step, so that no key counts twice.
    pub fn cancel(&mut self, ids: QuotaIds, bytes: u64) {
        for id in ids.iter() {
            if let Some(quota) = self.quotas.get_mut(&id) {
                // The quota may have gone and come back since.
                quota.reserved_bytes = quota.reserved_bytes.saturating_sub(bytes);
            }
        }
    }

    /// Counts a key that has come, and takes `bytes`, in these quotas. Those that do not exist are ignored.
    pub fn insert(&mut self, key: K, ids: QuotaIds, bytes: u64) {
        let known = |id: Option<QuotaId>| id.filter(|id| self.quotas.contains_key(id));
        let ids = QuotaIds {
            of_identity: known(ids.of_identity),
            of_prefix: known(ids.of_prefix),
        };
        if ids.is_empty() {
            return;
        }
        let member = Member {
            ids,
            bytes,
            is_aside: false,
        };
        let before = self.members.insert(key, member);
        debug_assert!(before.is_none(), "a key comes once");
        self.of(member, |quota| {
            quota.used_bytes += bytes;
            quota.order.insert(key, bytes);
        });
    }

    /// Records a use of a key, if it counts in a quota.
    pub fn touch(&mut self, key: &K) {
        if let Some(&member) = self.members.get(key) {
            self.of(member, |quota| quota.order.touch(key));
        }
    }

    /// Removes a key that has left the cache, if it counts in a quota.
    pub fn remove(&mut self, key: &K) {
        let Some(member) = self.members.remove(key) else {
            return;
        };
        self.of(member, |quota| {
            quota.order.remove(key);
            quota.used_bytes -= member.bytes;
            if member.is_aside {
                quota.aside_bytes -= member.bytes;
            }
        });
    }

    /// Exempts a key from leaving because its quota is full. It still counts.
    pub fn set_aside(&mut self, key: &K) {
        let Some(member) = self.members.get_mut(key).filter(|member| !member.is_aside) else {
            return;
        };
        member.is_aside = true;
        let member = *member;
        self.of(member, |quota| {
            quota.order.remove(key);
            quota.aside_bytes += member.bytes;
        });
    }

    /// Ends the exemption of a key, which counts as just used.
    pub fn take_back(&mut self, key: &K) {
        let Some(member) = self.members.get_mut(key).filter(|member| member.is_aside) else {
            return;
        };
        member.is_aside = false;
        let member = *member;
        self.of(member, |quota| {
            quota.order.insert(*key, member.bytes);
            quota.aside_bytes -= member.bytes;
        });
    }

    /// Returns the key of a quota that was used longest ago among those that `may_leave` allows. It stays.
    pub fn victim(&mut self, id: QuotaId, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        self.quotas.get_mut(&id)?.order.victim(may_leave)
    }

    /// Returns the quotas whose keys take more than their room.
    pub fn over(&self) -> Vec<QuotaId> {
        let over = self.quotas.iter().filter(|(_, quota)| quota.is_over());
        over.map(|(id, _)| *id).collect()
    }

    /// Returns true if the keys of a quota take more than its room.
    pub fn is_over(&self, id: QuotaId) -> bool {
        self.quotas.get(&id).is_some_and(Quota::is_over)
    }

    /// Returns the quotas that a key counts in.
    pub fn ids_of(&self, key: &K) -> QuotaIds {
        self.members.get(key).map(|member| member.ids).unwrap_or_default()
    }

    /// Returns what each quota allows and holds.
    pub fn rooms(&self) -> Vec<QuotaRoom> {
        let room = |(&id, quota): (&QuotaId, &Quota<K>)| QuotaRoom {
            id,
            room_bytes: quota.room_bytes,
            used_bytes: quota.used_bytes,
        };
        self.quotas.iter().map(room).collect()
    }

    /// Changes each quota that a key counts in.
    fn of(&mut self, member: Member, mut change: impl FnMut(&mut Quota<K>)) {
        for id in member.ids.iter() {
            let quota = self.quotas.get_mut(&id);
            change(quota.expect("a key counts in quotas that exist"));
        }
    }
}

impl<K> Quota<K> {
    fn is_over(&self) -> bool {
        self.used_bytes > self.room_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::num::NonZeroU64;

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, prop_assert_eq, proptest};

    use super::{QuotaId, QuotaIds, Quotas, Shortage};

    fn id(number: u64) -> QuotaId {
        QuotaId(NonZeroU64::new(number).unwrap())
    }

    fn ids(identity: u64, prefix: u64) -> QuotaIds {
        QuotaIds {
            of_identity: NonZeroU64::new(identity).map(QuotaId),
            of_prefix: NonZeroU64::new(prefix).map(QuotaId),
        }
    }

    fn quotas(rooms: &[(u64, u64)]) -> Quotas<u32> {
        let mut quotas = Quotas::default();
        let rooms: Vec<_> = rooms.iter().map(|&(number, bytes)| (id(number), bytes)).collect();
        quotas.set(&rooms);
        quotas
    }

    fn used(quotas: &Quotas<u32>) -> Vec<u64> {
        quotas.rooms().iter().map(|room| room.used_bytes).collect()
    }

    /// Brings a key in as a cache does. Returns the keys that left for it.
    fn bring(quotas: &mut Quotas<u32>, key: u32, ids: QuotaIds, bytes: u64) -> Result<Vec<u32>, Shortage> {
        let mut left = Vec::new();
        loop {
            match quotas.reserve(ids, bytes) {
                Ok(()) => break,
                Err(Shortage::Full(id)) => {
                    let victim = quotas.victim(id, &mut |_| true).ok_or(Shortage::Never)?;
                    quotas.remove(&victim);
                    left.push(victim);
                }
                Err(never) => return Err(never),
            }
        }
        quotas.insert(key, ids, bytes);
        quotas.cancel(ids, bytes);
        Ok(left)
    }

    #[test]
    fn a_full_quota_replaces_its_own_keys_least_recently_used_first() {
        let mut quotas = quotas(&[(1, 30), (2, 100)]);
        for key in [1, 2, 3] {
            assert_eq!(bring(&mut quotas, key, ids(1, 0), 10), Ok(vec![]));
        }
        assert_eq!(bring(&mut quotas, 90, ids(2, 0), 10), Ok(vec![]));
        quotas.touch(&1);
        assert_eq!(bring(&mut quotas, 4, ids(1, 0), 10), Ok(vec![2]));
        assert_eq!(bring(&mut quotas, 5, ids(1, 0), 20), Ok(vec![3, 1]));
        assert_eq!(used(&quotas), [30, 10]);
    }

    #[test]
    fn a_key_counts_in_the_quota_of_its_identity_and_in_that_of_its_prefix() {
        let mut quotas = quotas(&[(1, 100), (2, 20)]);
        bring(&mut quotas, 1, ids(1, 2), 10).unwrap();
        bring(&mut quotas, 2, ids(1, 0), 10).unwrap();
        bring(&mut quotas, 3, ids(0, 2), 10).unwrap();
        assert_eq!((used(&quotas), quotas.ids_of(&1)), (vec![20, 20], ids(1, 2)));
        assert_eq!(bring(&mut quotas, 4, ids(1, 2), 10), Ok(vec![1]));
        assert_eq!(used(&quotas), [20, 20]);
    }

    #[test]
    fn a_key_that_can_never_fit_makes_no_other_leave() {
        let mut quotas = quotas(&[(1, 30), (2, 30)]);
        for key in [1, 2, 3] {
            bring(&mut quotas, key, ids(1, 0), 10).unwrap();
        }
        assert_eq!(quotas.reserve(ids(1, 0), 31), Err(Shortage::Never));
        quotas.set_aside(&1);
        quotas.set_aside(&2);
        assert_eq!(quotas.reserve(ids(1, 0), 11), Err(Shortage::Never));
        assert_eq!(bring(&mut quotas, 4, ids(1, 0), 10), Ok(vec![3]));
        quotas.set_aside(&4);
        assert_eq!(bring(&mut quotas, 5, ids(1, 0), 10), Err(Shortage::Never));
        // Nothing is asked of the first quota if the second one never has room.
        bring(&mut quotas, 9, ids(0, 2), 30).unwrap();
        quotas.set_aside(&9);
        quotas.take_back(&1);
        assert_eq!(quotas.reserve(ids(1, 2), 10), Err(Shortage::Never));
        assert_eq!(used(&quotas), [30, 30]);
    }

    #[test]
    fn a_key_that_is_taken_back_is_the_newest_of_its_quota() {
        let mut quotas = quotas(&[(1, 20)]);
        bring(&mut quotas, 1, ids(1, 0), 10).unwrap();
        quotas.set_aside(&1);
        bring(&mut quotas, 2, ids(1, 0), 10).unwrap();
        quotas.take_back(&1);
        quotas.take_back(&1);
        assert_eq!(bring(&mut quotas, 3, ids(1, 0), 10), Ok(vec![2]));
        assert_eq!(bring(&mut quotas, 4, ids(1, 0), 10), Ok(vec![1]));
    }

    #[test]
    fn keys_on_their_way_count_until_they_have_come_or_not() {
        let mut quotas = quotas(&[(1, 20)]);
        quotas.reserve(ids(1, 0), 15).unwrap();
        assert_eq!(quotas.reserve(ids(1, 0), 10), Err(Shortage::Never));
        quotas.cancel(ids(1, 0), 15);
        assert_eq!(quotas.reserve(ids(1, 0), 10), Ok(()));
    }

    #[test]
    fn a_quota_that_changes_keeps_its_keys_and_one_that_goes_forgets_them() {
        let mut quotas = quotas(&[(1, 100), (2, 100)]);
        for key in 1..=4 {
            bring(&mut quotas, key, ids(1, 2), 10).unwrap();
        }
        quotas.set(&[(id(1), 15)]);
        assert_eq!((quotas.over(), used(&quotas)), (vec![id(1)], vec![40]));
        while quotas.is_over(id(1)) {
            let victim = quotas.victim(id(1), &mut |_| true).unwrap();
            quotas.remove(&victim);
        }
        assert_eq!((quotas.ids_of(&4), quotas.ids_of(&3)), (ids(1, 0), ids(0, 0)));
        quotas.set(&[(id(2), 100)]);
        assert_eq!((used(&quotas), quotas.members.len()), (vec![0], 0));
        // A reservation that was made before the quota was there does no harm.
        quotas.cancel(ids(0, 2), 10);
        assert_eq!(quotas.reserve(ids(0, 2), 100), Ok(()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_books_balance_and_no_quota_exceeds_its_room(
            steps in vec((0..6_u8, 0..30_u32, 0..3_u64, 0..2_u64, 1..40_u64), 0..200),
        ) {
            let mut quotas = quotas(&[(1, 60), (2, 90), (3, 70)]);
            let mut model: HashMap<u32, (QuotaIds, u64)> = HashMap::new();
            for (step, key, identity, prefix, bytes) in steps {
                let wanted = ids(identity, prefix * 3);
                match step {
                    0..=2 if !model.contains_key(&key) => if let Ok(left) = bring(&mut quotas, key, wanted, bytes) {
                        model.retain(|key, _| !left.contains(key));
                        model.insert(key, (wanted, bytes));
                    },
                    3 => {
                        quotas.remove(&key);
                        model.remove(&key);
                    }
                    4 => quotas.set_aside(&key),
                    5 => quotas.take_back(&key),
                    _ => quotas.touch(&key),
                }
                model.retain(|key, (ids, _)| ids.is_empty() || !quotas.ids_of(key).is_empty());
                for room in quotas.rooms() {
                    let members = model.values().filter(|(ids, _)| ids.iter().any(|id| id == room.id));
                    prop_assert_eq!(room.used_bytes, members.map(|(_, bytes)| bytes).sum::<u64>());
                    assert!(room.used_bytes <= room.room_bytes);
                }
            }
        }
    }
}
