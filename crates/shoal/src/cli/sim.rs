//! `shoal sim`: compares policies on a trace, and recommends a cache.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use clap::{Args, Subcommand};
use shoal_sim::Granularity;
use shoal_sim::advise::{AdviceRequest, LAKE_COST};
use shoal_sim::compare::{Comparison, Contender};
use shoal_sim::trace::{Accesses, Format, Trace, TraceError};
use shoal_sim::units::{self, Capacity, SIZE_FORM};

use super::failure::Failure;
use super::output::{pretty, print};

/// Requests between two progress reports.
const PROGRESS_EVERY: u64 = 1_000_000;

const AFTER_HELP: &str = "\
A trace is a CSV with the columns object and bytes (and time_s, client, offset_bytes, object_bytes, operation), an S3 server
access log, the access log of a node in JSON, a SWIM workload (.tsv), a WfCommons workflow (.json) or an oracleGeneral file.

Examples:
  shoal sim access.log --policy lru,sieve,belady --capacity 1%,5%,10%
  shoal sim advise access.log --nodes 4";

/// Simulate: compare policies on a trace, or ask for advice
///
/// The simulation fetches nothing and needs no node.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = AFTER_HELP)]
pub(super) struct Sim {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The trace
    #[arg(value_name = "FILE", required = true)]
    path: Option<PathBuf>,
    /// Policies to compare, alone or with an admission (lru+second-miss, lru+scan-resistant);
    /// `belady` is the bound that knows the future
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_values = ["lru", "s3-fifo", "duel", "sieve", "lfuda"]
    )]
    policy: Vec<Contender>,
    /// Sizes of the cache to compare, as shares of the bytes that the trace touches or as sizes
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = capacity, default_values = ["1%", "5%", "10%"])]
    capacity: Vec<Capacity>,
    /// Write the table and the plot into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    trace: TraceFlags,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Advise(Advise),
}

/// Recommend a cache for a trace, in plain words
///
/// The advice names the working set, the effect of half and of twice the room, and the best policy. For
/// several nodes it also names the division of their room, and the mode to choose: hierarchy or directory.
#[derive(Debug, Args)]
struct Advise {
    /// The trace
    #[arg(value_name = "FILE")]
    path: PathBuf,
    /// Room in total, as a size or a share of the bytes the trace touches; the default is the least that
    /// suffices
    #[arg(long, value_name = "SIZE", value_parser = capacity)]
    capacity: Option<Capacity>,
    /// How many nodes share the room; the clients of the trace are dealt to them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    nodes: u32,
    /// Cost of a read from the lake, in reads from another node
    #[arg(long, value_name = "FACTOR", default_value_t = LAKE_COST)]
    lake_cost: f64,
    /// Write the miss-ratio curve as a plot into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    trace: TraceFlags,
    /// Print the advice as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct TraceFlags {
    /// Format of the trace, if its name and its first bytes do not show it: csv, oracle-general, s3-log,
    /// access-log, swim, wf-commons
    #[arg(long, value_name = "NAME")]
    format: Option<Format>,
    /// Unit of caching: a size, or `object`; the default is 4MiB, and `object` for oracle-general and swim
    #[arg(long, value_name = "SIZE", value_parser = granularity)]
    block: Option<Granularity>,
}

impl Sim {
    pub(super) fn run(self) -> Result<(), Failure> {
        match (self.verb, self.path) {
            (Some(Verb::Advise(advise)), _) => advise.run(),
            (None, Some(path)) => {
                let (granularity, open) = self.trace.open(path)?;
                let comparison = Comparison {
                    granularity,
                    contenders: self.policy,
                    capacities: self.capacity,
                    threads: threads(),
                };
                let compared = with_progress(|progress| comparison.run(&open, progress))?;
                if let Some(folder) = self.out {
                    write(&folder, "compare.csv", &compared.csv())?;
                    write(&folder, "miss-ratio.svg", &compared.plot().svg())?;
                }
                print(&if self.json {
                    pretty(&compared)
                } else {
                    compared.text()
                });
                Ok(())
            }
            (None, None) => unreachable!("clap asks for a file"),
        }
    }
}

impl Advise {
    fn run(self) -> Result<(), Failure> {
        let (granularity, open) = self.trace.open(self.path)?;
        let request = AdviceRequest {
            granularity,
            capacity: self.capacity,
            nodes: self.nodes,
            lake_cost: self.lake_cost,
            threads: threads(),
        };
        let advice = with_progress(|progress| request.ask(&open, progress))?;
        if let Some(folder) = self.out {
            write(&folder, "miss-ratio-curve.svg", &advice.plot().svg())?;
        }
        print(&if self.json { pretty(&advice) } else { advice.text() });
        Ok(())
    }
}

impl TraceFlags {
    /// Returns the unit of caching of the trace at `path`, and what opens it.
    fn open(
        &self,
        path: PathBuf,
    ) -> Result<(Granularity, impl Fn() -> Result<Accesses, TraceError>), Failure> {
        let format = match self.format {
            Some(format) => format,
            None => Format::of_file(&path).map_err(refused)?,
        };
        let granularity = self.block.unwrap_or_else(|| format.granularity());
        let open = move || Trace::open(&path, format, granularity).map(Trace::accesses);
        Ok((granularity, open))
    }
}

