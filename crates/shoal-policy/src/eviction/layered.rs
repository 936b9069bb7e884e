//! One policy per layer of a node, sharing one capacity (the unified cache of D3N, dissertation 4.4.1).
//!
//! A key is held once, in the layer to which it belongs on this node ([`Hierarchy::layer_here`]). Every layer
//! has a target. When room is needed, the fill of the layers decides which one evicts, and that layer's
//! policy chooses the victim.
//!
//! **A target is a claim, not a limit.** The layer with the highest ratio of used bytes to target evicts, so
//! layers above their targets evict before layers below. While eviction runs ahead of demand all layers are
//! below their targets, and each keeps the same fraction of its target. A layer may therefore use room that
//! no other layer needs. A layer whose target has shrunk loses blocks only as fast as other layers gain them;
//! no block is evicted to leave room empty.
//!
//! **A layer whose target is 0 admits nothing** ([`Layered::admits`]). Blocks that a change of the hierarchy
//! moved into it are evicted first, but not before their room is needed, because their new home will request
//! them ([`crate::route::Stop::FormerHome`]).
//!
//! A key that moves into another layer is the newest in it. What the old layer's policy recorded about the
//! key (uses, ranks) is lost, and each layer's policy ages independently.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::Eviction;
use crate::Layer;
use crate::admission::Refusal;
use crate::fingerprint::Placed;
use crate::route::Hierarchy;

/// The maximum number of layers of a node, more than a data center has.
pub const LAYERS_MAX: usize = 8;

/// Layers with one policy each. An operation looks for its key in one layer after the other, which takes less
/// memory than recording the layer of each key: with a million keys a use costs 280 ns in three layers of LRU
/// and 146 ns in one (`cargo bench`).
#[derive(Debug)]
pub struct Layered<K, P: ?Sized> {
    /// From L1 outwards.
    shares: Vec<Share<P>>,
    hierarchy: Arc<Hierarchy>,
    key: PhantomData<K>,
}

#[derive(Debug)]
struct Share<P: ?Sized> {
    policy: Box<P>,
    target_bytes: u64,
    used_bytes: u64,
}

/// A layer's part of the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerRoom {
    /// The layer.
    pub layer: Layer,
    /// Its target in bytes.
    pub target_bytes: u64,
    /// The bytes that it holds.
    pub used_bytes: u64,
    /// The number of keys that it holds.
    pub keys: usize,
}

/// Divides `capacity_bytes` in proportion to `parts`, not all of which are 0. The remainder goes to the
/// largest part, so a part of 0 gets nothing.
pub fn divide<P: Copy + Into<u64>>(capacity_bytes: u64, parts: &[P]) -> Vec<u64> {
    let parts: Vec<u64> = parts.iter().map(|&part| part.into()).collect();
    let sum: u128 = parts.iter().copied().map(u128::from).sum();
    assert!(sum > 0, "somebody gets the room");
    let portion = |&part: &u64| (u128::from(capacity_bytes) * u128::from(part) / sum) as u64;
    let mut sizes: Vec<u64> = parts.iter().map(portion).collect();
    let rest_bytes = capacity_bytes - sizes.iter().sum::<u64>();
    let largest = (0..parts.len()).rev().max_by_key(|&place| parts[place]);
    sizes[largest.expect("somebody gets the room")] += rest_bytes;
    debug_assert_eq!(sizes.iter().sum::<u64>(), capacity_bytes, "all room is given");
    sizes
}

impl<K: Copy + Debug + Placed, P: Eviction<K> + ?Sized> Layered<K, P> {
    /// Creates empty layers from L1 outwards, each with its policy and target; `hierarchy` maps keys to
    /// layers.
    pub fn new(layers: impl IntoIterator<Item = (Box<P>, u64)>, hierarchy: Arc<Hierarchy>) -> Self {
        let share = |(policy, target_bytes)| Share {
            policy,
            target_bytes,
            used_bytes: 0,
        };
        let shares: Vec<Share<P>> = layers.into_iter().map(share).collect();
        assert!(
            (1..=LAYERS_MAX).contains(&shares.len()),
            "a node has an L1 and not many more"
        );
        let mut layered = Self {
            shares,
            hierarchy: Arc::clone(&hierarchy),
            key: PhantomData,
        };
        layered.set_hierarchy(hierarchy);
        layered
    }

