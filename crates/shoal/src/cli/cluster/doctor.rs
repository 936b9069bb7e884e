//! `shoal doctor`: looks for what is wrong with a cluster, and says what to do.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use clap::Args;
use futures_util::future::join_all;
use serde::Serialize;
use shoal_net::clock;
use shoal_node::admin::client::AdminClient;
use shoal_node::admin::history::HistoryPage;
use shoal_node::admin::members::Members;
use shoal_node::admin::status::{LakePage, Status, TierPage};
use shoal_orders::TaskState;

use super::admin::{AdminPort, failed};
use super::overview::pages_of;
use crate::cli::block_on;
use crate::cli::failure::Failure;
use crate::cli::output::{bytes, counted, print_result};

/// The share of failed requests from which the lake or another node is worth a look, and the number of
/// requests without which a share means nothing.
const FAILED_SHARE: f64 = 0.01;
const REQUESTS_MIN: u64 = 100;

/// The share of a tier's or registry's room from which it is worth a look.
const FULL_SHARE: f64 = 0.8;

/// The difference between two clocks that is worth a look, beyond the age of a sample, in seconds. Signatures
/// and gossip bear 15 minutes, deadlines of plans less.
const CLOCK_SECONDS: u64 = 20;

const AFTER_HELP: &str = "\
It asks one node, and through it all others; nothing is changed, and the lake is not asked. Exit code 1: something
is wrong. `shoal serve --check` examines a configuration before a node starts with it.";

/// Look for what is wrong with a running cluster, and say what to do
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Doctor {
    #[command(flatten)]
    admin: AdminPort,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grade {
    Ok,
    Look,
    Bad,
}

/// A finding about a subject.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    grade: Grade,
    /// Such as `lake`.
    subject: &'static str,
    /// The node; `None` if it is about the cluster.
    node: Option<String>,
    what: String,
    /// What to do; empty if nothing is wrong.
    advice: String,
}

/// What the nodes answered.
struct Answers {
    nodes: Vec<(String, Result<Status, String>)>,
    /// The time of the latest sample of each node that has one, and the time here, in seconds since 1970.
    clocks: Vec<(String, u64)>,
    now: u64,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<(), Failure> {
        block_on(async move {
            let client = self.admin.client()?;
            let members = client.get::<Members>("/members").await;
            let members = members.map_err(failed("the cluster cannot be examined"))?;
            let findings = examine(&ask(&client, &members).await);
            print_result(self.json, &findings, || to_text(&findings));
            match findings
                .iter()
                .filter(|finding| finding.grade == Grade::Bad)
                .count()
            {
                0 => Ok(()),
                bad => Err(Failure::failed(format!("{} to mend", counted(bad, "fault")))),
            }
        })
    }
}

/// Returns the findings as text.
pub(super) async fn report(client: &AdminClient, members: &Members) -> String {
    to_text(&examine(&ask(client, members).await))
}

async fn ask(client: &AdminClient, members: &Members) -> Answers {
    let answers = join_all(members.members.iter().map(async |member| {
        let pages = match &member.name {
            own if *own == members.speaker => String::new(),
            other => pages_of(other),
        };
        let (status, history) = (format!("{pages}/status"), format!("{pages}/history"));
        let (status, history) = tokio::join!(client.get(&status), client.get::<HistoryPage>(&history));
        let status = status.map_err(|error| error.to_string());
        let latest = history
            .ok()
            .and_then(|history| history.rows.last()?.first().copied());
        (member.name.clone(), status, latest)
    }));
    let answers = answers.await;
    let now = clock::utc_now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Answers {
        clocks: answers
            .iter()
            .filter_map(|(name, _, latest)| Some((name.clone(), (*latest)?)))
            .collect(),
        nodes: answers
            .into_iter()
            .map(|(name, status, _)| (name, status))
            .collect(),
        now: now.as_secs(),
    }
}

