//! S3 as clients see it: connections, who is asking, what is asked, and what they are told.

pub mod access_log;
pub mod connection;
pub mod deadline;
pub mod error;
pub mod error_xml;
pub mod framing;
pub mod listener;
pub mod tls;
