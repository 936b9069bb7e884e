//! The room of a node: what takes it, how the layers share it, and what more of it would save.

pub mod mrc;
pub mod partition;
pub mod quotas;
pub mod residency;
