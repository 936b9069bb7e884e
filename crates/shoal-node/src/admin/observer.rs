//! Collects the counters of a node's parts for the metrics and `/status`.

mod conditions;
mod directory;
mod link;
mod messages;
mod peers;
mod plans;
mod tasks;
mod tiers;

use std::collections::BTreeMap;
use std::iter::repeat;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_policy::Found;
use shoal_policy::admission::Refusal;
use shoal_s3::identity::Identities;
use shoal_store::{Counters, Health, LayerRoom, RemovalReason, Store, StoreConfig};

use crate::admin::members::{Member, MemberState, Members};
use crate::admin::reloads::Reloads;
use crate::block_server::BlockServer;
use crate::cache_events::EventExchange;
use crate::coherence::Coherence;
use crate::cooperation::{Cooperation, CooperationConfig, CooperationMode};
use crate::directory::BlockDirectory;
use crate::dirty::{DirtyObjects, Figures, FlushOrders, Swept, UploadEnd, WriteBackOutcome};
use crate::endpoint::{AccountRefusal, Endpoint, EndpointCounts};
use crate::fair::in_flight::InFlight;
use crate::fetch::Fetcher;
use crate::gwf::Keeper;
use crate::handoff::HandoffProgress;
use crate::limits::Limits;
use crate::membership::{self, NodeConfig, RejectReason, SharedSetting};
use crate::messages::{MessageFigures, Messages};
use crate::metrics::Metrics;
use crate::single_flight::SingleFlight;
use crate::split::{LayerRequests, Split};
use crate::tasks::{PlanTotals, Tasks, Totals};
use crate::write::WriteThrough;

/// Maximum number of objects listed by name in `/status`.
const TROUBLES_SHOWN: usize = 100;

/// Reads the state of a node's parts.
pub struct Observer {
    /// Shown in `/status`.
    pub config: ObserverConfig,
    /// The lake client.
    pub lake: Arc<Endpoint>,
    /// The identities that this node accepts.
    pub identities: Arc<Identities>,
    /// The store.
    pub store: Arc<Store>,
    /// How the layers share the disk.
    pub split: Arc<Split>,
    /// Fetches in flight.
    pub single_flight: Arc<SingleFlight>,
    /// The memory window.
    pub fetcher: Arc<Fetcher>,
    /// Write-through objects.
    pub through: Arc<WriteThrough>,
    /// Dirty objects.
    pub dirty: Arc<DirtyObjects>,
    /// Orders to flush them.
    pub flushes: Arc<FlushOrders>,
    /// Client requests in flight.
    pub in_flight: Arc<InFlight>,
    /// The peers.
    pub cooperation: Arc<Cooperation>,
    /// Messages between nodes.
    pub messages: Arc<Messages>,
    /// The block directory, if configured.
    pub directory: Option<Arc<BlockDirectory>>,
    /// Tracks changes to coherent objects; `None` if no object is coherent.
    pub coherence: Option<Arc<Coherence>>,
    /// Evicts blocks by worth; `None` unless the store uses GWF.
    pub keeper: Option<Arc<Keeper>>,
    /// Exchanges cache events; `None` unless the store uses C2P.
    pub events: Option<Arc<EventExchange>>,
    /// Tasks of operators.
    pub tasks: Arc<Tasks>,
    /// Answers the requests of other nodes.
    pub block_server: Arc<BlockServer>,
    /// Results of configuration reloads.
    pub reloads: Arc<Reloads>,
    /// Address for clients.
    pub s3_address: SocketAddr,
    /// Address for operators.
    pub admin_address: SocketAddr,
    /// Totals already added to the metrics.
    pub last_reported: Mutex<LastReported>,
}

/// The settings that the pages for operators show.
#[derive(Clone, Debug)]
pub struct ObserverConfig {
    /// `[node]`
    pub node: NodeConfig,
    /// `[store]`
    pub store: StoreConfig,
    /// `[cooperation]`
    pub cooperation: CooperationConfig,
    /// `[directory] url`
    pub directory_url: String,
    /// `[limits]`
    pub limits: Limits,
}