    /// Replaces the hierarchy, which maps keys to layers. Held keys stay in their layers until
    /// [`Layered::settle`] moves them.
    pub fn set_hierarchy(&mut self, hierarchy: Arc<Hierarchy>) {
        assert!(
            hierarchy.layers.len() < self.shares.len(),
            "every layer of the hierarchy has a share"
        );
        self.hierarchy = hierarchy;
    }

    /// The layer to which a key belongs, held or not.
    pub fn layer_of(&self, key: K) -> Layer {
        self.hierarchy.layer_here(key.place())
    }

    /// Checks that the layer of a key admits it.
    ///
    /// # Errors
    ///
    /// Fails with [`Refusal::NoShare`] if the layer has no room of its own.
    pub fn admits(&self, key: K) -> Result<(), Refusal> {
        match self.shares[self.layer_of(key).place()].target_bytes {
            0 => Err(Refusal::NoShare),
            _ => Ok(()),
        }
    }

    /// Moves a held key to the layer to which it belongs; returns true if it moved.
    pub fn settle(&mut self, key: K) -> bool {
        let target = self.layer_of(key).place();
        if self.shares[target].policy.contains(&key) {
            return false;
        }
        let bytes = self.remove(&key);
        bytes.map(|bytes| self.bring(key, bytes)).is_some()
    }

    /// Replaces the targets, from L1 outwards. Nothing is evicted before its room is needed.
    pub fn resize(&mut self, targets_bytes: &[u64]) {
        assert_eq!(targets_bytes.len(), self.shares.len(), "every layer has a target");
        for (share, &target_bytes) in self.shares.iter_mut().zip(targets_bytes) {
            share.target_bytes = target_bytes;
        }
    }

    /// The policy of a layer, for methods specific to it; `None` if there is no such layer.
    pub fn policy(&self, layer: Layer) -> Option<&P> {
        self.shares.get(layer.place()).map(|share| &*share.policy)
    }

    /// As [`Layered::policy`], mutable. Keys must be added and removed through `self`, which counts their
    /// bytes.
    pub fn policy_mut(&mut self, layer: Layer) -> Option<&mut P> {
        self.shares.get_mut(layer.place()).map(|share| &mut *share.policy)
    }

    /// The policies of all layers, mutable, from L1 outwards.
    pub fn policies_mut(&mut self) -> impl Iterator<Item = (Layer, &mut P)> {
        let policies = self.shares.iter_mut().map(|share| &mut *share.policy);
        (Layer::L1.0..).map(Layer).zip(policies)
    }

    /// The room of each layer, from L1 outwards.
    pub fn rooms(&self) -> Vec<LayerRoom> {
        let layers = (1..).map(Layer).zip(&self.shares);
        let room = |(layer, share): (Layer, &Share<P>)| LayerRoom {
            layer,
            target_bytes: share.target_bytes,
            used_bytes: share.used_bytes,
            keys: share.policy.len(),
        };
        layers.map(room).collect()
    }

    /// Counts `bytes` of `key` in the layer to which it belongs; returns the policy, which must add the key.
    fn policy_for(&mut self, key: K, bytes: u64) -> &mut P {
        let place = self.layer_of(key).place();
        self.shares[place].used_bytes += bytes;
        &mut self.shares[place].policy
    }

    /// Has the policy that holds a key give it up by `take`, which returns the size of the key.
    fn take(&mut self, take: impl Fn(&mut P) -> Option<u64>) -> Option<u64> {
        self.shares.iter_mut().find_map(|share| {
            let bytes = take(&mut share.policy)?;
            assert!(share.used_bytes >= bytes, "a layer holds what it gives up");
            share.used_bytes -= bytes;
            Some(bytes)
        })
    }

    /// Among nonempty layers that are not `spared`, the one with the highest ratio of used bytes to target;
    /// of equals the inner one, because its blocks are also held elsewhere.
    fn fullest(&self, spared: [bool; LAYERS_MAX]) -> Option<usize> {
        let giving = |&place: &usize| !spared[place] && !self.shares[place].policy.is_empty();
        (0..self.shares.len()).filter(giving).reduce(|fullest, place| {
            if self.shares[place].is_fuller_than(&self.shares[fullest]) {
                place
            } else {
                fullest
            }
        })
    }
}

