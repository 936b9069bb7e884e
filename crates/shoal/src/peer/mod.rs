//! Node to node: blocks asked of other nodes, and given to them.
//!
//! A peer is called as the lake is ([`crate::endpoint`]), over a connection on which both nodes have proven who they are
//! ([`crate::channel`]): a request needs no signature of its own, and an answer is the asked node's. Users' keys stay where
//! they are: a peer is told which identity asks, and signs for the lake with what its own configuration knows of it.
//!
//! A node that asks has let its client in already, and the lake has said yes to that client; the peer gives bytes of one immutable
//! version. So nothing is decided here but where bytes come from.

mod client;
mod health;
mod request;

pub use self::client::{Peer, PeerError, Peers};
pub use self::request::{Asked, BlockRequest, CallerName};

/// Where a node answers, and does nothing else.
pub(crate) const ALIVE: &str = "/alive";
