//! Objects that are written back: the durable tier before the lake.

pub mod configured;
pub mod dirty;
mod headers;
pub mod observed;
pub mod tier;
pub mod tiered;

pub use dirty::FlushProgress;
pub use tiered::{Listing, UploadListing};
