//! Scarce things are given in turns: the processor to connections, the lake to requests, each in the name of
//! a payer.
//!
//! A payer is an identity, or strangers together. Whose turn it is decides [`shoal_policy::fair`]; here that
//! decision is carried out. While nothing is scarce a turn costs one short lock.

mod line;
mod processor;
mod turns;

pub use self::line::Line;
pub use self::processor::{ConnectionPayer, Midway, OnProcessor, Processor, SharedTasks};
pub use self::turns::{Turn, Turns, WaitedTooLong};
pub mod in_flight;
