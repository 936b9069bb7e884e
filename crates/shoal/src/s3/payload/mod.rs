//! Bodies on their way to the lake: passed on in their wire form, and completed only when they are right.
//!
//! [`CheckedBody`] gives the lake the bytes the client sent, with chunk signatures replaced by ours, and keeps back
//! the end until length, hash, signatures and checksums are known to be right. When something is wrong the body
//! breaks off, the lake stores nothing, and [`Outcome`] holds the error to tell the client.

mod announced;
mod body;
mod checker;
pub mod decoder;
mod digests;
mod error;
mod room;

#[cfg(test)]
mod tests;

pub use body::{CheckedBody, Outcome};
pub use digests::{Algorithm, Digests};
pub use error::PayloadError;

use crate::s3::sigv4::{PayloadHash, SeedSignature};

/// How a body is protected, as the verified head says.
#[derive(Clone, Debug)]
pub struct Payload {
    /// `x-amz-content-sha256`, or what stands for it.
    pub hash: PayloadHash,
    /// Where the client's chunk signatures begin; present if and only if the hash says that chunks are signed.
    pub seed: Option<SeedSignature>,
}
