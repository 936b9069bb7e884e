//! The ways in which nodes cooperate, on the same requests: hierarchy or directory.

use serde::Serialize;
use shoal_base::words;
use shoal_policy::eviction::gwf::{Ageing, Reading};

use super::replay::{Replay, Trial};
use crate::cache::Cache;
use crate::chance::Chance;
use crate::cluster::{Directory, DirectoryGwf, Hierarchy, Replication};
use crate::policy::PolicyName;
use crate::sources::{Sources, Volume};

/// The seed of the choices among holders.
const SEED: u64 = 1;

/// Minimum relative difference of mean costs for a recommendation. The same clients differ as much from day
/// to day, and a directory needs a Redis.
const COST_TIE: f64 = 0.05;

words! {
    /// A way in which nodes cooperate, with its words in advice.
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Mode {
        /// `[cooperation] mode = "hierarchy"`: each block has a home.
        Hierarchy = "hierarchy",
        /// `[cooperation] mode = "directory"`: nodes weigh copies by GWF, with the age added once, so that
        /// copies leave before last copies.
        Directory = "directory",
        /// The same with `[store] policy = "duel"`: every node keeps the blocks that its clients read, and
        /// evicts independently.
        DirectoryDuel = "directory, duel",
    }
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
    /// Blocks sent between nodes: read from another node's cache, forwarded by a home, or pushed.
    pub between_nodes: Volume,
    /// Mean cost of a block: 1 for each time that it goes from node to node, more for a read from the lake.
    pub cost: f64,
}

/// The mode that a trace favours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// One mode is clearly cheaper than the best of the other kind.
    Clear {
        /// The cheaper mode.
        mode: Mode,
        /// The saving, as a share of the other one's cost, 0 to 1.
        cheaper_by: f64,
    },
    /// Both cost nearly the same.
    Tie,
}

/// The clusters to try, each with its mode; in the hierarchy, L1 has this share. All but GWF evict by the
/// default policy of nodes.
pub(super) fn clusters(trial: Trial, l1_share: f64) -> [(Mode, Replay); 3] {
    let (policy, nodes, bytes) = (PolicyName::of_nodes(), trial.nodes as usize, trial.node_bytes);
    let hierarchy = Hierarchy::new(nodes, bytes, l1_share, policy);
    let caches = (0..nodes).map(|_| Cache::new(bytes, policy.build()));
    let duel = Directory::new(caches.collect(), Replication::Always, Chance::new(SEED));
    let gwf = DirectoryGwf::new(nodes, bytes, Ageing::Added, Reading::Text, Chance::new(SEED));
    [
        (Mode::Hierarchy, trial.on(hierarchy)),
        (Mode::Directory, trial.on(gwf)),
        (Mode::DirectoryDuel, trial.on(duel)),
    ]
}

impl ModeOutcome {
    /// The outcome of a replay, if a read from the lake costs `lake_cost`.
    pub(super) fn new(mode: Mode, replay: &Replay, l1_share: f64, lake_cost: f64) -> Self {
        let Replay {
            sources,
            between_nodes,
            ..
        } = *replay;
        let cost = between_nodes.requests as f64 + sources.lake.requests as f64 * lake_cost;
        Self {
            mode,
            l1_share: (mode == Mode::Hierarchy).then_some(l1_share),
            sources,
            between_nodes,
            cost: cost / sources.total().requests.max(1) as f64,
        }
    }
}

/// Chooses between the hierarchy and the cheaper directory; `None` if they were not tried.
pub(super) fn choose(outcomes: &[ModeOutcome]) -> Option<Choice> {
    let cost = |mode| {
        outcomes
            .iter()
            .find(|tried| tried.mode == mode)
            .map(|tried| tried.cost)
    };
    let (hierarchy, gwf, duel) = (
        cost(Mode::Hierarchy)?,
        cost(Mode::Directory)?,
        cost(Mode::DirectoryDuel)?,
    );
    let (by, directory) = if duel < gwf * (1.0 - COST_TIE) {
        (Mode::DirectoryDuel, duel)
    } else {
        (Mode::Directory, gwf)
    };
    let (mode, less, more) = if directory < hierarchy {
        (by, directory, hierarchy)
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

#[cfg(test)]
mod tests {
    use super::{Choice, Mode, ModeOutcome, choose};
    use crate::sources::{Sources, Volume};

    #[test]
    fn the_cheapest_mode_is_chosen_unless_the_default_costs_hardly_more() {
        let choice = |costs: [f64; 3]| {
            let outcome = |(mode, cost)| ModeOutcome {
                mode,
                l1_share: None,
                sources: Sources::default(),
                between_nodes: Volume::default(),
                cost,
            };
            let modes = [Mode::Hierarchy, Mode::Directory, Mode::DirectoryDuel];
            choose(&modes.into_iter().zip(costs).map(outcome).collect::<Vec<_>>())
        };
        let clear = |mode, cheaper_by| Some(Choice::Clear { mode, cheaper_by });
        assert_eq!(choice([1.0, 2.0, 4.0]), clear(Mode::Hierarchy, 0.5));
        assert_eq!(choice([2.0, 1.0, 0.96]), clear(Mode::Directory, 0.5));
        assert_eq!(choice([2.0, 1.2, 1.0]), clear(Mode::DirectoryDuel, 0.5));
        assert_eq!(choice([1.0, 0.96, 1.5]), Some(Choice::Tie));
        assert_eq!(choice([0.0; 3]), Some(Choice::Tie));
        assert_eq!(choose(&[]), None);
    }
}