/// Totals already added to the metrics.
#[derive(Debug, Default)]
pub struct LastReported {
    lake: EndpointCounts,
    store: Option<Counters>,
    coalesced: u64,
    layers: Vec<LayerRequests>,
    peers: peers::LastReported,
    messages: MessageFigures,
    directory: directory::LastReported,
    link: link::LastReported,
    reloads: Vec<(&'static str, u64)>,
    written_back: Vec<(WriteBackOutcome, u64)>,
    upload_ends: Vec<(UploadEnd, u64)>,
    swept: BTreeMap<Arc<str>, Swept>,
    account_refusals: Vec<(AccountRefusal, u64)>,
    unheard: Vec<(RejectReason, u64)>,
    slowed: BTreeMap<u32, u64>,
    tasks: Totals,
    plans: PlanTotals,
}

impl Observer {
    /// Sets the gauges, and adds the increase since the last call to the counters. `drain` is as for
    /// [`Self::status`].
    pub fn measure(&self, metrics: &Metrics, drain: Option<&HandoffProgress>) {
        metrics.conditions().set(&self.conditions(drain));
        let (lake, store, coalesced) = (
            self.lake.counters(),
            self.store.counters(),
            self.single_flight.coalesced(),
        );
        let mut last_reported = self.last_reported.lock();
        measure_lake(metrics, &last_reported.lake, &lake);
        metrics.lake().set_up(!self.lake.health().is_silent());
        metrics.coalesced(coalesced - last_reported.coalesced);
        let before = last_reported.store.take();
        let before = before.as_ref();
        for (reason, count) in growth(before.map_or(&[], |before| &before.evictions), &store.evictions) {
            metrics.evicted(reason.as_str(), count);
        }
        for (reason, count) in growth(before.map_or(&[], |before| &before.refusals), &store.refusals) {
            metrics.refused(reason.as_str(), count);
        }
        metrics.corrupt_blocks(store.corrupt_blocks - before.map_or(0, |before| before.corrupt_blocks));
        metrics.set_store_bytes(store.resident_bytes, store.capacity_bytes);
        metrics.set_store_paused(self.store.health() != Health::Serving);
        metrics.set_fill_bytes(self.fetcher.memory().used_bytes());
        let dirty = self.dirty.figures();
        measure_dirty(metrics, &last_reported, &dirty);
        let swept = self.measure_tiers(metrics.tiers(), &last_reported.swept);
        let reloads = self.reloads.counts().to_vec();
        for (result, count) in growth(&last_reported.reloads, &reloads) {
            metrics.reloads().ended(result, count);
        }
        let (ok, read_at) = self.reloads.latest();
        metrics.reloads().set_latest(ok, read_at);
        let layers = self.split.requests();
        self.measure_layers(metrics, &last_reported.layers, &layers);
        let account_refusals = self.lake.health().refusals().to_vec();
        for (reason, count) in growth(&last_reported.account_refusals, &account_refusals) {
            metrics.conditions().account_refused(reason.as_str(), count);
        }
        let unheard = self.cooperation.notices().rejected.counts().to_vec();
        for (why, count) in growth(&last_reported.unheard, &unheard) {
            metrics.conditions().unheard(why.as_str(), count);
        }
        let mut peers = std::mem::take(&mut last_reported.peers);
        if self.config.cooperation.mode != CooperationMode::Solo {
            self.measure_peers(metrics.peers(), &mut peers);
        }
        let mut messages = std::mem::take(&mut last_reported.messages);
        self.measure_messages(metrics.messages(), &mut messages);
        let mut directory = last_reported.directory.clone();
        self.measure_directory(metrics.directory(), &mut directory);
        let mut link = last_reported.link.clone();
        self.measure_link(metrics.link(), &mut link);
        let slowed = self.measure_payers(metrics, &last_reported.slowed);
        let tasks = self.measure_tasks(metrics.tasks(), &last_reported.tasks);
        let plans = self.measure_plans(metrics.plans(), &last_reported.plans);
        *last_reported = LastReported {
            slowed,
            tasks,
            plans,
            lake,
            store: Some(store),
            coalesced,
            layers,
            peers,
            messages,
            directory,
            link,
            reloads,
            written_back: dirty.outcomes,
            upload_ends: dirty.upload_ends.to_vec(),
            swept,
            account_refusals,
            unheard,
        };
    }

