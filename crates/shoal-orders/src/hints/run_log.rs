//! A log of the reads and writes of runs that ended here, in the form that `shoal plan` learns from.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::{Value, json};
use shoal_hints::JobRecord;
use shoal_s3::time::rfc3339;
use shoal_store::journal::{Journal, JournalError};
use shoal_store::{FileRoom, Store};

/// Maximum number of bytes of all runs. The oldest make room.
const BYTES_MAX: usize = 8 << 20;

/// The runs, one JSON object each, the latest last.
pub struct RunLog(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    runs: VecDeque<String>,
    bytes: usize,
    journal: Option<Journal>,
}

impl RunLog {
    /// Opens the log in `store`.
    ///
    /// # Errors
    ///
    /// Its file cannot be read.
    pub fn open(store: &Store) -> Result<Self, JournalError> {
        let mut inner = Inner::default();
        let path = store.node_folder().join("runs");
        let journal = Journal::open(&path, FileRoom::new(store), |line| {
            if let Ok(line) = std::str::from_utf8(line) {
                inner.push(line.to_owned());
            }
        })?;
        inner.journal = Some(journal);
        Ok(Self(Mutex::new(inner)))
    }

    /// Adds a run that has ended.
    pub(super) fn add(&self, record: &JobRecord, run: &str) {
        let line = line_of(record, run).to_string();
        let mut inner = self.0.lock();
        inner.push(line.clone());
        let live_bytes = inner.bytes as u64;
        let lines: Vec<Vec<u8>> = match &inner.journal {
            Some(journal) if journal.is_mostly_dead(live_bytes) => {
                inner.runs.iter().map(|line| line.clone().into_bytes()).collect()
            }
            _ => Vec::new(),
        };
        let Some(journal) = &mut inner.journal else { return };
        let written = if lines.is_empty() {
            journal.append(line.as_bytes())
        } else {
            journal.rewrite(lines)
        };
        if let Err(error) = written {
            tracing::warn!(%error, "the run of a job is not written down; it is in memory only");
        }
    }

    /// Returns all runs, one JSON object a line.
    pub fn lines(&self) -> String {
        let inner = self.0.lock();
        let mut text = String::with_capacity(inner.bytes + inner.runs.len());
        for run in &inner.runs {
            text.push_str(run);
            text.push('\n');
        }
        text
    }
}

impl Inner {
    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.runs.push_back(line);
        while self.bytes > BYTES_MAX
            && let Some(oldest) = self.runs.pop_front()
        {
            self.bytes -= oldest.len();
        }
    }
}

/// The endings of single files of data. Names of tables and of folders have others.
const FILES: [&str; 12] = [
    "avro", "bz2", "csv", "gz", "json", "jsonl", "orc", "parquet", "tsv", "txt", "xml", "zst",
];

/// Returns a path as a history names it: a prefix ends in a slash.
fn extent_of(path: &str) -> String {
    let ending = path.rsplit('/').next().and_then(|name| name.rsplit_once('.'));
    let is_file = ending.is_some_and(|(_, ending)| FILES.contains(&&*ending.to_ascii_lowercase()));
    if is_file {
        path.to_owned()
    } else {
        format!("{path}/")
    }
}

/// Returns a run as `shoal plan` reads it.
fn line_of(record: &JobRecord, run: &str) -> Value {
    let time = |millis: u64| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
    let inputs = record.inputs.iter().map(|input| {
        let mut read = json!({ "path": extent_of(&input.path) });
        if let Some(bytes) = input.bytes {
            read["bytes"] = bytes.into();
        }
        read
    });
    json!({
        "id": run,
        "name": record.job.to_string(),
        "submitted": time(record.started_ms),
        "ended": time(record.ended_ms),
        "inputs": inputs.collect::<Vec<_>>(),
        "outputs": record.outputs,
    })
}
