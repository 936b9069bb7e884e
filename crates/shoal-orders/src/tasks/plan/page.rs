//! Keeps what jobs read for later jobs: the pages of Netco's section 4.3.

use std::time::Duration;

use super::executor::Executor;

/// The interval at which a file is looked for that the lake does not have yet.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl Executor {
    /// Pins a file of the plan of this generation until a time: what is cached of it, and what jobs read of
    /// it from now on.
    pub(super) async fn keep_page(&self, generation: u64, file: usize, until_s: f64) {
        let mut unknown = vec![file];
        loop {
            let parts = self.take_parts(&mut unknown).await;
            let pinned = self.pin_objects(self.pin(until_s), self.ids(&parts)).await;
            if let Err(failure) = pinned {
                self.note_failure(generation, file, &failure);
            }
            let left = Duration::try_from_secs_f64(until_s - self.now_s()).unwrap_or_default();
            if unknown.is_empty() || left.is_zero() {
                return;
            }
            tokio::time::sleep(LOOK_EVERY.min(left)).await;
        }
    }
}
