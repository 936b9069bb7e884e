//! The S3 frontend: callers, requests and responses.

pub mod access_log;
mod admission;
pub mod body;
mod config;
mod dirty;
mod forward;
pub mod lake_errors;
mod location;
mod reads;
pub mod record;
pub mod respond;
mod rewind;
pub mod serve;
mod wanted;
mod writes;

pub use self::config::{Anonymous, S3Config};
