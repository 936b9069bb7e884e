//! Runs of jobs, and the history of runs.

pub(crate) mod interned;
pub mod summary;

use std::collections::{BTreeMap, BTreeSet};

use shoal_base::amount::counted;
use shoal_base::words;

use self::interned::Interned;
use crate::error::HistoryError;
use crate::moment::Moment;
use crate::stats::sum;

/// Id of a name or a path of a history.
pub(crate) type TextId = u32;

/// Maximum number of runs in a history.
const RUNS_MAX: usize = 2_000_000;
/// Maximum number of inputs and outputs of all runs.
const INPUTS_MAX: usize = 32_000_000;
/// Maximum number of different names and paths.
const TEXTS_MAX: usize = 4_000_000;
/// Maximum length of a path: a bucket, and the longest key of S3.
const PATH_BYTES_MAX: usize = 1_200;
/// Maximum length of a name.
const NAME_BYTES_MAX: usize = 1_024;

/// One run of a job, as read from a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Name of the job.
    pub name: String,
    /// When it was submitted.
    pub submitted: Moment,
    /// When it started.
    pub started: Option<Moment>,
    /// When it ended.
    pub ended: Option<Moment>,
    /// When it should have ended.
    pub deadline: Option<Moment>,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// Paths that it wrote.
    pub outputs: Vec<String>,
}

impl Run {
    /// Returns the first two times of the run that are in the wrong order, if there are any.
    pub(crate) fn disorder(&self) -> Option<String> {
        let submitted = ("submitted", Some(self.submitted));
        let (started, ended) = (("started", self.started), ("ended", self.ended));
        let orders = [
            (submitted, started),
            (submitted, ended),
            (started, ended),
            (submitted, ("deadline", self.deadline)),
        ];
        let wrong = orders
            .into_iter()
            .find_map(|((earlier, before), (later, after))| {
                let (before, after) = before.zip(after)?;
                (after < before).then_some((earlier, before, later, after))
            });
        wrong.map(|(earlier, before, later, after)| format!("`{later}` {after} before `{earlier}` {before}"))
    }
}

/// An input of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// `s3://bucket/key` of an object, or a prefix with a trailing slash.
    pub path: String,
    /// Bytes read of it.
    pub bytes: Option<u64>,
    /// Rate at which the run read it, if known.
    pub bytes_per_s: Option<u64>,
}

/// A run in the history.
#[derive(Clone, Debug)]
pub(crate) struct StoredRun {
    pub(crate) name: TextId,
    pub(crate) submitted: Moment,
    pub(crate) started: Moment,
    pub(crate) ended: Option<Moment>,
    pub(crate) deadline: Option<Moment>,
    pub(crate) inputs: Box<[StoredInput]>,
    pub(crate) outputs: Box<[TextId]>,
    /// Number of the file it was read from.
    file: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredInput {
    pub(crate) path: TextId,
    pub(crate) bytes: u64,
    /// 0 if unknown.
    pub(crate) bytes_per_s: u64,
}

impl StoredRun {
    pub(crate) fn input_bytes(&self) -> u64 {
        sum(self.inputs.iter().map(|input| input.bytes))
    }

    /// Returns the time from submission to end.
    pub(crate) fn duration_ms(&self) -> Option<i64> {
        self.ended.map(|ended| ended.since_ms(self.submitted).max(0))
    }
}

words! {
    /// Input that a reader skipped, with the reason.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Passed {
        /// An input outside S3: a local file or HDFS.
        NotInS3 = "inputs that are not in S3",
        /// A line of an event log that exceeds the limit.
        LongLine = "lines of event logs that are too long",
        /// An event of a Spark application without a start event.
        NoStart = "events of Spark applications whose start is in no file",
        /// A Spark application without an end event.
        NoEnd = "event logs without the end of their application",
        /// A path of a scan that is missing because Spark truncated the list.
        CutOff = "paths that a Spark plan does not name, as it cuts lists off",
        /// A read of what the same run had written before.
        OwnWrite = "reads of what the job itself had written",
        /// Requests of one job over more than a day, which were split.
        LongJob = "jobs by requests that lasted more than a day, cut there",
        /// A request that names no job.
        NoJob = "requests without the name of a job",
        /// A request that arrived later than the gap allows. It was read, but may have started another run.
        OutOfOrder = "requests out of order, which may split runs: merge the logs by time",
    }
}

