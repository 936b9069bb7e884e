//! Where to look for a block, best first.
//!
//! In a hierarchy (D3N III, dissertation 4.4.1) a request climbs: the client's node, the block's home among
//! the nodes of the cluster (L2), its home among those of the data center (L3), the lake. Each requests the
//! block from the next, which fetches it if necessary and caches it. So a route lists the places that one
//! node tries in turn, and each node on it has its own route.
//!
//! **Requests terminate, whatever the nodes' views are.** A node that serves a request in one layer forwards
//! it only to homes of wider layers, so a request passes each layer once even while two nodes consider each
//! other the home. Former homes return only blocks that they hold and forward nothing.

use crate::fingerprint::Fingerprint;
use crate::ring::Ring;
use crate::{Layer, NodeId};

/// Another node at which to look for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The block's home in this layer: it serves the block, fetching it from further away if necessary, and
    /// caches it.
    Home(NodeId, Layer),
    /// The home before the ring changed: it serves the block only if it holds it.
    FormerHome(NodeId),
}

impl Stop {
    /// Returns the node.
    pub const fn node(self) -> NodeId {
        match self {
            Self::Home(node, _) | Self::FormerHome(node) => node,
        }
    }
}

/// One layer as a node sees it.
#[derive(Clone, Debug)]
pub struct Neighbourhood {
    /// The nodes of the layer.
    pub ring: Ring,
    /// The ring before the last change, kept for a while until blocks have reached their new homes.
    pub former: Option<Ring>,
}

/// The layers around one node.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    /// This node.
    pub node: NodeId,
    /// The layers from L2 outwards; empty on a node that caches alone.
    pub layers: Vec<Neighbourhood>,
}

impl Hierarchy {
    /// A node that caches alone: every block belongs to L1.
    pub const fn alone(node: NodeId) -> Self {
        Self {
            node,
            layers: Vec::new(),
        }
    }

    /// The stops at which this node looks for a block when it is asked for it in layer `asked`: [`Layer::L1`]
    /// by a client, L2 and wider by a node that considers it the home there.
    ///
    /// `reachable` selects the nodes to ask. The first stop that has the block ends the search; a
    /// home that fails does not.
    pub fn route(&self, block: Fingerprint, asked: Layer, reachable: impl Fn(NodeId) -> bool) -> Vec<Stop> {
        let mut stops = Vec::new();
        for (layer, neighbourhood) in self.layers().filter(|(layer, _)| *layer >= asked) {
            let worth_asking = |node: &NodeId| *node != self.node && reachable(*node);
            // If the home is unreachable, all nodes fail over to the same replacement, so the block is still
            // fetched only once.
            let here_or_reachable = |node| node == self.node || reachable(node);
            let home = neighbourhood.ring.home_among(block, here_or_reachable);
            let home = home.filter(|home| *home != self.node);
            let former = neighbourhood
                .former
                .as_ref()
                .and_then(|former| former.home(block));
            let former = former.filter(worth_asking);
            match home {
                Some(home) if layer > asked => add(&mut stops, Stop::Home(home, layer)),
                // The requesting node has seen a change that this node has not: this node's home is a former
                // home in its view.
                Some(home) => add(&mut stops, Stop::FormerHome(home)),
                None => {}
            }
            // If the home is reachable, it requests the block from the former home itself.
            if let Some(former) = former.filter(|_| home.is_none() || layer == asked) {
                add(&mut stops, Stop::FormerHome(former));
            }
        }
        debug_assert!(
            stops.len() <= 2 * self.layers.len(),
            "a route passes each layer once"
        );
        stops
    }

    /// The nodes that take over a block when this node leaves: in each layer in which this node is the home,
    /// the home without it. A block whose home is elsewhere goes to its innermost home, which may have lost
    /// it. Empty if no node is `reachable`.
    ///
    /// Call it on the hierarchy as it was before this node announced its departure.
    pub fn successors(&self, block: Fingerprint, reachable: impl Fn(NodeId) -> bool) -> Vec<NodeId> {
        let stays = |node: NodeId| node != self.node && reachable(node);
        let successor = |neighbourhood: &Neighbourhood| neighbourhood.ring.home_among(block, stays);
        let is_home = |neighbourhood: &Neighbourhood| neighbourhood.ring.home(block) == Some(self.node);
        let mut successors: Vec<NodeId> = Vec::new();
        for successor in self
            .layers
            .iter()
            .filter(|layer| is_home(layer))
            .filter_map(successor)
        {
            if !successors.contains(&successor) {
                successors.push(successor);
            }
        }
        if successors.is_empty() {
            successors.extend(self.layers.iter().find_map(successor));
        }
        successors
    }

