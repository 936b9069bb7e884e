//! Objects that are written back: the durable tier before the lake.

pub mod configured;
pub mod dirty;
mod headers;
mod listing;
pub mod observed;
pub mod tier;
pub mod tiered;

pub use dirty::FlushProgress;
pub use listing::{Listing, NewerNames, UploadListing};
