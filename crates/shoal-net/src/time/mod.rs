//! When things happen: clocks, deadlines, pauses between attempts, times of log lines, the end of the node.

pub mod clock;
pub mod deadline;
pub mod log_throttle;
pub mod pauses;
pub mod shutdown;
