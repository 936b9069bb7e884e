//! What all kinds of requests use.

use std::sync::Arc;

use shoal_cache::exchange::location::Addresses;
use shoal_cache::grants::Grants;
use shoal_cache::lake::Lake;
use shoal_net::endpoint::Endpoint;
use shoal_s3::error::{ErrorCode, S3Error};

use crate::dirty::DirtyObjects;

/// Number of objects of a bucket that one request handles in parallel.
pub(super) const PARALLEL: usize = 8;

/// The parts of a node that [`TieredLake`](super::TieredLake) uses.
pub struct TieredLakeParts {
    /// The dirty objects, and their tiers.
    pub dirty: Arc<DirtyObjects>,
    /// The lake that has all others.
    pub within: Arc<dyn Lake>,
    /// Remembered answers of the lake, which a change invalidates.
    pub grants: Arc<Grants>,
    /// Sends the questions of write-back to the lake.
    pub endpoint: Arc<Endpoint>,
    /// The addresses at which clients reach this node.
    pub addresses: Arc<Addresses>,
}

/// Returns the error of a caller that may not do what it asks for.
pub(super) fn access_denied() -> S3Error {
    S3Error::new(ErrorCode::AccessDenied, "Access Denied")
}
