//! Caches which nodes are home to blocks of a group.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use shoal_policy::eviction::c2p::GROUP_BLOCKS;
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::route::Hierarchy;
use shoal_policy::{BlockId, Layer, NodeId, VersionId};

/// Number of groups remembered, at about 150 bytes each. Computing the homes of 64 blocks takes a few
/// microseconds, too long to repeat for each event.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4 << 10).expect("4,096 is not zero");

/// The homes of groups under one hierarchy.
#[derive(Debug)]
pub(super) struct GroupHomes {
    hierarchy: Arc<Hierarchy>,
    homes: LruCache<(Layer, VersionId, u32), Arc<[NodeId]>>,
}

impl GroupHomes {
    pub(super) fn new(hierarchy: Arc<Hierarchy>) -> Self {
        Self {
            hierarchy,
            homes: LruCache::new(REMEMBERED),
        }
    }

    /// Switches to the current hierarchy; drops all entries if it has changed.
    pub(super) fn follow(&mut self, hierarchy: &Arc<Hierarchy>) {
        if !Arc::ptr_eq(&self.hierarchy, hierarchy) {
            *self = Self::new(Arc::clone(hierarchy));
        }
    }

    /// Returns the other nodes that are home to blocks of `block`'s group in a layer. `blocks` is the number
    /// of blocks in the group; no node is returned if it or the layer is unknown.
    pub(super) fn of(&mut self, layer: Layer, block: BlockId, blocks: u32) -> Arc<[NodeId]> {
        let BlockId { version, index } = block;
        let key = (layer, version, index / GROUP_BLOCKS);
        if let Some(homes) = self.homes.get(&key) {
            return Arc::clone(homes);
        }
        let place = usize::from(layer.0).checked_sub(usize::from(Layer::L2.0));
        let ring = place.and_then(|place| self.hierarchy.layers.get(place));
        let Some(ring) = ring.filter(|_| blocks > 0) else {
            return Arc::default();
        };
        let first = index - index % GROUP_BLOCKS;
        let group = (first..first.saturating_add(blocks)).map(|index| BlockId { version, index });
        let homes = group.filter_map(|block| ring.ring.home(block.place()));
        let mut homes: Vec<_> = homes.filter(|home| *home != self.hierarchy.node).collect();
        homes.sort_unstable();
        homes.dedup();
        let homes: Arc<[NodeId]> = homes.into();
        self.homes.put(key, Arc::clone(&homes));
        homes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shoal_policy::fingerprint::Placed as _;
    use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};
    use shoal_policy::route::{Hierarchy, Neighbourhood};
    use shoal_policy::{BlockId, Layer, NodeId, VersionId};

    use super::GroupHomes;

    fn hierarchy(nodes: u64) -> Arc<Hierarchy> {
        let ring = Ring::new((0..nodes).map(|node| (NodeId(node), ORDINARY_WEIGHT)).collect());
        let former = None;
        Arc::new(Hierarchy {
            node: NodeId(0),
            layers: vec![Neighbourhood { ring, former }],
        })
    }

    const fn block(index: u32) -> BlockId {
        BlockId {
            version: VersionId([7; 16]),
            index,
        }
    }

    #[test]
    fn the_homes_of_a_group_are_those_of_its_blocks_without_this_node() {
        let around = hierarchy(8);
        let mut homes = GroupHomes::new(Arc::clone(&around));
        let expected = |indexes: std::ops::Range<u32>| {
            let ring = &around.layers[0].ring;
            let mut homes: Vec<_> = indexes
                .filter_map(|index| ring.home(block(index).place()))
                .filter(|home| *home != NodeId(0))
                .collect();
            homes.sort_unstable();
            homes.dedup();
            homes
        };
        assert_eq!(*homes.of(Layer::L2, block(3), 5), expected(0..5));
        assert_eq!(
            *homes.of(Layer::L2, block(4), 0),
            expected(0..5),
            "they are remembered"
        );
        assert_eq!(*homes.of(Layer::L2, block(64), 1), expected(64..65));
        assert_eq!(homes.of(Layer::L2, block(128), 0).len(), 0);
        assert_eq!(homes.of(Layer(3), block(3), 5).len(), 0);
        assert_eq!(homes.of(Layer::L1, block(3), 5).len(), 0);
    }

    #[test]
    fn other_nodes_are_other_homes() {
        let mut homes = GroupHomes::new(hierarchy(8));
        assert!(homes.of(Layer::L2, block(0), 64).len() > 4);
        homes.follow(&hierarchy(2));
        assert_eq!(*homes.of(Layer::L2, block(0), 64), [NodeId(1)]);
    }
}
