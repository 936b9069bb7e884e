//! Runs of jobs, and the history that they make.

use std::collections::{BTreeMap, BTreeSet};

use shoal_base::amount::counted;

use crate::error::HistoryError;
use crate::interned::Interned;
use crate::moment::Moment;

/// A name or a path of a history, by its number.
pub(crate) type TextId = u32;

/// The maximum number of runs in a history.
const RUNS_MAX: usize = 2_000_000;
/// The maximum number of inputs and outputs, over all runs.
const INPUTS_MAX: usize = 32_000_000;
/// The maximum number of different names and paths.
const TEXTS_MAX: usize = 4_000_000;
/// The maximum length of a path: a bucket, and a key as long as S3 allows.
const PATH_BYTES_MAX: usize = 1_200;
/// The maximum length of a name.
const NAME_BYTES_MAX: usize = 1_024;

/// One run of a job, as a reader found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The name of the job.
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

/// Something that a run read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// `s3://bucket/key` of an object, or with a `/` at its end a prefix of objects.
    pub path: String,
    /// Bytes that were read of it.
    pub bytes: Option<u64>,
    /// The rate at which the run read it, if it is known.
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
    /// The number of the file that tells of it.
    file: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredInput {
    pub(crate) path: TextId,
    pub(crate) bytes: u64,
    /// 0 if it is not known.
    pub(crate) bytes_per_s: u64,
}

impl StoredRun {
    pub(crate) fn input_bytes(&self) -> u64 {
        self.inputs
            .iter()
            .fold(0, |sum, input| sum.saturating_add(input.bytes))
    }

    /// From submission to end.
    pub(crate) fn duration_ms(&self) -> Option<i64> {
        self.ended.map(|ended| ended.since_ms(self.submitted).max(0))
    }
}

/// A part of the files that a reader passed over, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passed {
    /// An input that is not in S3: local files, HDFS.
    NotInS3,
    /// A line of an event log longer than any that is read.
    LongLine,
    /// An event of a Spark application whose start is in no file.
    NoStart,
    /// A Spark application whose log ends before it does.
    NoEnd,
    /// A path of a scan that Spark does not name, as a list of paths was cut off.
    CutOff,
    /// A stretch of requests by one job that lasted longer than a day, cut there.
    LongJob,
    /// A request without the name of a job.
    NoJob,
    /// A request that comes later than the gap allows. It was read, but perhaps begins another run.
    OutOfOrder,
}

impl Passed {
    /// The words for it, after a number.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotInS3 => "inputs that are not in S3",
            Self::LongLine => "lines of event logs that are too long",
            Self::NoStart => "events of Spark applications whose start is in no file",
            Self::NoEnd => "event logs without the end of their application",
            Self::CutOff => "paths that a Spark plan does not name, as it cuts lists off",
            Self::LongJob => "jobs by requests that lasted more than a day, cut there",
            Self::NoJob => "requests without the name of a job",
            Self::OutOfOrder => "requests out of order, which may split runs: merge the logs by time",
        }
    }
}

/// Runs of jobs, in the order of their submission once the reader has finished.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub(crate) runs: Vec<StoredRun>,
    pub(crate) names: Interned,
    pub(crate) paths: Interned,
    /// Inputs and outputs of all runs.
    inputs: usize,
    /// The identities that sign requests, each for long, by which jobs are named.
    pub(crate) identities: BTreeSet<String>,
    /// How often something was passed over, by reason.
    passed: BTreeMap<Passed, u64>,
    /// The last moment that the logs tell of.
    end: Moment,
    /// The number of the file that is being read.
    file: u32,
}

