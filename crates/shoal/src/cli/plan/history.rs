//! The history that verbs of `shoal plan` learn from: its files, and how they are read.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use shoal_history::error::FileError;
use shoal_history::read::{Application, JobBy, ReadOptions, Reader};
use shoal_history::run::Passed;
use shoal_history::{Format, History, HistoryError};
use shoal_node::planning::log_files::{FILES_MAX, LogFilesError, files_of};
use shoal_sim::units::{self, TIME_FORM};

use crate::cli::failure::Failure;

pub(super) const AFTER_HELP: &str = "\
A history is any of: CSV with the columns name and submitted (and id, started, ended, deadline, input,
input_bytes, input_bytes_per_s, output), one JSON object per run and line, Spark event logs (a folder
eventlog_v2_* is one application), access logs of a node in JSON or of Amazon S3, or a SWIM workload. Files may
be packed by gzip or Zstandard; - is standard input; a folder stands for all files in it.";

/// The files of a history.
#[derive(Debug, Args)]
pub(super) struct HistoryFlags {
    /// Files and folders with the history of jobs
    #[arg(value_name = "HISTORY")]
    paths: Vec<PathBuf>,
    /// Format of the files: auto, csv, jsonl, spark, s3, swim
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = format)]
    format: Wanted,
    /// In access logs: what names the job of a request
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = By::Any)]
    job_by: By,
    /// In access logs: a job without a request for this time has ended
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = span)]
    gap: Duration,
}

/// A format, or the one that a file shows by its beginning.
#[derive(Clone, Copy, Debug)]
struct Wanted(Option<Format>);

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// The header where there is one, else user agent and identity
    Any,
    /// The identity that signed the request
    Identity,
    /// The header x-shoal-job
    Header,
    /// The user agent: S3A's prefix, else the name of the program
    UserAgent,
}

impl HistoryFlags {
    /// Reads all files.
    pub(super) fn read(&self) -> Result<History, Failure> {
        if self.paths.is_empty() {
            let hint = "name its files or folders: shoal plan predict /var/log/spark-events";
            return Err(Failure::misused("there is no history to learn from", hint));
        }
        let mut reader = Reader::new(ReadOptions {
            job_by: match self.job_by {
                By::Any => JobBy::Any,
                By::Identity => JobBy::Identity,
                By::Header => JobBy::Header,
                By::UserAgent => JobBy::UserAgent,
            },
            gap_ms: i64::try_from(self.gap.as_millis()).unwrap_or(i64::MAX),
        });
        read_files(&mut reader, &self.paths, self.format.0)?;
        let history = reader.finish().map_err(refused)?;
        if history.is_empty() {
            return Err(no_runs(&history));
        }
        Ok(history)
    }
}

/// Reads files and folders, or standard input.
fn read_files(reader: &mut Reader, paths: &[PathBuf], format: Option<Format>) -> Result<(), Failure> {
    let mut files = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            reader
                .file("standard input", format, io::stdin())
                .map_err(refused)?;
        } else {
            files.extend(files_of(path).map_err(unlisted)?);
        }
    }
    for path in files {
        let file = File::open(&path).map_err(|error| unreadable(&path, &error))?;
        reader
            .file(&path.display().to_string(), format, file)
            .map_err(refused)?;
    }
    Ok(())
}

/// Reads event logs of Spark, and returns the application that started last.
pub(in crate::cli) fn last_application(path: &Path) -> Result<Application, Failure> {
    let mut reader = Reader::default();
    read_files(&mut reader, &[path.to_owned()], Some(Format::Spark))?;
    let application = reader.last_application().map_err(refused)?;
    application.ok_or_else(|| {
        let what = format!("{} has no application of Spark", path.display());
        let hint = "give an event log of Spark, or a folder with some: spark.eventLog.dir";
        Failure::misused(what, hint)
    })
}

/// Returns why there is nothing to learn from.
fn no_runs(history: &History) -> Failure {
    let (what, hint) = if history.passed().any(|(reason, _)| reason == Passed::NoJob) {
        (
            "no request in the history names its job",
            "take another --job-by: any, identity or user-agent",
        )
    } else {
        (
            "the history has no run of a job",
            "a node logs requests only with `access = true` and `format = \"json\"` below [log]; \
             docs/how-to/plan.md describes every format",
        )
    };
    Failure::misused(what, hint)
}

fn unlisted(error: LogFilesError) -> Failure {
    match error {
        LogFilesError::Unreadable { path, source } => unreadable(&path, &source),
        error @ LogFilesError::TooMany(_) => {
            let hint = format!("name the folders with logs; at most {FILES_MAX} files are read");
            Failure::misused(error.to_string(), hint)
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::new(&format!("cannot read {}", path.display()), error)
}

fn refused(error: HistoryError) -> Failure {
    match error {
        HistoryError::File(FileError::Io { name, source }) => {
            Failure::new(&format!("cannot read {name}"), &source)
        }
        error => Failure::misused_as(&error, "see docs/how-to/plan.md"),
    }
}

fn format(text: &str) -> Result<Wanted, String> {
    if text == "auto" {
        return Ok(Wanted(None));
    }
    text.parse().map(|format| Wanted(Some(format)))
}

/// Parses a length of time on the command line.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let span = units::span(text).filter(|span| !span.is_zero());
    span.ok_or_else(|| format!("hint: write {TIME_FORM}"))
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn a_length_of_time_has_a_unit() {
        assert_eq!(span("5m").unwrap().as_secs(), 300);
        assert!(span("5").is_err() && span("0s").is_err());
    }
}
