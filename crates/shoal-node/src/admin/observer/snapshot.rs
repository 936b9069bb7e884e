//! The figures of a node's parts at one moment, from which `/metrics` and `/status` are made.

use std::sync::Arc;

use shoal_cache::coherence::CoherenceFigures;
use shoal_cache::cooperation::CooperationMode;
use shoal_cache::gwf::GwfFigures;
use shoal_cache::messages::MessageFigures;
use shoal_cache::peer::Peer;
use shoal_directory::guard::{Counts, Kind};
use shoal_net::link::LinkFigures;
use shoal_orders::tasks::{PlanFigures, TaskFigures};
use shoal_store::Counters;

use super::Observer;
use crate::admin::status::QuotaPage;
use crate::core::Core;

/// The figures of a node at one moment. Figures that only one line needs are read from the parts themselves.
pub(super) struct Snapshot {
    pub(super) node: Arc<Observer>,
    pub(super) core: Arc<Core>,
    /// `None` if the link is not metered.
    pub(super) link: Option<LinkFigures>,
    pub(super) store: Counters,
    /// In the order of the configuration.
    pub(super) quotas: Vec<QuotaPage>,
    /// `None` on a node that does not cooperate.
    pub(super) peers: Option<Vec<Arc<Peer>>>,
    pub(super) messages: MessageFigures,
    /// Empty without a directory.
    pub(super) directory: Vec<(Kind, Counts)>,
    /// `None` under another eviction policy.
    pub(super) gwf: Option<GwfFigures>,
    /// `None` if no object is coherent.
    pub(super) coherence: Option<CoherenceFigures>,
    pub(super) tasks: TaskFigures,
    pub(super) plan: PlanFigures,
}

impl Snapshot {
    /// Reads the figures of all parts.
    pub(super) fn new(node: Arc<Observer>) -> Self {
        let core = Arc::clone(&node.core);
        let cooperates = core.config.cooperation.mode != CooperationMode::Solo;
        let directory = core.directory.iter();
        Self {
            link: core.lake.link().map(|link| link.figures()),
            store: core.store.counters(),
            quotas: quotas(&core),
            peers: cooperates.then(|| core.cooperation.peers()),
            messages: core.messages.figures(),
            directory: directory
                .flat_map(|directory| directory.guard.requests.counts())
                .collect(),
            gwf: core.keeper.as_ref().map(|keeper| keeper.figures()),
            coherence: core.coherence.as_ref().map(|coherence| coherence.figures()),
            tasks: node.tasks.figures(),
            plan: node.tasks.plan_figures(),
            core,
            node,
        }
    }
}

fn quotas(core: &Core) -> Vec<QuotaPage> {
    let rooms = core.store.quota_rooms();
    let quotas = core.quotas.all().into_iter().map(|quota| {
        let rate = quota.rate.as_ref();
        let room = rooms.iter().find(|room| room.id == quota.id);
        QuotaPage {
            name: quota.scope.name().to_owned(),
            room_bytes: quota.room_bytes,
            used_bytes: room.map_or(0, |room| room.used_bytes),
            bandwidth_bytes_per_second: rate.map(|rate| rate.bytes_per_second()),
            lake_bytes: rate.map_or(0, |rate| rate.bytes()),
            lake_waits: rate.map_or(0, |rate| rate.waits()),
        }
    });
    quotas.collect()
}
