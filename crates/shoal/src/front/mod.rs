//! S3 as clients see it: connections, who is asking, what is asked, and what they are told.

pub mod access_log;
pub mod auth;
pub mod body;
pub mod conditions;
pub mod connection;
pub mod deadline;
mod dirty;
pub mod error;
pub mod error_xml;
pub mod expectation;
pub mod forward;
pub mod framing;
pub mod in_flight;
pub mod lake_errors;
pub mod listener;
mod location;
pub mod operation;
pub mod payload;
pub mod range;
pub mod read_head;
pub mod record;
pub mod respond;
pub mod serve;
mod through;
pub mod tls;
mod wanted;