/// Returns the findings, the worst first.
fn examine(answers: &Answers) -> Vec<Finding> {
    let mut findings = vec![nodes(answers), releases(answers), clocks(answers), tasks(answers)];
    for (name, status) in &answers.nodes {
        let of_node = match status {
            Ok(status) => [
                conditions(status),
                configuration(status),
                lake(&status.lake),
                disk(status),
                peers(status),
            ]
            .into_iter()
            .flatten()
            .chain(status.write_back.tiers.iter().flat_map(tier))
            .collect(),
            Err(why) => vec![bad(
                "node",
                format!("does not answer: {why}"),
                "start it, or look at its host and network",
            )],
        };
        findings.extend(of_node.into_iter().map(|finding| Finding {
            node: Some(name.clone()),
            ..finding
        }));
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
    findings
}

fn statuses(answers: &Answers) -> impl Iterator<Item = (&str, &Status)> {
    let nodes = answers.nodes.iter();
    nodes.filter_map(|(name, status)| Some((&**name, status.as_ref().ok()?)))
}

fn nodes(answers: &Answers) -> Finding {
    let what = format!(
        "{} of {} answer",
        statuses(answers).count(),
        counted(answers.nodes.len(), "node")
    );
    ok("nodes", what)
}

fn releases(answers: &Answers) -> Finding {
    let releases: BTreeSet<&str> = statuses(answers)
        .map(|(_, status)| &*status.node.version)
        .collect();
    let named = releases.iter().copied().collect::<Vec<_>>().join(", ");
    match releases.len() {
        0 | 1
            if releases
                .iter()
                .all(|release| *release == env!("CARGO_PKG_VERSION")) =>
        {
            ok("release", named)
        }
        0 | 1 => look(
            "release",
            format!(
                "the nodes run {named}, this command is {}",
                env!("CARGO_PKG_VERSION")
            ),
            "use the command of the nodes' release",
        ),
        _ => look(
            "release",
            format!("the nodes run {named}"),
            "end the upgrade: one release on all nodes",
        ),
    }
}

fn clocks(answers: &Answers) -> Finding {
    // A sample is taken every ten seconds.
    let apart = answers
        .clocks
        .iter()
        .filter(|(_, at)| at.abs_diff(answers.now) > CLOCK_SECONDS + 10);
    let apart: Vec<String> = apart
        .map(|(name, at)| format!("{name} by some {} s", at.abs_diff(answers.now)))
        .collect();
    if apart.is_empty() {
        return ok("clocks", "agree with this machine's".into());
    }
    let what = format!("differ from this machine's: {}", apart.join(", "));
    look(
        "clocks",
        what,
        "connect all machines to a time server: signatures and gossip bear 15 minutes, plans less",
    )
}

fn tasks(answers: &Answers) -> Finding {
    // Each node counts all tasks of the cluster.
    let tasks =
        statuses(answers).map(|(_, status)| (status.tasks.at_risk, status.tasks.in_state(TaskState::Failed)));
    match tasks.max() {
        Some((at_risk @ 1.., _)) => look(
            "tasks",
            format!("{} may miss a deadline", counted(at_risk as usize, "task")),
            "see `shoal tasks`: raise rates, or [lake] bandwidth",
        ),
        Some((_, failed @ 1..)) => look(
            "tasks",
            format!("{failed} of those remembered failed"),
            "see `shoal tasks --state failed`",
        ),
        _ => ok("tasks", "none failed, none at risk".into()),
    }
}

fn conditions(status: &Status) -> Vec<Finding> {
    let found = status.conditions.iter().map(|condition| {
        let what = format!("{}: {}", condition.condition, condition.detail);
        // An operator ordered it.
        let grade = if condition.condition == "draining" {
            look
        } else {
            bad
        };
        grade("condition", what, &condition.advice)
    });
    found.collect()
}

fn configuration(status: &Status) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(error) = &status.config.error {
        let what = format!("the files are not in force: {error}");
        findings.push(bad(
            "configuration",
            what,
            "mend the files, and send SIGHUP; `shoal serve --check` examines them",
        ));
    }
    if !status.config.need_restart.is_empty() {
        let what = format!("needs a restart for {}", status.config.need_restart.join(", "));
        findings.push(look("configuration", what, "restart the node"));
    }
    findings
}

fn lake(lake: &LakePage) -> Vec<Finding> {
    let requests: u64 = lake.requests.values().sum();
    let errors = lake
        .answers
        .iter()
        .filter(|(status, _)| status.starts_with('5') && *status != "501");
    let failed = lake.failures.values().sum::<u64>() + errors.map(|(_, count)| count).sum::<u64>();
    let share = failed as f64 / requests.max(1) as f64;
    if requests >= REQUESTS_MIN && share > FAILED_SHARE {
        let what = format!(
            "{:.1}% of {requests} requests failed since the start",
            share * 100.0
        );
        return vec![look(
            "lake",
            what,
            "see shoal_lake_failures_total and shoal_lake_answers_total: is it throttling, or the network?",
        )];
    }
    let p99 = lake.first_byte_ms.get("read").and_then(|read| read.p99);
    let p99 = p99.map_or_else(String::new, |p99| format!(", p99 of a read {p99:.0} ms"));
    vec![ok("lake", format!("{requests} requests, {failed} failed{p99}"))]
}