impl<P: ?Sized> Share<P> {
    /// Compares used / target without dividing, as a target may be 0.
    fn is_fuller_than(&self, other: &Self) -> bool {
        let product = |used_bytes, target_bytes| u128::from(used_bytes) * u128::from(target_bytes);
        product(self.used_bytes, other.target_bytes) > product(other.used_bytes, self.target_bytes)
    }
}

impl<K: Copy + Debug + Placed, P: Eviction<K> + ?Sized> Eviction<K> for Layered<K, P> {
    fn insert(&mut self, key: K, bytes: u64) {
        self.policy_for(key, bytes).insert(key, bytes);
    }

    fn bring(&mut self, key: K, bytes: u64) {
        self.policy_for(key, bytes).bring(key, bytes);
    }

    fn touch(&mut self, key: &K) {
        for share in &mut self.shares {
            share.policy.touch(key);
        }
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        self.take(|policy| policy.remove(key))
    }

    fn set_aside(&mut self, key: &K) -> Option<u64> {
        self.take(|policy| policy.set_aside(key))
    }

    fn take_back(&mut self, key: K, bytes: u64) {
        // The block may belong to a different layer than when it was set aside.
        let layer = self.layer_of(key);
        for (_, policy) in self.policies_mut().filter(|(other, _)| *other != layer) {
            policy.left_aside(&key);
        }
        self.policy_for(key, bytes).take_back(key, bytes);
    }

    fn left_aside(&mut self, key: &K) {
        for share in &mut self.shares {
            share.policy.left_aside(key);
        }
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        let mut spared = [false; LAYERS_MAX];
        while let Some(place) = self.fullest(spared) {
            let victim = self.shares[place].policy.victim(may_leave);
            if victim.is_some() {
                return victim;
            }
            spared[place] = true;
        }
        None
    }

    fn evict_key(&mut self, key: &K) -> Option<u64> {
        self.take(|policy| policy.evict_key(key))
    }

    fn advance(&mut self, now: Duration) {
        for share in &mut self.shares {
            share.policy.advance(now);
        }
    }

    fn observe(&mut self, key: &K, blocks: u32) {
        for share in &mut self.shares {
            share.policy.observe(key, blocks);
        }
    }

    fn contains(&self, key: &K) -> bool {
        self.shares.iter().any(|share| share.policy.contains(key))
    }

