//! The clocks of a node: the wall and monotonic clocks of every crate, and the clock of the runtime.
#![allow(
    clippy::disallowed_methods,
    reason = "the clock is read here so that it is read nowhere else"
)]

pub use shoal_base::clock::{instant, monotonic, utc_now};

/// Returns monotonic time as the runtime's timers see it; tests may pause it.
pub fn runtime_instant() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
