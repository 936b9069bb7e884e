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
use std::io::BufRead;
use std::iter;
use std::path::Path;

use shoal_logs::line::Lines;
use shoal_logs::packed::unpacked;
use shoal_logs::{AccessLog, FileError, Mismatch, Place};

use self::csv::Csv;
pub use self::error::TraceError;
pub use self::format::Format;
pub use self::job::{Job, Piece};
use self::log::Log;
use self::oracle_general::OracleGeneral;
pub(crate) use self::recording::Recording;
use self::swim::Swim;
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
    /// Opens the recording at `path`, compressed or not. The reader refuses an object that `granularity` does
    /// not allow.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or unpacked.
    pub fn open(path: &Path, format: Format, granularity: Granularity) -> Result<Self, TraceError> {
        let (_, file) = opened(path)?;
        Self::read(file, path, format, granularity)
    }

    /// Reads a recording from `input`; `path` is its name in errors.
    ///
    /// # Errors
    ///
    /// Fails if the beginning of a CSV, or a whole workflow, cannot be read.
    pub fn read(
        input: impl BufRead + 'static,
        path: &Path,
        format: Format,
        granularity: Granularity,
    ) -> Result<Self, TraceError> {
        let name = &path.to_string_lossy();
        let limits = Limits::new(granularity);
        let lines = |input| Lines::new(name, input, LINE_BYTES_MAX);
        Ok(match format {
            Format::Csv => {
                let mut csv = Csv::new(name, input, limits)?;
                Self::of_accesses(move || csv.read_next())
            }
            Format::OracleGeneral => {
                let mut records = OracleGeneral::new(name, input, limits);
                Self::of_accesses(move || records.read_next())
            }
            Format::S3Log => {
                let mut log = Log::new(lines(input), AccessLog::S3Server, limits);
                Self::of_accesses(move || log.read_next())
            }
            Format::AccessLog => {
                let mut log = Log::new(lines(input), AccessLog::Node, limits);
                Self::of_accesses(move || log.read_next())
            }
            Format::Swim => {
                let mut swim = Swim::new(lines(input), limits);
                Self::Jobs(Box::new(iter::from_fn(move || swim.read_next().transpose())))
            }
            Format::WfCommons => Self::Jobs(Box::new(
                wfcommons::read(name, input, limits)?.into_iter().map(Ok),
            )),
        })
    }

    fn of_accesses(mut next: impl FnMut() -> Result<Option<Access>, TraceError> + 'static) -> Self {
        Self::Accesses(Box::new(iter::from_fn(move || next().transpose())))
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

/// Opens the file at `path`, and returns its beginning with it.
fn opened(path: &Path) -> Result<(Vec<u8>, Box<dyn BufRead>), FileError> {
    let name = path.to_string_lossy();
    let file = File::open(path).map_err(|source| Place::new(&name).io_error(source))?;
    unpacked(&name, file, START_BYTES)
}

/// The number of bytes by which a format is recognized.
const START_BYTES: usize = 4096;

/// The maximum length of a line.
const LINE_BYTES_MAX: usize = 1 << 20;

/// The maximum number of bytes over all requests of a trace: no sum of them wraps.
const ASKED_BYTES_MAX: u64 = 1 << 63;

/// The numbers that a run can count.
struct Limits {
    /// How objects will be divided.
    granularity: Granularity,
    /// Bytes of all objects requested up to now, counted once per request.
    asked_bytes: u64,
}

impl Limits {
    const fn new(granularity: Granularity) -> Self {
        Self {
            granularity,
            asked_bytes: 0,
        }
    }

    /// Refuses a piece with more blocks than a run can hold, or more bytes than can be summed.
    fn check(&mut self, piece: &Piece) -> Result<(), Mismatch> {
        let end_bytes = piece.offset_bytes.saturating_add(piece.bytes);
        let object_bytes = piece.object_bytes.max(end_bytes);
        self.asked_bytes = self.asked_bytes.saturating_add(object_bytes);
        let expected = if self.asked_bytes > ASKED_BYTES_MAX {
            "less than 8 EiB in all requests together".to_owned()
        } else if !self.granularity.allows(object_bytes) {
            let blocks = counted(OBJECT_BLOCKS_MAX, "block");
            format!("at most {blocks} an object: take larger ones with --block")
        } else {
            return Ok(());
        };
        let found = format!("an object of {}", counted(object_bytes, "byte"));
        Err(Mismatch::new(found, expected))
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
            Trace::Accesses(_) => panic!("{} records jobs", format.as_str()),
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
