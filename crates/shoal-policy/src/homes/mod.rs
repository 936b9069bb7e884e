//! Where a block belongs among the nodes, where to look for it, and which node a client should use.

pub mod nearest;
pub mod ring;
pub mod route;
