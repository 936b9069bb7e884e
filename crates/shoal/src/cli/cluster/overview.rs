//! Collects the state of a cluster: one node lists the members, and relays the pages of each.

use std::time::Duration;

use futures_util::future::join_all;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use shoal_net::Condition;
use shoal_node::HandoffProgress;
use shoal_node::admin::client::{AdminClient, AdminError};
use shoal_node::admin::members::Members;
use shoal_node::admin::status::{
    DirectoryPage, LakePage, LayerPage, LinkFigures, QuotaPage, Status, StorePage, TaskFigures, TierPage,
};
use shoal_orders::{JobCounts, JobNote, Progress, Task, TaskList, TaskState};
use shoal_policy::Source;
use shoal_policy::nearest::shared_levels;

use super::task::PATH as TASKS;
use super::task::plan_state::PATH as PLAN;

/// Maximum number of running tasks shown.
const TASKS_SHOWN: usize = 8;

/// The state of a cluster at one moment.
#[derive(Debug, Serialize)]
pub(crate) struct Overview {
    /// The node that listed the members.
    pub(crate) seen_by: String,
    /// Members, those nearest to that node first.
    pub(crate) nodes: Vec<NodeView>,
    /// Sums over the nodes that answered.
    pub(crate) total: Traffic,
    /// The tasks of the cluster.
    pub(crate) tasks: TasksView,
    /// The plan in force, if there is one.
    pub(crate) plan: Option<PlanSummary>,
}

/// The plan in force.
#[derive(Debug, Default, Serialize)]
pub(crate) struct PlanSummary {
    pub(crate) jobs: JobCounts,
    pub(crate) planned_bytes: u64,
    pub(crate) done_bytes: u64,
    /// Some of the jobs at risk, and of those that missed their deadlines.
    pub(crate) troubled: Vec<JobNote>,
}

/// The tasks of a cluster.
#[derive(Debug, Serialize)]
pub(crate) struct TasksView {
    #[serde(flatten)]
    pub(crate) counts: TaskFigures,
    /// The most recent running tasks.
    pub(crate) latest: Vec<Task>,
}

/// One member.
#[derive(Debug, Serialize)]
pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) topology: String,
    /// The narrowest layer that it shares with the node that listed it: 1 for that node itself, `None` if
    /// they share no layer.
    pub(crate) layer: Option<usize>,
    pub(crate) state: String,
    pub(crate) admin: String,
    /// The member's numbers, or why there are none.
    #[serde(flatten)]
    pub(crate) answer: Answer,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Numbers(Box<Numbers>),
    Unreachable(String),
}

/// The numbers of a node.
#[derive(Debug, Serialize)]
pub(crate) struct Numbers {
    pub(crate) store: StorePage,
    pub(crate) lake: LakeHealth,
    /// How the layers share the store.
    pub(crate) layers: Vec<LayerPage>,
    pub(crate) drain: Option<HandoffProgress>,
    /// The tiers.
    pub(crate) tiers: Vec<TierPage>,
    /// The block directory; `None` without one.
    pub(crate) directory: Option<DirectoryPage>,
    /// The link to the lake; `None` if it is not metered.
    pub(crate) link: Option<LinkFigures>,
    /// The quotas.
    pub(crate) quotas: Vec<QuotaPage>,
    /// Conditions that hold.
    pub(crate) conditions: Vec<Condition>,
    pub(crate) traffic: Traffic,
}

/// Counts since a node started, in bytes of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Traffic {
    /// Sent to clients, by source.
    pub(crate) local_bytes: u64,
    pub(crate) peer_bytes: u64,
    pub(crate) lake_bytes: u64,
    /// Reads of several blocks, and those of them for which only some blocks were near.
    pub(crate) reads_of_several: u64,
    pub(crate) reads_in_part: u64,
    /// Received from the lake.
    pub(crate) from_lake_bytes: u64,
    pub(crate) lake_requests: u64,
    /// Requests to the lake that were not answered, answers that broke off, and answers with a server error.
    pub(crate) lake_failures: u64,
    /// Requests to peers for blocks, those of them that failed, and requests of peers that were served.
    pub(crate) peers_asked: u64,
    pub(crate) peers_failed: u64,
    pub(crate) peers_served: u64,
}

/// The state of the lake, as one node sees it.
#[derive(Debug, Serialize)]
pub(crate) struct LakeHealth {
    /// Since the node started.
    pub(crate) reads_p99_ms: Option<f64>,
}

