//! Compares policies and admissions on a trace as `shoal sim` does, without the node: `cargo run --release -p
//! shoal-sim --example policies -- NAME TRACE BLOCK [CAPACITY,...] [POLICY,...]` prints a line of CSV for
//! each.

use std::error::Error;
use std::path::Path;
use std::thread::available_parallelism;

use shoal_sim::Granularity;
use shoal_sim::compare::{Comparison, Contender};
use shoal_sim::trace::Trace;
use shoal_sim::units::{Capacity, Size};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, path, block, capacities, rest @ ..] = args.as_slice() else {
        return Err("usage: policies NAME TRACE BLOCK CAPACITY,... [POLICY,...]".into());
    };
    let contenders = match rest {
        [names] => names.split(',').map(str::parse).collect::<Result<_, _>>()?,
        _ => Contender::all(),
    };
    let capacities = capacities.split(',').map(Capacity::parse);
    let comparison = Comparison {
        granularity: match Size::parse(block) {
            Some(Size(bytes)) => Granularity::blocks(bytes),
            None => Granularity::Objects,
        },
        contenders,
        capacities: capacities
            .collect::<Option<_>>()
            .ok_or("a capacity is a share such as 5%")?,
        threads: available_parallelism().map_or(1, usize::from),
    };
    let granularity = comparison.granularity;
    let open = || Trace::open(Path::new(path), None, granularity).map(Trace::accesses);
    let compared = comparison.run(&open, &mut |_| ())?;
    for row in &compared.rows {
        println!(
            "{name},{},{},{},{},{:.5},{:.5}",
            row.capacity,
            row.policy,
            row.tally.requests,
            row.tally.misses(),
            row.miss_ratio,
            row.byte_miss_ratio
        );
    }
    Ok(())
}
