//! The rate of a planned transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_policy::link::Bucket;
use tokio::time::Instant;

use super::{Link, since};
use crate::time::clock;

/// Burst of a planned rate, as a time at that rate.
const BURST_TIME: Duration = Duration::from_millis(10);

/// More than any link moves, and little enough that the rates of all plans have a sum.
const RATE_MAX: u64 = 1 << 50;

/// How long clients may still use the unused part of a promised rate: a client that waits in a queue must not
/// lose it.
const PROMISE_TIME: Duration = Duration::from_secs(1);

/// Minimum burst in bytes, for any rate.
const BURST_BYTES_MIN: u64 = 64 << 10;

/// The rate of a plan. All transfers that share it move no more than that together, regardless of their
/// number and sources.
///
/// A part of the rate may be reserved. Clients leave that part of the link to planned transfers while this
/// value exists and planned transfers use it.
#[derive(Debug)]
pub struct PlannedRate {
    bucket: Mutex<Bucket>,
    began: Instant,
    /// The link of which a part is reserved, and the reserved rate.
    reserved: Option<(Arc<Link>, AtomicU64)>,
}

impl PlannedRate {
    /// Creates a rate of `rate` bytes per second, of which `reserved` take precedence over clients on `link`.
    /// A node without a link reserves nothing.
    pub fn new(link: Option<&Arc<Link>>, rate: u64, reserved: u64) -> Arc<Self> {
        Self::with_burst(link, (rate, reserved), BURST_TIME)
    }

    /// Creates a rate of `rate` bytes per second that a plan promises to clients' reads, and all of which
    /// takes precedence over other clients on `link`. Those reads may be faster.
    pub fn promised(link: Option<&Arc<Link>>, rate: u64) -> Arc<Self> {
        Self::with_burst(link, (rate, rate), PROMISE_TIME)
    }

    fn with_burst(link: Option<&Arc<Link>>, (rate, reserved): (u64, u64), burst: Duration) -> Arc<Self> {
        // The sum of all reserved rates is counted.
        let rate = rate.clamp(1, RATE_MAX);
        let bucket = Bucket::new(rate, burst_bytes(rate, burst), Duration::ZERO);
        let reserved = reserved.min(rate);
        let link = link.filter(|_| reserved > 0);
        if let Some(link) = link {
            link.reserve(reserved);
        }
        Arc::new(Self {
            bucket: Mutex::new(bucket),
            began: clock::runtime_instant(),
            reserved: link.map(|link| (Arc::clone(link), AtomicU64::new(reserved))),
        })
    }

    /// Changes the rate of a promise, and with it the reserved part of the link.
    pub(super) fn set(&self, rate: u64) {
        let rate = rate.clamp(1, RATE_MAX);
        let now = since(self.began);
        self.bucket.lock().set(rate, burst_bytes(rate, PROMISE_TIME), now);
        if let Some((link, reserved)) = &self.reserved {
            let before = reserved.swap(rate, Ordering::Relaxed);
            link.reserve(rate);
            link.release(before);
        }
    }

    /// Takes permission to move `bytes`. Returns how long to wait before they may move.
    pub(super) fn take(&self, bytes: u64) -> Duration {
        let mut bucket = self.bucket.lock();
        bucket.take_and_wait(bytes, since(self.began))
    }

    /// Takes permission to move `bytes` if any is left. The next transfer must wait until they are paid for.
    pub(super) fn take_if_any(&self, bytes: u64) -> bool {
        let mut bucket = self.bucket.lock();
        bucket.take_if_any(bytes, since(self.began))
    }

    /// Returns unused permission.
    pub(super) fn give_back(&self, bytes: u64) {
        self.bucket.lock().give_back(bytes);
    }
}

impl Drop for PlannedRate {
    fn drop(&mut self) {
        if let Some((link, reserved)) = self.reserved.take() {
            link.release(reserved.into_inner());
        }
    }
}

fn burst_bytes(rate: u64, time: Duration) -> u64 {
    let burst = (u128::from(rate) * time.as_millis() / 1_000) as u64;
    burst.max(BURST_BYTES_MIN)
}
