//! Work that may wait for the disk, off the threads that serve requests.

/// Runs `work` on the blocking pool. Returns `None` only when the runtime is shutting down.
///
/// # Panics
///
/// Panics if `work` does.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => Some(value),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}
