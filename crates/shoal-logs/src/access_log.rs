//! The access logs of S3 stores: of a node, and of Amazon S3.

use crate::{Mismatch, Request, node, s3_server};

/// Words of which a line of Amazon S3 has one, as the beginning of an operation.
const S3_OPERATIONS: [&str; 4] = ["REST.", "BATCH.", "S3.", "WEBSITE."];

/// The kind of an access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Of a Shoal node, in JSON.
    Node,
    /// Of Amazon S3, and of stores with the same format.
    S3Server,
}

impl AccessLog {
    /// Recognizes an access log by its first line.
    pub fn guess(line: &str) -> Option<Self> {
        if line.starts_with('{') {
            return line.contains("\"target\":").then_some(Self::Node);
        }
        let has_operation = S3_OPERATIONS.iter().any(|word| line.contains(word));
        (line.contains(" [") && has_operation).then_some(Self::S3Server)
    }

    /// Parses one line; `None` if it is no request.
    ///
    /// # Errors
    ///
    /// Fails if the line is not of this log.
    pub fn request(self, line: &str) -> Result<Option<Request<'_>>, Mismatch> {
        match self {
            Self::Node => node::request(line),
            Self::S3Server => s3_server::request(line).map(Some),
        }
    }
}
