//! One node of Shoal, a cooperative cache that extends an S3 data lake across a data center.
//!
//! `ARCHITECTURE.md` describes the life of a GET on one page; the modules below appear in that order, from
//! the sockets down. Its table of layers lists which module may use which.
//!
//! Other crates use the public modules and the names at the end of this file. The other modules are private,
//! so that the compiler reports unused items in them.

// Assembly of a node.
mod gateway;
mod reload;

// Client connections and requests.
mod front;
pub mod http;

// Reads.
mod blocks;
mod exchange;
mod fetch;
mod freshness;
mod grants;
mod lake;
mod obtain;
mod read;
mod read_context;
mod single_flight;

// Writes.
mod dirty;
mod tier;
mod tiered;
mod write;

// The lake.
pub mod endpoint;
mod lake_health;
pub mod link;

// Other nodes.
mod block_server;
mod bulletin;
mod cache_events;
mod channel;
mod cluster;
mod coherence;
mod cooperation;
mod directory;
mod gwf;
mod handoff;
mod membership;
mod messages;
mod peer;
mod split;

// Operators.
pub mod admin;
mod conditions;
pub mod config;
pub mod metrics;
mod tasks;

// Foundations.
pub mod clock;
mod fair;
mod limits;
mod log_throttle;
mod pauses;
mod sendfile;
pub mod shutdown;
mod sigbus_guard;

pub use channel::{AuthFailure, Channel};
pub use conditions::{Condition, ConditionName};
pub use dirty::{FlushProgress, Listing, UploadListing};
pub use gateway::{Gateway, GatewayError};
pub use handoff::{HandoffPhase, HandoffProgress};
pub use membership::node_id;
pub use obtain::Obtain;
pub use peer::{BlockRequest, CallerName, Peer, PeerConnector};
pub use shoal_plan::execution::JobStatus;
pub use tasks::{
    ByteCounts, DocumentFacts, InvalidMoment, Issue, JobCounts, JobNote, ManifestFacts, Moment, NodeCounts,
    ObjectCounts, ObjectError, Order, PlanProgress, Progress, Replanned, Tally, Task, TaskKind, TaskList,
    TaskRequest, TaskState, TransferNote,
};
