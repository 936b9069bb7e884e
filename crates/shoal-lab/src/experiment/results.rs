//! The results of an experiment: tables for programs, plots for people.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use shoal_plot::{Bars, Line, Lines, Spread};
use shoal_sim::sources::Sources;

use super::grid::Label;
use crate::report::Report;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The place of the run in the grid.
    pub labels: Vec<Label>,
    /// The seed of the run.
    pub seed: u64,
    /// The report of the run.
    pub report: Report,
}

/// Every run, in the order of the grid.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// The title of the experiment.
    pub title: String,
    /// One for each cell and seed.
    pub outcomes: Vec<Outcome>,
}

/// A column and its number in a report.
type Column = (&'static str, fn(&Report) -> f64);

const COLUMNS: [Column; 20] = [
    ("run_s", |report| report.run_s),
    ("local_requests", |report| report.sources.local.requests as f64),
    ("peer_requests", |report| report.sources.peer.requests as f64),
    ("lake_requests", |report| report.sources.lake.requests as f64),
    ("joined_requests", |report| report.sources.joined.requests as f64),
    ("local_bytes", |report| report.sources.local.bytes as f64),
    ("peer_bytes", |report| report.sources.peer.bytes as f64),
    ("lake_bytes", |report| report.sources.lake.bytes as f64),
    ("joined_bytes", |report| report.sources.joined.bytes as f64),
    ("request_mean_s", |report| report.request_seconds.mean),
    ("request_p50_s", |report| report.request_seconds.p50),
    ("request_p99_s", |report| report.request_seconds.p99),
    ("read_hits", |report| report.reads.hits as f64),
    ("read_partial_misses", |report| report.reads.partial_misses as f64),
    ("read_complete_misses", |report| {
        report.reads.complete_misses as f64
    }),
    ("read_mean_s", |report| report.reads.seconds.mean),
    ("jobs", |report| report.job_seconds.count as f64),
    ("job_mean_s", |report| report.job_seconds.mean),
    ("job_p50_s", |report| report.job_seconds.p50),
    ("job_p99_s", |report| report.job_seconds.p99),
];

impl Outcome {
    /// The place in the grid in words.
    pub fn name(&self) -> String {
        let points: Vec<_> = self.labels.iter().map(|label| label.point.as_str()).collect();
        if points.is_empty() {
            "all".to_owned()
        } else {
            points.join(", ")
        }
    }
}

impl Results {
    /// Writes `results.csv` (one row per run), `samples.csv` (nodes over time), `results.json` (everything)
    /// and the plots into `folder`.
    ///
    /// # Errors
    ///
    /// Fails if the folder or a file in it cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("results.csv"), self.csv())?;
        fs::write(folder.join("results.json"), self.json())?;
        fs::write(folder.join("run-time.svg"), self.run_times().svg())?;
        fs::write(folder.join("sources.svg"), self.sources().svg())?;
        let samples = self
            .outcomes
            .iter()
            .any(|outcome| !outcome.report.samples.is_empty());
        if samples {
            fs::write(folder.join("samples.csv"), self.samples_csv())?;
        }
        for (number, outcome) in self.first_seeds().into_iter().enumerate() {
            if outcome
                .report
                .samples
                .iter()
                .any(|sample| sample.room.l2_capacity_bytes > 0)
            {
                fs::write(
                    folder.join(format!("l1-{number}.svg")),
                    l1_over_time(outcome).svg(),
                )?;
            }
        }
        Ok(())
    }

    /// Everything as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and names are JSON")
    }

    /// A line for each cell: means over the seeds.
    pub fn text(&self) -> String {
        let names = self.names();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let mut text = format!(
            "{}\n\n{:<width$} {:>12} {:>9} {:>9} {:>9} {:>9} {:>12}\n",
            self.title, "", "run time", "local", "peer", "lake", "joined", "lake bytes"
        );
        for (name, cell) in names.iter().zip(self.cells()) {
            let mean = |number: &dyn Fn(&Report) -> f64| {
                Spread::from_values(cell.iter().map(|run| number(&run.report))).mean
            };
            let share = |requests: fn(&Sources) -> u64| {
                100.0
                    * mean(&|Report { sources, .. }: &Report| {
                        requests(sources) as f64 / sources.total().requests.max(1) as f64
                    })
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{name:<width$} {:>10.1} s {:>8.2}% {:>8.2}% {:>8.2}% {:>8.2}% {:>8.2} GiB",
                mean(&|report| report.run_s),
                share(|sources| sources.local.requests),
                share(|sources| sources.peer.requests),
                share(|sources| sources.lake.requests),
                share(|sources| sources.joined.requests),
                mean(&|report| gib(report.sources.lake.bytes)),
            );
        }
        text
    }

    /// One row per run.
    pub fn csv(&self) -> String {
        let names = COLUMNS.map(|(name, _)| name).join(",");
        let mut text = format!("{}seed,{names}\n", self.axes());
        for outcome in &self.outcomes {
            let _ = write!(text, "{}{}", points(outcome), outcome.seed);
            for (_, number) in COLUMNS {
                let _ = write!(text, ",{}", number(&outcome.report));
            }
            text.push('\n');
        }
        text
    }

    fn samples_csv(&self) -> String {
        let mut text = format!(
            "{}seed,at_s,node,l1_capacity_bytes,l1_used_bytes,l2_capacity_bytes,l2_used_bytes,local_requests,peer_requests,\
             lake_requests,joined_requests\n",
            self.axes()
        );
        for outcome in &self.outcomes {
            for sample in &outcome.report.samples {
                let (room, sources) = (&sample.room, &sample.sources);
                let _ = writeln!(
                    text,
                    "{}{},{},{},{},{},{},{},{},{},{},{}",
                    points(outcome),
                    outcome.seed,
                    sample.at_s,
                    sample.node,
                    room.l1_capacity_bytes,
                    room.l1_used_bytes,
                    room.l2_capacity_bytes,
                    room.l2_used_bytes,
                    sources.local.requests,
                    sources.peer.requests,
                    sources.lake.requests,
                    sources.joined.requests,
                );
            }
        }
        text
    }

    fn axes(&self) -> String {
        let labels = self.outcomes.first().map_or(&[][..], |outcome| &outcome.labels);
        labels.iter().map(|label| quoted(&label.axis) + ",").collect()
    }

    /// The first run of each cell.
    fn first_seeds(&self) -> Vec<&Outcome> {
        self.cells().into_iter().map(|cell| &cell[0]).collect()
    }

    /// The runs of each cell, which are adjacent.
    fn cells(&self) -> Vec<&[Outcome]> {
        self.outcomes.chunk_by(|a, b| a.labels == b.labels).collect()
    }

    fn spread(&self, number: fn(&Report) -> f64) -> Vec<Spread> {
        let of_cell =
            |cell: &[Outcome]| Spread::from_values(cell.iter().map(|outcome| number(&outcome.report)));
        self.cells().into_iter().map(of_cell).collect()
    }

    fn names(&self) -> Vec<String> {
        self.first_seeds().into_iter().map(Outcome::name).collect()
    }

    fn run_times(&self) -> Bars {
        Bars {
            title: format!("{}: run time", self.title),
            y_label: "seconds".to_owned(),
            groups: self.names(),
            series: vec![("run time".to_owned(), self.spread(|report| report.run_s))],
        }
    }

    fn sources(&self) -> Bars {
        let share = |name: &str, bytes: fn(&Report) -> f64| (name.to_owned(), self.spread(bytes));
        Bars {
            title: format!("{}: where bytes came from", self.title),
            y_label: "GiB".to_owned(),
            groups: self.names(),
            series: vec![
                share("local", |report| gib(report.sources.local.bytes)),
                share("peer", |report| gib(report.sources.peer.bytes)),
                share("lake", |report| gib(report.sources.lake.bytes)),
                share("joined", |report| gib(report.sources.joined.bytes)),
            ],
        }
    }
}

fn l1_over_time(outcome: &Outcome) -> Lines {
    let samples = &outcome.report.samples;
    let nodes = samples.iter().map(|sample| sample.node + 1).max().unwrap_or(0);
    let line = |node| Line {
        name: format!("node {node}"),
        points: samples
            .iter()
            .filter(|sample| sample.node == node)
            .map(|sample| (sample.at_s, gib(sample.room.l1_capacity_bytes)))
            .collect(),
    };
    Lines {
        title: format!("{}: room of L1", outcome.name()),
        x_label: "seconds".to_owned(),
        y_label: "GiB".to_owned(),
        lines: (0..nodes).map(line).collect(),
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}

fn points(outcome: &Outcome) -> String {
    outcome
        .labels
        .iter()
        .map(|label| quoted(&label.point) + ",")
        .collect()
}

/// A field of a table (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
