//! The S3 frontend: callers, requests and responses.

mod admission;
mod config;
mod reads;
pub mod serve;
mod wanted;

pub use self::config::{Anonymous, S3Config};
