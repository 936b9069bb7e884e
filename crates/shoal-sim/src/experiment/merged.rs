//! What the clusters of an experiment ask the lake for if they are taken as one cache: no cooperation of their nodes needs fewer bytes
//! than the best policy there.

use super::{Cell, Experiment, Label, Settings};
use crate::block::Granularity;
use crate::trace::{Access, TraceError};
use crate::workload::{Assign, Order, WorkloadSettings};

/// A cell of the grid without its network.
#[derive(Clone, Debug)]
pub struct Merged {
    /// What is varied and matters to one cache.
    pub labels: Vec<Label>,
    /// Of the workload.
    pub seed: u64,
    /// What is cached as one piece.
    pub granularity: Granularity,
    /// Room of all nodes together.
    pub capacity_bytes: u64,
    /// What all clients ask for.
    pub accesses: Vec<Access>,
}

/// What makes one cache's stream different from another's.
#[derive(Debug, PartialEq)]
struct Key {
    workload: WorkloadSettings,
    granularity: Granularity,
    capacity_bytes: u64,
    clients: u32,
    seed: Option<u64>,
}

impl Experiment {
    /// Each different stream of the grid once, with the room of all nodes. Cells that differ in how nodes work together, in links or in
    /// who reads what are one, and so are the seeds of a trace.
    pub fn merged(&self) -> Result<Vec<Merged>, TraceError> {
        let mut known = Vec::new();
        let mut streams = Vec::new();
        for cell in &self.cells {
            let key = Key::of(cell);
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
    fn of(Cell { settings, seed, .. }: &Cell) -> Self {
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