impl History {
    /// The number of runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is no run.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs, in the order of their submission.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.runs.iter().map(|run| Run {
            name: self.names.text(run.name).to_owned(),
            submitted: run.submitted,
            started: Some(run.started),
            ended: run.ended,
            deadline: run.deadline,
            inputs: self.inputs_of(run),
            outputs: run
                .outputs
                .iter()
                .map(|&path| self.paths.text(path).to_owned())
                .collect(),
        })
    }

    /// The number of different paths that runs read.
    pub(crate) fn input_paths(&self) -> usize {
        let mut is_read = vec![false; self.paths.len()];
        for input in self.runs.iter().flat_map(|run| &run.inputs) {
            is_read[input.path as usize] = true;
        }
        is_read.into_iter().filter(|is_read| *is_read).count()
    }

    fn inputs_of(&self, run: &StoredRun) -> Vec<Input> {
        let input = |input: &StoredInput| Input {
            path: self.paths.text(input.path).to_owned(),
            bytes: Some(input.bytes),
            bytes_per_s: Some(input.bytes_per_s).filter(|&rate| rate > 0),
        };
        run.inputs.iter().map(input).collect()
    }

    /// The first submission, and the last moment that the logs tell of; `None` without a run.
    pub fn span(&self) -> Option<(Moment, Moment)> {
        let first = self.runs.iter().map(|run| run.submitted).min()?;
        Some((first, self.end))
    }

    /// The parts that were passed over while reading, and how often.
    pub fn passed(&self) -> impl Iterator<Item = (Passed, u64)> + '_ {
        self.passed.iter().map(|(&reason, &count)| (reason, count))
    }

    /// Adds a run that was read from the file `source`.
    ///
    /// Inputs outside S3 are left out and counted. An input that is listed twice counts once, with the larger
    /// size.
    ///
    /// # Errors
    ///
    /// Fails if the history would become too large.
    pub(crate) fn add(&mut self, source: &str, run: &Run) -> Result<(), HistoryError> {
        let too_large = |limit: String| HistoryError::TooLarge {
            name: source.to_owned(),
            limit,
        };
        self.inputs = self.inputs.saturating_add(run.inputs.len() + run.outputs.len());
        if self.runs.len() >= RUNS_MAX {
            return Err(too_large(counted(RUNS_MAX as u64, "run")));
        }
        if self.inputs > INPUTS_MAX {
            return Err(too_large(counted(INPUTS_MAX as u64, "input")));
        }
        if self.paths.len() + self.names.len() > TEXTS_MAX {
            return Err(too_large(counted(TEXTS_MAX as u64, "different path")));
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

    /// Notes that the logs tell of this moment, though perhaps of no run in it.
    pub(crate) fn saw(&mut self, moment: Moment) {
        self.end = self.end.max(moment);
    }

    /// Counts something that was passed over.
    pub(crate) fn pass(&mut self, reason: Passed) {
        self.pass_times(reason, 1);
    }

    /// Counts so many that were passed over.
    pub(crate) fn pass_times(&mut self, reason: Passed, times: u64) {
        if times > 0 {
            let count = self.passed.entry(reason).or_default();
            *count = count.saturating_add(times);
        }
    }

    /// Begins another file.
    pub(crate) fn next_file(&mut self) {
        self.file += 1;
    }

    /// Sorts the runs by submission, and drops those that an earlier file told of. Within one file, two runs
    /// of one moment are two runs: some logs have whole seconds only.
    pub(crate) fn sort(&mut self) {
        let paths = |run: &StoredRun| run.inputs.iter().map(|input| input.path).collect::<Vec<_>>();
        // A stable sort: runs of one moment stay in the order of the files.
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

/// A path as `s3://bucket/key`, whichever way it is spelled; `None` if it is not in S3.
pub fn normalized(path: &str) -> Option<String> {
    let path = path.trim();
    let rest = match path.split_once("://") {
        Some((scheme, rest)) => matches!(scheme, "s3" | "s3a" | "s3n").then_some(rest)?,
        // A path on a disk, or `file:/...`.
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

/// The first `bytes_max` bytes of a text, or one to three less.
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
        // A run does not end before it was submitted.
        assert_eq!(run.ended, Some(run.submitted));
        assert_eq!(history.span().unwrap().0.ms(), 5_000);
    }
}
