//! S3 as clients see it: connections, who is asking, what is asked, and what they are told.

pub mod auth;
pub mod body;
pub mod conditions;
pub mod error;
pub mod exchange;
pub mod forward;
pub mod in_flight;
pub mod lake_errors;
pub mod operation;
pub mod payload;
pub mod range;
pub mod respond;
pub mod serve;
