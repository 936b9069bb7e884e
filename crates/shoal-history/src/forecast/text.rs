//! Formats the forecast as text.

use std::fmt::Write as _;

use shoal_base::amount::{counted, human_bytes};

use super::{Forecast, ForecastJob};
use crate::recurrence::words::{duration, some_of};
use crate::stats::sum;

/// Maximum number of jobs in the text.
const JOBS: usize = 20;
/// Maximum number of inputs listed per job.
const INPUTS: usize = 3;

impl Forecast {
    /// Formats the forecast as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let bytes = sum(self.jobs.iter().map(ForecastJob::bytes));
        // Writing to a string cannot fail; the same applies below.
        let _ = writeln!(
            text,
            "From {} to {} (UTC), {} expected; {} read {}.",
            self.window.from.to_minute(),
            self.window.to.to_minute(),
            if self.jobs.len() == 1 {
                "1 run is".to_owned()
            } else {
                format!("{} runs are", self.jobs.len())
            },
            if self.jobs.len() == 1 {
                "it will"
            } else {
                "together they will"
            },
            human_bytes(bytes)
        );
        if self.complete_until < self.window.to {
            let _ = writeln!(text, "There are more after {}.", self.complete_until.to_minute());
        }
        if !self.jobs.is_empty() {
            let _ = writeln!(
                text,
                "  {:<16}  {:>9}  {:>6}  {:>10}  {:>8}  job",
                "submitted", "spread", "chance", "bytes", "deadline"
            );
        }
        for job in self.jobs.iter().take(JOBS) {
            write_job(&mut text, job);
        }
        let more = self.jobs.len().saturating_sub(JOBS);
        if more > 0 {
            let _ = writeln!(
                text,
                "  and {}; --json has all of them.",
                counted(more as u64, "more run")
            );
        }
        text
    }
}

fn write_job(text: &mut String, job: &ForecastJob) {
    let spread_ms = job.submission.late.since_ms(job.submission.early);
    let _ = writeln!(
        text,
        "  {:<16}  {:>9}  {:>5.0}%  {:>10}  {:>8}  {}",
        job.submission.at.to_minute(),
        duration(spread_ms),
        job.probability * 100.0,
        human_bytes(job.bytes()),
        format!("+{}", duration(job.deadline.since_ms(job.submission.at))),
        job.name
    );
    for input in job.inputs.iter().take(INPUTS) {
        let some = some_of(input.extent);
        let _ = writeln!(
            text,
            "  {:>49}{:>10}  {some}{}",
            "",
            human_bytes(input.bytes.typical),
            input.path
        );
    }
    let more = job.inputs.len().saturating_sub(INPUTS);
    if more > 0 {
        let _ = writeln!(text, "  {:>61}and {}", "", counted(more as u64, "more input"));
    }
}
