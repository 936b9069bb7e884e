//! Replays a trace on a cluster without a network: a block arrives the moment it is requested.

use std::collections::VecDeque;

use crate::block::{Block, Granularity};
use crate::cluster::{Arrival, Cooperation, Route, Wanted};
use crate::sources::{Served, Sources, Volume};
use crate::trace::{Access, Operation};

/// Nodes, and the volumes sent and received so far.
pub(super) struct Replay {
    cluster: Box<dyn Cooperation>,
    nodes: u32,
    granularity: Granularity,
    /// Volumes by source.
    pub(super) sources: Sources,
    /// Blocks that nodes sent to each other.
    pub(super) between_nodes: Volume,
}

impl Replay {
    /// Creates a replay on `cluster`, which has `nodes` nodes.
    pub(super) fn new(cluster: impl Cooperation + 'static, nodes: u32, granularity: Granularity) -> Self {
        Self {
            cluster: Box::new(cluster),
            nodes,
            granularity,
            sources: Sources::default(),
            between_nodes: Volume::default(),
        }
    }

    /// Replays one request. Clients are distributed over the nodes.
    pub(super) fn replay(&mut self, access: &Access) {
        let object_blocks = self.granularity.count(access.object_bytes);
        if access.operation != Operation::Read {
            let object = access.object;
            (0..object_blocks).for_each(|index| self.cluster.remove(Block { object, index }));
            return;
        }
        for (block, bytes) in self.granularity.blocks_of(access) {
            let wanted = Wanted {
                node: (access.client % self.nodes) as usize,
                block,
                bytes,
                object_blocks,
                now: access.at,
            };
            let route = self.fetch(wanted);
            self.sources.count(Served::from(route), bytes);
        }
    }

    /// Delivers the requested block to the reader's node, to its home if the home forwards it from the lake,
    /// and every block pushed because of it to its new node.
    fn fetch(&mut self, wanted: Wanted) -> Route {
        let route = self.cluster.route(&wanted);
        let arrival = Arrival {
            wanted,
            route,
            now: wanted.now,
        };
        match route {
            Route::Local => return route,
            Route::Lake { through: None } => {}
            Route::Peer { .. } => self.send(wanted.bytes),
            Route::Lake { through: Some(home) } => {
                self.send(wanted.bytes);
                self.cluster.filled(home, &arrival);
            }
        }
        let mut pushes = VecDeque::from(self.cluster.landed(&arrival));
        while let Some(push) = pushes.pop_front() {
            self.send(push.bytes);
            pushes.extend(self.cluster.pushed(&push, wanted.now));
        }
        route
    }

    const fn send(&mut self, bytes: u64) {
        self.between_nodes.requests += 1;
        self.between_nodes.bytes += bytes;
    }
}
