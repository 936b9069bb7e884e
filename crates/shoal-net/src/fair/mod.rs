//! Shares scarce resources in turns, each charged to a payer: the processor among connections, the lake among
//! requests.
//!
//! A payer is an identity, or all anonymous callers together. [`shoal_policy::fair`] decides whose turn it
//! is, and this module implements that. While nothing is scarce, a turn costs one short lock.

mod processor;
mod turns;
mod wait_queue;

pub use self::processor::{ConnectionPayer, MidRequest, Processor, SharedTasks};
pub use self::turns::{Turn, Turns};
pub use self::wait_queue::WaitQueue;
pub mod in_flight;
