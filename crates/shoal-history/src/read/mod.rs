//! Reads runs from logs. One format per file.
//!
//! Readers stream. Memory grows with the runs and the distinct paths, which [`History`] limits, and not with
//! the length of a file. A malformed line is an error that states its number, its content and the expected
//! form.

mod csv;
mod jsonl;
mod requests;
mod spark;
mod swim;

use std::io::Read;

use shoal_logs::line::Lines;
use shoal_logs::packed::unpacked;
use shoal_logs::{FileError, Mismatch};

use self::requests::Requests;
use self::spark::Spark;
pub use self::spark::{Application, Step};
use crate::error::HistoryError;
use crate::format::{Format, START_BYTES};
use crate::moment::MINUTE_MS;
use crate::run::{History, Run};

/// How the job of a logged request is determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobBy {
    /// By the identity that signed it.
    Identity,
    /// By the header `x-shoal-job`.
    Header,
    /// By the header `User-Agent`: S3A's configured prefix, otherwise the name of the program.
    UserAgent,
    /// By `x-shoal-job` if present, otherwise by user agent and identity.
    #[default]
    Any,
}

/// Options that the files do not determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// How the job of a logged request is determined.
    pub job_by: JobBy,
    /// A run has ended if its job sends no request for this time; the next request starts another run.
    pub gap_ms: i64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            job_by: JobBy::default(),
            gap_ms: 5 * MINUTE_MS,
        }
    }
}

/// Reads files into one history.
#[derive(Debug, Default)]
pub struct Reader {
    history: History,
    spark: Spark,
    requests: Requests,
}

impl Reader {
    /// Creates a reader with an empty history.
    pub fn new(options: ReadOptions) -> Self {
        Self {
            requests: Requests::new(options),
            ..Self::default()
        }
    }

    /// Reads one file, compressed or not. `name` is its name in errors. Without a `format`, it is guessed
    /// from the first bytes; an empty file has none.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is malformed, or if the history becomes too large.
    pub fn file(
        &mut self,
        name: &str,
        format: Option<Format>,
        input: impl Read + 'static,
    ) -> Result<Option<Format>, HistoryError> {
        self.history.file += 1;
        let (start, input) = unpacked(name, input, START_BYTES)?;
        // Spark marks the state of an application with an empty file.
        if start.is_empty() {
            return Ok(format);
        }
        let format =
            format
                .or_else(|| Format::guess(name, &start))
                .ok_or_else(|| FileError::UnknownFormat {
                    name: name.to_owned(),
                    known: Format::names(),
                })?;
        match format {
            Format::Csv => csv::read(&mut self.history, name, input)?,
            Format::Jsonl => self.lines(name, Lines::new(name, input, jsonl::LINE_BYTES_MAX), jsonl::run)?,
            Format::Swim => self.lines(name, Lines::new(name, input, swim::LINE_BYTES_MAX), swim::run)?,
            Format::Spark => self.spark.read(&mut self.history, name, input)?,
            Format::S3 => self.requests.read(&mut self.history, name, &start, input)?,
        }
        Ok(Some(format))
    }

    /// Adds one run for each line.
    fn lines(
        &mut self,
        name: &str,
        mut lines: Lines,
        run: impl Fn(&str) -> Result<Run, Mismatch>,
    ) -> Result<(), HistoryError> {
        while let Some(line) = lines.next_text()? {
            let run = run(&line).map_err(|mismatch| lines.place.error(mismatch))?;
            self.history.add(name, &run)?;
        }
        Ok(())
    }

    /// Adds a run provided by the caller, as if read from the file `name`.
    ///
    /// # Errors
    ///
    /// Fails if the history becomes too large.
    pub fn run(&mut self, name: &str, run: &Run) -> Result<(), HistoryError> {
        self.history.add(name, run)
    }

    /// Returns the application of Spark that started last, step by step; `None` if the files have none.
    ///
    /// # Errors
    ///
    /// Fails if the history becomes too large.
    pub fn last_application(mut self) -> Result<Option<Application>, HistoryError> {
        self.spark.finish(&mut self.history)?;
        Ok(self.spark.latest())
    }

    /// Returns the history of all files.
    ///
    /// # Errors
    ///
    /// Fails if the history becomes too large.
    pub fn finish(mut self) -> Result<History, HistoryError> {
        self.spark.finish(&mut self.history)?;
        self.requests.finish(&mut self.history)?;
        self.history.sort();
        Ok(self.history)
    }
}

/// Returns a run that a person wrote down, if its times are in order.
fn in_order(run: Run) -> Result<Run, Mismatch> {
    match run.disorder() {
        Some(found) => Err(Mismatch::new(
            found,
            "times in this order: submitted, started, ended; and a deadline after the submission",
        )),
        None => Ok(run),
    }
}
