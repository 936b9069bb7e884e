//! The S3 frontend: callers, requests and responses.

mod admission;
mod hosts;
mod reads;
pub mod serve;
mod wanted;
