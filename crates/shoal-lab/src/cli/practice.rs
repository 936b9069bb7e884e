//! The bytes that today's policies and the bound read of the lake if an experiment's cluster is one cache:
//! `cargo run --release -p shoal-sim --example practice -- NAME EXPERIMENT.toml [--quick]` prints a line of
//! CSV for each.

use std::error::Error;
use std::path::Path;
use std::thread::available_parallelism;

use shoal_sim::compare::{Comparison, Contender};
use shoal_sim::experiment::{Experiment, Label, Merged};
use shoal_sim::policy::PolicyName;
use shoal_sim::units::Capacity;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, path, rest @ ..] = args.as_slice() else {
        return Err("usage: practice NAME EXPERIMENT.toml [--quick]".into());
    };
    let path = Path::new(path);
    let experiment = if rest.is_empty() {
        Experiment::open(path)?
    } else {
        Experiment::open_quick(path)?
    };
    for stream in experiment.merged()? {
        compare(name, &stream)?;
    }
    Ok(())
}

fn compare(name: &str, stream: &Merged) -> Result<(), Box<dyn Error>> {
    let policies = PolicyName::of_lone_nodes().map(Contender::policy);
    let comparison = Comparison {
        granularity: stream.granularity,
        contenders: policies.chain([Contender::Belady]).collect(),
        capacities: vec![Capacity::Bytes(stream.capacity_bytes)],
        threads: available_parallelism().map_or(1, usize::from),
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
