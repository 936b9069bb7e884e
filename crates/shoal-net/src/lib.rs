//! The ground on which a node is built: connections, the lake, shares of processor and link.

pub mod channel;
pub mod collector;
pub mod endpoint;
pub mod fair;
pub mod http;
pub mod key_lookup;
pub mod key_source;
pub mod limits;
pub mod link;
pub mod log_file;
pub mod membership;
pub mod metrics;
pub mod secret_headers;
mod sockets;
mod time;
pub mod trace;

pub use channel::{AuthFailure, Channel};
pub use membership::node_id;
pub use metrics::conditions::{self, Condition, ConditionName};
pub use shoal_base::words;
pub use sockets::sigbus_guard;
pub use time::{clock, log_throttle, pauses, shutdown};
