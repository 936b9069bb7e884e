//! `--rehearse`: the forecast comes true, with the plan and without it, in simulated time.

use std::fmt::Write as _;

use serde::Serialize;
use shoal_plan::execution::{Course, Policy, run};
use shoal_plan::{Plan, Request};

use super::what_if::amount;

/// Lead time of a prefetch without a plan, as in the paper.
const AHEAD_S: f64 = 900.0;

/// Results of the forecast jobs, one row for each policy.
#[derive(Debug, Serialize)]
pub(super) struct Rehearsal {
    jobs: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    policy: &'static str,
    in_time: usize,
    link_bytes: f64,
    peak_bytes_per_second: f64,
}

impl Rehearsal {
    /// Runs the jobs of the request under each policy.
    pub(super) fn of(request: &Request, plan: &Plan) -> Self {
        let policies = [
            ("every job reads from the lake", Policy::RemoteRead),
            ("a cache that evicts by LRU", Policy::Lru),
            ("a cache that evicts by LIFE", Policy::Life),
            (
                "LIFE, fetching 15 min ahead",
                Policy::FixedTimePrefetch {
                    ahead_s: AHEAD_S,
                    forecast: request,
                },
            ),
            (
                "this plan",
                Policy::Plan {
                    plan,
                    is_metered: true,
                    replanning: None,
                },
            ),
        ];
        let row = |(name, policy)| {
            let report = run(&Course {
                request,
                policy,
                ad_hoc: &[],
            });
            Row {
                policy: name,
                in_time: report
                    .in_time(request)
                    .into_iter()
                    .filter(|in_time| *in_time)
                    .count(),
                link_bytes: report.link_bytes,
                peak_bytes_per_second: report.peak_bytes_per_second(),
            }
        };
        Self {
            jobs: request.jobs.len(),
            rows: policies.map(row).into(),
        }
    }

    /// The table.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "If all comes as forecast:\n  {:<29}  {:>13}  {:>11}  {:>12}\n",
            "", "in time", "of the lake", "peak"
        );
        for row in &self.rows {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "  {:<29}  {:>13}  {:>11}  {:>10}/s",
                row.policy,
                format!("{} of {}", row.in_time, self.jobs),
                amount(row.link_bytes),
                amount(row.peak_bytes_per_second)
            );
        }
        text
    }
}
