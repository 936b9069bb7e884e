//! The S3 protocol itself. Nothing here depends on nodes, lakes or dirty objects, so any other module may
//! use it.

mod names;
mod request;

// Signatures and bodies.
pub mod auth;
pub mod payload;
pub mod sigv4;
pub mod sts;

// Answers and documents.
pub mod error;
pub mod error_xml;
pub mod time;
pub mod xml;

pub use names::{etag, glob, identity, object, prefix, target, temporary_key, uri};
pub use request::{conditions, framing, hop_by_hop, operation, range, read_head};
