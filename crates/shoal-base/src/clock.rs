//! The one module that reads the clock; everything else takes the time as an argument.
#![allow(
    clippy::disallowed_methods,
    reason = "the clock is read here so that it is read nowhere else"
)]

use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Wall-clock time, for signatures, dates and ages that outlive the process.
pub fn utc_now() -> SystemTime {
    SystemTime::now()
}

/// Monotonic time, for latencies and deadlines.
pub fn instant() -> Instant {
    Instant::now()
}

/// Monotonic time since this machine started, for policies, which count from any moment.
pub fn monotonic() -> Duration {
    since_start(ClockId::Monotonic)
}

/// The time for which this machine was suspended since it started. Monotonic time does not count it.
pub fn suspended() -> Duration {
    let monotonic = monotonic();
    since_start(ClockId::Boottime).saturating_sub(monotonic)
}

fn since_start(clock: ClockId) -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    Duration::new(tv_sec.unsigned_abs(), tv_nsec.unsigned_abs() as u32)
}
