//! Independent nodes: a node fetches every block that it does not hold from the lake.

use super::{Arrival, Cooperation, NodeIndex, Push, Room, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::policy::AnyPolicy;

/// Nodes that know nothing of each other.
#[derive(Debug)]
pub struct Solo {
    caches: Vec<Cache<AnyPolicy>>,
}

impl Solo {
    /// One node for each of `caches`.
    pub const fn new(caches: Vec<Cache<AnyPolicy>>) -> Self {
        Self { caches }
    }
}

impl Cooperation for Solo {
    fn route(&mut self, wanted: &Wanted) -> Route {
        if self.caches[wanted.node].serve(wanted) {
            Route::Local
        } else {
            Route::Lake { through: None }
        }
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        if arrival.route != Route::Local {
            self.caches[arrival.wanted.node].keep(arrival, |_| ());
        }
        Vec::new()
    }

    fn joined(&mut self, wanted: &Wanted) {
        self.caches[wanted.node].serve(wanted);
    }

    fn remove(&mut self, block: Block) {
        for cache in &mut self.caches {
            cache.remove(block);
        }
    }

    fn room(&self, node: NodeIndex) -> Room {
        self.caches[node].room()
    }
}
