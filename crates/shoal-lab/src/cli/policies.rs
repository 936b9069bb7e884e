//! `shoal-lab policies`: compares policies and admissions on a trace, as `shoal sim` does.

use std::error::Error;
use std::path::PathBuf;

use clap::Args;
use shoal_sim::Granularity;
use shoal_sim::compare::{Comparison, Contender};
use shoal_sim::trace::{Format, Trace};
use shoal_sim::units::{self, Capacity};

use super::threads;

/// Compare policies and admissions on a trace
///
/// It prints a line of CSV for each policy and capacity.
#[derive(Debug, Args)]
pub(crate) struct Policies {
    /// The first column
    name: String,
    /// The trace
    trace: PathBuf,
    /// Unit of caching: a size, or `object`
    block: String,
    /// Sizes of the cache
    #[arg(value_name = "CAPACITY,...")]
    capacities: String,
    /// Policies; all without it
    #[arg(value_name = "POLICY,...")]
    names: Option<String>,
}

impl Policies {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let contenders = match &self.names {
            Some(names) => names.split(',').map(str::parse).collect::<Result<_, _>>()?,
            None => Contender::all(),
        };
        let capacities = self.capacities.split(',').map(Capacity::parse);
        let comparison = Comparison {
            granularity: match units::size(&self.block) {
                Some(bytes) => Granularity::blocks(bytes),
                None => Granularity::Objects,
            },
            contenders,
            capacities: capacities
                .collect::<Option<_>>()
                .ok_or("a capacity is a share such as 5%")?,
            threads: threads(),
        };
        let granularity = comparison.granularity;
        let format = Format::of_file(&self.trace)?;
        let open = || Trace::open(&self.trace, format, granularity).map(Trace::accesses);
        let compared = comparison.run(&open, &mut |_| ())?;
        for row in &compared.rows {
            println!(
                "{},{},{},{},{},{:.5},{:.5}",
                self.name,
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
}
