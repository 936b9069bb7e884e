//! The page `/status`: a node sends these types, and the command line reads them.
//!
//! Counts begin when the node starts. All parts of the page are always sent; a field of a part that a node of
//! another release does not send has its default.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shoal_net::conditions::Condition;
pub use shoal_store::{Counters, PinCounts};

pub use super::reloads::ReloadHistory;
use crate::handoff::HandoffProgress;
use crate::planning::Planning;
pub use shoal_cache::cache_events::EventFigures;
pub use shoal_cache::coherence::CoherenceFigures;
pub use shoal_cache::gwf::GwfFigures;
pub use shoal_cache::messages::MessageFigures;
pub use shoal_net::link::{BandwidthScope, ClassFigures, LaneFigures, LinkFigures};
pub use shoal_net::metrics::WordCounts;
pub use shoal_net::metrics::folders::FolderReads;
pub use shoal_orders::tasks::TaskFigures;
pub use shoal_writeback::observed::{TierPage, TroubledObject, UploadsPage, WriteBackPage};

/// The state of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The node.
    pub node: NodePage,
    /// The conditions that hold.
    pub conditions: Vec<Condition>,
    /// The configuration in force.
    pub config: ReloadHistory,
    /// The lake.
    pub lake: LakePage,
    /// The link to the lake; `None` if it is not metered.
    pub link: Option<LinkFigures>,
    /// Blocks on disk.
    pub store: StorePage,
    /// How the layers share the disk.
    pub layers: Vec<LayerPage>,
    /// Quotas, in the order of the configuration.
    #[serde(default)]
    pub quotas: Vec<QuotaPage>,
    /// Reads of clients.
    pub reads: ReadsPage,
    /// Writes through the cache.
    pub writes: WritesPage,
    /// Objects that the lake does not have yet.
    pub write_back: WriteBackPage,
    /// Other nodes; `None` if the node does not cooperate.
    pub cooperation: Option<CooperationPage>,
    /// The block directory; `None` without one.
    pub directory: Option<DirectoryPage>,
    /// Tasks of the cluster.
    pub tasks: TaskFigures,
    /// The plan in force, if there is one.
    pub plan: Option<PlanPage>,
    /// The last plan that this node has made by itself; `None` if it has tried to make none.
    pub planning: Option<Planning>,
    /// The handoff; `None` if the node does not cooperate.
    pub drain: Option<HandoffProgress>,
}

/// The node itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodePage {
    /// Unique in the cluster.
    pub name: String,
    /// Place, outermost first.
    pub topology: String,
    /// The version of the software.
    pub version: String,
}

/// The lake, as this node sees it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LakePage {
    /// Its URL.
    pub endpoint: String,
    /// False after a request without an answer.
    pub answering: bool,
    /// Requests by operation, including retries.
    pub requests: WordCounts,
    /// Answers by status.
    pub answers: WordCounts,
    /// Requests without an answer, and answers that broke off, by failure.
    pub failures: WordCounts,
    /// Time to the first byte by class of request, in milliseconds.
    pub first_byte_ms: BTreeMap<String, Latencies>,
    /// Requests that repeated an earlier one.
    pub retries: u64,
    /// Bodies that broke off and were resumed.
    pub resumes: u64,
    /// Bytes of answers' bodies.
    pub bytes_received: u64,
    /// Connections that were opened.
    pub connections_opened: u64,
}

/// A distribution of latencies, in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Latencies {
    /// Their number.
    pub count: u64,
    /// The median.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
}

/// Blocks on the disk of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StorePage {
    /// The folder.
    pub path: String,
    /// `"serving"`, or `{"paused": REASON}`.
    pub health: Value,
    /// Blocks, what is beside them, and what became of them.
    #[serde(flatten)]
    pub counts: Counters,
}

/// A layer's part of the disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LayerPage {
    /// Such as `L1`.
    pub layer: String,
    /// The bytes that it may count on.
    pub target_bytes: u64,
    /// The bytes that it holds.
    pub used_bytes: u64,
    /// The number of its blocks.
    pub blocks: usize,
    /// The share of its requests that it would have missed lately with nothing, a twentieth of the node's
    /// room, and so on up to all of it. Empty if the split is fixed.
    pub miss_ratios: Vec<f64>,
}

