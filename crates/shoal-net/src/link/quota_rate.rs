//! The rate of a quota: what all reads from the lake that are charged to it move together, at one node.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_base::words::Count;
use shoal_policy::link::Bucket;
use tokio::time::Instant;

use super::job_rate::ceiling_of;
use super::since;
use crate::time::clock;

/// The most bytes per second that reads from the lake move for a quota. All of them share it.
#[derive(Debug)]
pub struct QuotaRate {
    bucket: Mutex<Bucket>,
    began: Instant,
    bytes: Count,
    waits: Count,
}

impl QuotaRate {
    /// Creates a rate of `rate` bytes per second.
    pub fn new(rate: u64) -> Arc<Self> {
        let (rate, burst) = ceiling_of(rate);
        Arc::new(Self {
            bucket: Mutex::new(Bucket::new(rate, burst, Duration::ZERO)),
            began: clock::runtime_instant(),
            bytes: Count::default(),
            waits: Count::default(),
        })
    }

    /// Changes the rate, in bytes per second.
    pub fn set(&self, rate: u64) {
        let (rate, burst) = ceiling_of(rate);
        self.bucket.lock().set(rate, burst, since(self.began));
    }

    /// Returns the rate in bytes per second.
    pub fn bytes_per_second(&self) -> u64 {
        self.bucket.lock().rate()
    }

    /// Returns the bytes that have moved.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Returns how often bytes had to wait for the rate.
    pub fn waits(&self) -> u64 {
        self.waits.get()
    }

    /// Takes permission to move `bytes`. Returns how long to wait before they may move.
    pub(super) fn take(&self, bytes: u64) -> Duration {
        let wait = self.bucket.lock().take_and_wait(bytes, since(self.began));
        if !wait.is_zero() {
            self.waits.add(1);
        }
        wait
    }

    /// Returns permission that was not used.
    pub(super) fn give_back(&self, bytes: u64) {
        self.bucket.lock().give_back(bytes);
    }

    pub(super) fn moved(&self, bytes: u64) {
        self.bytes.add(bytes);
    }
}
