//! The S3 protocol as such. Nothing here knows of nodes, lakes or dirty objects: everything else may use it.

pub mod auth;
pub mod conditions;
pub mod error;
pub mod error_xml;
pub mod etag;
pub mod framing;
pub mod hop_by_hop;
pub mod identity;
pub mod object;
pub mod operation;
pub mod payload;
pub mod prefix;
pub mod range;
pub mod read_head;
pub mod sigv2;
pub mod sigv4;
pub mod target;
pub mod time;
pub mod uri;
pub mod xml;