    /// The home of a block in each layer, from L2 outwards, reachable or not.
    pub fn homes(&self, block: Fingerprint) -> Vec<NodeId> {
        let homes = self
            .layers
            .iter()
            .map(|neighbourhood| neighbourhood.ring.home(block));
        homes.map_while(|home| home).collect()
    }

    /// The layer to which a block belongs on this node, and whose room it takes: the widest in which this
    /// node is its home, or L1.
    pub fn layer_here(&self, block: Fingerprint) -> Layer {
        let at_home = self
            .layers()
            .filter(|(_, neighbourhood)| neighbourhood.ring.home(block) == Some(self.node));
        at_home.map(|(layer, _)| layer).last().unwrap_or(Layer::L1)
    }

    fn layers(&self) -> impl Iterator<Item = (Layer, &Neighbourhood)> {
        (2..).map(Layer).zip(&self.layers)
    }
}

/// Adds a stop unless its node is already listed.
fn add(stops: &mut Vec<Stop>, stop: Stop) {
    if stops.iter().all(|other| other.node() != stop.node()) {
        stops.push(stop);
    }
}

#[cfg(test)]
mod tests {
    use super::{Hierarchy, Neighbourhood, Stop};
    use crate::fingerprint::Fingerprint;
    use crate::ring::Ring;
    use crate::{Layer, NodeId};

    const BLOCK: Fingerprint = Fingerprint(0);
    const L3: Layer = Layer(3);

    /// A layer in which only one node has weight, so that it is the home of every block.
    fn home(node: u64) -> Neighbourhood {
        let ring = Ring::new([(NodeId(node), 1)].into());
        Neighbourhood { ring, former: None }
    }

    fn moved(from: u64, to: u64) -> Neighbourhood {
        Neighbourhood {
            former: Some(home(from).ring),
            ..home(to)
        }
    }

    fn node(node: u64, layers: impl Into<Vec<Neighbourhood>>) -> Hierarchy {
        Hierarchy {
            node: NodeId(node),
            layers: layers.into(),
        }
    }

    fn served_by(node: u64, layer: u8) -> Stop {
        Stop::Home(NodeId(node), Layer(layer))
    }

    fn held_by(node: u64) -> Stop {
        Stop::FormerHome(NodeId(node))
    }

    #[track_caller]
    fn assert_route(hierarchy: &Hierarchy, asked: Layer, down: &[u64], expected: &[Stop]) {
        let stops = hierarchy.route(BLOCK, asked, |node| !down.contains(&node.0));
        assert_eq!(stops, expected);
    }

    #[test]
    fn a_request_climbs_from_layer_to_layer() {
        let hierarchy = node(1, [home(2), home(3)]);
        assert_route(&hierarchy, Layer::L1, &[], &[served_by(2, 2), served_by(3, 3)]);
        assert_route(&node(1, []), Layer::L1, &[], &[]);
        assert_route(&node(1, [home(2)]), Layer::L1, &[], &[served_by(2, 2)]);
    }

    #[test]
    fn a_home_does_not_ask_itself_and_no_node_is_asked_twice() {
        assert_route(&node(2, [home(2), home(3)]), Layer::L1, &[], &[served_by(3, 3)]);
        assert_route(&node(3, [home(3), home(3)]), Layer::L1, &[], &[]);
        assert_route(&node(1, [home(2), home(2)]), Layer::L1, &[], &[served_by(2, 2)]);
    }

    #[test]
    fn a_node_that_is_down_is_not_asked() {
        let hierarchy = node(1, [home(2), home(3)]);
        assert_route(&hierarchy, Layer::L1, &[2], &[served_by(3, 3)]);
        assert_route(&hierarchy, Layer::L1, &[2, 3], &[]);
    }

    #[test]
    fn a_node_that_misses_a_home_turns_to_the_same_node_as_others() {
        let ring = Ring::new([2, 3, 4].map(|node| (NodeId(node), 512)).into());
        let home = ring.home(BLOCK).unwrap();
        let next = ring.home_among(BLOCK, |node| node != home).unwrap();
        let layer = Neighbourhood { ring, former: None };
        assert_route(
            &node(1, [layer.clone()]),
            Layer::L1,
            &[],
            &[Stop::Home(home, Layer::L2)],
        );
        let missing = [home.0];
        assert_route(
            &node(1, [layer.clone()]),
            Layer::L1,
            &missing,
            &[Stop::Home(next, Layer::L2)],
        );
        // That node does not ask itself, and it still asks the home that others miss.
        assert_route(&node(next.0, [layer.clone()]), Layer::L1, &missing, &[]);
        assert_route(&node(next.0, [layer]), Layer::L2, &[], &[Stop::FormerHome(home)]);
    }

