//! The pages for operators: health, metrics, status. They are apart from the S3 port.

pub mod allowed_hosts;
pub mod client;
mod config;
pub mod explain;
pub mod members;
pub mod observer;
pub mod reloads;
pub mod server;

pub use self::config::AdminConfig;
