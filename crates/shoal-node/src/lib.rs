//! One node of Shoal, a cooperative cache that extends an S3 data lake across a data center.
//!
//! `ARCHITECTURE.md` describes the life of a GET on one page; the modules below appear in that order, from
//! the sockets down. Its table of layers lists which module may use which.
//!
//! Other crates use the public modules and the names at the end of this file. The other modules are private,
//! so that the compiler reports unused items in them.

// Assembly of a node.
mod gateway;

// Client connections and requests.
mod credentials;
mod front;

// Other nodes.
mod block_server;
mod cluster;
mod handoff;

// Operators.
pub mod admin;
pub mod config;

// Plans that nodes make by themselves.
pub mod planning;

// The repair of a tier without its nodes.
pub mod recovery;

// The parts that the others share.
mod access_log;
mod core;

pub use credentials::{KeyGetter, serve_keys};
pub use gateway::{Gateway, GatewayError};
pub use handoff::{HandoffPhase, HandoffProgress};
