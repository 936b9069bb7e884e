//! Runs an experiment as `shoal sim` does, without the node:
//! `cargo run --release -p shoal-sim --example simulate -- EXPERIMENT.toml`.
//!
//! `--quick` runs what its `[quick]` says, `--out DIR` writes the results elsewhere than into `results`
//! beside it.

use std::error::Error;
use std::path::PathBuf;
use std::thread::available_parallelism;

use shoal_sim::experiment::Experiment;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut path, mut out, mut quick) = (None, None, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => quick = true,
            "--out" => out = Some(PathBuf::from(args.next().ok_or("--out names a folder")?)),
            _ => path = Some(PathBuf::from(arg)),
        }
    }
    let path = path.ok_or("usage: simulate EXPERIMENT.toml [--quick] [--out DIR]")?;
    let experiment = if quick {
        Experiment::open_quick(&path)?
    } else {
        Experiment::open(&path)?
    };
    let runs = experiment.runs();
    let threads = available_parallelism().map_or(1, usize::from);
    let results = experiment.run(threads, |done| eprintln!("{done} of {runs} runs"))?;
    results.write(&out.unwrap_or_else(|| path.with_file_name("results")))?;
    print!("{}", results.text());
    Ok(())
}
