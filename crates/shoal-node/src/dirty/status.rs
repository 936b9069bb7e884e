//! Figures on dirty objects for operators.

use std::sync::Arc;
use std::time::Duration;

use shoal_registry::engine::Room;
use shoal_registry::worker::{FailedFlush, Pace};

use super::multipart::UploadEnd;
use super::objects::DirtyObjects;
use super::registry_room::RegistryNearlyFull;
use super::survey::Survey;
use super::sweep::Swept;
use super::tiers::Tier;
use crate::tier::Damage;

/// How long a page for operators waits for the registries.
const REFRESH: Duration = Duration::from_millis(500);

/// Counts of dirty objects and uploads in all tiers.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Dirty objects that this node wrote and the lake does not have yet.
    pub objects: u64,
    /// Bytes in the tiers, of all nodes.
    pub bytes: u64,
    /// How many objects had each outcome since the node started.
    pub outcomes: Vec<(WriteBackOutcome, u64)>,
    /// Uploads that began at this node, open or ended not long ago.
    pub uploads: u64,
    /// How many uploads ended in each way since the node started.
    pub upload_ends: [(UploadEnd, u64); UploadEnd::ALL.len()],
}

/// Counts of one tier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TierFigures {
    pub(super) objects: u64,
    pub(super) uploads: u64,
    /// The age of the oldest object that is not short-lived.
    pub(super) oldest: Option<Duration>,
}

/// The state of one tier.
#[derive(Clone, Debug)]
pub struct TierStatus {
    /// The name in the configuration.
    pub name: Arc<str>,
    /// Whether the registry has heard from this node in time.
    pub is_reachable: bool,
    /// Dirty objects that this node wrote and the lake does not have yet.
    pub objects: u64,
    /// Bytes in the store, of all nodes.
    pub bytes: u64,
    /// The most bytes that the store may hold.
    pub capacity_bytes: u64,
    /// True if the store has no room for another object: it is as full as it may be, or says that it is full.
    pub is_full: bool,
    /// How full the registry is, if it says so.
    pub registry: Option<Room>,
    /// Why nothing that takes room begins in the registry, if so.
    pub nearly_full: Option<RegistryNearlyFull>,
    /// What the registry holds, of all nodes, as of a look not long ago.
    pub survey: Survey,
    /// Uploads that began at this node.
    pub uploads: u64,
    /// The age of the oldest of `objects`, but for those that are expected to be short-lived. `None` without
    /// any.
    pub oldest: Option<Duration>,
    /// When objects go to the lake now, and how many at a time.
    pub pace: Pace,
    /// Dead nodes that this node acts for.
    pub adopted: usize,
    /// Objects whose last flush failed, the oldest first.
    pub failed: Vec<FailedFlush>,
    /// Pieces without a name that this node has removed since it started.
    pub swept: Swept,
}

/// The outcome of an object that was written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBackOutcome {
    /// Acknowledged before the lake had it.
    Committed,
    /// Flushed to the lake.
    Flushed,
    /// A flush failed; it is tried again.
    Failed,
    /// Flushed, and named by the lake in a way of its own, which is no MD5.
    Renamed,
}

impl WriteBackOutcome {
    /// Every outcome.
    pub const ALL: [Self; 4] = [Self::Committed, Self::Flushed, Self::Failed, Self::Renamed];

    /// The word in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Flushed => "flushed",
            Self::Failed => "failed",
            Self::Renamed => "renamed",
        }
    }
}

/// For operators, and for a node that is to stop.
impl DirtyObjects {
    /// Counts the dirty objects, and the outcomes of writes since the node started.
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

    /// Counts anew what is dirty. A registry that does not answer soon leaves the last counts.
    pub async fn refresh(&self) {
        let refreshed = futures_util::future::join_all(self.tiers.iter().map(Tier::refresh));
        let _ = tokio::time::timeout(REFRESH, refreshed).await;
    }

    /// The state of each tier.
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

    /// The objects whose bytes a tier did not give as they were acknowledged, not long ago.
    pub fn damaged(&self) -> Vec<(Arc<str>, Damage)> {
        self.damages.objects()
    }

    /// Flushes once every dirty object that this node wrote, so that it can stop. Returns how many are left.
    ///
    /// Nothing is lost if the node stops before: another node flushes the rest.
    pub async fn drain_round(&self) -> u64 {
        let mut left = 0;
        for tier in &self.tiers {
            tier.worker.flush_all(tier.node).await;
            left += tier.dirty_objects().await.unwrap_or(1);
        }
        left
    }
}
