//! How nodes work together: who is asked for a block, and who keeps it then. One kind a file.
//!
//! A [`Cooperation`] decides and keeps the books; it moves no bytes and knows no time but what it is told. The simulation asks
//! it for a [`Route`], moves the bytes over the network, and tells it when they have landed.

mod c2p;
mod directory;
mod gwf;
mod hierarchy;
mod settings;
mod solo;
mod storage;

use std::time::Duration;

use serde::Serialize;

pub use self::c2p::StorageC2p;
pub use self::directory::{Directory, Replication};
pub use self::gwf::DirectoryGwf;
pub use self::hierarchy::{Hierarchy, Split};
pub use self::settings::{C2pSettings, ClusterSettings, CooperationName, GwfAgeing, GwfReading};
pub use self::solo::Solo;
pub use self::storage::{Placement, Storage};
use crate::block::Block;
use crate::clock::Time;

/// A node, counted from 0.
pub type NodeIndex = usize;

/// A block that somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The node that answers the client.
    pub node: NodeIndex,
    /// What is wanted.
    pub block: Block,
    /// How long it is.
    pub bytes: u64,
    /// How many blocks its object has.
    pub object_blocks: u32,
    /// When.
    pub now: Time,
}

/// A block that has come to the node where it was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// What was wanted, and when.
    pub wanted: Wanted,
    /// Where it came from.
    pub route: Route,
    /// When it had come.
    pub now: Time,
}

/// Where a block comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The node holds it.
    Local,
    /// Another node holds it.
    Peer {
        /// That one.
        from: NodeIndex,
    },
    /// No node holds it.
    Lake {
        /// The node it comes through, when that is not the one that wants it.
        through: Option<NodeIndex>,
    },
}

/// A block that is brought to a node without a client that wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    /// What is brought.
    pub block: Block,
    /// How long it is.
    pub bytes: u64,
    /// Who has it; the lake when it is none.
    pub from: Option<NodeIndex>,
    /// Who gets it.
    pub to: NodeIndex,
}

/// Room of a node by layer, in bytes. Where there are no layers, everything is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Room for what its own clients read.
    pub l1_capacity_bytes: u64,
    /// Of this, taken.
    pub l1_used_bytes: u64,
    /// Room for blocks that have their home here.
    pub l2_capacity_bytes: u64,
    /// Of this, taken.
    pub l2_used_bytes: u64,
}

/// How nodes work together.
pub trait Cooperation {
    /// The node that answers for `block`, when a client of `node` asks.
    fn answering(&self, node: NodeIndex, _block: Block) -> NodeIndex {
        node
    }

    /// Where the block is to come from. This is a use of it wherever it is held.
    fn route(&mut self, wanted: &Wanted) -> Route;

    /// The block has come; returns what is to be pushed because of it.
    fn landed(&mut self, arrival: &Arrival) -> Vec<Push>;

    /// The lake has sent the block to `home`, through which it comes; it may be on its way from there still.
    fn filled(&mut self, _home: NodeIndex, _arrival: &Arrival) {}

    /// A pushed block has come; returns what is to be pushed because of that.
    fn pushed(&mut self, _push: &Push, _now: Time) -> Vec<Push> {
        Vec::new()
    }

    /// The block was wanted while it was on its way, and is served from what has landed.
    fn joined(&mut self, wanted: &Wanted);

    /// The object was made anew or removed: these blocks of it are no longer valid.
    fn remove(&mut self, block: Block);

    /// How often [`Cooperation::adapt`] wants to be called.
    fn period(&self) -> Option<Duration> {
        None
    }

    /// A period is over; returns what is to be pushed because of it.
    fn adapt(&mut self, _now: Time) -> Vec<Push> {
        Vec::new()
    }

    /// The room of `node`.
    fn room(&self, node: NodeIndex) -> Room;
}
