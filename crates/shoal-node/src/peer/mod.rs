//! Blocks between nodes: requests to other nodes for blocks, and offers of blocks to them.
//!
//! A node calls a peer as it calls the lake ([`crate::endpoint`]), over a connection on which both nodes have
//! proven their identity ([`crate::channel`]). So a request needs no separate signature, and an answer is
//! known to come from the node that was asked. Users' keys never leave a node: a request names the identity
//! that asks, and the peer signs for the lake with the keys in its own configuration.
//!
//! The asking node has already admitted its client, and the lake has granted that client the object; the peer
//! gives bytes of one immutable version. So this module decides only where bytes come from.

use http::HeaderName;

mod client;
mod request;

pub use self::client::{Peer, PeerConnector, PeerError};
pub(crate) use self::request::{BLOCKS, REQUEST_BYTES_MAX};
pub use self::request::{BlockRequest, CallerName, PeerRole};

/// Names the class of transfer that a block is wanted for, if no client waits for it.
pub(crate) const CLASS: HeaderName = HeaderName::from_static("x-shoal-class");

/// The path at which a node answers without doing anything else.
pub(crate) const ALIVE: &str = "/alive";

/// Marks an answer with a block that the node did not have, and fetches. An earlier build does not say so.
pub(crate) const FETCHING: HeaderName = HeaderName::from_static("x-shoal-fetching");

/// The path at which a node answers with one of its pages for operators, whose path and query are the body.
pub(crate) const PAGES: &str = "/pages";

/// The longest page for operators, and the longest path and query of one, in bytes.
pub(crate) const PAGE_BYTES_MAX: usize = 16 << 20;
pub(crate) const PAGE_PATH_BYTES_MAX: usize = 8 << 10;

/// The path at which a node takes messages ([`crate::messages`]).
pub(crate) const MESSAGES: &str = "/messages";
