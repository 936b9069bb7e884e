//! Where a request carries its signature.

use std::time::Duration;

/// The part of a request that carries the signature.
#[derive(Clone, Copy, Debug)]
pub(super) enum SignatureLocation {
    /// The `Authorization` header.
    Header,
    /// The query; the URL is valid for `expires`.
    Query { expires: Duration },
}
