//! Turns the events of one application into a run.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use indexmap::IndexSet;

use super::event::{DriverMetrics, End, Event, Job, Start};
use super::location::Location;
use super::plan::{Plan, Scan};
use crate::error::HistoryError;
use crate::moment::Moment;
use crate::run::{History, Input, Passed, Run};

/// Maximum number of scans, metrics, stages and paths (each) kept per application. Long-lived ones, such as
/// SQL servers, have more; later ones are dropped.
const REMEMBERED_MAX: usize = 1 << 20;

/// An application whose log is being read.
#[derive(Debug, Default)]
pub(super) struct OpenApplication {
    /// The file that contains it.
    source: String,
    pub(super) name: String,
    id: Option<String>,
    pub(super) started_ms: i64,
    submitted_ms: Option<i64>,
    ended_ms: Option<i64>,
    /// Time of the latest event.
    seen_ms: i64,
    /// Its queries and jobs, in the order in which they began.
    pub(super) steps: IndexSet<StepId>,
    scans: Vec<(StepId, Scan)>,
    /// Accumulators of the sizes of known scans; a plan that is logged again has the same ones.
    known_sizes: HashSet<i64>,
    /// Locations of known scans without such an accumulator.
    known_locations: HashSet<Location>,
    /// Values by accumulator.
    metrics: HashMap<i64, u64>,
    /// Paths read by the RDDs of each stage, with the step that first had it.
    stages: BTreeMap<i64, (StepId, BTreeSet<String>)>,
    /// Bytes read by the tasks of each stage.
    stage_bytes: HashMap<i64, u64>,
    /// Written paths without trailing slashes.
    pub(super) outputs: BTreeMap<String, Output>,
}

/// A part of an application that reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum StepId {
    /// A query of SQL or of a data frame.
    Query(i64),
    /// A job that is no part of a query.
    Job(i64),
}

/// The first write to a path.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) step: StepId,
    /// The number of scans before it.
    before: usize,
}

/// A read of a path by a step.
#[derive(Debug)]
pub(super) struct Read<'app> {
    pub(super) step: StepId,
    /// An object, or a prefix with a trailing slash.
    pub(super) path: String,
    pub(super) bytes: u64,
    /// The output of the application that is read, of those at this path or above it.
    pub(super) own: Option<&'app str>,
}

impl OpenApplication {
    pub(super) fn begin(source: &str, start: Start) -> Self {
        Self {
            source: source.to_owned(),
            name: start.name,
            id: start.id,
            started_ms: start.at_ms,
            seen_ms: start.at_ms,
            ..Self::default()
        }
    }

    /// Returns true if `start` is the start of this application.
    pub(super) fn is(&self, start: &Start) -> bool {
        self.id == start.id && self.started_ms == start.at_ms
    }

