//! Recorded requests and jobs. One form of recording a file.
//!
//! Readers stream: memory grows with the number of distinct names, not with the length of a trace (a workflow in WfCommons
//! JSON is one document and is held whole). A line that cannot be read ends the reading with its number and what was expected.

mod access_log;
mod csv;
mod format;
mod job;
mod log;
mod oracle_general;
mod s3_log;
mod swim;
mod timestamp;
mod wfcommons;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

pub use self::format::Format;
pub use self::job::{Job, Piece};
use self::log::Log;
use crate::clock::Time;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When it was made, since the first request of the trace where the recording knows.
    pub at: Time,
    /// Who made it, numbered from 0; everybody is 0 where the recording does not tell.
    pub client: u32,
    /// What it is about, numbered from 0.
    pub object: u32,
    /// Length of the object, as far as the recording tells.
    pub object_bytes: u64,
    /// First byte of the object that is meant.
    pub offset_bytes: u64,
    /// How many bytes are meant.
    pub bytes: u64,
    /// What is done with them.
    pub operation: Operation,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Reads bytes of an object.
    Read,
    /// Makes the object anew: what is cached of it is out of date.
    Write,
    /// Removes the object.
    Delete,
}

/// Requests in the order of their recording.
pub type Accesses = Box<dyn Iterator<Item = Result<Access, TraceError>>>;

/// Jobs in the order of their recording.
pub type Jobs = Box<dyn Iterator<Item = Result<Job, TraceError>>>;

/// A recording that has been opened.
pub enum Trace {
    /// Of single requests.
    Accesses(Accesses),
    /// Of jobs, which read several objects and wait for each other.
    Jobs(Jobs),
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system does not give it.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// What was to be read.
        path: PathBuf,
        /// Why it cannot be.
        source: io::Error,
    },
    /// Neither its name nor its beginning tells what it is.
    #[error("cannot tell the format of {}\nhint: name it with --format: {}", .0.display(), Format::names())]
    UnknownFormat(PathBuf),
    /// It has to be unpacked first.
    #[error("{} is compressed\nhint: unpack it first: {command} {} > trace", path.display(), path.display())]
    Compressed {
        /// What was to be read.
        path: PathBuf,
        /// What unpacks it.
        command: &'static str,
    },
    /// There is nothing in it that a cache could serve.
    #[error(
        "the trace reads no object\nhint: a node's log tells of requests with `access = true` below [log], and S3's some hours later"
    )]
    Unread,
    /// A line, or a record of a binary trace, is not what it should be.
    #[error("{}:{line}: found {found}\nhint: expected {expected}", path.display())]
    Line {
        /// The trace.
        path: PathBuf,
        /// The line or record, counted from 1.
        line: u64,
        /// What stands there.
        found: String,
        /// What should.
        expected: String,
    },
}

impl Trace {
    /// Opens the recording at `path`; without a `format` its name and its beginning tell.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, TraceError> {
        let from_path = |source| TraceError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = BufReader::with_capacity(1 << 18, File::open(path).map_err(from_path)?);
        let format = match format {
            Some(format) => format,
            None => Format::guess(path, &mut file)?,
        };
        Self::read(file, path, format)
    }

    /// Reads a recording from `input`; `path` is its name in errors.
    pub fn read(input: impl Read + 'static, path: &Path, format: Format) -> Result<Self, TraceError> {
        let lines = Lines::new(input, path);
        Ok(match format {
            Format::Csv => Self::Accesses(Box::new(csv::Csv::new(lines)?)),
            Format::OracleGeneral => Self::Accesses(Box::new(oracle_general::OracleGeneral::new(lines))),
            Format::S3Log => Self::Accesses(Box::new(Log::new(lines, s3_log::access))),
            Format::AccessLog => Self::Accesses(Box::new(Log::new(lines, access_log::access))),
            Format::Swim => Self::Jobs(Box::new(swim::Swim::new(lines))),
            Format::WfCommons => Self::Jobs(Box::new(wfcommons::read(lines)?)),
        })
    }

    /// Its requests one by one; those of a job all come at the job's time.
    pub fn accesses(self) -> Accesses {
        match self {
            Self::Accesses(accesses) => accesses,
            Self::Jobs(jobs) => Box::new(jobs.flat_map(|job| match job {
                Ok(job) => job.accesses().into_iter().map(Ok).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            })),
        }
    }
}

/// Lines of a trace, which knows where it is.
struct Lines<R> {
    input: BufReader<R>,
    path: PathBuf,
    /// Number of the line or record that was read last.
    line: u64,
}

impl<R: Read> Lines<R> {
    fn new(input: R, path: &Path) -> Self {
        Self {
            input: BufReader::with_capacity(1 << 18, input),
            path: path.to_owned(),
            line: 0,
        }
    }

    /// The next line that is not empty, without its end; `None` after the last one.
    fn next_line(&mut self) -> Option<Result<String, TraceError>> {
        loop {
            let mut bytes = Vec::new();
            self.line += 1;
            match io::BufRead::read_until(&mut self.input, b'\n', &mut bytes) {
                Ok(0) => return None,
                // Keys are bytes: what is no UTF-8 names an object all the same.
                Ok(_) => match String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']) {
                    "" => {}
                    line => return Some(Ok(line.to_owned())),
                },
                Err(source) => return Some(Err(self.io_error(source))),
            }
        }
    }

    fn io_error(&self, source: io::Error) -> TraceError {
        TraceError::Io {
            path: self.path.clone(),
            source,
        }
    }

    fn error(&self, found: impl Into<String>, expected: impl Into<String>) -> TraceError {
        TraceError::Line {
            path: self.path.clone(),
            line: self.line,
            found: found.into(),
            expected: expected.into(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::{Access, Format, Job, Trace, TraceError};

    /// What a recording with this `text` holds.
    pub(crate) fn accesses(text: &str, format: Format) -> Result<Vec<Access>, TraceError> {
        Trace::read(
            std::io::Cursor::new(text.as_bytes().to_vec()),
            Path::new("t"),
            format,
        )?
        .accesses()
        .collect()
    }

    pub(crate) fn jobs(text: &str, format: Format) -> Result<Vec<Job>, TraceError> {
        match Trace::read(
            std::io::Cursor::new(text.as_bytes().to_vec()),
            Path::new("t"),
            format,
        )? {
            Trace::Jobs(jobs) => jobs.collect(),
            Trace::Accesses(_) => panic!("{format} records jobs"),
        }
    }

    /// What is said about a recording that cannot be read.
    pub(crate) fn refusal(text: &str, format: Format) -> String {
        accesses(text, format).unwrap_err().to_string()
    }
}