    #[test]
    fn a_home_that_is_asked_asks_wider_layers_only() {
        let hierarchy = node(2, [home(2), home(3)]);
        assert_route(&hierarchy, Layer::L2, &[], &[served_by(3, 3)]);
        assert_route(&node(3, [home(2), home(3)]), L3, &[], &[]);
    }

    #[test]
    fn a_new_home_asks_the_former_one_before_it_goes_further() {
        let hierarchy = node(2, [moved(5, 2), home(3)]);
        assert_route(&hierarchy, Layer::L2, &[], &[held_by(5), served_by(3, 3)]);
        assert_route(&hierarchy, Layer::L1, &[], &[held_by(5), served_by(3, 3)]);
        assert_route(&hierarchy, Layer::L2, &[5], &[served_by(3, 3)]);
        assert_route(&node(3, [home(3), moved(6, 3)]), L3, &[], &[held_by(6)]);
    }

    #[test]
    fn the_former_home_is_asked_by_others_only_when_the_new_one_is_down() {
        let hierarchy = node(1, [moved(5, 2)]);
        assert_route(&hierarchy, Layer::L1, &[], &[served_by(2, 2)]);
        assert_route(&hierarchy, Layer::L1, &[2], &[held_by(5)]);
        assert_route(&node(5, [moved(5, 2)]), Layer::L1, &[2], &[]);
    }

    #[test]
    fn a_home_that_does_not_know_it_yet_asks_the_one_it_knows_for_what_it_holds() {
        assert_route(
            &node(2, [home(5), home(3)]),
            Layer::L2,
            &[],
            &[held_by(5), served_by(3, 3)],
        );
        let hierarchy = node(2, [moved(6, 5), home(3)]);
        assert_route(
            &hierarchy,
            Layer::L2,
            &[],
            &[held_by(5), held_by(6), served_by(3, 3)],
        );
    }

    #[test]
    fn requests_end_when_two_nodes_think_each_other_the_home() {
        let (one, two) = (node(1, [home(2)]), node(2, [home(1)]));
        assert_route(&one, Layer::L1, &[], &[served_by(2, 2)]);
        assert_route(&two, Layer::L2, &[], &[held_by(1)]);
    }

    #[test]
    fn a_block_belongs_to_the_widest_layer_it_is_at_home_in() {
        assert_eq!(node(1, [home(2), home(3)]).layer_here(BLOCK), Layer::L1);
        assert_eq!(node(1, [home(1), home(3)]).layer_here(BLOCK), Layer::L2);
        assert_eq!(node(1, [home(1), home(1)]).layer_here(BLOCK), L3);
        assert_eq!(node(1, [home(2), home(1)]).layer_here(BLOCK), L3);
    }

    #[test]
    fn a_node_that_goes_leaves_each_block_to_its_home_without_it() {
        let ring = |nodes: &[u64]| Neighbourhood {
            ring: Ring::new(nodes.iter().map(|&node| (NodeId(node), 512)).collect()),
            former: None,
        };
        let (near, far) = (ring(&[1, 2, 3]), ring(&[1, 2, 3, 4, 5]));
        let home = |layer: &Neighbourhood, block| layer.ring.home(Fingerprint(block)).unwrap();
        for block in 0..200 {
            let (l2, l3) = (home(&near, block), home(&far, block));
            let successors = node(1, [near.clone(), far.clone()]).successors(Fingerprint(block), |_| true);
            let l2_without = home(&ring(&[2, 3]), block);
            let l3_without = home(&ring(&[2, 3, 4, 5]), block);
            let mut expected = match (l2 == NodeId(1), l3 == NodeId(1)) {
                (true, true) => vec![l2_without, l3_without],
                (false, true) => vec![l3_without],
                _ => vec![l2_without],
            };
            expected.dedup();
            assert_eq!(successors, expected, "block {block}");
        }
    }

    #[test]
    fn an_unreachable_node_inherits_nothing() {
        let alone_in_its_cluster = node(1, [home(1), home(2)]);
        assert_eq!(alone_in_its_cluster.successors(BLOCK, |_| true), [NodeId(2)]);
        assert_eq!(alone_in_its_cluster.successors(BLOCK, |_| false), []);
        assert_eq!(node(1, []).successors(BLOCK, |_| true), []);
    }

    #[test]
    fn layers_are_counted_from_the_node_outwards() {
        assert_eq!(Layer::L2.to_string(), "L2");
        assert_eq!((Layer::L1.place(), Layer::L2.place()), (0, 1));
    }
}
