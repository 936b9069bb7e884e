//! Requests to other nodes for blocks, and offers of blocks to them.
//!
//! A node calls a peer as it calls the lake ([`shoal_net::endpoint`]), over a connection on which both nodes
//! have authenticated each other ([`shoal_net::channel`]). Requests therefore need no signature of their own.
//! A request names the caller's identity, and the peer signs requests to the lake with the keys that it has
//! itself: from its configuration, or temporary ones ([`super::temporary_keys`]).
//!
//! The requesting node has already admitted its client, and the lake has granted that client the object; the
//! peer returns bytes of one immutable version. So this module only decides where bytes come from.

use http::HeaderName;

mod client;
mod request;

pub use self::client::{Peer, PeerError, PeerTraffic};
pub use self::request::{BLOCKS, REQUEST_BYTES_MAX};
pub use self::request::{BlockRequest, CallerName};

/// Header with the class of transfer that the block is for, if no client waits for it.
pub const CLASS: HeaderName = HeaderName::from_static("x-shoal-class");

/// Path for liveness probes.
pub const ALIVE: &str = "/alive";

/// Header of a response with a block that the node is still fetching. Earlier builds do not send it.
pub const FETCHING: HeaderName = HeaderName::from_static("x-shoal-fetching");

/// Path at which a node returns one of its pages for operators; the request body is the page's path and
/// query.
pub const PAGES: &str = "/pages";

/// Maximum number of bytes of such a page.
pub const PAGE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of bytes of the path and the query of such a page.
pub const PAGE_PATH_BYTES_MAX: usize = 8 << 10;

/// Path at which a node receives messages ([`crate::nodes::messages`]).
pub const MESSAGES: &str = "/messages";
