//! The ways in which nodes cooperate, on the same requests: hierarchy or directory.

use serde::Serialize;
use shoal_policy::eviction::gwf::{Ageing, Reading};

use super::replay::Replay;
use crate::block::Granularity;
use crate::cache::Cache;
use crate::chance::Chance;
use crate::cluster::{Directory, DirectoryGwf, Hierarchy, Replication, Split};
use crate::policy::PolicyName;
use crate::report::{Sources, Volume};

/// The seed of the choices among holders.
const SEED: u64 = 1;

/// Mean costs that differ by less than this share of the greater one are too close to choose by: another day
/// of the same clients differs as much, and a directory needs a Redis.
const COST_TIE: f64 = 0.05;

/// A way in which nodes cooperate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// `[cooperation] mode = "hierarchy"`: each block has a home.
    Hierarchy,
    /// `[cooperation] mode = "directory"`: every node keeps what its clients read, and evicts by itself.
    Directory,
    /// A directory that weighs copies by D4N's GWF, with the age added once: copies leave before last copies.
    DirectoryGwf,
}

/// The result of one way to cooperate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ModeOutcome {
    /// How the nodes cooperate.
    pub mode: Mode,
    /// Hierarchy: L1's share of the room.
    pub l1_share: Option<f64>,
    /// Volumes by source.
    pub sources: Sources,
    /// Blocks that nodes sent to each other: those of another node's cache, those that a home forwarded, and
    /// pushes.
    pub between_nodes: Volume,
    /// Mean cost of a block: 1 for each time that it goes from node to node, more for a read from the lake.
    pub cost: f64,
}

/// The way to cooperate that a trace speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// This mode costs this share less than the other one.
    Clear {
        /// The cheaper mode.
        mode: Mode,
        /// Of the cost of the other mode, 0 to 1.
        cheaper_by: f64,
    },
    /// Both cost nearly the same.
    Tie,
}

/// The nodes to try, empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) nodes: u32,
    pub(super) node_bytes: u64,
    pub(super) block_bytes: u64,
    pub(super) granularity: Granularity,
    /// The share of L1 in the hierarchy.
    pub(super) l1_share: f64,
}

impl Trial {
    /// The clusters to try, each with its mode. All but GWF evict by the policy that nodes follow by default.
    pub(super) fn clusters(&self) -> [(Mode, Replay); 3] {
        let policy = PolicyName::of_nodes();
        let nodes = self.nodes as usize;
        let hierarchy = Hierarchy::new(
            nodes,
            self.node_bytes,
            self.block_bytes,
            Split::Fixed(self.l1_share),
            policy,
        );
        let caches = (0..nodes).map(|_| Cache::new(self.node_bytes, policy.build()));
        // Blocks arrive at once, so no node ever waits for the claim of another.
        let directory = Directory::new(caches.collect(), Replication::Always, true, Chance::new(SEED));
        let gwf = DirectoryGwf::new(
            nodes,
            self.node_bytes,
            Ageing::Added,
            Reading::Text,
            Chance::new(SEED),
        );
        [
            (
                Mode::Hierarchy,
                Replay::new(hierarchy, self.nodes, self.granularity),
            ),
            (
                Mode::Directory,
                Replay::new(directory, self.nodes, self.granularity),
            ),
            (Mode::DirectoryGwf, Replay::new(gwf, self.nodes, self.granularity)),
        ]
    }

    /// The outcome of `mode` after `replay`, if a read from the lake costs `lake_cost`.
    pub(super) fn outcome(&self, mode: Mode, replay: &Replay, lake_cost: f64) -> ModeOutcome {
        let Replay {
            sources,
            between_nodes,
            ..
        } = *replay;
        let cost = between_nodes.requests as f64 + sources.lake.requests as f64 * lake_cost;
        ModeOutcome {
            mode,
            l1_share: (mode == Mode::Hierarchy).then_some(self.l1_share),
            sources,
            between_nodes,
            cost: cost / sources.total().requests.max(1) as f64,
        }
    }
}

/// Chooses between the two modes that a node has; `None` if they were not tried.
pub(super) fn choose(outcomes: &[ModeOutcome]) -> Option<Choice> {
    let cost = |mode| {
        outcomes
            .iter()
            .find(|tried| tried.mode == mode)
            .map(|tried| tried.cost)
    };
    let (hierarchy, directory) = (cost(Mode::Hierarchy)?, cost(Mode::Directory)?);
    let (mode, less, more) = if directory < hierarchy {
        (Mode::Directory, directory, hierarchy)
    } else {
        (Mode::Hierarchy, hierarchy, directory)
    };
    let cheaper_by = if more > 0.0 { 1.0 - less / more } else { 0.0 };
    Some(if cheaper_by < COST_TIE {
        Choice::Tie
    } else {
        Choice::Clear { mode, cheaper_by }
    })
}
