//! Recorded requests and jobs. One format per file; the access logs share one.
//!
//! Readers stream: memory grows with the number of distinct names, not with the length of a trace (a workflow
//! in WfCommons JSON is one document and is held whole). A reader stops at a line that it cannot parse, or
//! whose numbers a run cannot count, and reports the number of the line and the expected form.

mod csv;
mod error;
mod format;
mod guess;
mod job;
mod log;
mod oracle_general;
mod packed;
mod recording;
mod swim;
mod wfcommons;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use shoal_logs::line::{LineEnd, read_line};
use shoal_logs::{Mismatch, s3_server};

pub use self::error::TraceError;
pub use self::format::Format;
pub use self::job::{Job, Piece};
use self::log::Log;
pub(crate) use self::recording::Recording;
pub use crate::block::{Access, Operation};
use crate::block::{Granularity, OBJECT_BLOCKS_MAX};
use crate::units::counted;

/// Requests in the order of their recording.
pub type Accesses = Box<dyn Iterator<Item = Result<Access, TraceError>>>;

/// Jobs in the order of their recording.
pub type Jobs = Box<dyn Iterator<Item = Result<Job, TraceError>>>;

/// An open recording.
pub enum Trace {
    /// Single requests.
    Accesses(Accesses),
    /// Jobs, which read several objects and wait for each other.
    Jobs(Jobs),
}

impl Trace {
    /// Opens the recording at `path`; without a `format`, its name and its beginning identify the format. The
    /// reader refuses an object that `granularity` does not allow.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or without a `format` if it is compressed or of an unknown format.
    pub fn open(path: &Path, format: Option<Format>, granularity: Granularity) -> Result<Self, TraceError> {
        let from_path = |source| TraceError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = BufReader::with_capacity(1 << 18, File::open(path).map_err(from_path)?);
        let format = match format {
            Some(format) => format,
            None => Format::guess(path, &mut file)?,
        };
        Self::read(file, path, format, granularity)
    }

    /// Reads a recording from `input`; `path` is its name in errors.
    ///
    /// # Errors
    ///
    /// Fails if the beginning of a CSV, or a whole workflow, cannot be read.
    pub fn read(
        input: impl Read + 'static,
        path: &Path,
        format: Format,
        granularity: Granularity,
    ) -> Result<Self, TraceError> {
        let lines = Lines::new(input, path, granularity);
        Ok(match format {
            Format::Csv => Self::Accesses(Box::new(csv::Csv::new(lines)?)),
            Format::OracleGeneral => Self::Accesses(Box::new(oracle_general::OracleGeneral::new(lines))),
            Format::S3Log => Self::Accesses(Box::new(Log::new(lines, |line| {
                s3_server::request(line).map(Some)
            }))),
            Format::AccessLog => Self::Accesses(Box::new(Log::new(lines, log::node_request))),
            Format::Swim => Self::Jobs(Box::new(swim::Swim::new(lines))),
            Format::WfCommons => Self::Jobs(Box::new(wfcommons::read(lines)?)),
        })
    }

    /// The requests one by one; those of a job all have the time of the job.
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

/// Lines of a trace, with its path and position.
struct Lines<R> {
    input: BufReader<R>,
    path: PathBuf,
    /// Number of the last line or record that was read.
    line: u64,
    /// How objects will be divided.
    granularity: Granularity,
    /// Bytes of all objects requested up to now, counted once per request.
    asked_bytes: u64,
}

/// The maximum length of a line.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The maximum number of bytes over all requests of a trace: no sum of them wraps.
const ASKED_BYTES_MAX: u64 = 1 << 63;

impl<R: Read> Lines<R> {
    fn new(input: R, path: &Path, granularity: Granularity) -> Self {
        Self {
            input: BufReader::with_capacity(1 << 18, input),
            path: path.to_owned(),
            line: 0,
            granularity,
            asked_bytes: 0,
        }
    }

    /// Refuses a piece with more blocks than a run can hold, or more bytes than can be summed.
    fn check(&mut self, piece: &Piece) -> Result<(), TraceError> {
        let end_bytes = piece.offset_bytes.saturating_add(piece.bytes);
        let object_bytes = piece.object_bytes.max(end_bytes);
        self.asked_bytes = self.asked_bytes.saturating_add(object_bytes);
        if self.asked_bytes > ASKED_BYTES_MAX {
            let found = format!("an object of {}", counted(object_bytes, "byte"));
            return Err(self.error(found, "less than 8 EiB in all requests together"));
        }
        if !self.granularity.allows(object_bytes) {
            let found = format!("an object of {}", counted(object_bytes, "byte"));
            let expected = format!(
                "at most {} an object: take larger ones with --block",
                counted(OBJECT_BLOCKS_MAX, "block")
            );
            return Err(self.error(found, expected));
        }
        Ok(())
    }

