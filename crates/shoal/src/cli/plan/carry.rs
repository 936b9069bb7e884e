//! `shoal plan start`, `show` and `stop`: a plan that the nodes of a cluster carry out.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use shoal_orders::{JobCounts, Task};

use crate::cli::block_on;
use crate::cli::cluster::admin::{AdminPort, failed};
use crate::cli::cluster::task;
use crate::cli::failure::Failure;
use crate::cli::output::{bytes, print_result, some_of, talk};

/// The path of the plan.
pub(in crate::cli) const PATH: &str = "/plan";

/// A node takes its time for a long plan.
const PATIENCE: Duration = Duration::from_mins(2);

/// Maximum size of a plan that is read; nodes have a limit of their own.
const PLAN_BYTES_MAX: u64 = 256 << 20;

const AFTER_HELP: &str = "\
The plan is what `shoal plan HISTORY --bandwidth RATE --cache SIZE` writes. Any node takes it; one of them carries
it out, and another goes on when that one dies. A cluster has one plan in force: a later one takes its place.

The lake is asked in the name of an identity of the nodes' configuration.";

/// Hand a plan to the nodes, which carry it out
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Start {
    /// File with the plan; - reads stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Access key of the identity in whose name the lake is asked; needed if the nodes know several
    #[arg(long = "as", id = "identity", value_name = "ACCESS_KEY")]
    identity: Option<String>,
    #[command(flatten)]
    admin: AdminPort,
    /// Print the plan's state as JSON
    #[arg(long)]
    json: bool,
}

