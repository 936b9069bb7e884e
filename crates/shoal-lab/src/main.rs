//! `shoal-lab`: runs the simulations behind the published figures. One file per verb.

mod cli;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cli::generate::Generate;
use cli::policies::Policies;
use cli::practice::Practice;
use cli::predict::Predict;
use cli::rehearse::Rehearse;
use cli::simulate::Simulate;
use cli::throughput_footprint::ThroughputFootprint;
use cli::throughput_model::ThroughputModel;

/// Simulations of clusters, policies and plans: what `experiments/run.sh` calls.
#[derive(Debug, Parser)]
#[command(version)]
struct Lab {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Simulate(Simulate),
    Rehearse(Rehearse),
    Policies(Policies),
    Practice(Practice),
    ThroughputModel(ThroughputModel),
    ThroughputFootprint(ThroughputFootprint),
    Generate(Generate),
    Predict(Predict),
}

fn main() -> ExitCode {
    match Lab::parse().verb.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Verb {
    fn run(self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Simulate(simulate) => simulate.run(),
            Self::Rehearse(rehearse) => rehearse.run(),
            Self::Policies(policies) => policies.run(),
            Self::Practice(practice) => practice.run(),
            Self::ThroughputModel(model) => model.run(),
            Self::ThroughputFootprint(footprint) => footprint.run(),
            Self::Generate(generate) => generate.run(),
            Self::Predict(predict) => predict.run(),
        }
    }
}
