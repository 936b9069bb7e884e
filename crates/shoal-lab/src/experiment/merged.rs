//! The requests of an experiment's clusters, each taken as one cache: no cooperation of the nodes needs fewer
//! bytes from the lake than the best policy on that cache.

use shoal_sim::block::Granularity;
use shoal_sim::trace::{Access, TraceError};

use super::{Cell, Experiment, Label, Settings};
use crate::workload::{Assign, Order, WorkloadSettings};

/// A cell of the grid without its network.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The varied settings that matter to one cache.
    pub labels: Vec<Label>,
    /// The seed of the workload.
    pub seed: u64,
    /// The unit of caching.
    pub granularity: Granularity,
    /// Room of all nodes together.
    pub capacity_bytes: u64,
    /// The requests of all clients.
    pub accesses: Vec<Access>,
}

/// The settings that distinguish the stream of one cache from another.
#[derive(Debug, PartialEq)]
struct Key {
    workload: WorkloadSettings,
    granularity: Granularity,
    capacity_bytes: u64,
    clients: u32,
    seed: Option<u64>,
}

impl Experiment {
    /// Returns each different stream of the grid once, with the room of all nodes. Cells that differ only in
    /// the cooperation of nodes, in links or in the assignment of reads to clients share a stream, and so do
    /// the seeds of a trace.
    ///
    /// # Errors
    ///
    /// Fails if a trace of the experiment cannot be read.
    pub fn merged(&self) -> Result<Vec<Merged>, TraceError> {
        let mut known = Vec::new();
        let mut streams = Vec::new();
        for cell in &self.cells {
            let key = Key::from_cell(cell);
            if !known.contains(&key) {
                streams.push(self.merge(cell, &key)?);
                known.push(key);
            }
        }
        Ok(streams)
    }

    fn merge(&self, cell: &Cell, key: &Key) -> Result<Merged, TraceError> {
        let Settings { cluster, clients, .. } = &cell.settings;
        let workload = key.workload.build(
            &self.folder,
            key.granularity,
            cluster.nodes,
            clients.per_node,
            cell.seed,
        )?;
        let order = if key.workload.is_recorded() {
            Order::Jobs
        } else {
            Order::Clients
        };
        let matters = |label: &&Label| {
            !["variant", "links.", "workload.assign"]
                .iter()
                .any(|axis| label.axis.starts_with(axis))
        };
        Ok(Merged {
            labels: cell.labels.iter().filter(matters).cloned().collect(),
            seed: cell.seed,
            granularity: key.granularity,
            capacity_bytes: key.capacity_bytes,
            accesses: workload.merged(order, key.granularity),
        })
    }
}

impl Key {
    fn from_cell(Cell { settings, seed, .. }: &Cell) -> Self {
        let workload = WorkloadSettings {
            assign: Assign::default(),
            ..settings.workload.clone()
        };
        let cluster = &settings.cluster;
        Self {
            granularity: cluster.granularity(),
            capacity_bytes: u64::from(cluster.nodes) * cluster.capacity.0,
            clients: cluster.nodes * settings.clients.per_node,
            seed: (!workload.is_recorded()).then_some(*seed),
            workload,
        }
    }
}