    /// The next line that is not empty, without its line end; `None` after the last one.
    fn next_line(&mut self) -> Option<Result<String, TraceError>> {
        let mut bytes = Vec::new();
        loop {
            self.line += 1;
            match read_line(&mut self.input, &mut bytes, LINE_BYTES_MAX) {
                Ok(LineEnd::NoMore) => return None,
                // Keys are bytes: text that is not UTF-8 names an object all the same.
                Ok(LineEnd::Line) => match String::from_utf8_lossy(&bytes).trim_end_matches('\r') {
                    "" => {}
                    line => return Some(Ok(line.to_owned())),
                },
                Ok(LineEnd::TooLong) => {
                    let found = format!("a line of more than {LINE_BYTES_MAX} bytes");
                    return Some(Err(self.error(found, "one request or job a line")));
                }
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

    fn mismatch(&self, mismatch: Mismatch) -> TraceError {
        TraceError::Line {
            path: self.path.clone(),
            line: self.line,
            mismatch,
        }
    }

    fn error(&self, found: impl Into<String>, expected: impl Into<String>) -> TraceError {
        self.mismatch(Mismatch::new(found, expected))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::{ASKED_BYTES_MAX, Access, Format, Job, Trace, TraceError};
    use crate::block::Granularity;

    /// The requests of a recording with this `text`.
    pub(crate) fn accesses(text: &str, format: Format) -> Result<Vec<Access>, TraceError> {
        Trace::read(
            std::io::Cursor::new(text.as_bytes().to_vec()),
            Path::new("t"),
            format,
            Granularity::Objects,
        )?
        .accesses()
        .collect()
    }

    pub(crate) fn jobs(text: &str, format: Format) -> Result<Vec<Job>, TraceError> {
        match Trace::read(
            std::io::Cursor::new(text.as_bytes().to_vec()),
            Path::new("t"),
            format,
            Granularity::Objects,
        )? {
            Trace::Jobs(jobs) => jobs.collect(),
            Trace::Accesses(_) => panic!("{format} records jobs"),
        }
    }

    /// The error message for a recording that cannot be read.
    pub(crate) fn refusal(text: &str, format: Format) -> String {
        accesses(text, format).unwrap_err().to_string()
    }

    /// The same for objects divided into blocks of this size.
    fn refusal_in_blocks(text: &str, block_bytes: u64) -> String {
        let input = std::io::Cursor::new(text.as_bytes().to_vec());
        let trace = Trace::read(
            input,
            Path::new("t"),
            Format::Csv,
            Granularity::blocks(block_bytes),
        );
        let read: Result<Vec<_>, _> = trace.unwrap().accesses().collect();
        read.unwrap_err().to_string()
    }

    #[test]
    fn an_object_of_more_blocks_than_a_run_holds_is_refused_with_its_line() {
        let in_the_middle = "object,bytes\na,10\nb,4611686018427387904\nc,10\n";
        let told = refusal_in_blocks(in_the_middle, 4 << 20);
        assert_eq!(
            told,
            "t:3: found an object of 4611686018427387904 bytes\n\
             hint: expected at most 67108864 blocks an object: take larger ones with --block"
        );
        let told = refusal_in_blocks("object,bytes\na,9200000000000000000\n", 1);
        assert!(
            told.starts_with("t:2: found an object of 9200000000000000000 bytes"),
            "{told}"
        );
        let far = "object,offset_bytes,bytes\na,4611686018427387904,1\n";
        let told = refusal_in_blocks(far, 4 << 20);
        assert!(
            told.starts_with("t:2: found an object of 4611686018427387905 bytes"),
            "{told}"
        );
        let written = "object,bytes,operation\na,2199023255552,write\n";
        let told = refusal_in_blocks(written, 512);
        assert!(told.contains("take larger ones with --block"), "{told}");
    }

    #[test]
    fn bytes_that_no_sum_can_hold_are_refused_with_their_line() {
        let told = refusal("object,bytes\na,18446744073709551615\n", Format::Csv);
        assert!(
            told.starts_with("t:2: found an object of 18446744073709551615 bytes"),
            "{told}"
        );
        let told = refusal(
            "object,offset_bytes,bytes\na,18446744073709551615,2\n",
            Format::Csv,
        );
        assert!(told.starts_with("t:2: found"), "{told}");
        let half = ASKED_BYTES_MAX / 2;
        let told = refusal(&format!("object,bytes\na,{half}\nb,{half}\nc,1\n"), Format::Csv);
        assert_eq!(
            told,
            "t:4: found an object of 1 byte\nhint: expected less than 8 EiB in all requests together"
        );
        let swim = format!("job0\t1\t1\t{half}\t0\t0\njob1\t1\t0\t{half}\t0\t1\n");
        let told = refusal(&swim, Format::Swim);
        assert!(told.starts_with("t:2: found an object of 1 byte"), "{told}");
    }
}
