//! What a node is built on: connections, the lake, shares of processor and link.

pub mod channel;
pub mod clock;
pub mod conditions;
pub mod endpoint;
pub mod fair;
pub mod http;
pub mod limits;
pub mod link;
pub mod log_throttle;
pub mod membership;
pub mod metrics;
pub mod pauses;
mod sendfile;
pub mod shutdown;
pub mod sigbus_guard;

pub use channel::{AuthFailure, Channel};
pub use conditions::{Condition, ConditionName};
pub use membership::node_id;
