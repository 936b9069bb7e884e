//! Formats the report as text.

use std::fmt::Write as _;

use shoal_base::amount::{counted, human_bytes};

use super::{ErrorSpread, Foreseen, JobReport, Report};
use crate::recurrence::words::duration;

/// Maximum number of jobs in the text.
const JOBS: usize = 10;
/// Maximum width of a name, in columns.
const NAME_COLUMNS: usize = 40;

impl Report {
    /// Formats the report as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write_shares(&mut text);
        self.write_errors(&mut text);
        self.write_jobs(&mut text);
        self.write_reasons(&mut text);
        text
    }

    fn write_shares(&self, text: &mut String) {
        let bytes = |bytes: Foreseen| format!("{} of {}", human_bytes(bytes.foreseen), human_bytes(bytes.of));
        let number = |number: Foreseen| format!("{} of {}", number.foreseen, number.of);
        // Writing to a string cannot fail; the same applies below.
        let _ = writeln!(
            text,
            "Learned from {} of {} between {} and {}, {} with a schedule.\n\
             Of what came then, until {} (UTC), this was foreseen:",
            counted(self.learned_runs, "run"),
            counted(self.learned_jobs, "job"),
            self.learned.from.to_minute(),
            self.learned.to.to_minute(),
            self.scheduled_jobs,
            self.window.to.to_minute(),
        );
        for (name, meaning, share) in [
            ("runs", number(self.jobs), self.jobs.share()),
            ("bytes", bytes(self.bytes), self.bytes.share()),
            ("inputs", number(self.inputs), self.inputs.share()),
        ] {
            let _ = writeln!(text, "  {name:<8} {:5.1}%  {meaning}", share * 100.0);
        }
        let _ = writeln!(
            text,
            "{} that did not happen; {} were expected and not read.",
            match self.did_not_run {
                0 => "No run was forecast".to_owned(),
                1 => "1 run was forecast".to_owned(),
                many => format!("{many} runs were forecast"),
            },
            human_bytes(self.not_read_bytes)
        );
    }

    fn write_errors(&self, text: &mut String) {
        if let Some(error) = self.submission_error_s {
            let seconds = |seconds: f64| duration((seconds * 1e3) as i64);
            let _ = writeln!(
                text,
                "\nOf the foreseen runs, half came within {} of the forecast, nine in ten within {}, all within {}.",
                seconds(error.median),
                seconds(error.most),
                seconds(error.worst)
            );
        }
        if let Some(error) = self.size_error {
            let _ = writeln!(
                text,
                "The size of half was right within {}, of nine in ten within {}.",
                percent(error.median),
                percent(error.most)
            );
        }
    }

    fn write_jobs(&self, text: &mut String) {
        let foreseen = || self.by_job.iter().filter(|job| job.jobs.foreseen > 0);
        if foreseen().next().is_none() {
            return;
        }
        let _ = writeln!(text, "\nThe jobs with the most foreseen bytes:");
        let _ = writeln!(
            text,
            "  {:>10}  {:>9}  {:>8}  {:>6}  {:<NAME_COLUMNS$}  schedule",
            "bytes", "runs", "off by", "size", "job"
        );
        for job in foreseen().take(JOBS) {
            write_job(text, job);
        }
        let more = foreseen().count().saturating_sub(JOBS);
        if more > 0 {
            let _ = writeln!(text, "  and {} more.", counted(more as u64, "job"));
        }
    }

    fn write_reasons(&self, text: &mut String) {
        if self.not_foreseen.is_empty() {
            return;
        }
        let _ = writeln!(text, "\nNot foreseen, and why:");
        for reason in &self.not_foreseen {
            let _ = writeln!(
                text,
                "  {:>10}  {:>9}  {}: {}",
                human_bytes(reason.bytes),
                counted(reason.jobs, "run"),
                reason.why.as_str(),
                reason
                    .examples
                    .iter()
                    .map(|name| cut(name))
                    .collect::<Vec<_>>()
                    .join(", ")
            );
        }
    }
}

fn write_job(text: &mut String, job: &JobReport) {
    let shown = |error: Option<ErrorSpread>, format: fn(f64) -> String| {
        error.map_or("-".to_owned(), |error| format(error.median))
    };
    let _ = writeln!(
        text,
        "  {:>10}  {:>9}  {:>8}  {:>6}  {:<NAME_COLUMNS$}  {}",
        human_bytes(job.bytes.foreseen),
        format!("{} of {}", job.jobs.foreseen, job.jobs.of),
        shown(job.submission_error_s, |seconds| duration((seconds * 1e3) as i64)),
        shown(job.size_error, percent),
        cut(&job.name),
        job.schedule
    );
    for read in &job.reads {
        let _ = writeln!(text, "  {:>43}{read}", "");
    }
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Cuts a name to its column.
fn cut(name: &str) -> String {
    if name.chars().count() <= NAME_COLUMNS {
        return name.to_owned();
    }
    let begin: String = name.chars().take(NAME_COLUMNS - 3).collect();
    format!("{begin}...")
}
