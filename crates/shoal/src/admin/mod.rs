//! The pages for operators: health, metrics, status. They are apart from the S3 port.

pub mod client;
pub mod explain;
pub mod hosts;
pub mod members;
pub mod observe;
pub mod server;
