//! The node's metrics and their names. Logic returns outcomes; its callers record them here.

mod conditions;
mod directory;
pub(crate) mod histogram;
mod lake;
mod link;
mod messages;
mod object_reads;
mod payers;
mod peers;
mod plans;
mod reloads;
mod tasks;
#[cfg(test)]
mod tests;
mod tiers;

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge as SignedGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use shoal_policy::{Found, Layer, Source};

pub(crate) use self::conditions::ConditionMetrics;
pub(crate) use self::directory::DirectoryMetrics;
pub(crate) use self::lake::LakeMetrics;
pub(crate) use self::link::{LinkMetrics, TransferFigures};
pub(crate) use self::messages::MessageMetrics;
use self::object_reads::ObjectReads;
pub(crate) use self::payers::PayerMetrics;
pub(crate) use self::peers::{PeerMetrics, PeerTraffic};
pub(crate) use self::plans::PlanMetrics;
pub(crate) use self::reloads::ReloadMetrics;
pub(crate) use self::tasks::TaskMetrics;
pub(crate) use self::tiers::{TierFigures, TierMetrics};

use crate::metrics::histogram::DurationHistogram;

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The sources of bytes.
const SOURCES: [Source; 4] = [Source::Local, Source::Peer, Source::Tier, Source::Lake];

type Gauge = SignedGauge<u64, AtomicU64>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    operation: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LayerLabel {
    layer: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LayerRequestLabels {
    layer: String,
    result: &'static str,
}

/// The metrics of a node.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    operations: HashMap<&'static str, OperationCounters, foldhash::fast::RandomState>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<OperationLabel, DurationHistogram>,
    requests_in_flight: Gauge,
    object_reads: ObjectReads,
    read_bytes: [Counter; SOURCES.len()],
    lake_requests: Family<OperationLabel, Counter>,
    lake: LakeMetrics,
    link: LinkMetrics,
    lake_bytes: Counter,
    coalesced_requests: Counter,
    retries: Counter,
    uncached: Family<ReasonLabel, Counter>,
    resident_bytes: Gauge,
    capacity_bytes: Gauge,
    fill_bytes: Gauge,
    evictions: Family<ReasonLabel, Counter>,
    corrupt_blocks: Counter,
    store_paused: Gauge,
    layer_bytes: Family<LayerLabel, Gauge>,
    layer_target_bytes: Family<LayerLabel, Gauge>,
    layer_requests: Family<LayerRequestLabels, Counter>,
    peers: PeerMetrics,
    messages: MessageMetrics,
    directory: DirectoryMetrics,
    conditions: ConditionMetrics,
    payers: PayerMetrics,
    written_back: Family<OutcomeLabel, Counter>,
    dirty_objects: Gauge,
    dirty_bytes: Gauge,
    uploads_ended: Family<OutcomeLabel, Counter>,
    uploads_kept: Gauge,
    tiers: TierMetrics,
    reloads: ReloadMetrics,
    tasks: TaskMetrics,
    plans: PlanMetrics,
    connections: ConnectionMetrics,
}

