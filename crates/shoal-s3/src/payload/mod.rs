//! Bodies on their way to the lake: forwarded in their wire form, and completed only if they pass all checks.
//!
//! [`CheckedBody`] forwards the bytes that the client sent, with chunk signatures replaced by the node's, and
//! holds back the end until length, hash, signatures and checksums are verified. If a check fails, the body
//! is aborted, the lake stores nothing, and [`Outcome`] holds the error for the client.

mod body;
mod checker;
mod declared;
pub mod decoder;
mod digests;
mod error;
mod memory_limit;

#[cfg(test)]
mod tests;

pub use body::{CheckedBody, Outcome};
pub use digests::{Algorithm, Digests};
pub use error::wrong_length;
pub use memory_limit::MemoryReservation;

use crate::sigv4::{PayloadHash, SeedSignature};

/// The protection of a body, as the verified head announces it.
#[derive(Clone, Debug)]
pub struct Payload {
    /// `x-amz-content-sha256`, or the value that stands in for it.
    pub hash: PayloadHash,
    /// The start of the client's chain of chunk signatures; present if and only if the hash says that chunks
    /// are signed.
    pub seed: Option<SeedSignature>,
}
