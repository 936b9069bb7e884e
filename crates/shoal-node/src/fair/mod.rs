//! Gives scarce things in turns, each in the name of a payer: the processor to connections, the lake to
//! requests.
//!
//! A payer is an identity, or all anonymous callers together. [`shoal_policy::fair`] decides whose turn it
//! is; this module carries that decision out. While nothing is scarce a turn costs one short lock.

mod processor;
mod turns;
mod wait_queue;

pub use self::processor::{ConnectionPayer, MidRequest, Processor, SharedTasks};
pub use self::turns::{Turn, Turns};
pub use self::wait_queue::WaitQueue;
pub mod in_flight;
