//! Collects the counters of a node's parts for the metrics and `/status`.

mod conditions;
mod directory;
mod link;
mod messages;
mod plans;
mod snapshot;
mod table;
mod tasks;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shoal_policy::Found;
use shoal_policy::admission::Refusal;
use shoal_s3::identity::Identities;
use shoal_store::{Health, LayerRoom, RemovalReason, Store, StoreConfig};

use self::directory::ranks;
use self::snapshot::Snapshot;
use self::table::TABLE;
use crate::admin::members::{Member, MemberState, Members};
use crate::admin::reloads::Reloads;
use crate::ahead::FetchAhead;
use crate::block_server::BlockServer;
use crate::cache_events::EventExchange;
use crate::coherence::Coherence;
use crate::cooperation::{Cooperation, CooperationConfig, CooperationMode};
use crate::directory::BlockDirectory;
use crate::dirty::{DirtyObjects, FlushOrders, UploadEnd, WriteBackOutcome};
use crate::endpoint::{Endpoint, EndpointCounts};
use crate::fair::in_flight::InFlight;
use crate::fetch::Fetcher;
use crate::gwf::Keeper;
use crate::handoff::HandoffProgress;
use crate::limits::Limits;
use crate::membership::{self, NodeConfig, SharedSetting};
use crate::messages::Messages;
use crate::metrics::{Metrics, render};
use crate::plans::Plans;
use crate::single_flight::SingleFlight;
use crate::split::Split;
use crate::tasks::Tasks;
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
    /// Fetches missing blocks of objects; `None` unless configured.
    pub fetch_ahead: Option<Arc<FetchAhead>>,
    /// Tasks of operators.
    pub tasks: Arc<Tasks>,
    /// The plan of the cluster.
    pub plans: Arc<Plans>,
    /// Answers the requests of other nodes.
    pub block_server: Arc<BlockServer>,
    /// Results of configuration reloads.
    pub reloads: Arc<Reloads>,
    /// Address for clients.
    pub s3_address: SocketAddr,
    /// Address for operators.
    pub admin_address: SocketAddr,
    /// Counts of clients' requests.
    pub metrics: Arc<Metrics>,
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

impl Observer {
    /// Renders `/metrics`. `drain` is as for [`Self::status`].
    pub fn metrics(self: &Arc<Self>, drain: Option<&HandoffProgress>) -> String {
        render(TABLE, Snapshot::new(self, drain))
    }

    /// Returns the living nodes, for `/members`; on a node that does not cooperate, only itself. Includes
    /// only this node's load.
    pub fn members(&self) -> Members {
        let node = &self.config.node;
        let load = self.metrics.requests_in_flight() as f64 / self.config.limits.requests as f64;
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
    pub fn status(&self, drain: Option<HandoffProgress>) -> Value {
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
                "of_several_blocks": by_word(&self.metrics.reads(true), Found::as_str),
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

/// Formats a name of a registry for people.
fn name_of(name: &shoal_registry::Name) -> String {
    let (bucket, key) = name.parts();
    format!("s3://{}/{}", bucket.escape_ascii(), key.escape_ascii())
}

/// Returns counts keyed by label.
fn by_word<W: Copy>(counts: &[(W, u64)], word: impl Fn(W) -> &'static str) -> BTreeMap<&'static str, u64> {
    counts.iter().map(|(what, count)| (word(*what), *count)).collect()
}