impl Metrics {
    /// Creates the metrics of a node with these operations. Counting any other operation is slightly slower.
    pub fn new(operations: &[&'static str]) -> Self {
        let mut registry = MetricRegistry::default();
        let requests = Family::default();
        let durations = Family::default();
        let read_bytes = Family::<SourceLabel, Counter>::default();
        registry.add("requests", "Requests answered.", &requests);
        registry.add(
            "request_duration_seconds",
            "Time from a request's head to the end of its answer.",
            &durations,
        );
        registry.add(
            "read_bytes",
            "Bytes of objects sent to clients, by source.",
            &read_bytes,
        );
        let object_reads = ObjectReads::new(&mut registry);
        Self {
            object_reads,
            operations: operations
                .iter()
                .map(|&name| (name, OperationCounters::new(name, &durations)))
                .collect(),
            requests,
            durations,
            read_bytes: SOURCES.map(|source| {
                read_bytes.get_or_create_owned(&SourceLabel {
                    source: source.as_str(),
                })
            }),
            requests_in_flight: registry.metric("requests_in_flight", "Requests being answered."),
            lake_requests: registry.metric("lake_requests", "Requests sent to the lake."),
            lake: LakeMetrics::new(&mut registry),
            link: LinkMetrics::new(&mut registry),
            lake_bytes: registry.metric("lake_bytes", "Bytes of objects received from the lake."),
            coalesced_requests: registry
                .metric("coalesced_requests", "Reads that joined a fetch in progress."),
            retries: registry.metric("retries", "Requests to the lake that were tried again."),
            uncached: registry.metric("uncached", "Reads whose object was not cached."),
            resident_bytes: registry.metric("resident_bytes", "Bytes of blocks on this node's disk."),
            capacity_bytes: registry.metric(
                "capacity_bytes",
                "Capacity of this node's disk for blocks, in bytes.",
            ),
            fill_bytes: registry.metric("fill_bytes", "Bytes fetched or being fetched, not yet on disk."),
            evictions: registry.metric("evictions", "Blocks that left the disk."),
            corrupt_blocks: registry.metric(
                "corrupt_blocks",
                "Blocks with a wrong checksum; each was fetched again.",
            ),
            written_back: registry.metric(
                "written_back",
                "Objects acknowledged before the lake had them, by outcome.",
            ),
            dirty_objects: registry.metric(
                "dirty_objects",
                "Objects that this node acknowledged and the lake does not have yet.",
            ),
            dirty_bytes: registry.metric(
                "dirty_bytes",
                "Bytes in the tiers, of all nodes, as far as this node knows.",
            ),
            uploads_ended: registry.metric(
                "uploads_ended",
                "Multipart uploads for write-back that ended here, by outcome.",
            ),
            tiers: TierMetrics::new(&mut registry),
            reloads: ReloadMetrics::new(&mut registry),
            tasks: TaskMetrics::new(&mut registry),
            plans: PlanMetrics::new(&mut registry),
            uploads_kept: registry.metric(
                "uploads_kept",
                "Multipart uploads for write-back that began here, open or ended not long ago.",
            ),
            store_paused: registry.metric("store_paused", "1 while the disk takes no new blocks."),
            layer_bytes: registry.metric("layer_bytes", "Bytes of blocks on this node's disk, by layer."),
            layer_target_bytes: registry.metric("layer_target_bytes", "Room of each layer, in bytes."),
            layer_requests: registry.metric(
                "layer_requests",
                "Lookups of blocks in each layer, hits and misses.",
            ),
            peers: PeerMetrics::new(&mut registry),
            messages: MessageMetrics::new(&mut registry),
            directory: DirectoryMetrics::new(&mut registry),
            conditions: ConditionMetrics::new(&mut registry),
            payers: PayerMetrics::new(&mut registry),
            connections: ConnectionMetrics {
                open: registry.metric("connections", "Open client connections."),
                refusals: registry.metric("refusals", "Connections and requests turned away."),
            },
            registry: registry.into_registry(),
        }
    }

    /// Returns the number of requests being answered.
    pub fn requests_in_flight(&self) -> u64 {
        self.requests_in_flight.get()
    }

    /// Counts a completed response.
    pub fn request(&self, operation: &'static str, status: u16, duration: Duration) {
        if let Some(known) = self.operations.get(operation) {
            known.durations.observe(duration);
            if let Some(counter) = known.counter(status) {
                counter
                    .get_or_init(|| {
                        self.requests
                            .get_or_create_owned(&RequestLabels { operation, status })
                    })
                    .inc();
                return;
            }
        } else {
            self.durations
                .get_or_create(&OperationLabel { operation })
                .observe(duration);
        }
        self.requests
            .get_or_create(&RequestLabels { operation, status })
            .inc();
    }

    /// Counts a request as in flight until the returned guard is dropped.
    pub fn request_began(&self) -> GaugeGuard {
        GaugeGuard::new(&self.requests_in_flight)
    }

    /// Counts bytes of an object sent to a client.
    pub fn read(&self, source: Source, bytes: u64) {
        let known = SOURCES.iter().position(|known| *known == source);
        self.read_bytes[known.expect("no node reads from elsewhere")].inc_by(bytes);
    }

    /// Counts a read by how many of its blocks were near. `are_several` is true if it wanted more than one
    /// block.
    pub fn object_read(&self, found: Found, are_several: bool) {
        self.object_reads.count(found, are_several);
    }

    /// Returns the reads of several blocks so far, by how many of the blocks were near.
    pub fn reads_of_several(&self) -> [(Found, u64); Found::ALL.len()] {
        self.object_reads.of_several()
    }

    /// Counts requests sent to the lake.
    pub fn lake_requests(&self, operation: &'static str, count: u64) {
        self.lake_requests
            .get_or_create(&OperationLabel { operation })
            .inc_by(count);
    }

    /// Counts of requests to the lake.
    pub fn lake(&self) -> &LakeMetrics {
        &self.lake
    }

    /// Transfers on the metered link.
    pub fn link(&self) -> &LinkMetrics {
        &self.link
    }

    /// Counts of reloads.
    pub fn reloads(&self) -> &ReloadMetrics {
        &self.reloads
    }

    /// Counts bytes of objects received from the lake.
    pub fn lake_read(&self, bytes: u64) {
        self.lake_bytes.inc_by(bytes);
    }

    /// Counts reads that joined a fetch in flight.
    pub fn coalesced(&self, count: u64) {
        self.coalesced_requests.inc_by(count);
    }

    /// Counts retries of requests to the lake.
    pub fn retried(&self, count: u64) {
        self.retries.inc_by(count);
    }

    /// Counts a read served without the cache.
    pub fn uncached(&self, reason: &'static str) {
        self.uncached.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts rejected requests, or blocks that were not stored.
    pub fn refused(&self, reason: &'static str, count: u64) {
        self.connections
            .refusals
            .get_or_create(&ReasonLabel { reason })
            .inc_by(count);
    }

    /// Counts blocks evicted from disk.
    pub fn evicted(&self, reason: &'static str, blocks: u64) {
        self.evictions
            .get_or_create(&ReasonLabel { reason })
            .inc_by(blocks);
    }

    /// Counts blocks with a checksum mismatch.
    pub fn corrupt_blocks(&self, count: u64) {
        self.corrupt_blocks.inc_by(count);
    }

    /// Sets the bytes used on disk, and the capacity.
    pub fn set_store_bytes(&self, resident: u64, capacity: u64) {
        self.resident_bytes.set(resident);
        self.capacity_bytes.set(capacity);
    }

    /// Sets the bytes in the memory window, which are not on disk yet.
    pub fn set_fill_bytes(&self, bytes: u64) {
        self.fill_bytes.set(bytes);
    }

    /// Counts written-back objects with this outcome.
    pub fn written_back(&self, outcome: &'static str, count: u64) {
        self.written_back
            .get_or_create(&OutcomeLabel { outcome })
            .inc_by(count);
    }

    /// Sets the number and the bytes of dirty objects that this node keeps.
    pub fn set_dirty(&self, objects: u64, bytes: u64) {
        self.dirty_objects.set(objects);
        self.dirty_bytes.set(bytes);
    }

    /// Counts uploads that ended in this way.
    pub fn uploads_ended(&self, end: &'static str, count: u64) {
        self.uploads_ended
            .get_or_create(&OutcomeLabel { outcome: end })
            .inc_by(count);
    }

    /// Sets the number of uploads started here, including those that ended recently.
    pub fn set_uploads(&self, kept: u64) {
        self.uploads_kept.set(kept);
    }

    /// Figures on tiers.
    pub fn tiers(&self) -> &TierMetrics {
        &self.tiers
    }

    /// The plan.
    pub fn plans(&self) -> &PlanMetrics {
        &self.plans
    }

    /// Tasks and pins.
    pub fn tasks(&self) -> &TaskMetrics {
        &self.tasks
    }

    /// Sets whether the disk currently accepts no new blocks.
    pub fn set_store_paused(&self, paused: bool) {
        self.store_paused.set(u64::from(paused));
    }

    /// Sets the disk space that a layer uses, and its target.
    pub fn set_layer_bytes(&self, layer: Layer, used: u64, target: u64) {
        let label = LayerLabel {
            layer: layer.to_string(),
        };
        self.layer_bytes.get_or_create(&label).set(used);
        self.layer_target_bytes.get_or_create(&label).set(target);
    }

    /// Counts requests to a layer: `hit` or `miss`.
    pub fn layer_requests(&self, layer: Layer, result: &'static str, count: u64) {
        let layer = layer.to_string();
        self.layer_requests
            .get_or_create(&LayerRequestLabels { layer, result })
            .inc_by(count);
    }

    /// Counts of requests between nodes.
    pub fn peers(&self) -> &PeerMetrics {
        &self.peers
    }

    /// Counts of messages between nodes.
    pub fn messages(&self) -> &MessageMetrics {
        &self.messages
    }

    /// Requests to the directory of blocks.
    pub fn directory(&self) -> &DirectoryMetrics {
        &self.directory
    }

    /// The conditions of the node, as numbers.
    pub fn conditions(&self) -> &ConditionMetrics {
        &self.conditions
    }

    /// Counts of each identity's requests.
    pub fn payers(&self) -> &PayerMetrics {
        &self.payers
    }

    /// Counts of the S3 listener.
    pub fn connections(&self) -> ConnectionMetrics {
        self.connections.clone()
    }

    /// Renders all metrics in the text format of `OpenMetrics`.
    pub fn render(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}

/// Counters of a listener. The default is not registered anywhere.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMetrics {
    open: Gauge,
    refusals: Family<ReasonLabel, Counter>,
}

impl ConnectionMetrics {
    /// Counts a connection as open until the returned guard is dropped.
    pub fn opened(&self) -> GaugeGuard {
        GaugeGuard::new(&self.open)
    }

    /// Counts a connection, or a malformed request, that was rejected.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&ReasonLabel { reason }).inc();
    }
}

/// Increments a gauge until dropped.
#[derive(Debug)]
pub struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The most common statuses; their counters are accessed without a lock.
const USUAL_STATUSES: [u16; 10] = [200, 206, 304, 204, 404, 403, 412, 416, 400, 503];

/// Cached counters of one operation.
#[derive(Debug)]
struct OperationCounters {
    durations: DurationHistogram,
    /// Created when the status first occurs, so that statuses that never occurred are not shown as zero.
    usual: [OnceLock<Counter>; USUAL_STATUSES.len()],
}

impl OperationCounters {
    fn new(operation: &'static str, durations: &Family<OperationLabel, DurationHistogram>) -> Self {
        let durations = durations.get_or_create_owned(&OperationLabel { operation });
        Self {
            durations,
            usual: Default::default(),
        }
    }

    fn counter(&self, status: u16) -> Option<&OnceLock<Counter>> {
        USUAL_STATUSES
            .iter()
            .position(|&usual| usual == status)
            .map(|index| &self.usual[index])
    }
}

/// The registry, while metrics are being added.
pub struct MetricRegistry(Registry);

impl Default for MetricRegistry {
    /// Creates a registry that holds only the version of the software.
    fn default() -> Self {
        let mut registry = Registry::with_prefix("shoal");
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of the running node", version);
        Self(registry)
    }
}

impl MetricRegistry {
    /// Registers a metric. Counters are shown with `_total` after the name.
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: &M) {
        // The registry itself appends the full stop.
        self.0.register(name, help.trim_end_matches('.'), metric.clone());
    }

    /// Registers a metric that starts at zero, and returns it.
    pub fn metric<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.add(name, help, &metric);
        metric
    }

    /// Returns the complete registry.
    pub fn into_registry(self) -> Registry {
        self.0
    }
}
