//! Objects that are written back: the durable tier before the lake.

pub mod dirty;
pub mod tier;
pub mod tiered;

pub use dirty::{FlushProgress, Listing, UploadListing};
