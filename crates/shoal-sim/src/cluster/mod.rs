//! How nodes work together: which node is asked for a block, and which nodes then keep it. One kind per file.
//!
//! A [`Cooperation`] decides and keeps the state; it moves no bytes and has no clock. Its caller asks it for
//! a [`Route`], moves the bytes, and reports their arrival.

mod c2p;
mod directory;
mod gwf;
mod hierarchy;
mod solo;

use std::time::Duration;

pub use self::c2p::StorageC2p;
pub use self::directory::{Directory, NODES_MAX, Replication};
pub use self::gwf::DirectoryGwf;
pub use self::hierarchy::{Hierarchy, Layers};
pub use self::solo::{Placement, Solo};
use crate::block::Block;
use crate::clock::Time;

/// A node, counted from 0.
pub type NodeIndex = usize;

/// A block requested by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The node that answers the client.
    pub node: NodeIndex,
    /// The requested block.
    pub block: Block,
    /// The size of the block.
    pub bytes: u64,
    /// The number of blocks of its object.
    pub object_blocks: u32,
    /// The time of the request.
    pub now: Time,
}

/// A block that has arrived at the node that requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The request.
    pub wanted: Wanted,
    /// The source of the block.
    pub route: Route,
    /// The time of the arrival.
    pub now: Time,
}

/// The source of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The node holds it.
    Local,
    /// Another node holds it.
    Peer {
        /// The holder.
        from: NodeIndex,
    },
    /// No node holds it.
    Lake {
        /// The node that forwards the block, if another one requested it.
        through: Option<NodeIndex>,
    },
}

/// A block that is sent to a node without a request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    /// The block.
    pub block: Block,
    /// The size of the block.
    pub bytes: u64,
    /// The node that has it; `None` for the lake.
    pub from: Option<NodeIndex>,
    /// The node that receives it.
    pub to: NodeIndex,
}

/// How nodes work together.
pub trait Cooperation {
    /// The node that answers for `block` if a client of `node` asks.
    fn answering(&self, node: NodeIndex, _block: Block) -> NodeIndex {
        node
    }

    /// Chooses the source of the block. This counts as a use of the block wherever it is held.
    fn route(&mut self, wanted: &Wanted) -> Route;

    /// Records that the block has arrived. Returns the pushes that this causes.
    fn landed(&mut self, arrival: &Arrival) -> Vec<Push>;

    /// Records that the lake has sent the block to `home`, which forwards it. The block may still be on its
    /// way from there.
    fn filled(&mut self, _home: NodeIndex, _arrival: &Arrival) {}

    /// Records that a pushed block has arrived. Returns the pushes that this causes.
    fn pushed(&mut self, _push: &Push, _now: Time) -> Vec<Push> {
        Vec::new()
    }

    /// Removes a block of an object that was replaced or removed: it is no longer valid.
    fn remove(&mut self, block: Block);

    /// The interval at which [`Cooperation::adapt`] should be called.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// Ends a period. Returns the pushes that this causes.
    fn adapt(&mut self, _now: Time) -> Vec<Push> {
        Vec::new()
    }
}