fn disk(status: &Status) -> Vec<Finding> {
    let counts = &status.store.counts;
    let mut findings = Vec::new();
    if counts.corrupt_blocks > 0 {
        let what = format!(
            "{} had wrong bytes since the start, and were fetched again",
            counted(counts.corrupt_blocks as usize, "block")
        );
        findings.push(look(
            "disk",
            what,
            "look at the disk's own health (SMART) and at the kernel's log",
        ));
    }
    if counts.pins.bytes * 10 >= counts.pins.bytes_max * 9 && counts.pins.bytes > 0 {
        let what = format!(
            "pins take {} of {}",
            bytes(counts.pins.bytes),
            bytes(counts.pins.bytes_max)
        );
        findings.push(look(
            "disk",
            what,
            "end pins that nobody needs: `shoal tasks`, `shoal unpin`",
        ));
    }
    if findings.is_empty() {
        findings.push(ok(
            "disk",
            format!(
                "{} of {}",
                bytes(counts.resident_bytes),
                bytes(counts.capacity_bytes)
            ),
        ));
    }
    findings
}

fn peers(status: &Status) -> Vec<Finding> {
    let peers = status
        .cooperation
        .iter()
        .flat_map(|cooperation| &cooperation.peers);
    let found = peers.filter_map(|peer| {
        if !peer.reachable {
            return Some(bad(
                "peer",
                format!("it does not reach {}", peer.name),
                "look at the network between the two, [cooperation] listen and firewalls",
            ));
        }
        let is_often = peer.asked >= REQUESTS_MIN && peer.failed as f64 > peer.asked as f64 * FAILED_SHARE;
        let what = format!(
            "{} of {} requests to {} failed since the start",
            peer.failed, peer.asked, peer.name
        );
        is_often.then(|| {
            look(
                "peer",
                what,
                "look at the network between the two, and at the load of that node",
            )
        })
    });
    found.collect()
}

fn tier(tier: &TierPage) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_full = |used: u64, of: u64| of > 0 && used as f64 > of as f64 * FULL_SHARE;
    if is_full(tier.bytes, tier.capacity_bytes) {
        let what = format!(
            "{}: {} of {}",
            tier.name,
            bytes(tier.bytes),
            bytes(tier.capacity_bytes)
        );
        findings.push(look(
            "tier",
            what,
            "see why flushes do not keep up: `shoal status`, the link's class cleaning",
        ));
    }
    if tier.failed > 0 {
        let what = format!(
            "{}: the last flush of {} failed",
            tier.name,
            counted(tier.failed, "object")
        );
        findings.push(look("tier", what, "see write_back.troubled of `/status`"));
    }
    let late = tier
        .oldest_seconds
        .filter(|oldest| *oldest > 2 * tier.age_seconds.max(30));
    if let Some(oldest) = late {
        let what = format!(
            "{}: the oldest object waits {oldest} s, due after {} s",
            tier.name, tier.age_seconds
        );
        findings.push(look(
            "tier",
            what,
            "see whether the lake answers, and raise [lake] bandwidth",
        ));
    }
    if findings.is_empty() {
        findings.push(ok(
            "tier",
            format!(
                "{}: {} not at the lake",
                tier.name,
                counted(tier.objects as usize, "object")
            ),
        ));
    }
    findings
}

fn ok(subject: &'static str, what: String) -> Finding {
    finding(Grade::Ok, subject, what, "")
}

fn look(subject: &'static str, what: String, advice: &str) -> Finding {
    finding(Grade::Look, subject, what, advice)
}

fn bad(subject: &'static str, what: String, advice: &str) -> Finding {
    finding(Grade::Bad, subject, what, advice)
}

fn finding(grade: Grade, subject: &'static str, what: String, advice: &str) -> Finding {
    Finding {
        grade,
        subject,
        node: None,
        what,
        advice: advice.to_owned(),
    }
}

