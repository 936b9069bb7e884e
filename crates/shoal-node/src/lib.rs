//! One node of Shoal, a cooperative cache that extends an S3 data lake across a data center.
//!
//! `ARCHITECTURE.md` describes the life of a GET on one page; the modules below are its stations, from the
//! sockets down. Its table of layers says which of them may use which.

// A node put together.
pub mod gateway;
pub mod reload;

// From a client's socket to an answer.
pub mod front;
pub mod http;

// A GET: the version, its blocks, and where each comes from.
pub mod blocks;
pub mod fetch;
pub mod freshness;
pub mod grants;
pub mod read;
pub mod read_context;
pub mod single_flight;

// A PUT.
pub mod dirty;
pub mod write;

// The lake.
pub mod endpoint;
pub mod lake_health;

// Other nodes.
pub mod block_server;
pub mod channel;
pub mod cluster;
pub mod cooperation;
pub mod handoff;
pub mod membership;
pub mod peer;
pub mod split;

// Operators.
pub mod admin;
pub mod conditions;
pub mod config;
pub mod metrics;

// Ground.
pub mod clock;
pub mod fair;
pub mod limits;
pub mod log_throttle;
pub mod sendfile;
pub mod shutdown;
pub mod sigbus_guard;
