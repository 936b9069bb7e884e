//! The verbs of `shoal-lab`.

pub(crate) mod generate;
pub(crate) mod policies;
pub(crate) mod practice;
pub(crate) mod predict;
pub(crate) mod rehearse;
pub(crate) mod simulate;
pub(crate) mod throughput_footprint;
pub(crate) mod throughput_model;

use std::thread::available_parallelism;

/// One thread for each processor.
fn threads() -> usize {
    available_parallelism().map_or(1, usize::from)
}
