//! Where a request carries its credentials.

use std::time::Duration;

/// Where a request carries its credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Nowhere: the caller is anonymous.
    None,
    /// In the `Authorization` header.
    Header,
    /// In the query: a presigned URL.
    Query {
        /// `X-Amz-Expires`, counted from `X-Amz-Date`.
        expires: Duration,
    },
}
