//! Logs become runs. One format per file.
//!
//! Readers stream. Memory grows with the runs and the distinct paths, both bounded by [`History`], not with
//! the length of a file. A malformed line ends the reading with its number, its content and the expected
//! form.

mod csv;
mod jsonl;
mod lines;
mod packed;
mod requests;
mod spark;
mod swim;

use std::io::Read;

use self::requests::Requests;
use self::spark::Spark;
use crate::error::HistoryError;
use crate::format::{Format, START_BYTES};
use crate::moment::MINUTE_MS;
use crate::run::{History, Run};

/// How a log of requests names the job of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobBy {
    /// By the identity that signed it.
    Identity,
    /// By the header `x-shoal-job`.
    Header,
    /// By the header `User-Agent`: the prefix that S3A is given, else the name of the program.
    UserAgent,
    /// By the header where the request has one, else by the user agent and the identity.
    #[default]
    Any,
}

/// Facts that are not in the files themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// How a log of requests names jobs.
    pub job_by: JobBy,
    /// A job whose requests pause for so long has ended; the next request begins another run.
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
#[derive(Debug)]
pub struct Reader {
    history: History,
    spark: Spark,
    requests: Requests,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new(ReadOptions::default())
    }
}

impl Reader {
    /// A reader with an empty history.
    pub fn new(options: ReadOptions) -> Self {
        Self {
            history: History::default(),
            spark: Spark::default(),
            requests: Requests::new(options),
        }
    }

    /// Reads one file, packed or not. `name` is its name in errors. Without a `format`, its beginning tells
    /// it; an empty file has none.
    ///
    /// # Errors
    ///
    /// Fails if the bytes cannot be read, or are not of the format, or the history becomes too large.
    pub fn file(
        &mut self,
        name: &str,
        format: Option<Format>,
        input: impl Read + 'static,
    ) -> Result<Option<Format>, HistoryError> {
        self.history.next_file();
        let (start, input) = packed::unpacked(name, input, START_BYTES)?;
        // Spark marks the state of an application by an empty file.
        if start.is_empty() {
            return Ok(format);
        }
        let format =
            format
                .or_else(|| Format::guess(name, &start))
                .ok_or_else(|| HistoryError::UnknownFormat {
                    name: name.to_owned(),
                })?;
        match format {
            Format::Csv => csv::read(&mut self.history, name, input)?,
            Format::Jsonl => jsonl::read(&mut self.history, name, input)?,
            Format::Swim => swim::read(&mut self.history, name, input)?,
            Format::Spark => self.spark.read(&mut self.history, name, input)?,
            Format::S3 => self.requests.read(&mut self.history, name, &start, input)?,
        }
        Ok(Some(format))
    }

    /// Adds a run that the caller knows of, as if the file `name` told of it.
    ///
    /// # Errors
    ///
    /// Fails if the history becomes too large.
    pub fn run(&mut self, name: &str, run: &Run) -> Result<(), HistoryError> {
        self.history.add(name, run)
    }

    /// The history of all files.
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
