//! S3 as clients see it: connections, who is asking, what is asked, and what they are told.

pub mod auth;
pub mod error;
pub mod payload;
