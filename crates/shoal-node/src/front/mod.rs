//! S3 as clients see it: connections, callers, requests and answers.

pub mod access_log;
mod admission;
pub mod body;
mod dirty;
mod forward;
pub mod lake_errors;
mod location;
mod reads;
pub mod record;
pub mod respond;
pub mod serve;
mod wanted;
mod writes;
