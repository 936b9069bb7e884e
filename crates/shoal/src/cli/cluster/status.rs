//! `shoal status`: an overview of a cluster.

use std::fmt::Write as _;

use clap::Args;
use shoal_base::terminal::{self, table};
use shoal_net::ConditionName;
use shoal_node::HandoffPhase;
use shoal_node::admin::status::{CoherenceFigures, DirectoryPage, GwfFigures, TierPage};
use shoal_orders::{JobStatus, TaskState};

use super::admin::{AdminPort, failed};
use super::link::{link_words, quota_words};
use super::overview::{Answer, NodeView, Numbers, Overview, TasksView, Traffic};
use super::task::plan_state::job_counts;
use super::task::progress::line;
use super::task::what;
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::output::{bytes, counted, print_result, some_of};

const AFTER_HELP: &str = "\
The columns local, peer and lake are shares of the bytes sent to clients. In part are those of the reads of several
blocks that found some of these on a node and waited for the others. Counts begin when a node starts.
The command asks each member at its advertised admin address and waits a second. It shows which nodes do not
answer.";

/// Show the nodes of a cluster: layers, states, bytes held, sources of the bytes sent
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Status {
    #[command(flatten)]
    admin: AdminPort,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(crate) fn run(self) -> Result<(), Failure> {
        block_on(async move {
            let asked = Overview::ask(&self.admin.client()?).await;
            let overview = asked.map_err(failed("the cluster cannot be shown"))?;
            print_result(self.json, &overview, || to_text(&overview));
            Ok(())
        })
    }
}

/// Formats everything as text, without colour.
pub(crate) fn to_text(overview: &Overview) -> String {
    let mut text = summary(overview);
    text.push('\n');
    text += &table(rows(overview, |_, traffic| traffic));
    for node in &overview.nodes {
        text += &remarks(node);
    }
    text
}

/// Returns the number of nodes, in total and by state.
pub(crate) fn summary(overview: &Overview) -> String {
    let nodes = &overview.nodes;
    let in_state = |word: &str| nodes.iter().filter(|node| state(node) == word).count() as u64;
    let silent = nodes.iter().filter(|node| node.numbers().is_none()).count() as u64;
    let mut text = format!(
        "{} seen by {}: {} serving",
        counted(nodes.len(), "node"),
        overview.seen_by,
        in_state("serving")
    );
    let others = [
        (in_state("draining"), "draining"),
        (in_state("drained"), "drained"),
        (silent, "not answering"),
    ];
    text.extend(some_of(&others).map(|other| format!(", {other}")));
    text.push('\n');
    text += &task_lines(overview);
    text += &plan_lines(overview);
    text
}

/// Maximum number of jobs at risk that are listed.
const JOBS_SHOWN: usize = 8;

/// Describes the plan in force and its jobs at risk.
fn plan_lines(overview: &Overview) -> String {
    let Some(plan) = &overview.plan else {
        return String::new();
    };
    let mut text = format!(
        "plan: {}; {} fetched, {} planned until now\n",
        job_counts(&plan.jobs),
        bytes(plan.done_bytes),
        bytes(plan.planned_bytes)
    );
    let at_risk = plan.troubled.iter().filter(|job| job.status == JobStatus::AtRisk);
    for job in at_risk.take(JOBS_SHOWN) {
        let _ = writeln!(
            text,
            "job at risk: {}, submitted {}, deadline {}",
            job.job, job.submit, job.deadline
        );
    }
    text
}

/// Lists the running tasks with their progress, and counts the queued ones.
fn task_lines(overview: &Overview) -> String {
    let TasksView { counts, latest } = &overview.tasks;
    let mut text = String::new();
    // The plan has lines of its own.
    for task in latest.iter().filter(|task| task.progress.plan.is_none()) {
        let _ = writeln!(text, "task {} of {}: {}", task.id, what(task), line(task, false));
    }
    let others = counts
        .in_state(TaskState::Running)
        .saturating_sub(latest.len() as u64);
    let others = [
        (others, "more running"),
        (counts.in_state(TaskState::Queued), "queued"),
        (counts.at_risk, "at risk of missing a deadline"),
    ];
    text.extend(some_of(&others).map(|other| format!("tasks: {other}\n")));
    text
}