    /// Sets the metrics of each payer. Returns the total number of refused requests of each.
    fn measure_payers(&self, metrics: &Metrics, before: &BTreeMap<u32, u64>) -> BTreeMap<u32, u64> {
        let turns = self.lake.turns();
        if let Some(turns) = turns {
            metrics.payers().set_lake_turns(turns.limit());
        }
        let mut slowed = BTreeMap::new();
        for payer in self.in_flight.by_payer() {
            let waiting_for_lake = turns.map_or(0, |turns| turns.waiting_of(payer.id));
            let grown = payer.refused - before.get(&payer.id).copied().unwrap_or_default();
            metrics.payers().of(&payer, waiting_for_lake, grown);
            slowed.insert(payer.id, payer.refused);
        }
        slowed
    }

    /// Returns the living nodes, for `/members`; on a node that does not cooperate, only itself. Includes
    /// only this node's load.
    pub fn members(&self, requests_in_flight: u64) -> Members {
        let node = &self.config.node;
        let load = requests_in_flight as f64 / self.config.limits.requests as f64;
        let describe = |member: &membership::Member| Member {
            name: member.name.clone(),
            topology: member.topology.clone(),
            s3: member.s3,
            peer: Some(member.address),
            admin: member.admin,
            state: match member.state {
                membership::State::Serving => MemberState::Serving,
                membership::State::Draining => MemberState::Draining,
            },
            load: (member.name == node.name).then_some(load),
            differs: self.differences(&member.name),
        };
        let mut members: Vec<Member> = self.cooperation.members().iter().map(describe).collect();
        if members.is_empty() {
            members.push(Member {
                name: node.name.clone(),
                topology: node.topology.clone(),
                s3: self.s3_address,
                peer: None,
                admin: self.admin_address,
                state: MemberState::Serving,
                load: Some(load),
                differs: None,
            });
        }
        Members {
            speaker: node.name.clone(),
            members,
        }
    }

    /// Returns the settings in which another node differs, or `None` if it has not sent its digests.
    fn differences(&self, name: &str) -> Option<Vec<String>> {
        let parts = self.cooperation.notices().agreement.differences(name)?;
        Some(
            parts
                .into_iter()
                .map(SharedSetting::as_str)
                .map(str::to_owned)
                .collect(),
        )
    }

    /// Returns the peers, and the requests of other nodes that were answered, for `/status`; `null` on a node
    /// that does not cooperate.
    fn cooperation(&self) -> Value {
        if self.config.cooperation.mode == CooperationMode::Solo {
            return Value::Null;
        }
        let peers = self.cooperation.peers();
        let peers = peers.iter().map(|peer| {
            let (asked, failed) = peer.counts();
            let differs = self.differences(peer.name());
            json!({ "name": peer.name(), "reachable": peer.is_reachable(), "asked": asked, "failed": failed, "differs": differs })
        });
        let answered = self.block_server.counts();
        let answered = answered.iter().map(|(outcome, count)| (outcome.as_str(), *count));
        json!({
            "mode": self.config.cooperation.mode.as_str(),
            "layers": self.config.cooperation.layers,
            "members": self.cooperation.members().len(),
            "peers": peers.collect::<Vec<_>>(),
            "answered": answered.collect::<std::collections::BTreeMap<_, _>>(),
            "messages": self.messages_page(),
            "cache_events": self.events_page(),
        })
    }

    fn measure_layers(&self, metrics: &Metrics, before: &[LayerRequests], now: &[LayerRequests]) {
        for room in self.store.layers() {
            metrics.set_layer_bytes(room.layer, room.used_bytes, room.target_bytes);
        }
        for (place, requests) in now.iter().enumerate() {
            let (hits, misses) = before
                .get(place)
                .map_or((0, 0), |before| (before.hits, before.misses));
            metrics.layer_requests(requests.layer, "hit", requests.hits - hits);
            metrics.layer_requests(requests.layer, "miss", requests.misses - misses);
        }
    }