/// Runs of jobs; ordered by submission once the reader has finished.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub(crate) runs: Vec<StoredRun>,
    pub(crate) names: Interned,
    pub(crate) paths: Interned,
    /// Number of inputs and outputs of all runs.
    inputs: usize,
    /// Long-lived identities that occur in names of jobs.
    pub(crate) identities: BTreeSet<String>,
    /// Skipped input, with counts.
    passed: BTreeMap<Passed, u64>,
    /// End of the period that the logs cover.
    end: Moment,
    /// Number of the file being read.
    pub(crate) file: u32,
}

impl History {
    /// Returns the number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns true if there are no runs.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the runs, ordered by submission.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let text = |&path: &TextId| self.paths.text(path).to_owned();
        let input = move |input: &StoredInput| Input {
            path: text(&input.path),
            bytes: Some(input.bytes),
            bytes_per_s: Some(input.bytes_per_s).filter(|&rate| rate > 0),
        };
        self.runs.iter().map(move |run| Run {
            name: self.names.text(run.name).to_owned(),
            submitted: run.submitted,
            started: Some(run.started),
            ended: run.ended,
            deadline: run.deadline,
            inputs: run.inputs.iter().map(input).collect(),
            outputs: run.outputs.iter().map(text).collect(),
        })
    }

    /// Returns the number of different paths that runs read.
    pub(crate) fn input_paths(&self) -> usize {
        let mut is_read = vec![false; self.paths.len()];
        for input in self.runs.iter().flat_map(|run| &run.inputs) {
            is_read[input.path as usize] = true;
        }
        is_read.into_iter().filter(|is_read| *is_read).count()
    }

    /// Returns the first submission, and the end of the period that the logs cover; `None` without runs.
    pub fn span(&self) -> Option<(Moment, Moment)> {
        let first = self.runs.iter().map(|run| run.submitted).min()?;
        Some((first, self.end))
    }

    /// Returns what was skipped while reading, with counts.
    pub fn passed(&self) -> impl Iterator<Item = (Passed, u64)> + '_ {
        self.passed.iter().map(|(&reason, &count)| (reason, count))
    }

    /// Adds a run read from the file `source`.
    ///
    /// Inputs outside S3 are dropped and counted. An input that is listed twice counts once, with the larger
    /// size.
    ///
    /// # Errors
    ///
    /// Fails if the history would become too large.
    pub(crate) fn add(&mut self, source: &str, run: &Run) -> Result<(), HistoryError> {
        self.inputs = self.inputs.saturating_add(run.inputs.len() + run.outputs.len());
        for (count, max, thing) in [
            (self.runs.len() + 1, RUNS_MAX, "run"),
            (self.inputs, INPUTS_MAX, "input"),
            (self.paths.len() + self.names.len(), TEXTS_MAX, "different path"),
        ] {
            if count > max {
                return Err(HistoryError::too_large(source, counted(max as u64, thing)));
            }
        }
        let inputs = self.stored_inputs(run);
        let outputs = run.outputs.iter().filter_map(|path| self.path(path)).collect();
        let started = run.started.unwrap_or(run.submitted).max(run.submitted);
        self.saw(run.ended.unwrap_or(started));
        self.runs.push(StoredRun {
            name: self.names.number(cut(run.name.trim(), NAME_BYTES_MAX)),
            submitted: run.submitted,
            started,
            ended: run.ended.map(|ended| ended.max(started)),
            deadline: run.deadline.filter(|&deadline| deadline > run.submitted),
            inputs,
            outputs,
            file: self.file,
        });
        Ok(())
    }

    /// Extends the period that the logs cover to this moment.
    pub(crate) fn saw(&mut self, moment: Moment) {
        self.end = self.end.max(moment);
    }

    /// Counts one skipped part.
    pub(crate) fn pass(&mut self, reason: Passed) {
        self.pass_times(reason, 1);
    }

    /// Counts skipped parts.
    pub(crate) fn pass_times(&mut self, reason: Passed, times: u64) {
        if times > 0 {
            let count = self.passed.entry(reason).or_default();
            *count = count.saturating_add(times);
        }
    }

    /// Sorts the runs by submission, and removes those already read from an earlier file. Two equal runs
    /// within one file are kept, because some logs have a resolution of one second.
    pub(crate) fn sort(&mut self) {
        let paths = |run: &StoredRun| run.inputs.iter().map(|input| input.path).collect::<Vec<_>>();
        // The sort is stable: equal runs stay in file order.
        self.runs.sort_by_key(|run| (run.submitted, run.name, run.ended));
        self.runs.dedup_by(|later, earlier| {
            later.file != earlier.file
                && (later.submitted, later.name, later.ended)
                    == (earlier.submitted, earlier.name, earlier.ended)
                && paths(later) == paths(earlier)
        });
    }

    fn stored_inputs(&mut self, run: &Run) -> Box<[StoredInput]> {
        let mut inputs = Vec::with_capacity(run.inputs.len());
        for input in &run.inputs {
            let Some(path) = self.path(&input.path) else {
                self.pass(Passed::NotInS3);
                continue;
            };
            inputs.push(StoredInput {
                path,
                bytes: input.bytes.unwrap_or(0),
                bytes_per_s: input.bytes_per_s.unwrap_or(0),
            });
        }
        inputs.sort_by_key(|input| (input.path, std::cmp::Reverse(input.bytes)));
        inputs.dedup_by_key(|input| input.path);
        inputs.into_boxed_slice()
    }

    fn path(&mut self, path: &str) -> Option<TextId> {
        let path = normalized(path)?;
        (path.len() <= PATH_BYTES_MAX).then(|| self.paths.number(&path))
    }
}

