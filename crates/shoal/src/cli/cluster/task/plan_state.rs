//! The plan that a cluster carries out, as text.

use std::fmt::Write as _;

use shoal_orders::{JobCounts, Task};

use crate::cli::output::{bytes, some_of};

/// The path of the plan.
pub(crate) const PATH: &str = "/plan";

/// Formats the jobs of a plan in a few words.
pub(crate) fn job_counts(counts: &JobCounts) -> String {
    let named = [
        (counts.met, "met"),
        (counts.missed, "missed"),
        (counts.unread, "unread"),
        (counts.running, "running"),
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

/// Formats the state of a plan in several lines.
pub(crate) fn summary(task: &Task) -> String {
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
    for arrival in &plan.arrivals {
        let _ = match &arrival.why {
            None => writeln!(text, "  admitted: {}, {}", arrival.job, arrival.at),
            Some(why) => writeln!(text, "  refused: {}, {}: {why}", arrival.job, arrival.at),
        };
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
            "arrivals": [{"hint": "01K", "job": "etl/a@1", "at": "2026-11-24T00:01:00Z"},
            {"hint": "01L", "job": "etl/b@1", "at": "2026-11-24T00:02:00Z", "why": "the link is short"}],
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
            "admitted: etl/a@1, 2026-11-24T00:01:00.000Z",
            "refused: etl/b@1, 2026-11-24T00:02:00.000Z: the link is short",
            "planned anew 1 times; last at 2026-11-24T00:01:00.000Z by node: it is late",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
        assert_eq!(job_counts(&JobCounts::default()), "no jobs");
    }
}
