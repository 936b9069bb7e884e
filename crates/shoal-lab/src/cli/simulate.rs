//! `shoal-lab simulate`: runs an experiment with clusters.

use std::error::Error;
use std::path::PathBuf;

use clap::Args;
use shoal_lab::experiment::Experiment;

use super::threads;

/// Run an experiment: a cluster, links, clients, a workload, and a grid of variations
///
/// It runs on every processor and writes tables and plots. The same file and seed give the same bytes.
#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// The experiment
    #[arg(value_name = "EXPERIMENT.toml")]
    path: PathBuf,
    /// Run what its [quick] says: fewer seeds, larger blocks
    #[arg(long)]
    quick: bool,
    /// Write into this folder instead of `results` beside the experiment
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Simulate {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let Self { path, quick, out } = self;
        let experiment = if quick {
            Experiment::open_quick(&path)?
        } else {
            Experiment::open(&path)?
        };
        let runs = experiment.runs();
        let results = experiment.run(threads(), |done| eprintln!("{done} of {runs} runs"))?;
        results.write(&out.unwrap_or_else(|| path.with_file_name("results")))?;
        print!("{}", results.text());
        Ok(())
    }
}
