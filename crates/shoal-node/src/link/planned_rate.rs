//! The rate of a planned transfer.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_policy::link::Bucket;
use tokio::time::Instant;

use super::{Link, since};
use crate::clock;

/// A plan may move the bytes of this time at once.
const BURST_TIME: Duration = Duration::from_millis(10);

/// Clients may use the unused part of a promised rate for this time: a client that waits in a queue must not
/// lose it meanwhile.
const PROMISE_TIME: Duration = Duration::from_secs(1);

/// The least burst in bytes, whatever the rate.
const BURST_BYTES_MIN: u64 = 64 << 10;

/// A plan's rate: all transfers that share it move no more than it says, however many they are, and from
/// wherever their bytes come.
///
/// A part of the rate may be reserved. Clients leave that part of the link to planned transfers, as long as
/// this lasts and planned transfers want it.
#[derive(Debug)]
pub struct PlannedRate {
    /// `None` if another node keeps the rate.
    bucket: Option<Mutex<Bucket>>,
    began: Instant,
    /// The link of which a part is reserved.
    reserved: Option<(Arc<Link>, u64)>,
}

impl PlannedRate {
    /// A rate of `rate` bytes a second, of which `reserved` go before clients on `link`. A node without a
    /// link reserves nothing.
    pub fn new(link: Option<&Arc<Link>>, rate: u64, reserved: u64) -> Arc<Self> {
        Self::with_burst(link, (rate, reserved), BURST_TIME)
    }

    /// A rate of `rate` bytes a second that a plan promises to reads of clients, all of which goes before
    /// other clients on `link`. Those reads may be faster.
    pub fn promised(link: Option<&Arc<Link>>, rate: u64) -> Arc<Self> {
        Self::with_burst(link, (rate, rate), PROMISE_TIME)
    }

    fn with_burst(link: Option<&Arc<Link>>, (rate, reserved): (u64, u64), burst: Duration) -> Arc<Self> {
        let rate = rate.max(1);
        let burst = (u128::from(rate) * burst.as_millis() / 1_000) as u64;
        let bucket = Bucket::new(rate, burst.max(BURST_BYTES_MIN), Duration::ZERO);
        let reserved = reserved.min(rate);
        let link = link.filter(|_| reserved > 0);
        if let Some(link) = link {
            link.reserve(reserved);
        }
        Arc::new(Self {
            bucket: Some(Mutex::new(bucket)),
            began: clock::runtime_instant(),
            reserved: link.map(|link| (Arc::clone(link), reserved)),
        })
    }

    /// The rate of a transfer that another node paces.
    pub fn kept_elsewhere() -> Arc<Self> {
        Arc::new(Self {
            bucket: None,
            began: clock::runtime_instant(),
            reserved: None,
        })
    }

    /// Takes the right to move `bytes`. Returns how long to wait before they may move.
    pub(super) fn take(&self, bytes: u64) -> Duration {
        let Some(bucket) = &self.bucket else {
            return Duration::ZERO;
        };
        let mut bucket = bucket.lock();
        bucket.take_and_wait(bytes, since(self.began))
    }

    /// Takes the right to move `bytes` if there is any. The next one has to wait until they are paid for.
    pub(super) fn take_if_there(&self, bytes: u64) -> bool {
        let bucket = self.bucket.as_ref();
        bucket.is_some_and(|bucket| bucket.lock().take_if_there(bytes, since(self.began)))
    }

    /// Gives back a right that was not used.
    pub(super) fn give_back(&self, bytes: u64) {
        if let Some(bucket) = &self.bucket {
            bucket.lock().give_back(bytes);
        }
    }
}

impl Drop for PlannedRate {
    fn drop(&mut self) {
        if let Some((link, reserved)) = self.reserved.take() {
            link.release(reserved);
        }
    }
}