    fn len(&self) -> usize {
        self.shares.iter().map(|share| share.policy.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};

    use super::{LayerRoom, Layered, divide};
    use crate::admission::Refusal;
    use crate::eviction::tests::leaving_order;
    use crate::eviction::{Eviction, Lru, S3Fifo};
    use crate::residency::{Leaving, Residency};
    use crate::ring::Ring;
    use crate::route::{Hierarchy, Neighbourhood};
    use crate::{Layer, NodeId};

    const HERE: NodeId = NodeId(0);
    const L3: Layer = Layer(3);

    type Layers = Layered<u32, Lru<u32>>;

    /// Rings from L2 outwards; each lists its nodes.
    fn hierarchy(rings: &[&[u64]]) -> Arc<Hierarchy> {
        let ring = |nodes: &&[u64]| Neighbourhood {
            ring: Ring::new(nodes.iter().map(|&node| (NodeId(node), 1)).collect()),
            former: None,
        };
        Arc::new(Hierarchy {
            node: HERE,
            layers: rings.iter().map(ring).collect(),
        })
    }

    /// Three empty layers.
    fn layers(targets_bytes: [u64; 3]) -> Layers {
        Layered::new(
            targets_bytes.map(|target| (Box::default(), target)),
            hierarchy(&[]),
        )
    }

    /// Inserts keys of one byte into a layer.
    fn hold(layers: &mut Layers, layer: Layer, keys: impl IntoIterator<Item = u32>) {
        let rings: [&[u64]; 2] = [&[u64::from(layer != Layer::L2)], &[u64::from(layer != L3)]];
        layers.set_hierarchy(hierarchy(&rings));
        keys.into_iter().for_each(|key| layers.insert(key, 1));
    }

    fn used_bytes(layers: &Layers) -> Vec<u64> {
        layers.rooms().iter().map(|room| room.used_bytes).collect()
    }

    fn evict(layers: &mut Layers, keys: u32) {
        for _ in 0..keys {
            layers.evict(&mut |_| true).expect("there is a victim");
        }
    }

    #[test]
    fn the_layer_furthest_above_its_target_gives_first_and_then_all_alike() {
        let mut layers = layers([40, 40, 20]);
        hold(&mut layers, Layer::L1, 0..60);
        hold(&mut layers, Layer::L2, 100..130);
        hold(&mut layers, L3, 200..210);
        evict(&mut layers, 15);
        assert_eq!(used_bytes(&layers), [45, 30, 10], "L1 is above its target");
        evict(&mut layers, 15);
        assert_eq!(used_bytes(&layers), [30, 30, 10], "L1 is still the fullest");
        evict(&mut layers, 35);
        assert_eq!(
            used_bytes(&layers),
            [14, 14, 7],
            "each keeps the same part of its target"
        );
    }

    #[test]
    fn a_layer_uses_room_that_no_other_needs() {
        let mut layers = layers([10, 90, 0]);
        hold(&mut layers, Layer::L1, 0..100);
        assert_eq!(used_bytes(&layers), [100, 0, 0]);
        for key in 100..200 {
            hold(&mut layers, Layer::L2, [key]);
            evict(&mut layers, 1);
        }
        assert_eq!(used_bytes(&layers), [10, 90, 0], "and gives it when one does");
    }

    #[test]
    fn a_layer_that_shrinks_gives_as_much_as_others_take() {
        let mut layers = layers([50, 50, 0]);
        hold(&mut layers, Layer::L1, 0..50);
        hold(&mut layers, Layer::L2, 100..150);
        layers.resize(&[20, 80, 0]);
        assert_eq!(
            used_bytes(&layers),
            [50, 50, 0],
            "nothing leaves for an empty place"
        );
        for key in 150..170 {
            hold(&mut layers, Layer::L2, [key]);
            evict(&mut layers, 1);
        }
        assert_eq!(used_bytes(&layers), [30, 70, 0]);
        assert!(
            layers.contains(&49) && !layers.contains(&0),
            "in the order of its policy"
        );
    }

    #[test]
    fn the_next_layer_gives_room_where_no_block_may_leave() {
        let mut layers = layers([10, 10, 10]);
        hold(&mut layers, Layer::L1, 0..9);
        hold(&mut layers, Layer::L2, 100..103);
        hold(&mut layers, L3, 200..206);
        let mut next = |may_leave: fn(&u32) -> bool| layers.evict(&mut |key| may_leave(key));
        assert_eq!(next(|&key| key >= 100), Some((200, 1)), "the second fullest");
        assert_eq!(next(|&key| (100..200).contains(&key)), Some((100, 1)));
        assert_eq!(next(|_| false), None);
    }

    #[test]
    fn a_layer_without_a_share_takes_nothing_in_and_is_the_first_to_give() {
        let mut layers = layers([0, 50, 50]);
        assert_eq!(layers.admits(1), Err(Refusal::NoShare));
        hold(&mut layers, Layer::L2, 0..50);
        assert_eq!(layers.admits(1), Ok(()));
        layers.set_hierarchy(hierarchy(&[&[1], &[1]]));
        assert!(layers.settle(30), "it is at home elsewhere now");
        assert_eq!(layers.evict(&mut |_| true), Some((30, 1)));
    }

    #[test]
    fn a_key_moves_with_its_bytes_and_is_the_newest_there() {
        let mut layers = layers([10, 10, 10]);
        hold(&mut layers, L3, 1..4);
        layers.insert(9, 7);
        hold(&mut layers, Layer::L1, [20]);
        assert!(layers.settle(9) && layers.settle(2));
        assert!(!layers.settle(9), "it is there already");
        assert!(!layers.settle(77), "it is not held");
        assert_eq!(used_bytes(&layers), [9, 0, 2]);
        assert_eq!(
            leaving_order(layers),
            [20, 9, 1, 2, 3],
            "L3 gives in between, when it is the fuller one"
        );
    }

    #[test]
    fn room_is_divided_in_proportion_and_a_layer_without_weight_gets_none() {
        assert_eq!(divide(100, &[50_u8, 50]), [50, 50]);
        assert_eq!(divide(101, &[1_u64, 1, 1]), [35, 33, 33]);
        assert_eq!(divide(101, &[0_u64, 3, 7]), [0, 30, 71]);
        assert_eq!(divide(u64::MAX, &[0_u64, 100]), [0, u64::MAX]);
        assert_eq!(divide(0, &[1_u64, 2]), [0, 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The policy has memory, so that calls that it would not get alone are noticed.
        #[test]
        fn one_layer_behaves_as_its_policy_alone(steps in vec((0..4_u8, 0..12_u32, any::<u16>()), 0..300)) {
            let mut alone = S3Fifo::default();
            let mut layered = Layered::new([(Box::<S3Fifo<u32>>::default(), 1)], hierarchy(&[]));
            for (step, key, mask) in steps {
                match step {
                    0 if !alone.contains(&key) => {
                        alone.insert(key, u64::from(mask));
                        layered.insert(key, u64::from(mask));
                    }
                    1 => prop_assert_eq!(layered.remove(&key), alone.remove(&key)),
                    2 => {
                        let may_leave = |key: &u32| mask & (1 << key) != 0;
                        prop_assert_eq!(layered.evict(&mut |key| may_leave(key)), alone.evict(&mut |key| may_leave(key)));
                    }
                    _ => {
                        layered.touch(&key);
                        alone.touch(&key);
                    }
                }
                prop_assert_eq!(layered.rooms()[0].keys, alone.len());
            }
            prop_assert_eq!(leaving_order(layered), leaving_order(alone));
        }

        /// Blocks come, go and move while targets and the hierarchy change: the sums are right, the capacity
        /// is kept, and each block is in exactly one layer.
        #[test]
        fn any_history_keeps_each_key_in_one_layer_and_within_the_room(
            steps in vec((0..8_u8, 0..60_u32, any::<u64>()), 0..300),
        ) {
            let mut node = Node::new();
            for (step, key, random) in steps {
                match step {
                    0..=2 => node.put(key, 1 + random % 30),
                    3 => node.remove(key),
                    4 => {
                        let parts = [random % 5, random / 5 % 5, 1 + random / 25 % 5];
                        node.cache.policy_mut().resize(&divide(CAPACITY_BYTES, &parts));
                    }
                    5 => node.cache.policy_mut().set_hierarchy(hierarchy(&[&[0, 1 + random % 3], &[0, 7, 8]])),
                    6 => _ = node.cache.policy_mut().settle(key),
                    _ => node.cache.touch(&key),
                }
                node.assert_sums();
            }
            node.assert_settled_keys_are_where_they_belong();
        }
    }

    const CAPACITY_BYTES: u64 = 100;

    /// A cache with layers, and the keys that it should hold.
    struct Node {
        cache: Residency<u32, Layers>,
        held: BTreeMap<u32, u64>,
    }

    impl Node {
        fn new() -> Self {
            let layers = layers([34, 33, 33]);
            Self {
                cache: Residency::new(CAPACITY_BYTES, Box::new(layers)),
                held: BTreeMap::new(),
            }
        }

        fn put(&mut self, key: u32, bytes: u64) {
            if self.held.contains_key(&key) {
                return;
            }
            let mut room = self.cache.reserve(bytes);
            while room.is_err() {
                let leaving = self
                    .cache
                    .evict(&mut |_| true)
                    .expect("a full cache has a victim");
                assert_eq!(self.held.remove(&leaving.key), Some(leaving.bytes()));
                self.cache.left(leaving);
                room = self.cache.reserve(bytes);
            }
            self.cache.commit(room.unwrap(), key);
            self.held.insert(key, bytes);
        }

        fn remove(&mut self, key: u32) {
            let leaving = self.cache.remove(&key);
            assert_eq!(leaving.as_ref().map(Leaving::bytes), self.held.remove(&key));
            if let Some(leaving) = leaving {
                self.cache.left(leaving);
            }
        }

        fn assert_sums(&self) {
            let rooms = self.cache.policy().rooms();
            let sum = |part: fn(&LayerRoom) -> u64| rooms.iter().map(part).sum::<u64>();
            assert!(self.cache.room().used_bytes() <= CAPACITY_BYTES);
            assert_eq!(sum(|room| room.target_bytes), CAPACITY_BYTES);
            assert_eq!(sum(|room| room.used_bytes), self.held.values().sum());
            assert_eq!(sum(|room| room.keys as u64), self.held.len() as u64);
        }

        fn assert_settled_keys_are_where_they_belong(&mut self) {
            for &key in self.held.keys() {
                self.cache.policy_mut().settle(key);
            }
            let layers = self.cache.policy();
            for room in layers.rooms() {
                let belong = self
                    .held
                    .keys()
                    .filter(|&&key| layers.layer_of(key) == room.layer);
                assert_eq!(belong.count(), room.keys, "in {}", room.layer);
            }
        }
    }
}
