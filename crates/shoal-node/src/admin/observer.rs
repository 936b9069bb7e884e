//! Collects the counters of a node's parts for the metrics and `/status`.

mod conditions;
mod pages;
mod snapshot;
mod table;

use std::net::SocketAddr;
use std::sync::Arc;

use shoal_cache::cache_events::EventExchange;
use shoal_cache::coherence::Coherence;
use shoal_cache::cooperation::{Cooperation, CooperationConfig};
use shoal_cache::directory::BlockDirectory;
use shoal_cache::fetch::Fetcher;
use shoal_cache::gwf::Keeper;
use shoal_cache::messages::Messages;
use shoal_cache::single_flight::SingleFlight;
use shoal_cache::split::Split;
use shoal_cache::write::WriteThrough;
use shoal_net::endpoint::Endpoint;
use shoal_net::fair::in_flight::InFlight;
use shoal_net::limits::Limits;
use shoal_net::membership::{self, NodeConfig, SharedSetting};
use shoal_net::metrics::{Metrics, render};
use shoal_orders::tasks::Tasks;
use shoal_s3::identity::Identities;
use shoal_store::{Store, StoreConfig};
use shoal_writeback::dirty::{DirtyObjects, FlushOrders};

use self::snapshot::Snapshot;
use self::table::TABLE;
use crate::admin::members::{Member, MemberState, Members};
use crate::admin::reloads::Reloads;
use crate::admin::status::Status;
use crate::block_server::BlockServer;
use crate::handoff::HandoffProgress;

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
    pub fn metrics(self: &Arc<Self>, drain: Option<HandoffProgress>) -> String {
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

    /// Refreshes cached counts that come from the registries.
    pub async fn refresh(&self) {
        self.dirty.entries.refresh().await;
    }

    /// Returns the node's state, for `/status`. `drain` is the progress of draining.
    pub fn status(self: &Arc<Self>, drain: Option<HandoffProgress>) -> Status {
        Snapshot::new(self, drain).status()
    }
}

/// Formats a name of a registry for people.
fn name_of(name: &shoal_registry::Name) -> String {
    let (bucket, key) = name.parts();
    format!("s3://{}/{}", bucket.escape_ascii(), key.escape_ascii())
}
