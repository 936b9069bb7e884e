//! Figures about dirty objects for operators.

use std::sync::Arc;
use std::time::Duration;

use crate::tier::Damage;
use shoal_registry::engine::Room;
use shoal_registry::worker::{FailedFlush, Pace};

use super::multipart::UploadEnd;
use super::objects::DirtyObjects;
use super::registry_room::RegistryNearlyFull;
use super::survey::Survey;
use super::sweep::Swept;
use super::tiers::Tier;

/// How long a status page waits for the registries.
const REFRESH: Duration = Duration::from_millis(500);

/// Counts of dirty objects and uploads in all tiers.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Dirty objects that this node wrote and that are not yet at the lake.
    pub objects: u64,
    /// Bytes in the tiers, of all nodes.
    pub bytes: u64,
    /// The number of objects with each outcome since the node started.
    pub outcomes: Vec<(WriteBackOutcome, u64)>,
    /// Uploads that began at this node: open ones, and those that ended recently.
    pub uploads: u64,
    /// The number of uploads with each end since the node started.
    pub upload_ends: [(UploadEnd, u64); UploadEnd::ALL.len()],
}

/// Counts for one tier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TierFigures {
    pub(super) objects: u64,
    pub(super) uploads: u64,
    /// The age of the oldest object that is not marked short-lived.
    pub(super) oldest: Option<Duration>,
}

/// The state of one tier.
#[derive(Clone, Debug)]
pub struct TierStatus {
    /// The name in the configuration.
    pub name: Arc<str>,
    /// True if this node's session with the registry is current.
    pub is_reachable: bool,
    /// Dirty objects that this node wrote and that are not yet at the lake.
    pub objects: u64,
    /// Bytes in the store, of all nodes.
    pub bytes: u64,
    /// The capacity of the store.
    pub capacity_bytes: u64,
    /// True if the store has no room for another object: it has reached its capacity, or reports that it is
    /// full.
    pub is_full: bool,
    /// The fill level of the registry, if it reports one.
    pub registry: Option<Room>,
    /// Present if the registry accepts nothing that takes room, with the reason.
    pub nearly_full: Option<RegistryNearlyFull>,
    /// The registry's contents, of all nodes, as of the last survey.
    pub survey: Survey,
    /// Uploads that began at this node.
    pub uploads: u64,
    /// The age of the oldest of `objects` that is not marked short-lived; `None` if there is none.
    pub oldest: Option<Duration>,
    /// The current schedule of flushes: their age, and how many run in parallel.
    pub pace: Pace,
    /// The number of dead nodes that this node acts for.
    pub adopted: usize,
    /// Objects whose last flush failed, the oldest first.
    pub failed: Vec<FailedFlush>,
    /// Unreferenced pieces that this node has removed since it started.
    pub swept: Swept,
}

/// The outcome of an object that was written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBackOutcome {
    /// Acknowledged before it was at the lake.
    Committed,
    /// Flushed to the lake.
    Flushed,
    /// A flush failed; it is retried.
    Failed,
    /// Flushed; the lake's ETag is not the acknowledged one, and not an MD5.
    Renamed,
}

impl WriteBackOutcome {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Committed, Self::Flushed, Self::Failed, Self::Renamed];

    /// Returns the label in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Flushed => "flushed",
            Self::Failed => "failed",
            Self::Renamed => "renamed",
        }
    }
}

/// For operators, and for a node that is about to stop.
impl DirtyObjects {
    /// Returns counts of dirty objects, and the outcomes of writes since the node started.
    pub fn figures(&self) -> Figures {
        let figures = self.tiers.iter().map(Tier::figures);
        Figures {
            objects: figures.clone().map(|figures| figures.objects).sum(),
            bytes: self.tiers.iter().map(|tier| tier.store.fill().stored_bytes).sum(),
            outcomes: self.outcomes.writes(),
            uploads: figures.map(|figures| figures.uploads).sum(),
            upload_ends: self.outcomes.uploads(),
        }
    }

    /// Counts the dirty objects again. If a registry does not answer soon, the last counts stay.
    pub async fn refresh(&self) {
        let refreshed = futures_util::future::join_all(self.tiers.iter().map(Tier::refresh));
        let _ = tokio::time::timeout(REFRESH, refreshed).await;
    }

    /// Returns the state of each tier.
    pub fn tiers(&self) -> Vec<TierStatus> {
        let status = |tier: &Tier| TierStatus {
            name: Arc::clone(&tier.name),
            is_reachable: tier.is_reachable(),
            objects: tier.figures().objects,
            bytes: tier.store.fill().stored_bytes,
            capacity_bytes: tier.store.fill().capacity_bytes,
            is_full: tier.store.is_full(),
            registry: tier.registry_room(),
            nearly_full: tier.check_room().err(),
            survey: tier.survey(),
            uploads: tier.figures().uploads,
            oldest: tier.figures().oldest,
            pace: tier.pace(),
            adopted: tier.worker.adopted().len(),
            failed: tier.worker.failed(),
            swept: tier.swept(),
        };
        self.tiers.iter().map(status).collect()
    }

    /// Returns the objects whose bytes in a tier recently differed from the acknowledged ones.
    pub fn damaged(&self) -> Vec<(Arc<str>, Damage)> {
        self.damages.objects()
    }

    /// Flushes every dirty object that this node wrote, once, so that it can stop. Returns the number that is
    /// left.
    ///
    /// Nothing is lost if the node stops earlier: another node flushes the rest.
    pub async fn drain_round(&self) -> u64 {
        let mut left = 0;
        for tier in &self.tiers {
            tier.worker.flush_all(tier.node).await;
            left += tier.dirty_objects().await.unwrap_or(1);
        }
        left
    }
}