impl Overview {
    /// Asks a node for the members and for the numbers of each.
    pub(crate) async fn ask(client: &AdminClient) -> Result<Self, AdminError> {
        let page: Members = client.get("/members").await?;
        let own: Status = client.get("/status").await?;
        let tasks = TasksView {
            latest: running(client, own.tasks.in_state(TaskState::Running)).await?,
            counts: own.tasks,
        };
        let plan = match own.plan {
            Some(_) => Some(plan(client).await?),
            None => None,
        };
        let layers = own.cooperation.map_or(1, |cooperation| cooperation.layers.len());
        let place = page.members.iter().find(|member| member.name == page.speaker);
        let place = place.map_or_else(String::new, |member| member.topology.clone());
        let mut nodes = join_all(page.members.into_iter().map(async |member| {
            let (pages, layer) = if member.name == page.speaker {
                (String::new(), Some(1))
            } else {
                (
                    pages_of(&member.name),
                    layer_shared(&place, &member.topology, layers),
                )
            };
            let numbers = numbers(client, &pages, &member.name).await;
            let answer =
                numbers.map_or_else(Answer::Unreachable, |numbers| Answer::Numbers(Box::new(numbers)));
            NodeView {
                layer,
                name: member.name,
                topology: member.topology,
                state: member.state.as_str().into(),
                admin: member.admin.to_string(),
                answer,
            }
        }))
        .await;
        nodes.sort_by(|one, other| {
            let order = |node: &NodeView| (node.layer.unwrap_or(usize::MAX), node.name.clone());
            order(one).cmp(&order(other))
        });
        let numbers = nodes.iter().filter_map(NodeView::numbers);
        let traffic = numbers.map(|numbers| numbers.traffic);
        Ok(Self {
            seen_by: page.speaker,
            total: traffic.fold(Traffic::default(), Traffic::plus),
            nodes,
            tasks,
            plan,
        })
    }
}

/// Fetches the plan, with the jobs in trouble.
async fn plan(client: &AdminClient) -> Result<PlanSummary, AdminError> {
    let Progress { tally, plan, .. } = client.get::<Task>(PLAN).await?.progress;
    let plan = plan.unwrap_or_default();
    Ok(PlanSummary {
        jobs: plan.jobs,
        planned_bytes: plan.planned_bytes,
        done_bytes: tally.bytes.done,
        troubled: plan.troubled,
    })
}

/// Fetches the most recent running tasks, if there are any.
async fn running(client: &AdminClient, running: u64) -> Result<Vec<Task>, AdminError> {
    if running == 0 {
        return Ok(Vec::new());
    }
    let state = TaskState::Running.as_str();
    let path = format!("{TASKS}?state={state}&limit={TASKS_SHOWN}");
    Ok(client.get::<TaskList>(&path).await?.tasks)
}

impl NodeView {
    pub(crate) fn numbers(&self) -> Option<&Numbers> {
        match &self.answer {
            Answer::Numbers(numbers) => Some(numbers),
            Answer::Unreachable(_) => None,
        }
    }
}

impl Traffic {
    /// Returns the bytes sent to clients.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.local_bytes + self.peer_bytes + self.lake_bytes
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Returns the increase since `before`. If the node has restarted in between, all of its counts are new.
    pub(crate) fn since(self, before: Self) -> Self {
        self.with(before, |now, before| now.checked_sub(before).unwrap_or(now))
    }

    /// Returns the counts per second of `elapsed`.
    pub(crate) fn per(self, elapsed: Duration) -> Self {
        let micros = elapsed.as_micros().max(1);
        self.with(self, |count, _| {
            u64::try_from(u128::from(count) * 1_000_000 / micros).unwrap_or(u64::MAX)
        })
    }

    fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            local_bytes: combine(self.local_bytes, other.local_bytes),
            peer_bytes: combine(self.peer_bytes, other.peer_bytes),
            lake_bytes: combine(self.lake_bytes, other.lake_bytes),
            reads_of_several: combine(self.reads_of_several, other.reads_of_several),
            reads_in_part: combine(self.reads_in_part, other.reads_in_part),
            from_lake_bytes: combine(self.from_lake_bytes, other.from_lake_bytes),
            lake_requests: combine(self.lake_requests, other.lake_requests),
            lake_failures: combine(self.lake_failures, other.lake_failures),
            peers_asked: combine(self.peers_asked, other.peers_asked),
            peers_failed: combine(self.peers_failed, other.peers_failed),
            peers_served: combine(self.peers_served, other.peers_served),
        }
    }
}

