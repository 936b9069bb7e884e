//! Waits for a condition, never for a time: a busy machine is slow, and slow is not wrong.

use std::fmt::Debug;
use std::time::Duration;

use shoal_base::clock;

/// Enough for any condition on the busiest machine.
const LIMIT: Duration = Duration::from_secs(90);

const PAUSE: Duration = Duration::from_millis(20);

/// Waits until `is_so` returns true; `what` completes the sentence "still waiting until …".
///
/// # Panics
/// Panics if that takes longer than the limit.
pub(crate) async fn until(what: &str, is_so: impl AsyncFnMut() -> bool) {
    value(what, is_so, |is_so| *is_so).await;
}

/// Reads a value until it is right, and returns it.
///
/// # Panics
/// Panics with the last value if that takes longer than the limit.
pub(crate) async fn value<T: Debug>(
    what: &str,
    mut read: impl AsyncFnMut() -> T,
    is_right: impl Fn(&T) -> bool,
) -> T {
    let began = clock::instant();
    loop {
        let value = read().await;
        if is_right(&value) {
            return value;
        }
        assert!(began.elapsed() < LIMIT, "still waiting until {what}: {value:#?}");
        tokio::time::sleep(PAUSE).await;
    }
}
