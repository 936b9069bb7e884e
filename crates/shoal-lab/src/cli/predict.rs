//! `shoal-lab predict`: how predictable histories are, and the time and memory that it takes to find out.

use std::error::Error;
use std::fs::{self, File};
use std::time::Duration;

use clap::Args;
use shoal_base::clock;
use shoal_history::read::Reader;
use shoal_history::run::summary::Summary;
use shoal_history::{History, Templates, Window, backtest, backtest_window, forecast};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Report how predictable histories are, as `shoal plan predict` does, with the time and memory that it takes
#[derive(Debug, Args)]
pub(crate) struct Predict {
    /// Forecast the last 12 hours one by one, each from all that came before it
    #[arg(long)]
    hourly: bool,
    /// The histories
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
}

impl Predict {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let begin = clock::instant();
        let mut reader = Reader::default();
        let mut bytes = 0;
        for name in &self.files {
            bytes += fs::metadata(name)?.len();
            reader.file(name, None, File::open(name)?)?;
        }
        let history = reader.finish()?;
        if self.hourly {
            hourly(&history);
            return Ok(());
        }
        let (summary, read) = (Summary::new(&history), begin.elapsed());
        let report = backtest(&history, DAY_MS);
        let tested = begin.elapsed();
        let templates = Templates::learn(&history);
        let next = forecast(
            &templates,
            Window::after(summary.to.unwrap_or_default().plus_ms(1), DAY_MS),
        );
        let learned = begin.elapsed();
        print!("{}", summary.text());
        if let Some(report) = report {
            print!("\n{}", report.text());
        }
        print!("\n{}", next.text());
        let seconds = |span: Duration| format!("{:.2} s", span.as_secs_f64());
        eprintln!(
            "read {:.1} MiB in {} ({:.1} MiB/s); tested in {}; learned and forecast in {}; {}",
            bytes as f64 / f64::from(1 << 20),
            seconds(read),
            bytes as f64 / f64::from(1 << 20) / read.as_secs_f64(),
            seconds(tested.saturating_sub(read)),
            seconds(learned.saturating_sub(tested)),
            peak_memory()
        );
        Ok(())
    }
}

/// Prints the part of the last 12 hours that was foreseen at the start of each hour.
fn hourly(history: &History) {
    let Some((_, end)) = history.span() else { return };
    let end = end.plus_ms(1);
    let hours = (1..=12)
        .rev()
        .filter_map(|hours| backtest_window(history, Window::after(end.plus_ms(-hours * HOUR_MS), HOUR_MS)));
    let (mut runs, mut bytes, mut silent) = ((0, 0), (0, 0), 0);
    for report in hours {
        runs = (runs.0 + report.jobs.foreseen, runs.1 + report.jobs.of);
        bytes = (bytes.0 + report.bytes.foreseen, bytes.1 + report.bytes.of);
        silent += report.did_not_run;
    }
    let percent = |(part, all): (u64, u64)| part as f64 / all.max(1) as f64 * 100.0;
    println!(
        "12 hours one by one: {} of {} runs ({:.1}%), {:.1}% of the bytes; {silent} forecast runs did not happen",
        runs.0,
        runs.1,
        percent(runs),
        percent(bytes)
    );
}

/// Returns the peak memory of the process.
fn peak_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:"));
    peak.unwrap_or("VmHWM: unknown")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