const HEAD: [&str; 14] = [
    "node",
    "place",
    "layer",
    "state",
    "held",
    "room",
    "local",
    "peer",
    "lake",
    "in part",
    "sent",
    "from lake",
    "lake p99",
    "peers asked",
];

/// Returns a row for each node, and a total. `traffic` selects the counts to show.
pub(crate) fn rows(overview: &Overview, traffic: impl Fn(&str, Traffic) -> Traffic) -> Vec<[String; 14]> {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for node in &overview.nodes {
        let layer = node.layer.map_or_else(|| "-".into(), |layer| format!("L{layer}"));
        let mut row: [String; 14] = std::array::from_fn(|_| "-".into());
        row[..4].clone_from_slice(&[node.name.clone(), node.topology.clone(), layer, state(node)]);
        if let Some(numbers) = node.numbers() {
            row[4] = bytes(numbers.store.counts.resident_bytes);
            row[5] = bytes(numbers.store.counts.capacity_bytes);
            row[6..].clone_from_slice(&shares(
                traffic(&node.name, numbers.traffic),
                numbers.lake.reads_p99_ms,
            ));
        }
        rows.push(row);
    }
    let numbers = overview.nodes.iter().filter_map(NodeView::numbers);
    let stores = numbers.map(|numbers| &numbers.store.counts);
    let mut all: [String; 14] = std::array::from_fn(|_| String::new());
    all[0] = "all".into();
    all[4] = bytes(stores.clone().map(|store| store.resident_bytes).sum());
    all[5] = bytes(stores.map(|store| store.capacity_bytes).sum());
    all[6..].clone_from_slice(&shares(traffic("", overview.total), None));
    rows.push(all);
    rows
}

fn state(node: &NodeView) -> String {
    match (&node.answer, node.numbers().and_then(|numbers| numbers.drain)) {
        (Answer::Unreachable(_), _) => format!("{}?", node.state),
        (_, Some(drain)) if drain.state == HandoffPhase::Drained => "drained".into(),
        _ => node.state.clone(),
    }
}

/// Formats the share of each source, and the amounts.
fn shares(traffic: Traffic, lake_p99_ms: Option<f64>) -> [String; 8] {
    let sent = traffic.sent_bytes();
    let percent = |part: u64, all: u64| match all {
        0 => "-".into(),
        all => format!("{:.1}%", part as f64 / all as f64 * 100.0),
    };
    let share = |part: u64| percent(part, sent);
    let asked = |count: u64, failed: u64| match failed {
        0 => count.to_string(),
        failed => format!("{count} ({failed} failed)"),
    };
    let from_lake = asked(traffic.lake_requests, traffic.lake_failures);
    [
        share(traffic.local_bytes),
        share(traffic.peer_bytes),
        share(traffic.lake_bytes),
        percent(traffic.reads_in_part, traffic.reads_of_several),
        bytes(sent),
        format!("{} in {from_lake}", bytes(traffic.from_lake_bytes)),
        lake_p99_ms.map_or_else(|| "-".into(), |ms| format!("{ms} ms")),
        asked(traffic.peers_asked, traffic.peers_failed),
    ]
}

/// Formats what has no column in the table, one remark a line.
pub(crate) fn remarks(node: &NodeView) -> String {
    let name = terminal::line(&node.name);
    let remarks = match &node.answer {
        Answer::Unreachable(why) => vec![format!("no numbers: {why}")],
        Answer::Numbers(numbers) => remarks_on(numbers),
    };
    let lines = remarks.iter().map(|remark| format!("{name}: {remark}\n"));
    lines.collect()
}

