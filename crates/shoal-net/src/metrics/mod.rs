//! The metrics: what clients' requests come to is counted here, and [`table`] reads all that is counted.
//! Logic returns outcomes; its callers record them here.

pub mod conditions;
pub mod folders;
pub mod histogram;
mod table;
#[cfg(test)]
mod tests;
pub mod usage;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use shoal_base::words::{Count, Counts, Word, WordCounts};
use shoal_policy::{Found, Source};
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Operation;

use self::folders::{FolderReads, Folders, folder_of};
use self::histogram::{DurationHistogram, HistogramSnapshot};
pub use self::table::{
    LabelValues, MetricType, Observed, Sample, Tally, Value, each, one, render, render_all, scrape,
};
use self::usage::{Usage, UsageByName};

/// The media type of [`render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counts of clients' requests.
#[derive(Debug, Default)]
pub struct Metrics {
    operations: [OperationCounters; Operation::ALL.len()],
    in_flight: AtomicU64,
    /// Reads of one block, and of several.
    object_reads: [Counts<Found>; 2],
    read_bytes: Counts<Source>,
    /// The folders that are read most.
    folders: Folders,
    /// Requests that were admitted and name a bucket, by bucket.
    pub buckets: UsageByName,
    /// Requests that were admitted, by the name of their payer.
    pub identities: UsageByName,
    /// Reads served without the cache, by reason.
    pub uncached: Tally<&'static str>,
    /// Requests of clients for temporary keys, by outcome.
    pub temporary_keys: Tally<&'static str>,
    /// Counts of the S3 listener.
    pub connections: ConnectionMetrics,
}

impl Metrics {
    /// Counts a completed response.
    pub fn request(&self, operation: Operation, status: u16, duration: Duration) {
        let counters = &self.operations[operation as usize];
        counters.durations.observe(duration);
        match USUAL_STATUSES.iter().position(|usual| *usual == status) {
            Some(place) => _ = counters.usual[place].fetch_add(1, Ordering::Relaxed),
            None => counters.unusual.count(status),
        }
    }

    /// Counts a request as in flight until the returned value is dropped, which counts what becomes of it.
    pub fn request_began(self: &Arc<Self>) -> RequestMetrics {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        RequestMetrics(Arc::clone(self))
    }

    /// Counts bytes of an object sent to a client.
    pub fn read(&self, source: Source, bytes: u64) {
        self.read_bytes.add(source, bytes);
    }

    /// Counts bytes of an object sent to a client, `lake_bytes` of them from the lake, for its folder.
    pub fn read_of(&self, object: &ObjectName, bytes: u64, lake_bytes: u64) {
        self.folders
            .add(&folder_of(&object.bucket, &object.key), bytes, lake_bytes);
    }

    /// Counts an admitted request for its bucket and its identity. `succeeded` is true if the lake or the
    /// cache has answered it with success.
    pub fn used(&self, bucket: Option<&str>, identity: &str, succeeded: bool, usage: Usage) {
        if let Some(bucket) = bucket {
            self.buckets.add(bucket, succeeded, usage);
        }
        self.identities.add(identity, succeeded, usage);
    }

    /// Counts a read by how many of its blocks were near. `are_several` is true if it wanted more than one
    /// block.
    pub fn object_read(&self, found: Found, are_several: bool) {
        self.object_reads[usize::from(are_several)].count(found);
    }

    /// Returns the completed responses by operation and status, without pairs that never occurred.
    pub fn requests(&self) -> Vec<([String; 2], u64)> {
        let mut requests = Vec::new();
        for (operation, counters) in Operation::ALL.into_iter().zip(&self.operations) {
            let usual = counters
                .usual
                .each_ref()
                .map(|count| count.load(Ordering::Relaxed));
            let usual = USUAL_STATUSES
                .into_iter()
                .zip(usual)
                .filter(|(_, count)| *count > 0);
            for (status, count) in usual.chain(counters.unusual.counts()) {
                requests.push(([operation.as_str().to_owned(), status.to_string()], count));
            }
        }
        requests
    }

    /// Returns the durations of requests by operation.
    pub fn durations(&self) -> impl Iterator<Item = (&'static str, HistogramSnapshot)> {
        let operations = Operation::ALL.into_iter().zip(&self.operations);
        operations.map(|(operation, counters)| (operation.as_str(), counters.durations.distribution()))
    }

    /// Returns the number of requests being answered.
    pub fn requests_in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Returns the bytes of objects sent to clients, by source.
    pub fn read_bytes(&self) -> WordCounts {
        self.read_bytes.by_word()
    }

    /// Returns the folders that were read most lately, at most `most` of them.
    pub fn top_folders(&self, most: usize) -> Vec<FolderReads> {
        self.folders.top(most)
    }

    /// Ages what is counted for a bounded number of names, once an hour: bytes that were read below folders
    /// count half as much, and names that are no longer used make room.
    pub fn age(&self) {
        self.folders.halve();
        self.buckets.end_idle();
        self.identities.end_idle();
    }

    /// Returns the reads of one block, or else of several, by how many of the blocks were near.
    pub fn reads(&self, of_several: bool) -> WordCounts {
        self.object_reads[usize::from(of_several)].by_word()
    }
}

/// Counters of a listener, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMetrics {
    open: Arc<AtomicU64>,
    /// Connections and requests that were rejected, by reason.
    pub refusals: Arc<Tally<&'static str>>,
}

impl ConnectionMetrics {
    /// Counts a connection as open until the returned guard is dropped.
    pub fn opened(&self) -> GaugeGuard {
        GaugeGuard::new(&self.open)
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }
}

/// Increments a gauge until dropped.
#[derive(Debug)]
pub struct GaugeGuard(Arc<AtomicU64>);

impl GaugeGuard {
    fn new(gauge: &Arc<AtomicU64>) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(gauge))
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a guard lowers the gauge that it raised");
    }
}

/// The metrics, with one request in flight.
#[derive(Debug)]
pub struct RequestMetrics(Arc<Metrics>);

impl Deref for RequestMetrics {
    type Target = Metrics;

    fn deref(&self) -> &Metrics {
        &self.0
    }
}

impl Drop for RequestMetrics {
    fn drop(&mut self) {
        let before = self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a request ends once");
    }
}

/// The most common statuses; they are counted without a lock.
const USUAL_STATUSES: [u16; 10] = [200, 206, 304, 204, 404, 403, 412, 416, 400, 503];

/// Counts of one operation.
#[derive(Debug, Default)]
struct OperationCounters {
    durations: DurationHistogram,
    usual: [AtomicU64; USUAL_STATUSES.len()],
    unusual: Tally<u16>,
}