/// A quota: what it allows on this node, and what of that is used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaPage {
    /// The name of the identity, or the prefix.
    pub name: String,
    /// The most bytes of this node's disk; `None` if they are not limited.
    pub room_bytes: Option<u64>,
    /// The bytes of disk that its blocks take; 0 if they are not limited.
    pub used_bytes: u64,
    /// The most bytes that this node reads from the lake in a second; `None` if they are not limited.
    pub bandwidth_bytes_per_second: Option<u64>,
    /// The bytes that it has read from the lake; 0 if they are not limited.
    pub lake_bytes: u64,
    /// How often bytes from the lake had to wait for the quota.
    pub lake_waits: u64,
}

/// Reads of clients.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadsPage {
    /// Fetches under way.
    pub flights: usize,
    /// Reads that joined a fetch under way.
    pub coalesced_requests: u64,
    /// Bytes of the memory window in use.
    pub fill_bytes: u64,
    /// Bytes of the memory window.
    pub fill_capacity_bytes: u64,
    /// Reads of several blocks, by how many of these were near.
    pub of_several_blocks: WordCounts,
    /// The folders below which clients read most lately.
    pub top_folders: Vec<FolderReads>,
}

/// Writes through the cache.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WritesPage {
    /// Writes that are finishing.
    pub underway: usize,
}

/// Other nodes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CooperationPage {
    /// How the nodes cooperate.
    pub mode: String,
    /// The names of the layers, innermost first.
    pub layers: Vec<String>,
    /// The number of living nodes.
    pub members: usize,
    /// The nodes that this one asks.
    pub peers: Vec<PeerPage>,
    /// Requests of other nodes by outcome.
    pub answered: WordCounts,
    /// Small news.
    pub messages: MessageFigures,
    /// Events of caches; `None` unless the store uses C2P.
    pub cache_events: Option<EventFigures>,
}

/// A node that this one asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerPage {
    /// Its name.
    pub name: String,
    /// False while it is left alone after failures.
    pub reachable: bool,
    /// Requests to it.
    pub asked: u64,
    /// Those of them without a complete answer.
    pub failed: u64,
    /// The settings in which it differs from this node; `None` if it has not sent them.
    pub differs: Option<Vec<String>>,
}

/// The block directory, as this node sees it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectoryPage {
    /// `embedded` or `redis`.
    pub kind: String,
    /// True if it answered the most recent request.
    pub answers: bool,
    /// Requests by kind.
    pub requests: BTreeMap<String, DirectoryRequests>,
    /// Changes of blocks here that the directory does not have yet.
    pub reports_under_way: u64,
    /// `None` under another eviction policy.
    pub gwf: Option<GwfFigures>,
    /// `None` if no object is coherent.
    pub coherent: Option<CoherenceFigures>,
}

/// The requests of one kind to the directory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct DirectoryRequests {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests without an answer in time.
    pub silent: u64,
    /// Requests that were not sent, because earlier ones were not answered.
    pub held_back: u64,
    /// The mean time of the answers, in milliseconds.
    #[serde(rename = "mean_answer_ms")]
    pub mean_answer_ms: Option<f64>,
}

/// The plan in force.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanPage {
    /// True on its coordinator.
    pub carried_here: bool,
    /// Jobs by how they stand.
    pub jobs: WordCounts,
    /// Bytes: all that it fetches (`total`), and until now as `planned` and `done`.
    pub bytes: WordCounts,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::{CooperationPage, DirectoryPage, DirectoryRequests, Status};

    #[test]
    fn a_page_is_read_as_it_was_sent_and_also_without_some_fields_of_its_parts() {
        let requests = DirectoryRequests {
            held_back: 3,
            ..DirectoryRequests::default()
        };
        let mut page = json!(Status {
            cooperation: Some(CooperationPage::default()),
            directory: Some(DirectoryPage {
                requests: [("look".into(), requests)].into(),
                ..DirectoryPage::default()
            }),
            ..Status::default()
        });
        assert_eq!(page["directory"]["requests"]["look"]["held-back"], 3);
        let read: Status = from_value(page.clone()).unwrap();
        assert_eq!(json!(read), page);
        page["store"] = json!({ "blocks": 7 });
        page["tasks"] = json!({ "running": 2, "of_a_later_release": 1 });
        let read: Status = from_value(page).unwrap();
        assert_eq!((read.store.counts.blocks, read.tasks.states["running"]), (7, 2));
    }
}