    /// Returns the state of dirty objects. Objects that this node could not flush are listed by name.
    fn write_back(&self) -> Value {
        let figures = self.dirty.figures();
        let tiers = self.dirty.tiers();
        let troubled = tiers.iter().flat_map(|tier| &tier.failed).take(TROUBLES_SHOWN);
        let troubled = troubled.map(|failed| {
            json!({
                "object": name_of(&failed.name),
                "failures": failed.failures,
                "error": &*failed.error,
                "refused": failed.is_refused,
            })
        });
        let troubled: Vec<_> = troubled.collect();
        let tiers = tiers.iter().map(|tier| {
            json!({
                "name": &*tier.name,
                "reachable": tier.is_reachable,
                "objects": tier.objects,
                "bytes": tier.bytes,
                "capacity_bytes": tier.capacity_bytes,
                "uploads": tier.uploads,
                "upload_bytes": tier.survey.upload_bytes,
                "without_rule": tier.survey.uncovered,
                "registry_bytes": tier.registry.map(|room| room.used_bytes),
                "registry_quota_bytes": tier.registry.map(|room| room.quota_bytes),
                "oldest_seconds": tier.oldest.map(|age| age.as_secs()),
                "age_seconds": tier.pace.age.as_secs(),
                "short_age_seconds": tier.pace.short_age.as_secs(),
                "parallel": tier.pace.parallel,
                "adopted_nodes": tier.adopted,
                "failed": tier.failed.len(),
            })
        });
        json!({
            "objects": figures.objects,
            "bytes": figures.bytes,
            "outcomes": by_word(&figures.outcomes, WriteBackOutcome::as_str),
            "uploads": {
                "kept": figures.uploads,
                "ended": by_word(&figures.upload_ends, UploadEnd::as_str),
            },
            "tiers": tiers.collect::<Vec<_>>(),
            "troubled": troubled,
            "flush": self.flushes.progress(),
        })
    }

    fn layers(&self) -> Value {
        let layer = |room: &LayerRoom| {
            json!({
                "layer": room.layer.to_string(),
                "target_bytes": room.target_bytes,
                "used_bytes": room.used_bytes,
                "blocks": room.keys,
            })
        };
        self.store.layers().iter().map(layer).collect()
    }

    /// Refreshes cached counts that come from the registries.
    pub async fn refresh(&self) {
        self.dirty.refresh().await;
    }

