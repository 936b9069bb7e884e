//! The settings of an experiment. Unknown keys are refused.

use serde::Deserialize;
use shoal_sim::block::OBJECT_BLOCKS_MAX;

use crate::cluster::ClusterSettings;
use crate::network::TOLERANCE;
use crate::simulation::{ClientSettings, DemandMove, LinkChange, LinkKind, LinkSettings, Setup};
use crate::units::{Rate, Span};
use crate::workload::WorkloadSettings;

/// One experiment without its grid.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The title of its tables and plots.
    pub title: String,
    /// The seeds; each is a separate run.
    #[serde(default = "default_seeds")]
    pub seeds: Vec<u64>,
    /// The nodes.
    pub cluster: ClusterSettings,
    /// The links between them.
    #[serde(default)]
    pub links: LinkSettings,
    /// Links that change while it runs.
    #[serde(default)]
    pub change: Vec<ChangeSettings>,
    /// Demand that moves while it runs.
    #[serde(default, rename = "move")]
    pub moves: Vec<MoveSettings>,
    /// The clients.
    pub clients: ClientSettings,
    /// The work of the clients.
    pub workload: WorkloadSettings,
    /// The measurements.
    #[serde(default)]
    pub measure: MeasureSettings,
}

/// Another rate for a link.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeSettings {
    /// The ends of the links: several kinds if a cable is full duplex.
    pub links: Vec<LinkKind>,
    /// The node, counted from 0; all nodes if it is left out.
    pub node: Option<usize>,
    /// The time of the change, counted from the first request after the warm-up.
    pub at: Span,
    /// The rate after the change.
    pub rate: Rate,
}

/// A move of demand: the clients of one node take over the blocks that those of another have not requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveSettings {
    /// The node that was asked before, counted from 0.
    pub from: usize,
    /// The node that is asked after the move.
    pub to: usize,
    /// The time of the move, counted from the first request after the warm-up.
    pub at: Span,
}

/// The measurements and their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasureSettings {
    /// Share of the block requests that only warm the caches, 0 to 1.
    #[serde(default)]
    pub warmup: f64,
    /// The interval at which the state of the nodes is recorded.
    pub sample: Option<Span>,
}

impl Settings {
    /// Checks the conditions that types cannot express.
    pub(super) fn check(&self) -> Result<(), String> {
        let share = |name: &str, value: f64| match value {
            0.0..=1.0 => Ok(()),
            other => Err(format!("`{name}` is {other}\nhint: it is a share, 0 to 1")),
        };
        let nodes = self.cluster.nodes as usize;
        if let Some(demand) = self
            .moves
            .iter()
            .find(|demand| demand.from.max(demand.to) >= nodes)
        {
            return Err(format!(
                "demand moves from node {} to node {}\nhint: there are {nodes}, counted from 0",
                demand.from, demand.to
            ));
        }
        share("measure.warmup", self.measure.warmup)?;
        share("cluster.l1_share", self.cluster.l1_share)?;
        share("cluster.adapt_limit", self.cluster.adapt_limit.unwrap_or(0.0))?;
        if !(self.workload.scale > 0.0 && self.workload.scale.is_finite()) {
            return Err(format!(
                "`workload.scale` is {}\nhint: it is more than 0",
                self.workload.scale
            ));
        }
        let positive = [
            ("cluster.nodes", u64::from(self.cluster.nodes)),
            ("cluster.block", self.cluster.block.0),
            ("clients.per_node", u64::from(self.clients.per_node)),
            ("clients.requests", u64::from(self.clients.requests)),
            ("workload.passes", u64::from(self.workload.passes)),
            ("clients.jobs", u64::from(self.clients.jobs.unwrap_or(1))),
            ("seeds", self.seeds.len() as u64),
            (
                "cluster.adapt_every",
                self.cluster
                    .adapt_every
                    .map_or(1, |Span(period)| period.as_nanos() as u64),
            ),
            (
                "measure.sample",
                self.measure
                    .sample
                    .map_or(1, |Span(period)| period.as_nanos() as u64),
            ),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(format!("`{name}` is nothing\nhint: it is 1 or more"));
        }
        let object_size = self.workload.object_size();
        if let Some(size) = object_size.filter(|size| !self.cluster.granularity().allows(size.0)) {
            return Err(format!(
                "`workload.source.object_size` is {} bytes in blocks of {}\nhint: at most {OBJECT_BLOCKS_MAX} blocks are one object",
                size.0, self.cluster.block.0
            ));
        }
        self.cluster.check()
    }

    pub(super) fn setup(&self) -> Setup {
        let changes = self.change.iter().flat_map(|change| {
            change.links.iter().map(|&kind| LinkChange {
                kind,
                node: change.node,
                after: change.at.0,
                bytes_per_second: change.rate.0,
            })
        });
        let moves = self.moves.iter().map(|demand| DemandMove {
            from: demand.from,
            to: demand.to,
            after: demand.at.0,
        });
        Setup {
            nodes: self.cluster.nodes as usize,
            links: self.links,
            changes: changes.collect(),
            moves: moves.collect(),
            clients: self.clients,
            granularity: self.cluster.granularity(),
            tolerance: TOLERANCE,
            warmup: self.measure.warmup,
            sample: self.measure.sample.map(|Span(period)| period),
        }
    }
}

fn default_seeds() -> Vec<u64> {
    vec![1]
}
