//! The pages for operators: health, metrics, status. Their port is separate from the S3 port.

pub(crate) mod auth;
pub mod client;
mod console;
pub mod explain;
mod hint_pages;
pub mod history;
pub mod members;
pub(crate) mod observer;
pub(crate) mod other_nodes;
pub(crate) mod reloads;
pub(crate) mod server;
pub mod status;
mod task_pages;
