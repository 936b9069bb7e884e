//! Commands that run until they are stopped: nodes, a cluster to try out, the name server.

pub(crate) mod descriptors;
pub(crate) mod dev;
pub(crate) mod log_lines;
pub(crate) mod logging;
pub(crate) mod lookup;
pub(crate) mod serve;
pub(crate) mod signals;
pub(crate) mod supervisor;
