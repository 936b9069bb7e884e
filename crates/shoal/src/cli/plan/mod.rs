//! `shoal plan`: what jobs will read, and when it should be fetched. One file per verb.

mod carry;
pub(super) mod history;
mod make;
mod planner;
mod predict;
mod what_if;
mod words;

use clap::{Args, Subcommand};

use super::failure::Failure;

const EXAMPLES: &str = "
Times are UTC. The plan is JSON on stdout, for the coordinator; docs/reference/plan.md describes it. With
--explain or --what-if the answer takes its place.

Examples:
  shoal plan /var/log/spark-events --window 6h --bandwidth 10Gbit --cache 1TiB > plan
  shoal plan jobs.csv --bandwidth 10Gbit --cache 1TiB --what-if bandwidth=20Gbit --what-if slack=1.5x,cache=2x
  shoal plan --plan plan --explain 'orders_daily_*' --plot plan.svg";

/// Plan what to fetch before jobs need it, so that they meet their deadlines
///
/// Most of what an analytics cluster reads tomorrow it read yesterday at the same hour. The command learns
/// from the history of jobs which will run in a window and what they will read, and plans what is fetched
/// into the cache when and at which rate, what is kept, and at which rate jobs read the rest. It needs no
/// node and fetches nothing.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = format!("{}\n{EXAMPLES}", history::AFTER_HELP)
)]
pub(super) struct Plan {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    make: make::Make,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Predict(predict::Predict),
    Start(carry::Start),
    Show(carry::Show),
    Stop(carry::Stop),
}

impl Plan {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.verb {
            Some(Verb::Predict(predict)) => predict.run(),
            Some(Verb::Start(start)) => start.run(),
            Some(Verb::Show(show)) => show.run(),
            Some(Verb::Stop(stop)) => stop.run(),
            None => self.make.run(),
        }
    }
}
