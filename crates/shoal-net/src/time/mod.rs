//! When things happen: the clocks, deadlines, pauses between attempts, the times of log lines, and the end of the node.

pub mod clock;
pub mod deadline;
pub mod log_throttle;
pub mod pauses;
pub mod shutdown;
