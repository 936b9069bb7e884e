//! `shoal-lab practice`: what an experiment's cluster would read from the lake if it were one cache.

use std::error::Error;
use std::path::PathBuf;

use clap::Args;
use shoal_lab::experiment::{Experiment, Label, Merged};
use shoal_sim::compare::{Comparison, Contender};
use shoal_sim::policy::PolicyName;
use shoal_sim::units::Capacity;

use super::threads;

/// Send the requests of an experiment through one cache with the room of all its nodes
///
/// It prints a line of CSV for each of today's policies and for the bound.
#[derive(Debug, Args)]
pub(crate) struct Practice {
    /// The first column
    name: String,
    /// The experiment
    #[arg(value_name = "EXPERIMENT.toml")]
    path: PathBuf,
    /// Take what its [quick] says
    #[arg(long)]
    quick: bool,
}

impl Practice {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let experiment = if self.quick {
            Experiment::open_quick(&self.path)?
        } else {
            Experiment::open(&self.path)?
        };
        for stream in experiment.merged()? {
            compare(&self.name, &stream)?;
        }
        Ok(())
    }
}

fn compare(name: &str, stream: &Merged) -> Result<(), Box<dyn Error>> {
    let policies = PolicyName::of_lone_nodes().map(Contender::policy);
    let comparison = Comparison {
        granularity: stream.granularity,
        contenders: policies.chain([Contender::Belady]).collect(),
        capacities: vec![Capacity::Bytes(stream.capacity_bytes)],
        threads: threads(),
    };
    let open = || Ok(Box::new(stream.accesses.clone().into_iter().map(Ok)) as _);
    let compared = comparison.run(&open, &mut |_| ())?;
    let labels: Vec<_> = stream
        .labels
        .iter()
        .map(|Label { axis, point }| format!("{axis}={point}"))
        .collect();
    for row in &compared.rows {
        println!(
            "{name},{},{},{},{},{},{},{},{}",
            labels.join(" "),
            stream.seed,
            row.capacity_bytes,
            compared.working_set.bytes,
            row.policy,
            row.tally.requests,
            row.tally.misses(),
            row.tally.bytes - row.tally.hit_bytes
        );
    }
    Ok(())
}