fn remarks_on(numbers: &Numbers) -> Vec<String> {
    // The table shows which nodes drain.
    let conditions = numbers.conditions.iter();
    let conditions = conditions.filter(|condition| condition.condition != ConditionName::Draining.as_str());
    let mut remarks: Vec<String> = conditions.map(|condition| condition.detail.clone()).collect();
    if numbers.layers.len() > 1 {
        let layers = numbers.layers.iter().map(|layer| {
            let (used, target) = (bytes(layer.used_bytes), bytes(layer.target_bytes));
            format!("{} {used} of {target}", layer.layer)
        });
        remarks.push(format!("split {}", layers.collect::<Vec<_>>().join(", ")));
    }
    let pins = &numbers.store.counts.pins;
    if pins.objects > 0 {
        let (size, most) = (bytes(pins.bytes), bytes(pins.bytes_max));
        let objects = counted(pins.objects, "object");
        remarks.push(format!("pinned {objects}, {size} of at most {most}"));
    }
    if let Some(directory) = &numbers.directory {
        remarks.push(directory_words(directory, numbers.traffic));
        remarks.extend(directory.coherent.as_ref().map(coherent_words));
    }
    remarks.extend(numbers.link.as_ref().map(link_words));
    remarks.extend(numbers.quotas.iter().map(quota_words));
    remarks.extend(numbers.tiers.iter().map(backlog));
    if let Some(drain) = numbers.drain.filter(|drain| drain.state != HandoffPhase::Serving) {
        remarks.push(format!(
            "handed over {} ({}), {} left, {} that no other node took",
            counted(drain.blocks_given, "block"),
            bytes(drain.bytes_given),
            drain.blocks_left,
            drain.blocks_kept
        ));
    }
    remarks
}

/// Describes the health of the directory, and its savings: bytes from peers instead of from the lake.
fn directory_words(directory: &DirectoryPage, traffic: Traffic) -> String {
    let look = directory.requests.get("look");
    let mut text = match look.and_then(|look| look.mean_answer_ms) {
        _ if !directory.answers => "directory silent".into(),
        Some(ms) => format!("directory answers in {ms:.2} ms"),
        None => "directory not asked yet".into(),
    };
    let _ = write!(text, ", {} from other nodes", bytes(traffic.peer_bytes));
    if let Some(GwfFigures { kept, pushes, .. }) = &directory.gwf {
        let pushed = pushes.get("taken").copied().unwrap_or_default();
        let copies = if *kept == 1 { "copy" } else { "copies" };
        let _ = write!(text, ", {kept} last {copies} kept, {pushed} pushed");
    }
    text
}

/// Describes how many reads of coherent objects needed no request to the lake, and why others did.
fn coherent_words(coherent: &CoherenceFigures) -> String {
    let settled = coherent.looks.get("settled").copied().unwrap_or_default();
    let all: u64 = coherent.looks.values().sum();
    let mut text = format!("coherent: {settled} of {all} looks saved a question to the lake");
    if !coherent.attached {
        text += "; writes through this node are not told";
    }
    if !coherent.absent.is_empty() {
        let _ = write!(
            text,
            "; not told of writes through {}",
            coherent.absent.join(", ")
        );
    }
    text
}

