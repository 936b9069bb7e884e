//! Bounds the memory for bytes that are not on disk yet.

use std::sync::Arc;
use std::time::Duration;

use shoal_net::fair::Turns;
use shoal_policy::fair::Payer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::single_flight::FetchError;

/// How long a request waits for room in a full window before it fails with `503 SlowDown`.
const PATIENCE: Duration = Duration::from_secs(20);

/// Memory for bytes that arrive from peers, from the lake or from clients, until they are on disk.
///
/// Each share is a permit, which is returned on drop.
#[derive(Debug)]
pub struct MemoryWindow {
    /// Free permits; one permit is 1 KiB.
    free: Arc<Semaphore>,
    size_kib: usize,
    /// Fair order in which payers wait for memory.
    turns: Arc<Turns>,
    /// Free permits of the quarter that background blocks may use.
    free_for_background: Arc<Semaphore>,
}

impl MemoryWindow {
    /// Creates a window of `bytes`, rounded down to KiB.
    pub(super) fn new(bytes: u64) -> Self {
        let size_kib = (bytes >> 10) as usize;
        Self {
            free: Arc::new(Semaphore::new(size_kib)),
            size_kib,
            turns: Turns::one_at_a_time(),
            free_for_background: Arc::new(Semaphore::new(size_kib / 4)),
        }
    }

    /// Waits for memory, in `payer`'s turn. A request larger than the window takes all of it.
    ///
    /// # Errors
    ///
    /// Fails with `Busy` if the window stays full.
    pub async fn reserve(&self, payer: Payer, bytes: u64) -> Result<OwnedSemaphorePermit, FetchError> {
        let _turn = self
            .turns
            .turn(payer, bytes.div_ceil(1024))
            .await
            .map_err(|_| FetchError::Busy)?;
        let share = Arc::clone(&self.free).acquire_many_owned(kib(bytes, self.size_kib));
        match tokio::time::timeout(PATIENCE, share).await {
            Ok(permit) => Ok(permit.expect("the window is never closed")),
            Err(_) => Err(FetchError::Busy),
        }
    }

    /// Waits for memory for a block of the background, or of a client that keeps a rate. All of these share a
    /// quarter of the window, for which this waits without a limit: they may wait long for the link or for
    /// their rate, and clients must not wait for them.
    ///
    /// # Errors
    ///
    /// Fails with `Busy` if the window stays full.
    pub async fn reserve_in_background(
        &self,
        payer: Payer,
        bytes: u64,
    ) -> Result<Vec<OwnedSemaphorePermit>, FetchError> {
        let kib = kib(bytes, self.size_kib / 4);
        let quarter = Arc::clone(&self.free_for_background).acquire_many_owned(kib);
        let quarter = quarter.await.expect("the window is never closed");
        Ok(vec![quarter, self.reserve(payer, bytes).await?])
    }

    /// Takes memory for bytes that can do without it. Leaves half of the window to reads, which wait for
    /// their share.
    pub fn try_reserve_spare(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let kib = bytes.div_ceil(1024) as u32;
        let spare_kib = self.free.available_permits().saturating_sub(self.size_kib / 2);
        if spare_kib < kib as usize {
            return None;
        }
        Arc::clone(&self.free).try_acquire_many_owned(kib).ok()
    }

    /// Returns the number of bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.used_kib() << 10
    }

    /// Returns true if more than a quarter of the window would be in use after adding `bytes`. Written data
    /// should then leave the window soon, because later writes and reads need it.
    pub fn is_filling(&self, bytes: u64) -> bool {
        self.used_kib() + bytes.div_ceil(1024) > self.size_kib as u64 / 4
    }

    /// Returns true if more than half of the window is in use. Background work should then wait.
    pub fn is_busy(&self) -> bool {
        self.free.available_permits() < self.size_kib / 2
    }

    fn used_kib(&self) -> u64 {
        debug_assert!(
            self.free.available_permits() <= self.size_kib,
            "shares are returned once"
        );
        self.size_kib.saturating_sub(self.free.available_permits()) as u64
    }
}

/// Returns the size of a share in KiB, at most `size_kib`.
fn kib(bytes: u64, size_kib: usize) -> u32 {
    bytes.div_ceil(1024).min(size_kib as u64) as u32
}

#[cfg(test)]
mod tests {
    use shoal_s3::identity::NODE;

    use super::*;

    const KIB: u64 = 1 << 10;

    #[tokio::test(start_paused = true)]
    async fn a_share_is_given_back_and_a_full_window_is_busy_after_a_while() {
        let window = MemoryWindow::new(8 * KIB);
        let all = window.reserve(NODE, 100 * KIB).await.unwrap();
        assert_eq!(window.used_bytes(), 8 * KIB, "no more than there is");
        assert!(matches!(window.reserve(NODE, 1).await, Err(FetchError::Busy)));
        drop(all);
        assert_eq!(window.used_bytes(), 0);
        assert!(window.reserve(NODE, 1).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn writers_leave_half_of_the_window_to_readers() {
        let window = MemoryWindow::new(8 * KIB);
        let _writer = window.try_reserve_spare(4 * KIB).unwrap();
        assert!(window.try_reserve_spare(1).is_none());
        assert!(!window.is_busy(), "half is free");
        assert!(window.is_filling(0));
        let _reader = window.reserve(NODE, 4 * KIB).await.unwrap();
        assert!(window.is_busy());
    }

    #[tokio::test(start_paused = true)]
    async fn blocks_that_no_client_waits_for_leave_three_quarters_to_clients() {
        let window = MemoryWindow::new(8 * KIB);
        let first = window.reserve_in_background(NODE, 2 * KIB).await.unwrap();
        let mut second = Box::pin(window.reserve_in_background(NODE, KIB));
        assert!(
            tokio::time::timeout(PATIENCE * 2, &mut second).await.is_err(),
            "it waits"
        );
        let _reader = window.reserve(NODE, 6 * KIB).await.unwrap();
        assert_eq!(window.used_bytes(), 8 * KIB);
        drop(first);
        second.await.unwrap();
    }
}