fn to_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let grade = match finding.grade {
            Grade::Ok => "ok  ",
            Grade::Look => "look",
            Grade::Bad => "BAD ",
        };
        let place = finding
            .node
            .as_ref()
            .map_or_else(String::new, |node| format!("{node}: "));
        let _ = writeln!(text, "{grade}  {:<13} {place}{}", finding.subject, finding.what);
        if !finding.advice.is_empty() {
            let _ = writeln!(text, "      {:<13} → {}", "", finding.advice);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shoal_net::{Condition, ConditionName};
    use shoal_node::admin::status::{CooperationPage, PeerPage, Status, TierPage};

    use super::{Answers, Finding, Grade, examine, to_text};

    const NOW: u64 = 1_800_000_000;

    fn well() -> Status {
        let mut status = Status::default();
        status.node.version = env!("CARGO_PKG_VERSION").into();
        status
    }

    fn examined(nodes: Vec<Result<Status, String>>, clock: u64) -> Vec<Finding> {
        examine(&Answers {
            nodes: nodes
                .into_iter()
                .enumerate()
                .map(|(number, status)| (format!("n{number}"), status))
                .collect(),
            clocks: vec![("n0".into(), clock)],
            now: NOW,
        })
    }

    /// Returns the findings that are not good, as `grade subject`.
    fn faults(change: impl FnOnce(&mut Status)) -> Vec<String> {
        let mut status = well();
        change(&mut status);
        let findings = examined(vec![Ok(status)], NOW).into_iter();
        let faults = findings.filter(|finding| finding.grade != Grade::Ok);
        faults
            .map(|finding| {
                assert!(!finding.advice.is_empty(), "{finding:?}");
                format!("{:?} {}", finding.grade, finding.subject)
            })
            .collect()
    }

    #[test]
    fn a_cluster_that_is_well_has_no_advice() {
        let findings = examined(vec![Ok(well()), Ok(well())], NOW - 9);
        assert!(
            findings.iter().all(|finding| finding.grade == Grade::Ok),
            "{findings:?}"
        );
        assert!(!to_text(&findings).contains('→'));
    }

    #[test]
    fn each_fault_is_found_with_advice() {
        assert_eq!(faults(|_| ()), Vec::<String>::new());
        assert_eq!(
            faults(|status| status.conditions = vec![Condition::new(ConditionName::StorePaused, "full")]),
            ["Bad condition"]
        );
        assert_eq!(
            faults(|status| status.conditions = vec![Condition::new(ConditionName::Draining, "an order")]),
            ["Look condition"]
        );
        assert_eq!(
            faults(|status| status.config.error = Some("line 3".into())),
            ["Bad configuration"]
        );
        assert_eq!(
            faults(|status| {
                status.lake.requests = [("get_object".into(), 1000)].into();
                status.lake.answers = [("503".into(), 11), ("501".into(), 500)].into();
            }),
            ["Look lake"]
        );
        assert_eq!(
            faults(|status| status.store.counts.corrupt_blocks = 1),
            ["Look disk"]
        );
        assert_eq!(
            faults(|status| {
                (status.store.counts.pins.bytes, status.store.counts.pins.bytes_max) = (95, 100);
            }),
            ["Look disk"]
        );
        let peer = |reachable, failed| CooperationPage {
            peers: vec![PeerPage {
                name: "n7".into(),
                reachable,
                asked: 1000,
                failed,
                differs: None,
            }],
            ..CooperationPage::default()
        };
        assert_eq!(
            faults(|status| status.cooperation = Some(peer(false, 0))),
            ["Bad peer"]
        );
        assert_eq!(
            faults(|status| status.cooperation = Some(peer(true, 11))),
            ["Look peer"]
        );
        let tier = |change: fn(&mut TierPage)| {
            faults(|status| {
                let mut tier = TierPage {
                    capacity_bytes: 100,
                    age_seconds: 60,
                    oldest_seconds: Some(90),
                    ..TierPage::default()
                };
                change(&mut tier);
                status.write_back.tiers = vec![tier];
            })
        };
        assert_eq!(tier(|_| ()), Vec::<String>::new());
        assert_eq!(tier(|tier| tier.bytes = 81), ["Look tier"]);
        assert_eq!(tier(|tier| tier.failed = 1), ["Look tier"]);
        assert_eq!(tier(|tier| tier.oldest_seconds = Some(121)), ["Look tier"]);
    }

    #[test]
    fn what_is_between_nodes_is_found() {
        let (mut old, silent) = (well(), Err("no answer".to_owned()));
        old.node.version = "0.0.1".into();
        let minute = Duration::from_mins(1).as_secs();
        let findings = examined(vec![Ok(well()), Ok(old), silent], NOW - minute);
        let subjects = |grade| {
            let found = findings.iter().filter(move |finding| finding.grade == grade);
            found.map(|finding| finding.subject).collect::<Vec<_>>()
        };
        assert_eq!(subjects(Grade::Bad), ["node"]);
        assert_eq!(subjects(Grade::Look), ["release", "clocks"]);
        assert_eq!(findings[0].node.as_deref(), Some("n2"), "the worst comes first");
    }
}
