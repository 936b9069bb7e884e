//! Objects that are written back: the durable tier before the lake.

pub mod configured;
pub mod dirty;
mod headers;
mod listing;
pub mod observed;
mod orders;
pub mod packed;
pub mod tier;
pub mod tiered;

pub use listing::{Listing, NewerNames, UploadListing};
pub use orders::{FlushOrders, FlushProgress, OrderRefused, PackOrder, PackOrders, PackProgress};
