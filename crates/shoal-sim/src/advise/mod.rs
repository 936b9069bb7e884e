//! Advice in plain words about the cache that a trace needs.

mod modes;
mod replay;
mod text;
mod whole_objects;

use serde::Serialize;
use shoal_policy::mrc::{MissCurve, Reach, ReuseDistances};

pub use self::modes::{Choice, Mode, ModeOutcome};
use self::modes::{choose, clusters};
use self::replay::{Replay, Trial, replay_each};
pub use self::whole_objects::{WholeChoice, WholeOutcome};
use self::whole_objects::{choose as choose_whole, homes};
use crate::block::Granularity;
use crate::cluster::Hierarchy;
use crate::compare::{Comparison, Contender, Row, Survey, WorkingSet};
use crate::policy::PolicyName;
use crate::sources::Sources;
use crate::trace::{Access, Accesses, Operation, Recording, TraceError};
use crate::units::Capacity;

/// The number of sizes in a miss-ratio curve.
const POINTS: u64 = 50;

/// Minimum share of the requests that extra room must turn into hits to be recommended.
const WORTHWHILE: f64 = 0.01;

/// The shares of L1 to try.
const SHARES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 0.9];

/// The default cost of a read from the lake, in reads from a peer.
pub const LAKE_COST: f64 = 5.0;

/// A request for advice.
#[derive(Clone, Copy, Debug)]
pub struct AdviceRequest {
    /// The unit of caching.
    pub granularity: Granularity,
    /// Total room; `None` for the smallest that is good enough.
    pub capacity: Option<Capacity>,
    /// The number of nodes that share the room, at most 256.
    pub nodes: u32,
    /// The cost of a read from the lake, in reads from a peer.
    pub lake_cost: f64,
    /// The maximum number of threads.
    pub threads: usize,
}

/// The result of one split of the room into two layers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SplitOutcome {
    /// L1's share.
    pub l1_share: f64,
    /// Volumes by source.
    pub sources: Sources,
    /// Mean cost of a block, in reads from a peer: 0 local, 1 from a peer.
    pub cost: f64,
}

/// The advice for a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The blocks that the trace touches.
    pub working_set: WorkingSet,
    /// LRU's miss ratio by size in bytes.
    pub curve: Vec<(u64, f64)>,
    /// The room assumed by all other advice.
    pub capacity_bytes: u64,
    /// True if the caller chose that room, instead of the advice.
    pub capacity_was_given: bool,
    /// Every policy with half of that room, with all of it and with twice as much.
    pub policies: Vec<Row>,
    /// The number of nodes that share the room.
    pub nodes: u32,
    /// The cost of a read from the lake, in reads from a peer.
    pub lake_cost: f64,
    /// Splits between two layers, if there are several nodes.
    pub splits: Vec<SplitOutcome>,
    /// Ways to cooperate, if there are several nodes; the hierarchy with the cheapest of the splits.
    pub modes: Vec<ModeOutcome>,
    /// Which of them a node should follow.
    pub choice: Option<Choice>,
    /// Results of multi-block reads under the default policy of nodes, without and with C2P, if there are
    /// several nodes and all are homes.
    pub whole_objects: Option<[WholeOutcome; 2]>,
    /// Which of them a node should follow.
    pub whole_choice: Option<WholeChoice>,
}