/// Simulates, and shows the number of requests on one line of a terminal meanwhile.
fn with_progress<T>(
    simulate: impl FnOnce(&mut dyn FnMut(u64)) -> Result<T, TraceError>,
) -> Result<T, Failure> {
    let (mut done, mut shown) = (0, 0);
    let result = simulate(&mut |count| {
        done += count;
        if done - shown >= PROGRESS_EVERY && io::stderr().is_terminal() {
            shown = done;
            // If stderr is gone, there is no reader to inform.
            let _ = write!(io::stderr(), "\r{done} requests");
        }
    });
    let result = result.map_err(refused)?;
    if shown > 0 {
        let _ = writeln!(io::stderr());
    }
    Ok(result)
}

fn write(folder: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = folder.join(name);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| Failure::new(&format!("cannot write {}", path.display()), &error))
}

/// The simulator appends its hint on a second line.
fn refused(error: impl std::error::Error) -> Failure {
    let text = error.to_string();
    match text.rsplit_once("\nhint: ") {
        Some((what, hint)) => Failure::misused(what, hint),
        None => Failure::failed(text),
    }
}

fn threads() -> usize {
    available_parallelism().map_or(1, usize::from)
}

fn capacity(text: &str) -> Result<Capacity, String> {
    Capacity::parse(text).ok_or_else(|| format!("hint: write a share such as 5%, or {SIZE_FORM}"))
}

fn granularity(text: &str) -> Result<Granularity, String> {
    match units::size(text) {
        _ if text == "object" => Ok(Granularity::Objects),
        Some(bytes) if bytes > 0 => Ok(Granularity::blocks(bytes)),
        _ => Err(format!("hint: write `object`, or {SIZE_FORM}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::ExitCode;

    use clap::{Args, Command, FromArgMatches};

    use super::Sim;

    fn sim(args: &[&str]) -> Result<Sim, clap::Error> {
        let command = Sim::augment_args(Command::new("sim"));
        let matches = command.try_get_matches_from(["sim"].iter().chain(args))?;
        Sim::from_arg_matches(&matches)
    }

    #[test]
    fn a_trace_is_compared_and_its_table_written() {
        let folder = tempfile::tempdir().unwrap();
        let (trace, out) = (folder.path().join("t.csv"), folder.path().join("out"));
        fs::write(&trace, "object,bytes\na,10\nb,10\na,10\n").unwrap();
        let args = [
            trace.to_str().unwrap(),
            "--policy",
            "lru,belady",
            "--capacity",
            "50%",
            "--out",
            out.to_str().unwrap(),
        ];
        sim(&args).unwrap().run().unwrap();
        let table = fs::read_to_string(out.join("compare.csv")).unwrap();
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(out.join("miss-ratio.svg").exists());
        sim(&["advise", trace.to_str().unwrap(), "--nodes", "2"])
            .unwrap()
            .run()
            .unwrap();
    }

    #[test]
    fn a_bad_trace_is_misused_and_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let told = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            let failure = sim(&[path.to_str().unwrap()]).unwrap().run().unwrap_err();
            assert_eq!(failure.exit_code(), ExitCode::from(2), "{name}: {failure:?}");
            let (what, hint) = failure.message();
            assert!(!hint.is_empty(), "{what}");
            what.to_owned()
        };
        assert!(told("d.csv", "object,bytes\na,5\nb,18446744073709551615\n").contains("d.csv:3: found"));
        assert!(
            told("e.csv", "object,bytes,time_s\na,5,nan\n")
                .contains("e.csv:2: found `nan` in the column `time_s`")
        );
        let missing = sim(&["/nonexistent.csv"]).unwrap().run().unwrap_err();
        assert_eq!(missing.exit_code(), ExitCode::from(1), "{missing:?}");
    }

    #[test]
    fn an_impossible_simulation_is_refused_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let told = sim(&["t.csv", "--policy", "lruu"]).unwrap_err().to_string();
        assert!(told.contains("did you mean `lru`?"), "{told}");
        let told = sim(&["t.csv", "--capacity", "5"]).unwrap_err().to_string();
        assert!(told.contains("such as 5%"), "{told}");
        assert!(sim(&[]).is_err(), "there has to be a file");
        let silent = folder.path().join("access.log");
        fs::write(
            &silent,
            "{\"message\":\"serving\",\"target\":\"shoal::cli::serve\"}\n",
        )
        .unwrap();
        for args in [
            &["--format", "access-log"][..],
            &["advise", "--format", "access-log"],
        ] {
            let args: Vec<_> = args.iter().copied().chain(silent.to_str()).collect();
            let failure = sim(&args).unwrap().run().unwrap_err();
            let (what, hint) = failure.message();
            assert!(
                what.contains("reads no object") && hint.contains("access = true"),
                "{what} {hint}"
            );
        }
    }
}
