//! A request without its signature and body: its head, what it asks for, its ranges and conditions.

pub mod conditions;
pub mod framing;
pub mod hop_by_hop;
pub mod operation;
pub mod range;
pub mod read_head;
