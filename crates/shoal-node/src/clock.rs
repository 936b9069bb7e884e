//! The clocks of a node: those of every crate, and the one of the runtime.
#![allow(
    clippy::disallowed_methods,
    reason = "the clock is read here so that it is read nowhere else"
)]

pub use shoal_base::clock::{instant, utc_now};

/// Monotonic time as the runtime's timers count it; tests may pause it.
pub fn runtime_instant() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