    /// Returns the node's state as JSON, for `/status`. `drain` is the progress of draining.
    pub fn status(&self, metrics: &Metrics, drain: Option<HandoffProgress>) -> Value {
        let conditions = self.conditions(drain.as_ref());
        let (lake, store) = (self.lake.counters(), self.store.counters());
        let health = match self.store.health() {
            Health::Serving => json!("serving"),
            Health::Paused { why } => json!({ "paused": why }),
        };
        json!({
            "node": { "name": self.config.node.name, "topology": self.config.node.topology, "version": env!("CARGO_PKG_VERSION") },
            "conditions": conditions,
            "config": self.reloads.page(),
            "lake": lake_page(&self.lake, &lake),
            "link": self.link_page(),
            "store": {
                "path": self.config.store.path,
                "health": health,
                "capacity_bytes": store.capacity_bytes,
                "resident_bytes": store.resident_bytes,
                "taken_bytes": store.taken_bytes,
                "blocks": store.blocks,
                "mapped_blocks": store.mapped_blocks,
                "mapped_bytes": store.mapped_bytes,
                "pins": { "objects": store.pins.objects, "bytes": store.pins.bytes, "bytes_max": store.pins.bytes_max },
                "stored_blocks": store.stored_blocks,
                "evictions": by_word(&store.evictions, RemovalReason::as_str),
                "refusals": by_word(&store.refusals, Refusal::as_str),
                "corrupt_blocks": store.corrupt_blocks,
                "quarantined": store.quarantined,
                "io_errors": store.io_errors,
                "scrub": { "blocks": store.scrubbed_blocks, "passes": store.scrub_passes, "percent": store.scrub_percent },
            },
            "layers": self.layers(),
            "reads": {
                "flights": self.single_flight.count(),
                "coalesced_requests": self.single_flight.coalesced(),
                "fill_bytes": self.fetcher.memory().used_bytes(),
                "fill_capacity_bytes": self.config.limits.fill_bytes,
                "of_several_blocks": by_word(&metrics.reads_of_several(), Found::as_str),
            },
            "writes": { "underway": self.through.underway() },
            "write_back": self.write_back(),
            "cooperation": self.cooperation(),
            "directory": self.directory_page(),
            "tasks": self.tasks_page(),
            "plan": self.plan_page(),
            "drain": drain,
        })
    }
}

fn measure_lake(metrics: &Metrics, before: &EndpointCounts, now: &EndpointCounts) {
    for (operation, count) in rise(&before.requests, &now.requests) {
        metrics.lake_requests(operation, count);
    }
    for ((operation, status), count) in rise(&before.answers, &now.answers) {
        metrics.lake().answered(operation, status, count);
    }
    for (failure, count) in rise(&before.failures, &now.failures) {
        metrics.lake().failed(failure, count);
    }
    for ((class, now), (_, before)) in now.first_byte.iter().zip(&before.first_byte) {
        metrics.lake().first_bytes(class, before, now);
    }
    metrics.lake().resumed(now.resumes - before.resumes);
    metrics.lake_read(now.bytes_received - before.bytes_received);
    metrics.retried(now.retries - before.retries);
}

/// Returns the increase of each total in a table. A total missing from `before` counts as zero.
fn rise<K: Copy + Ord>(before: &BTreeMap<K, u64>, now: &BTreeMap<K, u64>) -> impl Iterator<Item = (K, u64)> {
    now.iter()
        .map(|(key, total)| (*key, total - before.get(key).copied().unwrap_or_default()))
}

/// Returns the lake part of `/status`.
fn lake_page(endpoint: &Endpoint, lake: &EndpointCounts) -> Value {
    let mut answers = BTreeMap::<_, u64>::new();
    for ((_, status), count) in &lake.answers {
        *answers.entry(*status).or_default() += count;
    }
    let milliseconds = |percentile: Option<Duration>| percentile.map(|time| time.as_secs_f64() * 1e3);
    let first_byte = lake.first_byte.iter().filter(|(_, times)| times.count() > 0);
    let first_byte = first_byte.map(|(class, times)| {
        let times = json!({
            "count": times.count(),
            "p50": milliseconds(times.percentile(50)),
            "p99": milliseconds(times.percentile(99)),
        });
        (*class, times)
    });
    json!({
        "endpoint": endpoint.url(),
        "answering": !endpoint.health().is_silent(),
        "requests": lake.requests,
        "answers": answers,
        "failures": lake.failures,
        "first_byte_ms": first_byte.collect::<BTreeMap<_, _>>(),
        "retries": lake.retries,
        "resumes": lake.resumes,
        "bytes_received": lake.bytes_received,
        "connections_opened": lake.connections,
    })
}

/// Adds the outcomes of dirty objects and uploads since `last`, and sets their current number.
fn measure_dirty(metrics: &Metrics, last: &LastReported, dirty: &Figures) {
    for (outcome, count) in growth(&last.written_back, &dirty.outcomes) {
        metrics.written_back(outcome.as_str(), count);
    }
    metrics.set_dirty(dirty.objects, dirty.bytes);
    for (end, count) in growth(&last.upload_ends, &dirty.upload_ends) {
        metrics.uploads_ended(end.as_str(), count);
    }
    metrics.set_uploads(dirty.uploads);
}

/// Formats a name of a registry for people.
fn name_of(name: &shoal_registry::Name) -> String {
    let (bucket, key) = name.parts();
    format!("s3://{}/{}", bucket.escape_ascii(), key.escape_ascii())
}

/// Returns counts keyed by label.
fn by_word<W: Copy>(counts: &[(W, u64)], word: impl Fn(W) -> &'static str) -> BTreeMap<&'static str, u64> {
    counts.iter().map(|(what, count)| (word(*what), *count)).collect()
}

/// Returns the increase of each total. If `before` is empty, all of its totals are zero.
fn growth<W: Copy>(before: &[(W, u64)], now: &[(W, u64)]) -> impl Iterator<Item = (W, u64)> {
    let before = before.iter().map(|(_, total)| *total).chain(repeat(0));
    let pairs = now.iter().zip(before);
    pairs.map(|((what, total), before)| (*what, total - before))
}

#[cfg(test)]
mod tests {
    use super::growth;

    #[test]
    fn a_total_grows_by_what_has_come_since_and_at_first_by_all_of_it() {
        let (first, second) = ([("a", 2), ("b", 0)], [("a", 5), ("b", 1)]);
        let grown = |before: &[_], now| growth(before, now).collect::<Vec<_>>();
        assert_eq!(grown(&[], &first), first);
        assert_eq!(grown(&first, &second), [("a", 3), ("b", 1)]);
    }
}
