//! `/status`, made of a snapshot.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use shoal_cache::directory::EMBEDDED;
use shoal_directory::guard::Counts;
use shoal_net::metrics::WordCounts;
use shoal_plan::execution::JobStatus;
use shoal_store::Health;

use super::snapshot::Snapshot;
use crate::admin::status::{
    CooperationPage, DirectoryPage, DirectoryRequests, LakePage, Latencies, LayerPage, NodePage, PeerPage,
    PlanPage, ReadsPage, Status, StorePage, WritesPage,
};

/// The number of folders shown.
const FOLDERS_SHOWN: usize = 20;

/// The number of sizes beside nothing for which miss ratios are shown.
const CURVE_POINTS: u64 = 20;

impl Snapshot {
    /// Returns the state of the node, for `/status`.
    pub(super) fn status(&self) -> Status {
        let config = &self.core.config;
        Status {
            node: NodePage {
                name: config.node.name.clone(),
                topology: config.node.topology.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            conditions: self.node.conditions(),
            config: self.node.reloads.lock().clone(),
            lake: self.lake(),
            link: self.link.clone(),
            store: self.store(),
            layers: self.layers(),
            quotas: self.quotas.clone(),
            reads: ReadsPage {
                flights: self.core.single_flight.count(),
                coalesced_requests: self.core.single_flight.coalesced(),
                fill_bytes: self.core.fetcher.memory.used_bytes(),
                fill_capacity_bytes: config.limits.fill_bytes,
                of_several_blocks: self.core.metrics.reads(true),
                top_folders: self.core.metrics.top_folders(FOLDERS_SHOWN),
            },
            writes: WritesPage {
                underway: self.core.write_through.underway(),
            },
            write_back: self.node.write_back.figures().page,
            cooperation: self.cooperation(),
            directory: self.directory(),
            tasks: self.tasks.clone(),
            plan: self.plan.in_force.then(|| PlanPage {
                carried_here: self.plan.carried_here,
                jobs: words(
                    JobStatus::ALL.map(|standing| standing.as_str().replace('-', "_")),
                    self.plan.jobs,
                ),
                bytes: words(["total", "planned", "done"], self.plan.bytes),
            }),
            planning: self.node.planner.as_ref().and_then(|planner| planner.last()),
            drain: self.node.drain(),
        }
    }

    fn lake(&self) -> LakePage {
        let lake = self.core.lake.counters();
        let mut answers = WordCounts::new();
        for ((_, status), count) in lake.answers.counts() {
            *answers.entry(status.to_owned()).or_default() += count;
        }
        let milliseconds = |percentile: Option<Duration>| percentile.map(|time| time.as_secs_f64() * 1e3);
        let first_byte = lake.first_byte().filter(|(_, times)| times.count() > 0);
        let first_byte = first_byte.map(|(class, times)| {
            let latencies = Latencies {
                count: times.count(),
                p50: milliseconds(times.percentile(50)),
                p99: milliseconds(times.percentile(99)),
            };
            (class.to_owned(), latencies)
        });
        LakePage {
            endpoint: self.core.lake.url().to_owned(),
            answering: !self.core.lake.health.is_silent(),
            requests: owned(lake.requests.counts()),
            answers,
            failures: owned(lake.failures.counts()),
            first_byte_ms: first_byte.collect(),
            retries: lake.retries.get(),
            resumes: lake.resumes.get(),
            bytes_received: lake.bytes_received.get(),
            connections_opened: lake.connections.get(),
        }
    }

    fn store(&self) -> StorePage {
        StorePage {
            path: self.core.config.store.path.display().to_string(),
            health: match self.core.store.health() {
                Health::Serving => json!("serving"),
                Health::Paused { why } => json!({ "paused": why }),
            },
            counts: self.store.clone(),
        }
    }

    fn layers(&self) -> Vec<LayerPage> {
        let mut curves = self.core.split.miss_ratios(CURVE_POINTS).into_iter();
        let layers = self.core.store.layers.rooms().into_iter().map(|room| LayerPage {
            layer: room.layer.to_string(),
            target_bytes: room.target_bytes,
            used_bytes: room.used_bytes,
            blocks: room.keys,
            miss_ratios: curves.next().unwrap_or_default(),
        });
        layers.collect()
    }

    fn cooperation(&self) -> Option<CooperationPage> {
        let config = &self.core.config;
        let peers = self.peers.as_ref()?.iter().map(|peer| {
            let traffic = peer.traffic();
            PeerPage {
                name: peer.name.clone(),
                reachable: peer.is_reachable(),
                asked: traffic.requests,
                failed: traffic.failures,
                differs: self.node.differences(&peer.name),
            }
        });
        Some(CooperationPage {
            mode: config.cooperation.mode.as_str().to_owned(),
            layers: config.cooperation.layers.clone(),
            members: self.core.cooperation.members().len(),
            peers: peers.collect(),
            answered: self.node.block_server.counts.by_word(),
            messages: self.messages.clone(),
            cache_events: self.core.events.as_ref().map(|events| events.figures()),
        })
    }

    fn directory(&self) -> Option<DirectoryPage> {
        let is_embedded = self.core.config.directory.is_embedded();
        let requests = self.directory.iter();
        let directory = self.core.directory.as_ref()?;
        Some(DirectoryPage {
            kind: if is_embedded { EMBEDDED } else { "redis" }.to_owned(),
            answers: directory.answers(),
            reports_under_way: directory.reports_under_way(),
            requests: requests
                .map(|(kind, counts)| (kind.as_str().to_owned(), directory_requests(counts)))
                .collect(),
            gwf: self.gwf.clone(),
            coherent: self.coherence.clone(),
        })
    }
}

fn directory_requests(counts: &Counts) -> DirectoryRequests {
    let answered = u32::try_from(counts.answered).unwrap_or(u32::MAX);
    let mean = counts.answer_time.checked_div(answered);
    DirectoryRequests {
        answered: counts.answered,
        silent: counts.silent,
        held_back: counts.held_back,
        mean_answer_ms: mean.map(|mean| mean.as_secs_f64() * 1e3),
    }
}

/// Returns counts by word, in the order of the words.
fn words<W: Into<String>, const N: usize>(words: [W; N], counts: [u64; N]) -> WordCounts {
    words.map(Into::into).into_iter().zip(counts).collect()
}

fn owned(counts: BTreeMap<&'static str, u64>) -> WordCounts {
    let counts = counts.into_iter();
    counts.map(|(word, count)| (word.to_owned(), count)).collect()
}
