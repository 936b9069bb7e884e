//! The S3 protocol itself. Nothing here knows about nodes, lakes or dirty objects, so any other module may
//! use it.

// Names.
pub mod etag;
pub mod glob;
pub mod identity;
pub mod object;
mod percent;
pub mod prefix;
pub mod target;
pub mod uri;

// Requests.
pub mod conditions;
pub mod framing;
pub mod hop_by_hop;
pub mod operation;
pub mod range;
pub mod read_head;

// Signatures and bodies.
pub mod auth;
pub mod payload;
pub mod sigv4;

// Answers and documents.
pub mod error;
pub mod error_xml;
pub mod time;
pub mod xml;
