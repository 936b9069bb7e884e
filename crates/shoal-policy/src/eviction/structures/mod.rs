//! The data structures that policies are made of.

pub(crate) mod grouped;
pub(crate) mod order;
pub(crate) mod ranked;
pub(crate) mod slab;
