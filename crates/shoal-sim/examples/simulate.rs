//! `shoal sim` for experiments, without building a node: `cargo run --release -p shoal-sim --example simulate --`
//!
//! - `EXPERIMENT.toml [FOLDER]` runs an experiment; its results go into `results` beside it, or into FOLDER;
//! - `TRACE BLOCK POLICIES CAPACITIES` compares policies on one cache, as `shoal sim TRACE --block --policy --capacity` does.

use std::error::Error;
use std::path::Path;
use std::thread::available_parallelism;

use shoal_sim::Granularity;
use shoal_sim::compare::Comparison;
use shoal_sim::experiment::Experiment;
use shoal_sim::trace::Trace;
use shoal_sim::units::{Capacity, Size};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let threads = available_parallelism().map_or(1, usize::from);
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [path] => experiment(
            Path::new(path),
            &Path::new(path).with_file_name("results"),
            threads,
        ),
        [path, folder] => experiment(Path::new(path), Path::new(folder), threads),
        [trace, block, policies, capacities] => {
            let Size(block_bytes) = Size::parse(block).ok_or("BLOCK is a size, such as 4MiB")?;
            let capacity =
                |text| Capacity::parse(text).ok_or("CAPACITIES are sizes or shares, such as 1GB,5%");
            let comparison = Comparison {
                granularity: Granularity::blocks(block_bytes),
                contenders: policies.split(',').map(str::parse).collect::<Result<_, _>>()?,
                capacities: capacities.split(',').map(capacity).collect::<Result<_, _>>()?,
                threads,
            };
            let accesses = || Trace::open(Path::new(trace), None).map(Trace::accesses);
            let compared = comparison.run(&accesses, &mut |_| ())?;
            print!("{}", compared.csv());
            Ok(())
        }
        _ => Err("EXPERIMENT.toml [FOLDER], or TRACE BLOCK POLICIES CAPACITIES".into()),
    }
}

fn experiment(path: &Path, folder: &Path, threads: usize) -> Result<(), Box<dyn Error>> {
    let results = Experiment::open(path)?.run(threads, |_| ())?;
    results.write(folder)?;
    println!("{}", results.text());
    Ok(())
}
