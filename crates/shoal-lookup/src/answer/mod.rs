//! The answer to a question: which client asks, where it is, and which living nodes are nearest to it.

pub mod choice;
pub mod client;
pub mod places;
pub mod responder;
pub mod zone;