impl AdviceRequest {
    /// Reads the trace that `open` opens. `progress` receives the number of requests, several times in all.
    ///
    /// # Errors
    ///
    /// Fails if the trace cannot be read, reads no object, or has more blocks than fit into memory.
    pub fn ask(
        &self,
        open: &dyn Fn() -> Result<Accesses, TraceError>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Advice, TraceError> {
        let mut survey = Survey::new(self.granularity, false);
        let recording = Recording::read(open, progress, |chunk| survey.take(chunk))?;
        let set = survey.working_set()?;
        let curve = self.curve(&set, &recording, progress)?;
        let capacity_bytes = match self.capacity {
            Some(capacity) => capacity.bytes(set.bytes),
            None => smallest_good_enough(&curve, &set),
        }
        .max(1);
        let around = [
            capacity_bytes / 2,
            capacity_bytes,
            capacity_bytes.saturating_mul(2),
        ];
        let comparison = Comparison {
            granularity: self.granularity,
            contenders: PolicyName::of_lone_nodes().map(Contender::policy).collect(),
            capacities: around.map(Capacity::Bytes).to_vec(),
            threads: self.threads,
        };
        let (splits, modes, whole_objects) = match self.nodes {
            0 | 1 => (Vec::new(), Vec::new(), None),
            _ => {
                let trial = Trial {
                    nodes: self.nodes,
                    node_bytes: capacity_bytes / u64::from(self.nodes),
                    granularity: self.granularity,
                };
                let splits = self.splits(trial, &recording, progress)?;
                let cheapest = splits.iter().min_by(|a, b| a.cost.total_cmp(&b.cost));
                let l1_share = cheapest.map_or(0.5, |split| split.l1_share);
                let mut modes = clusters(trial, l1_share);
                replay_each(&recording, progress, &mut modes)?;
                let outcome = |(mode, replay): &_| ModeOutcome::new(*mode, replay, l1_share, self.lake_cost);
                let mut homes = homes(trial);
                replay_each(&recording, progress, &mut homes)?;
                let whole_objects = homes
                    .each_ref()
                    .map(|(policy, replay)| WholeOutcome::new(*policy, replay));
                (splits, modes.iter().map(outcome).collect(), Some(whole_objects))
            }
        };
        let step = set.bytes.div_ceil(POINTS).max(1);
        Ok(Advice {
            working_set: set,
            curve: (0..=POINTS)
                .map(|i| i * step)
                .map(|size| (size, curve.ratio(size)))
                .collect(),
            capacity_bytes,
            capacity_was_given: self.capacity.is_some(),
            policies: comparison.replay(&recording, &survey, progress)?,
            nodes: self.nodes,
            lake_cost: self.lake_cost,
            splits,
            choice: choose(&modes),
            modes,
            whole_choice: whole_objects.map(choose_whole),
            whole_objects,
        })
    }

    fn curve(
        &self,
        set: &WorkingSet,
        recording: &Recording<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<MissCurve, TraceError> {
        let mut distances = ReuseDistances::sampled(Reach {
            capacity_bytes: set.bytes.max(set.block_bytes_max).max(1),
            block_bytes: set.block_bytes_max.max(1),
            blocks_max: set.blocks.max(1) as usize,
        });
        recording.replay(progress, |chunk| {
            for access in reads(chunk) {
                for (block, bytes) in self.granularity.blocks_of(access) {
                    distances.record(block.fingerprint(), bytes);
                }
            }
        })?;
        Ok(distances.curve())
    }

    fn splits(
        &self,
        trial: Trial,
        recording: &Recording<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<SplitOutcome>, TraceError> {
        let mut tried = SHARES.map(|l1_share| {
            let nodes = trial.nodes as usize;
            let cluster = Hierarchy::new(nodes, trial.node_bytes, l1_share, PolicyName::LRU);
            (l1_share, trial.on(cluster))
        });
        replay_each(recording, progress, &mut tried)?;
        let outcome = |(l1_share, Replay { sources, .. }): (f64, Replay)| {
            let cost = sources.peer.requests as f64 + sources.lake.requests as f64 * self.lake_cost;
            SplitOutcome {
                l1_share,
                sources,
                cost: cost / sources.total().requests.max(1) as f64,
            }
        };
        Ok(tried.into_iter().map(outcome).collect())
    }
}

fn reads(chunk: &[Access]) -> impl Iterator<Item = &Access> {
    chunk.iter().filter(|access| access.operation == Operation::Read)
}

/// The smallest size on the curve that misses hardly more than a cache of unlimited size.
fn smallest_good_enough(curve: &MissCurve, survey: &WorkingSet) -> u64 {
    let least = curve.ratio(survey.bytes);
    let step = survey.bytes.div_ceil(POINTS * 10).max(1);
    let good = |size: &u64| curve.ratio(*size) <= least + WORTHWHILE;
    (1..=POINTS * 10)
        .map(|i| i * step)
        .find(good)
        .unwrap_or(survey.bytes)
}

#[cfg(test)]
mod tests;
