//! The one module that reads the clock; everything else takes the time as an argument.
#![allow(
    clippy::disallowed_methods,
    reason = "the clock is read here so that it is read nowhere else"
)]

use std::time::{Instant, SystemTime};

/// Wall-clock time, for signatures, dates and ages that outlive the process.
pub fn utc_now() -> SystemTime {
    SystemTime::now()
}

/// Monotonic time, for latencies and deadlines.
pub fn instant() -> Instant {
    Instant::now()
}
