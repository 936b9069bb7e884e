//! What an endpoint was asked and what it gave, for whoever shows it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// What an endpoint did since the node started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that went out, by operation, retries included.
    pub requests: BTreeMap<&'static str, u64>,
    /// Those among them that repeated an earlier one.
    pub retries: u64,
    /// Bodies that broke and were asked for again from there.
    pub resumes: u64,
    /// Bytes of response bodies.
    pub bytes_received: u64,
    /// Connections that were opened.
    pub connections: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: Mutex<BTreeMap<&'static str, u64>>,
    retries: AtomicU64,
    resumes: AtomicU64,
    bytes_received: AtomicU64,
    connections: AtomicU64,
}

impl Counters {
    pub(super) fn request(&self, operation: &'static str) {
        *self.requests.lock().entry(operation).or_default() += 1;
    }

    pub(super) fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn resume(&self) {
        self.resumes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> Counts {
        Counts {
            requests: self.requests.lock().clone(),
            retries: self.retries.load(Ordering::Relaxed),
            resumes: self.resumes.load(Ordering::Relaxed),
            bytes_received: self.bytes_received.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
        }
    }
}
