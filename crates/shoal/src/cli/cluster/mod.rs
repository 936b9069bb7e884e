//! Commands that ask the nodes of a running cluster, or give them orders.

pub(crate) mod admin;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod flush;
pub(crate) mod hints;
pub(crate) mod link;
pub(crate) mod ls;
pub(crate) mod node;
pub(crate) mod orders;
pub(crate) mod overview;
pub(crate) mod packs;
pub(crate) mod status;
pub(crate) mod support;
pub(crate) mod task;
pub(crate) mod top;
