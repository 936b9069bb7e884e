//! `shoal-lab rehearse`: the forecast comes true, with the plan and without it, in simulated time.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use shoal_base::amount::human_amount;
use shoal_lab::netco::execution::{Policy, Scenario, run};
use shoal_plan::{Document, Plan, Request};

/// Lead time of a prefetch without a plan, as in the paper.
const AHEAD_S: f64 = 900.0;

/// Run the jobs of a plan in simulated time, as forecast, with the plan and without it
#[derive(Debug, Args)]
pub(crate) struct Rehearse {
    /// The plan, as `shoal plan` prints it
    plan: PathBuf,
}

impl Rehearse {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let document: Document = serde_json::from_str(&fs::read_to_string(&self.plan)?)?;
        document.check()?;
        print!("{}", Rehearsal::run(&document.request, &document.plan).text());
        Ok(())
    }
}

/// Results of the forecast jobs, one row for each policy.
struct Rehearsal {
    jobs: usize,
    rows: Vec<Row>,
}

struct Row {
    policy: &'static str,
    in_time: usize,
    link_bytes: f64,
    peak_bytes_per_second: f64,
}

impl Rehearsal {
    /// Runs the jobs of the request under each policy.
    fn run(request: &Request, plan: &Plan) -> Self {
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
            let report = run(&Scenario {
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
    fn text(&self) -> String {
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
                human_amount(row.link_bytes),
                human_amount(row.peak_bytes_per_second)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use shoal_lab::netco::{SmallSolver, table1};
    use shoal_plan::plan;

    use super::Rehearsal;

    #[test]
    fn a_rehearsal_has_a_row_for_the_plan_and_for_each_way_without_one() {
        let request = table1::request();
        let plan = plan(&request, &SmallSolver).unwrap();
        let text = Rehearsal::run(&request, &plan).text();
        let in_time = |policy: &str| text.lines().find(|line| line.contains(policy)).unwrap();
        assert!(in_time("evicts by LRU").contains(" 2 of 6 "), "{text}");
        assert!(in_time("this plan").contains(" 6 of 6 "), "{text}");
        assert_eq!(text.lines().count(), 2 + 5, "{text}");
    }
}
