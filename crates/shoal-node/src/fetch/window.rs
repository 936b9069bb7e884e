//! Bounds the bytes in memory that are on their way to the disk.

use std::sync::Arc;
use std::time::Duration;

use shoal_policy::fair::Payer;
use shoal_s3::identity::NODE;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::fair::Turns;
use crate::single_flight::{BlockMemory, FetchError};

/// A request that finds the window full waits this long for room before it gives up with `503 SlowDown`.
const PATIENCE: Duration = Duration::from_secs(20);

/// The memory for bytes that come from other nodes, from the lake or from clients, until they are on disk.
///
/// A share of it is a permit, which gives the share back when it is dropped.
#[derive(Debug)]
pub struct MemoryWindow {
    /// The free part; one permit a KiB.
    free: Arc<Semaphore>,
    size_kib: usize,
    /// The turns in which payers wait for a share.
    turns: Arc<Turns>,
    /// The free part of the half that writers may take.
    free_for_writers: Arc<Semaphore>,
    /// The free part of the quarter that blocks may take for which no client waits.
    free_for_background: Arc<Semaphore>,
}

/// A share of the memory window for bytes that come at the pace of a client.
#[derive(Debug)]
pub struct WriterMemory {
    _of_writers: OwnedSemaphorePermit,
    _of_window: OwnedSemaphorePermit,
}

impl MemoryWindow {
    /// A window of `bytes`, rounded down to KiB.
    pub(super) fn new(bytes: u64) -> Self {
        let size_kib = (bytes >> 10) as usize;
        Self {
            free: Arc::new(Semaphore::new(size_kib)),
            size_kib,
            turns: Turns::one_at_a_time(),
            free_for_writers: Arc::new(Semaphore::new(size_kib / 2)),
            free_for_background: Arc::new(Semaphore::new(size_kib / 4)),
        }
    }

    /// Waits in the turn of `payer` for a share. A request for more than the whole window takes all of it.
    ///
    /// # Errors
    ///
    /// Fails as busy if the window stays full.
    pub async fn reserve(&self, payer: Payer, bytes: u64) -> Result<OwnedSemaphorePermit, FetchError> {
        let _turn = self
            .turns
            .turn(payer, bytes.div_ceil(1024))
            .await
            .map_err(|_| FetchError::Busy)?;
        acquire(&self.free, bytes, self.size_kib).await
    }

    /// Waits, however long, for a share for a block that no client waits for. All of these get a quarter of
    /// the window: they wait for the link while clients use it, and clients must not wait for them.
    ///
    /// # Errors
    ///
    /// Fails as busy if the window stays full.
    pub async fn reserve_in_background(&self, payer: Payer, bytes: u64) -> Result<BlockMemory, FetchError> {
        let kib = kib(bytes, self.size_kib / 4);
        let quarter = Arc::clone(&self.free_for_background).acquire_many_owned(kib);
        let quarter = quarter.await.expect("the window is never closed");
        Ok(BlockMemory {
            of_background: Some(quarter),
            of_window: self.reserve(payer, bytes).await?,
        })
    }

    /// Waits for a share for bytes that a client sends. All writers together get half of the window: a client
    /// may be slow, and reads must not wait for it.
    ///
    /// A caller that waits for a share must not keep another one that only its client could set free.
    ///
    /// # Errors
    ///
    /// Fails as busy if the window stays full.
    pub async fn reserve_for_writer(&self, bytes: u64) -> Result<WriterMemory, FetchError> {
        Ok(WriterMemory {
            _of_writers: acquire(&self.free_for_writers, bytes, self.size_kib / 2).await?,
            _of_window: self.reserve(NODE, bytes).await?,
        })
    }

    /// Takes a share for bytes that can do without one. Half of the window is left to reads, which wait for
    /// their share.
    pub fn try_reserve_spare(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let kib = bytes.div_ceil(1024) as u32;
        let spare_kib = self.free.available_permits().saturating_sub(self.size_kib / 2);
        if spare_kib < kib as usize {
            return None;
        }
        Arc::clone(&self.free).try_acquire_many_owned(kib).ok()
    }

    /// The bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.used_kib() << 10
    }

    /// Whether more than a quarter of the window would be in use with `bytes` more. If so, written data
    /// should leave the window soon, because the next writes and reads need it.
    pub fn is_filling(&self, bytes: u64) -> bool {
        self.used_kib() + bytes.div_ceil(1024) > self.size_kib as u64 / 4
    }

    /// Whether more than half of the window is in use. Work that no caller waits for should then wait.
    pub fn is_busy(&self) -> bool {
        self.free.available_permits() < self.size_kib / 2
    }

    fn used_kib(&self) -> u64 {
        self.size_kib.saturating_sub(self.free.available_permits()) as u64
    }
}

/// The KiB of a share, at most `size_kib`.
fn kib(bytes: u64, size_kib: usize) -> u32 {
    bytes.div_ceil(1024).min(size_kib as u64) as u32
}

/// Waits for a share of `free`, at most all of its `size_kib`.
async fn acquire(
    free: &Arc<Semaphore>,
    bytes: u64,
    size_kib: usize,
) -> Result<OwnedSemaphorePermit, FetchError> {
    let share = Arc::clone(free).acquire_many_owned(kib(bytes, size_kib));
    match tokio::time::timeout(PATIENCE, share).await {
        Ok(permit) => Ok(permit.expect("the window is never closed")),
        Err(_) => Err(FetchError::Busy),
    }
}

#[cfg(test)]
mod tests {
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
        let _writer = window.reserve_for_writer(4 * KIB).await.unwrap();
        assert!(matches!(
            window.reserve_for_writer(1).await,
            Err(FetchError::Busy)
        ));
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