/// Show how far the plan in force is, or how the last one ended
#[derive(Debug, Args)]
pub(super) struct Show {
    #[command(flatten)]
    admin: AdminPort,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// End the plan in force, and its pins; what was fetched stays like all else in the cache
#[derive(Debug, Args)]
pub(super) struct Stop {
    #[command(flatten)]
    admin: AdminPort,
    /// Print the plan's state as JSON
    #[arg(long)]
    json: bool,
}

impl Start {
    pub(super) fn run(self) -> Result<(), Failure> {
        let document = read(&self.file)?;
        block_on(async move {
            let client = self.admin.client()?.within(PATIENCE);
            let query = self.identity.map(|identity| {
                let identity = utf8_percent_encode(&identity, NON_ALPHANUMERIC);
                format!("?identity={identity}")
            });
            let path = format!("{PATH}{}", query.unwrap_or_default());
            let plan = client.post_json::<Task>(&path, document).await;
            let plan = plan.map_err(failed("the plan was not taken"))?;
            print_result(self.json, &plan, || format!("{}\n", plan.id));
            if self.json {
                return Ok(());
            }
            if let Some(replaced) = plan.order.document.and_then(|document| document.replaces) {
                let ended = format!("it takes the place of the plan {replaced}, which has ended\n");
                talk(&ended);
            }
            talk("accepted; `shoal plan show` shows its progress\n");
            Ok(())
        })
    }
}

impl Show {
    pub(super) fn run(self) -> Result<(), Failure> {
        block_on(async move {
            let plan = self.admin.client()?.get::<Task>(PATH).await;
            let plan = plan.map_err(failed("the plan cannot be shown"))?;
            task::show(&plan, self.json);
            Ok(())
        })
    }
}

impl Stop {
    pub(super) fn run(self) -> Result<(), Failure> {
        block_on(async move {
            let plan = self.admin.client()?.delete::<Task>(PATH).await;
            let plan = plan.map_err(failed("the plan was not stopped"))?;
            task::show(&plan, self.json);
            Ok(())
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable = |error| Failure::new(&format!("{} cannot be read", path.display()), &error);
    let source: Box<dyn io::Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(std::fs::File::open(path).map_err(unreadable)?)
    };
    let mut document = Vec::new();
    let read = source.take(PLAN_BYTES_MAX).read_to_end(&mut document);
    read.map_err(unreadable)?;
    Ok(document)
}

/// The jobs of a plan in a few words.
pub(in crate::cli) fn job_counts(counts: &JobCounts) -> String {
    let named = [
        (counts.met, "met"),
        (counts.missed, "missed"),
        (counts.at_risk, "at risk"),
        (counts.waiting, "waiting"),
        (counts.unplanned, "unplanned"),
    ];
    let named: Vec<_> = some_of(&named).collect();
    if named.is_empty() {
        return "no jobs".into();
    }
    named.join(", ")
}

/// A plan for people.
pub(in crate::cli) fn summary(task: &Task) -> String {
    let progress = &task.progress;
    let mut text = format!("plan {} is {}", task.id, progress.state.as_str());
    if let Some(node) = &progress.runner {
        let _ = write!(text, " on {node}");
    }
    if let Some(document) = &task.order.document {
        let _ = write!(text, ", from {} to {}", document.starts, document.ends);
    }
    text.push('\n');
    if let Some(detail) = &progress.detail {
        let _ = writeln!(text, "  {detail}");
    }
    let Some(plan) = &progress.plan else {
        return text;
    };
    let _ = writeln!(text, "jobs       {}", job_counts(&plan.jobs));
    let moved = &progress.tally.bytes;
    let _ = writeln!(
        text,
        "fetched    {} of {} planned until now, {} in all; {} from the lake, {} from other nodes",
        bytes(moved.done),
        bytes(plan.planned_bytes),
        bytes(moved.total.unwrap_or_default()),
        bytes(moved.from_lake),
        bytes(moved.from_peers),
    );
    if let Some(last) = &plan.replanned {
        let _ = writeln!(
            text,
            "planned anew {} times; last at {} by {}: {}",
            plan.replans, last.at, last.by, last.why
        );
        if let Some(detail) = &last.detail {
            let _ = writeln!(text, "  {detail}");
        }
    }
    for job in &plan.troubled {
        let status = job.status.as_str().replace('-', " ");
        let _ = writeln!(
            text,
            "  {status}: {}, submitted {}, deadline {}",
            job.job, job.submit, job.deadline
        );
    }
    for transfer in &plan.transfers {
        let _ = writeln!(
            text,
            "  fetching {}: {} of {}, {} planned, at {}/s",
            transfer.file,
            bytes(transfer.done_bytes),
            bytes(transfer.bytes),
            bytes(transfer.planned_bytes),
            bytes(transfer.bytes_per_second),
        );
    }
    for issue in &plan.issues {
        let _ = writeln!(text, "  {} {}: {}", issue.at, issue.file, issue.error);
    }
    text
}

#[cfg(test)]
mod tests {
    use shoal_orders::{JobCounts, Task};

    use super::{job_counts, summary};

    #[test]
    fn a_plan_is_told_with_its_jobs_at_risk_and_what_is_wrong() {
        let plan: Task = serde_json::from_str(
            r#"{"id": "01J", "kind": "plan", "created": "2026-11-24T00:00:00Z", "accepted_by": "n0",
            "document": {"bytes": 10, "starts": "2026-11-24T00:00:00Z", "ends": "2026-11-24T01:00:00Z",
            "jobs": 3, "planned_jobs": 2, "transfers": 4}, "forgotten": "2026-12-02T00:00:00Z",
            "state": "running", "runner": "n1",
            "objects": {"total": null, "done": 0, "unchanged": 0, "skipped": 0, "failed": 0},
            "bytes": {"total": 4096, "done": 1024, "cached": 0, "from_lake": 1024, "from_peers": 0,
            "pinned": 0, "removed": 0},
            "plan": {"planned_bytes": 2048, "replans": 1,
            "jobs": {"waiting": 1, "at_risk": 1, "met": 0, "missed": 0, "unplanned": 1},
            "troubled": [{"job": "etl", "status": "at-risk", "submit": "2026-11-24T00:10:00Z",
            "deadline": "2026-11-24T00:20:00Z"}],
            "issues": [{"at": "2026-11-24T00:01:00Z", "file": "f1", "error": "the lake does not have it"}],
            "replanned": {"at": "2026-11-24T00:01:00Z", "why": "it is late", "by": "node"}}}"#,
        )
        .unwrap();
        let text = summary(&plan);
        for wanted in [
            "plan 01J is running on n1",
            "1 at risk, 1 waiting, 1 unplanned",
            "1.0 KiB of 2.0 KiB planned until now, 4.0 KiB in all",
            "at risk: etl",
            "f1: the lake does not have it",
            "planned anew 1 times; last at 2026-11-24T00:01:00.000Z by node: it is late",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
        assert_eq!(job_counts(&JobCounts::default()), "no jobs");
    }
}
