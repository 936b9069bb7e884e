//! Nodes that claim the blocks that they fetch from the lake.
//!
//! Without claims, nodes that miss a block together each fetch it, as in the dissertation. With them, a node
//! waits for the claimant and reads the block from it, as in Shoal
//! (`docs/decisions/0029-a-directory-of-soft-entries.md`).

use std::time::Duration;

use shoal_policy::hash::KeyMap;
use shoal_sim::Time;
use shoal_sim::block::Block;
use shoal_sim::cluster::{Arrival, Cooperation, NodeIndex, Push, Route, Wanted};

use super::{Room, Simulated};

/// Nodes of which one at a time fetches a block from the lake.
pub(super) struct Claimed {
    nodes: Box<dyn Simulated>,
    claims: Claims,
}

/// The node that fetches each block from the lake.
#[derive(Debug, Default)]
struct Claims(KeyMap<Block, NodeIndex>);

impl Claims {
    /// The route of a block that no node holds: through the node that is already fetching it, or from the
    /// lake, claimed by `node`.
    fn route(&mut self, block: Block, node: NodeIndex) -> Route {
        let claimant = *self.0.entry(block).or_insert(node);
        Route::Lake {
            through: Some(claimant).filter(|&claimant| claimant != node),
        }
    }

    /// Ends the claim on a block that has arrived from the lake.
    fn landed(&mut self, arrival: &Arrival) {
        if arrival.route == (Route::Lake { through: None }) {
            self.0.remove(&arrival.wanted.block);
        }
    }
}

impl Claimed {
    /// Lets these nodes claim blocks.
    pub(super) fn new(nodes: Box<dyn Simulated>) -> Self {
        let claims = Claims::default();
        Self { nodes, claims }
    }
}

impl Cooperation for Claimed {
    fn answering(&self, node: NodeIndex, block: Block) -> NodeIndex {
        self.nodes.answering(node, block)
    }

    fn route(&mut self, wanted: &Wanted) -> Route {
        let route = self.nodes.route(wanted);
        if route != (Route::Lake { through: None }) {
            return route;
        }
        let route = self.claims.route(wanted.block, wanted.node);
        if let Route::Lake { through: Some(_) } = route {
            self.nodes.waits(wanted);
        }
        route
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        self.claims.landed(arrival);
        self.nodes.landed(arrival)
    }

    fn filled(&mut self, home: NodeIndex, arrival: &Arrival) {
        self.nodes.filled(home, arrival);
    }

    fn pushed(&mut self, push: &Push, now: Time) -> Vec<Push> {
        self.nodes.pushed(push, now)
    }

    fn remove(&mut self, block: Block) {
        self.nodes.remove(block);
    }

    fn period(&self) -> Option<Duration> {
        self.nodes.period()
    }

    fn adapt(&mut self, now: Time) -> Vec<Push> {
        self.nodes.adapt(now)
    }
}

impl Simulated for Claimed {
    fn joined(&mut self, wanted: &Wanted) {
        self.nodes.joined(wanted);
    }

    fn room(&self, node: NodeIndex) -> Room {
        self.nodes.room(node)
    }
}

#[cfg(test)]
mod tests {
    use shoal_sim::Time;
    use shoal_sim::block::Block;
    use shoal_sim::cluster::{Arrival, Route, Wanted};

    use super::Claims;

    const BLOCK: Block = Block { object: 1, index: 2 };

    #[test]
    fn a_claim_lasts_until_the_block_has_come_from_the_lake() {
        let mut claims = Claims::default();
        let lake = |through| Route::Lake { through };
        assert_eq!(claims.route(BLOCK, 0), lake(None));
        assert_eq!(claims.route(BLOCK, 1), lake(Some(0)));
        let arrival = |node, route| Arrival {
            wanted: Wanted {
                node,
                block: BLOCK,
                bytes: 1,
                object_blocks: 3,
                now: Time::ZERO,
            },
            route,
            now: Time::ZERO,
        };
        claims.landed(&arrival(1, Route::Peer { from: 2 }));
        assert_eq!(
            claims.route(BLOCK, 1),
            lake(Some(0)),
            "that was from another node"
        );
        claims.landed(&arrival(0, lake(None)));
        assert_eq!(
            claims.route(BLOCK, 1),
            lake(None),
            "the block has left node 0 since"
        );
    }
}
