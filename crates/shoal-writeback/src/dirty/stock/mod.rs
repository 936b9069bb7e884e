//! The stock of a tier: bytes in its store, entries in its registry, and the figures about both.

pub(crate) mod intake;
pub(crate) mod receipts;
pub(crate) mod status;
pub(crate) mod survey;
pub(crate) mod sweep;
pub(crate) mod tier_store;