    pub(super) fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(_) => {}
            Event::End(End { at_ms }) => {
                self.ended_ms = Some(at_ms);
                self.seen_ms = self.seen_ms.max(at_ms);
            }
            Event::Plan(query, plan) => self.take_plan(StepId::Query(query), plan),
            Event::DriverMetrics(DriverMetrics { updates }) => {
                for (accumulator, value) in updates {
                    if self.metrics.len() < REMEMBERED_MAX {
                        let value = u64::try_from(value).unwrap_or(0);
                        let known = self.metrics.entry(accumulator).or_default();
                        *known = value.max(*known);
                    }
                }
            }
            Event::Job(job) => self.take_job(&job),
            Event::Task(task) => {
                self.seen_ms = self.seen_ms.max(task.ended_ms());
                if self.stage_bytes.len() < REMEMBERED_MAX {
                    let sum = self.stage_bytes.entry(task.stage).or_default();
                    *sum = sum.saturating_add(task.bytes());
                }
            }
        }
    }

    fn take_plan(&mut self, step: StepId, plan: Plan) {
        self.begin_step(step);
        for scan in plan.scans {
            if self.scans.len() >= REMEMBERED_MAX {
                break;
            }
            let is_new = match scan.size {
                Some(size) => self.known_sizes.insert(size),
                None => self.known_locations.insert(scan.location.clone()),
            };
            if is_new {
                self.scans.push((step, scan));
            }
        }
        for output in plan.outputs {
            if self.outputs.len() < REMEMBERED_MAX {
                let output = output.trim_end_matches('/').to_owned();
                let before = self.scans.len();
                self.outputs.entry(output).or_insert(Output { step, before });
            }
        }
    }

    fn begin_step(&mut self, step: StepId) {
        if self.steps.len() < REMEMBERED_MAX {
            self.steps.insert(step);
        }
    }

    fn take_job(&mut self, job: &Job<'_>) {
        self.seen_ms = self.seen_ms.max(job.at_ms);
        self.submitted_ms = self.submitted_ms.or(job.submitted_ms());
        let step = job.query().map_or(StepId::Job(job.id), StepId::Query);
        self.begin_step(step);
        for stage in &job.stages {
            let mut paths = stage.paths().map(str::to_owned).peekable();
            if paths.peek().is_some() && self.stages.len() < REMEMBERED_MAX {
                let (_, all) = self.stages.entry(stage.id).or_insert((step, BTreeSet::new()));
                all.extend(paths);
            }
        }
    }

    /// Returns when it was submitted.
    pub(super) fn submitted(&self) -> Moment {
        let started = Moment::from_ms(self.started_ms);
        self.submitted_ms
            .map_or(started, |ms| Moment::from_ms(ms).min(started))
    }

    /// Adds the run to the history.
    pub(super) fn finish(&self, history: &mut History) -> Result<(), HistoryError> {
        if self.ended_ms.is_none() {
            history.pass(Passed::NoEnd);
        }
        let run = Run {
            name: self.name.clone(),
            submitted: self.submitted(),
            started: Some(Moment::from_ms(self.started_ms)),
            ended: Some(Moment::from_ms(self.ended_ms.unwrap_or(self.seen_ms))),
            deadline: None,
            inputs: self.inputs(history),
            outputs: self.outputs.keys().cloned().collect(),
        };
        history.add(&self.source, &run)
    }

    /// Returns this path, or the prefix of it, that the application wrote before this scan.
    fn wrote(&self, path: &str, scan: usize) -> Option<&str> {
        let mut above = std::iter::successors(Some(path.trim_end_matches('/')), |path| {
            Some(&path[..path.rfind('/')?])
        });
        // The outputs of a query are recorded after its own scans.
        above.find_map(|path| {
            let (output, _) = self
                .outputs
                .get_key_value(path)
                .filter(|(_, output)| output.before <= scan)?;
            Some(output.as_str())
        })
    }

    fn inputs(&self, history: &mut History) -> Vec<Input> {
        let mut bytes_of: BTreeMap<String, u64> = BTreeMap::new();
        for read in self.reads(history) {
            if read.own.is_some() {
                history.pass(Passed::OwnWrite);
                continue;
            }
            // A path that is read several times is fetched from the lake once.
            let known = bytes_of.entry(read.path).or_default();
            *known = read.bytes.max(*known);
        }
        let input = |(path, bytes)| Input {
            path,
            bytes: Some(bytes),
            bytes_per_s: None,
        };
        bytes_of.into_iter().map(input).collect()
    }

    /// Returns all reads: those of scans, then those of RDDs.
    pub(super) fn reads(&self, history: &mut History) -> Vec<Read<'_>> {
        let (mut reads, submitted) = (Vec::new(), self.submitted());
        for (number, (step, scan)) in self.scans.iter().enumerate() {
            let files = scan.files.and_then(|files| self.metrics.get(&files)).copied();
            let size = scan.size.and_then(|size| self.metrics.get(&size)).copied();
            // Adaptive execution plans scans that are not executed.
            if scan.size.is_some() && size.is_none() {
                continue;
            }
            let paths = scan.location.resolved(submitted);
            let cut_off = scan.location.count.saturating_sub(scan.location.paths.len());
            history.pass_times(Passed::CutOff, cut_off as u64);
            let share = size.unwrap_or(0) / (paths.len() + cut_off).max(1) as u64;
            reads.extend(paths.into_iter().map(|path| Read {
                step: *step,
                path: as_input(&path, files),
                bytes: share,
                own: self.wrote(&path, number),
            }));
        }
        for (stage, (step, paths)) in &self.stages {
            let bytes = self.stage_bytes.get(stage).copied().unwrap_or(0) / paths.len().max(1) as u64;
            reads.extend(paths.iter().map(|path| Read {
                step: *step,
                path: as_input(path, None),
                bytes,
                own: None,
            }));
        }
        reads
    }
}

/// Returns the path as stored in the history: an object, or a prefix with a trailing slash. Spark does not
/// distinguish them.
fn as_input(path: &str, files: Option<u64>) -> String {
    // A glob pattern stands for objects below the prefix before it.
    if let Some(pattern) = path.find(['*', '?', '{', '[']) {
        let prefix = &path[..pattern];
        return prefix[..prefix.rfind('/').map_or(0, |slash| slash + 1)].to_owned();
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let is_file = name.rsplit_once('.').is_some_and(|(stem, end)| {
        !stem.is_empty()
            && (1..=8).contains(&end.len())
            && end.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    if path.ends_with('/') || is_file && files.is_none_or(|files| files == 1) {
        return path.to_owned();
    }
    format!("{path}/")
}

#[cfg(test)]
mod tests {
    use super::as_input;

    #[test]
    fn a_path_with_an_ending_and_one_file_is_an_object() {
        for (path, files, expected) in [
            ("s3a://lake/fact", Some(4), "s3a://lake/fact/"),
            ("s3a://lake/dim", Some(1), "s3a://lake/dim/"),
            ("s3a://lake/dim.csv", Some(1), "s3a://lake/dim.csv"),
            ("s3a://lake/dim.csv", None, "s3a://lake/dim.csv"),
            ("s3a://lake/dim.parquet", Some(9), "s3a://lake/dim.parquet/"),
            ("s3a://lake/dt=2026-11-20/", None, "s3a://lake/dt=2026-11-20/"),
            ("s3a://lake/logs/2026-11-*/x", None, "s3a://lake/logs/"),
        ] {
            assert_eq!(as_input(path, files), expected);
        }
    }
}
