//! S3 as clients see it: connections, callers, requests and answers.

pub mod access_log;
pub mod body;
mod dirty;
pub mod forward;
pub mod lake_errors;
mod location;
pub mod record;
pub mod respond;
pub mod serve;
mod through;
mod wanted;