/// Describes a node's dirty objects in one tier.
fn backlog(tier: &TierPage) -> String {
    let TierPage {
        name,
        objects,
        oldest_seconds,
        age_seconds,
        failed,
        ..
    } = tier;
    let mut text = format!("tier {name}: {objects} dirty");
    if let Some(oldest) = oldest_seconds {
        let _ = write!(text, ", the oldest for {oldest} s");
    }
    let _ = write!(text, ", due after {age_seconds} s");
    if *failed > 0 {
        let _ = write!(text, ", {failed} that the lake did not take");
    }
    let (held, room) = (bytes(tier.bytes), bytes(tier.capacity_bytes));
    let _ = write!(text, "; {held} of {room} in its store");
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;
    use shoal_net::Condition;
    use shoal_node::admin::status::{
        CoherenceFigures, Counters, DirectoryPage, DirectoryRequests, GwfFigures, LayerPage, LinkFigures,
        PinCounts, QuotaPage, StorePage, TaskFigures, TierPage,
    };
    use shoal_node::{HandoffPhase, HandoffProgress};
    use shoal_orders::{JobCounts, Task};

    use super::super::overview::{LakeHealth, Numbers, PlanSummary, TasksView};
    use super::{Answer, ConditionName, NodeView, Overview, Traffic, to_text};

    const TRAFFIC: Traffic = Traffic {
        local_bytes: 3 << 20,
        peer_bytes: 1 << 20,
        lake_bytes: 0,
        reads_of_several: 50,
        reads_in_part: 1,
        from_lake_bytes: 1 << 20,
        lake_requests: 5,
        lake_failures: 3,
        peers_asked: 16,
        peers_failed: 2,
        peers_served: 7,
    };

    /// Two nodes: one with these counts, and one that does not answer.
    pub(in crate::cli) fn overview(traffic: Traffic) -> Overview {
        let numbers = Numbers {
            store: StorePage {
                health: json!({ "paused": "write: no space" }),
                counts: Counters {
                    capacity_bytes: 1 << 30,
                    resident_bytes: 1 << 20,
                    blocks: 16,
                    pins: PinCounts {
                        objects: 3,
                        bytes: 1 << 19,
                        bytes_max: 1 << 29,
                    },
                    ..Counters::default()
                },
                ..StorePage::default()
            },
            lake: LakeHealth {
                reads_p99_ms: Some(2.5),
            },
            layers: ["L1", "L2"]
                .map(|layer| LayerPage {
                    layer: layer.into(),
                    target_bytes: 1 << 29,
                    used_bytes: 1 << 19,
                    ..LayerPage::default()
                })
                .into(),
            conditions: vec![
                Condition::new(ConditionName::Draining, "in the table"),
                Condition::new(ConditionName::StorePaused, "it stores nothing: write: no space"),
            ],
            tiers: vec![TierPage {
                name: "a".into(),
                objects: 12,
                bytes: 3 << 20,
                capacity_bytes: 1 << 30,
                oldest_seconds: Some(41),
                age_seconds: 60,
                failed: 2,
                ..TierPage::default()
            }],
            directory: Some(directory()),
            link: Some(LinkFigures {
                bandwidth_bytes_per_second: 1_250_000_000,
                ..LinkFigures::default()
            }),
            quotas: vec![QuotaPage {
                name: "AK".into(),
                room_bytes: Some(1 << 20),
                used_bytes: 512 << 10,
                ..QuotaPage::default()
            }],
            drain: Some(HandoffProgress {
                state: HandoffPhase::Drained,
                blocks_given: 4,
                blocks_kept: 1,
                ..HandoffProgress::default()
            }),
            traffic,
        };
        let node = |name: &str, layer, answer| NodeView {
            name: name.into(),
            topology: format!("dc/a/{name}"),
            layer,
            state: "draining".into(),
            admin: "127.0.0.1:9100".into(),
            answer,
        };
        Overview {
            seen_by: "n0".into(),
            nodes: vec![
                node("n0", Some(1), Answer::Numbers(Box::new(numbers))),
                node("n1", None, Answer::Unreachable("connection refused".into())),
            ],
            total: traffic,
            tasks: TasksView {
                counts: TaskFigures {
                    states: [("queued".into(), 1), ("running".into(), 3)].into(),
                    ..TaskFigures::default()
                },
                latest: vec![running()],
            },
            plan: Some(plan()),
        }
    }

    fn directory() -> DirectoryPage {
        DirectoryPage {
            answers: true,
            requests: [(
                "look".into(),
                DirectoryRequests {
                    answered: 9,
                    mean_answer_ms: Some(0.214),
                    ..DirectoryRequests::default()
                },
            )]
            .into(),
            gwf: Some(GwfFigures {
                kept: 5,
                pushes: [("taken".into(), 2), ("refused".into(), 1)].into(),
                ..GwfFigures::default()
            }),
            coherent: Some(CoherenceFigures {
                attached: true,
                absent: vec!["n1".into()],
                looks: [("settled".into(), 7), ("node-absent".into(), 2)].into(),
                ..CoherenceFigures::default()
            }),
            ..DirectoryPage::default()
        }
    }

    fn plan() -> PlanSummary {
        let job = json!({
            "job": "etl", "status": "at-risk", "submit": "2026-11-24T01:00:00Z",
            "deadline": "2026-11-24T02:00:00Z",
        });
        PlanSummary {
            jobs: JobCounts {
                at_risk: 1,
                met: 4,
                ..JobCounts::default()
            },
            planned_bytes: 3 << 20,
            done_bytes: 2 << 20,
            troubled: vec![serde_json::from_value(job).unwrap()],
        }
    }

    fn running() -> Task {
        serde_json::from_value(json!({
            "id": "01JDB", "kind": "prefetch", "uri": "s3://b/p", "created": "2026-11-24T00:00:00Z",
            "accepted_by": "n0", "forgotten": "2026-12-02T00:00:00Z", "state": "running",
            "objects": { "done": 3, "unchanged": 0, "skipped": 0, "failed": 0, "total": 8 },
            "bytes": { "done": 1 << 20, "cached": 0, "from_lake": 1 << 20, "from_peers": 0, "pinned": 0,
                "removed": 0, "total": 4 << 20 },
        }))
        .unwrap()
    }

    #[test]
    fn a_cluster_is_told_in_a_table_and_a_line_for_whatever_is_unusual() {
        let expected = "\
2 nodes seen by n0: 0 serving, 1 drained, 1 not answering
task 01JDB of s3://b/p: prefetch: 25%, 1.0 MiB of 4.0 MiB, 3 of 8 objects
tasks: 2 more running
tasks: 1 queued
plan: 4 met, 1 at risk; 2.0 MiB fetched, 3.0 MiB planned until now
job at risk: etl, submitted 2026-11-24T01:00:00.000Z, deadline 2026-11-24T02:00:00.000Z

node  place    layer  state      held     room     local  peer   lake  in part  sent     from lake                lake p99  peers asked
n0    dc/a/n0  L1     drained    1.0 MiB  1.0 GiB  75.0%  25.0%  0.0%  2.0%     4.0 MiB  1.0 MiB in 5 (3 failed)  2.5 ms    16 (2 failed)
n1    dc/a/n1  -      draining?  -        -        -      -      -     -        -        -                        -         -
all                              1.0 MiB  1.0 GiB  75.0%  25.0%  0.0%  2.0%     4.0 MiB  1.0 MiB in 5 (3 failed)  -         16 (2 failed)
n0: it stores nothing: write: no space
n0: split L1 512 KiB of 512 MiB, L2 512 KiB of 512 MiB
n0: pinned 3 objects, 512 KiB of at most 512 MiB
n0: directory answers in 0.21 ms, 1.0 MiB from other nodes, 5 last copies kept, 2 pushed
n0: coherent: 7 of 9 looks saved a question to the lake; not told of writes through n1
n0: link of 10.0 Gbit/s each way; down 0.00 kbit/s; up 0.00 kbit/s
n0: quota of AK: 512 KiB of 1.0 MiB
n0: tier a: 12 dirty, the oldest for 41 s, due after 60 s, 2 that the lake did not take; 3.0 MiB of 1.0 GiB in its store
n0: handed over 4 blocks (0 B), 0 left, 1 that no other node took
n1: no numbers: connection refused
";
        let text = to_text(&overview(TRAFFIC));
        assert!(text == expected, "{text}");
    }

    #[test]
    fn a_node_that_does_not_answer_is_shown_with_its_reason_in_json() {
        let told = json!(overview(TRAFFIC));
        assert_eq!(told["nodes"][1]["unreachable"], "connection refused");
        assert_eq!(told["nodes"][0]["numbers"]["traffic"]["peers_asked"], 16);
    }
}