/// Normalizes the spellings of a path to `s3://bucket/key`; `None` if it is not in S3.
pub fn normalized(path: &str) -> Option<String> {
    let path = path.trim();
    let rest = match path.split_once("://") {
        Some((scheme, rest)) => matches!(scheme, "s3" | "s3a" | "s3n").then_some(rest)?,
        // A local path, or `file:/...`.
        None if path.starts_with('/') || path.contains(":/") => return None,
        None => path,
    };
    let rest = rest.trim_start_matches('/');
    let (bucket, _key) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() || path.chars().any(char::is_control) {
        return None;
    }
    let slash = if rest.contains('/') { "" } else { "/" };
    Some(format!("s3://{rest}{slash}"))
}

/// Returns at most the first `bytes_max` bytes of a text, ending at a character boundary.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::{History, Input, Moment, Passed, Run, normalized};

    #[test]
    fn a_path_has_one_spelling() {
        for (path, expected) in [
            ("s3a://lake/fact", Some("s3://lake/fact")),
            ("s3://lake/fact/", Some("s3://lake/fact/")),
            ("lake/fact/part-0", Some("s3://lake/fact/part-0")),
            ("s3n://lake", Some("s3://lake/")),
            ("hdfs://namenode/fact", None),
            ("file:/tmp/x", None),
            ("file:///tmp/x", None),
            ("/tmp/x", None),
            ("s3:///x\u{1}", None),
            ("", None),
        ] {
            assert_eq!(normalized(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn an_input_listed_twice_counts_once_and_what_is_not_in_s3_is_counted() {
        let input = |path: &str, bytes| Input {
            path: path.to_owned(),
            bytes: Some(bytes),
            bytes_per_s: None,
        };
        let mut history = History::default();
        let run = Run {
            name: "etl".to_owned(),
            submitted: Moment::from_ms(5_000),
            started: Some(Moment::from_ms(1_000)),
            ended: Some(Moment::from_ms(2_000)),
            inputs: vec![input("s3a://b/k", 5), input("s3://b/k", 7), input("/tmp/x", 1)],
            ..Run::default()
        };
        history.add("h", &run).unwrap();
        let run = &history.runs[0];
        assert_eq!((run.inputs.len(), run.input_bytes()), (1, 7));
        assert_eq!(history.passed().collect::<Vec<_>>(), [(Passed::NotInS3, 1)]);
        // A run cannot end before its submission.
        assert_eq!(run.ended, Some(run.submitted));
        assert_eq!(history.span().unwrap().0.ms(), 5_000);
    }
}