/// Returns the narrowest of `layers` layers that nodes at `place` and `other` share. Nodes of L2 share all
/// parts of a topology except the last one, those of L3 all except the last two, and so on.
fn layer_shared(place: &str, other: &str, layers: usize) -> Option<usize> {
    let (parts, shared) = (place.split('/').count(), shared_levels(place, other));
    (2..=layers).find(|layer| parts.saturating_sub(layer - 1) <= shared)
}

/// Returns the path under which a node serves another node's pages. Tokens are sent only to the address that
/// the operator gave, not to addresses learned by gossip.
pub(crate) fn pages_of(name: &str) -> String {
    format!("/nodes/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// Fetches the numbers of the node `name` from its `pages` on the node that is asked.
async fn numbers(client: &AdminClient, pages: &str, name: &str) -> Result<Numbers, String> {
    let (status, metrics) = (format!("{pages}/status"), format!("{pages}/metrics"));
    let (status, metrics) = tokio::join!(client.get::<Status>(&status), client.text(&metrics));
    let status = status.map_err(|error| error.to_string())?;
    let metrics = metrics.map_err(|error| error.to_string())?;
    if status.node.name != name {
        return Err(format!("{} answered as {}", client.url(), status.node.name));
    }
    let cooperation = status.cooperation.unwrap_or_default();
    let peers = &cooperation.peers;
    let served = cooperation.answered.get("served");
    let read = |source: Source| read_bytes(&metrics, source);
    let several = &status.reads.of_several_blocks;
    Ok(Numbers {
        traffic: Traffic {
            local_bytes: read(Source::Local),
            peer_bytes: read(Source::Peer),
            lake_bytes: read(Source::Lake),
            reads_of_several: several.values().sum(),
            reads_in_part: several.get("partial").copied().unwrap_or_default(),
            from_lake_bytes: status.lake.bytes_received,
            lake_requests: status.lake.requests.values().sum(),
            lake_failures: failed(&status.lake),
            peers_asked: peers.iter().map(|peer| peer.asked).sum(),
            peers_failed: peers.iter().map(|peer| peer.failed).sum(),
            peers_served: served.copied().unwrap_or_default(),
        },
        lake: LakeHealth {
            reads_p99_ms: status.lake.first_byte_ms.get("read").and_then(|read| read.p99),
        },
        store: status.store,
        layers: status.layers,
        drain: status.drain,
        tiers: status.write_back.tiers,
        directory: status.directory,
        link: status.link,
        quotas: status.quotas,
        conditions: status.conditions,
    })
}

/// Returns the requests to the lake that were not answered, broke off, or were answered with a server error.
fn failed(lake: &LakePage) -> u64 {
    let trouble = lake.answers.iter().filter(|(status, _)| status.starts_with('5'));
    lake.failures.values().sum::<u64>() + trouble.map(|(_, count)| count).sum::<u64>()
}

/// Returns the bytes sent to clients from `source`, according to the metrics.
fn read_bytes(metrics: &str, source: Source) -> u64 {
    let name = format!("shoal_read_bytes_total{{source=\"{}\"}} ", source.as_str());
    let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
    value.and_then(|value| value.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use shoal_policy::Source;

    use super::{Traffic, layer_shared, read_bytes};

    #[test]
    fn nodes_share_the_layer_of_the_prefix_they_have_in_common() {
        let shared = |other| layer_shared("dc1/a/r1", other, 3);
        assert_eq!(shared("dc1/a/r2"), Some(2));
        assert_eq!(shared("dc1/a/r1"), Some(2), "two nodes of one rack");
        assert_eq!(shared("dc1/b/r1"), Some(3));
        assert_eq!(shared("dc2/a/r1"), None);
        assert_eq!(layer_shared("dc1/a/r1", "dc1/b/r1", 2), None);
    }

    #[test]
    fn bytes_are_found_among_the_metrics_by_their_source() {
        let metrics = "# TYPE x counter\nshoal_read_bytes_total{source=\"local\"} 7\nshoal_read_bytes_total{source=\"lake\"} 9\n";
        assert_eq!(read_bytes(metrics, Source::Local), 7);
        assert_eq!(read_bytes(metrics, Source::Lake), 9);
        assert_eq!(read_bytes(metrics, Source::Peer), 0);
    }

    #[test]
    fn a_node_that_began_anew_has_counted_all_since() {
        let count = |lake_requests| Traffic {
            lake_requests,
            ..Traffic::default()
        };
        assert_eq!(count(9).since(count(4)), count(5));
        assert_eq!(count(3).since(count(4)), count(3));
    }
}
