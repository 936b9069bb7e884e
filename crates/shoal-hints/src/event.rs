//! Events of OpenLineage 2-0-2, as far as hints need them. Unknown facets and fields are ignored.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;
use shoal_base::words;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::facet::{DatasetFacet, RunFacet, Stage};
use crate::job::{Input, JobName};
use crate::location::{Dataset, Table};

/// The longest event in bytes. Plans of queries and lists of columns make events long.
pub const EVENT_BYTES_MAX: usize = 4 << 20;

/// Maximum number of inputs, or of outputs, of one event.
const NAMES_MAX: usize = 1_000;

/// Maximum number of pairs of jobs of one event, and of tasks one behind the other in a tree.
const EDGES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 100;

/// The longest name of a job or of a namespace, in bytes.
const NAME_BYTES_MAX: usize = 500;

words! {
    /// The point in a run at which an event is sent.
    pub enum Phase {
        /// The run has started.
        Start = "START",
        /// The run goes on, and the event adds facts about it.
        Running = "RUNNING",
        /// The run has ended as it was to.
        Complete = "COMPLETE",
        /// The run was stopped.
        Abort = "ABORT",
        /// The run has failed.
        Fail = "FAIL",
        /// The event adds facts, before, while or after the run goes on.
        Other = "OTHER",
    }
}

impl Phase {
    /// Returns true if the run is over.
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Complete | Self::Abort | Self::Fail)
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// About a run of a job.
    Run(Box<RunEvent>),
    /// About a job or a dataset alone, which is no hint.
    Other,
}

/// An event about a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunEvent {
    /// The point in the run.
    pub phase: Phase,
    /// When it was sent, in milliseconds since 1970.
    pub at_ms: u64,
    /// The id of the run: a UUID in lower case.
    pub run: String,
    /// The job.
    pub job: JobName,
    /// The run of which this one is a part, and the outermost of those. Of a task of a DAG it is the run of
    /// the DAG; of a query of a Spark application it is the run of the application.
    pub parents: Vec<String>,
    /// The job of the nearest of these runs.
    pub parent_job: Option<JobName>,
    /// When the scheduler should have started the run, in milliseconds since 1970.
    pub nominal_ms: Option<u64>,
    /// The objects and prefixes in S3 that the run reads.
    pub inputs: Vec<Input>,
    /// The objects and prefixes in S3 that the run writes.
    pub outputs: Vec<String>,
    /// Pairs of jobs of which the scheduler runs the second one after the first.
    pub edges: Vec<(JobName, JobName)>,
    /// The jobs with which the run begins: the first tasks of a DAG.
    pub parts: Vec<JobName>,
    /// When the run has to end, in milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// Of several hints, the one with the highest priority goes first.
    pub priority: u8,
    /// The size of some inputs or of all, as far as the event says what is expected.
    pub expected_bytes: Option<u64>,
    /// Those of its outputs that are of no use after the run.
    pub short_lived: Vec<String>,
    /// When the run begins to read, in milliseconds since 1970, if that is later than the event.
    pub submit_ms: Option<u64>,
    /// The stages of the run, in any order.
    pub stages: Vec<Stage>,
}

/// The reason why an event is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no event of OpenLineage: {0}")]
pub struct EventError(String);

impl EventError {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(default)]
    event_type: Option<String>,
    event_time: String,
    #[serde(default)]
    run: Option<RunPart>,
    #[serde(default)]
    job: Option<JobPart>,
    #[serde(default)]
    inputs: Option<Vec<Dataset>>,
    #[serde(default)]
    outputs: Option<Vec<Dataset>>,
}

#[derive(Deserialize)]
struct RunPart {
    #[serde(rename = "runId")]
    id: String,
    #[serde(default)]
    facets: Value,
}

#[derive(Deserialize)]
struct JobPart {
    namespace: String,
    name: String,
    #[serde(default)]
    facets: Value,
}

impl Event {
    /// Reads an event. Places of tables that are not in S3 by name are looked up in `tables`.
    ///
    /// # Errors
    ///
    /// The JSON is not an event, or a part of it is too long.
    pub fn parse(json: &[u8], tables: &[Table]) -> Result<Self, EventError> {
        let line: Line = serde_json::from_slice(json).map_err(|error| bad(error.to_string()))?;
        let at_ms = millis(&line.event_time)
            .ok_or_else(|| bad(format!("its eventTime {:?} is no time", cut(&line.event_time))))?;
        let Some(run) = line.run else {
            return Ok(Self::Other);
        };
        let job = line.job.ok_or_else(|| bad("it has a run and no job"))?;
        let phase = match line.event_type.as_deref() {
            None => Phase::Other,
            Some(word) => phase(word).ok_or_else(|| {
                let words = Phase::ALL.map(Phase::as_str).join(", ");
                bad(format!("its eventType {:?} is none of {words}", cut(word)))
            })?,
        };
        let name = JobName {
            namespace: job.namespace,
            name: job.name,
        };
        checked(&name)?;
        let mut inputs = Vec::new();
        let given = bounded(line.inputs.unwrap_or_default(), "inputs")?;
        let mut expected_bytes = None;
        for dataset in &given {
            if let Some(bytes) = DatasetFacet::of(dataset)?.bytes {
                expected_bytes = Some(bytes.saturating_add(expected_bytes.unwrap_or_default()));
            }
        }
        let given = given.iter().filter_map(|dataset| {
            Some(Input {
                path: dataset.path(tables)?,
                bytes: dataset.bytes(),
            })
        });
        Input::merge(&mut inputs, given);
        let (mut outputs, mut short_lived) = (BTreeSet::new(), BTreeSet::new());
        for dataset in bounded(line.outputs.unwrap_or_default(), "outputs")? {
            let facet = DatasetFacet::of(&dataset)?;
            let Some(path) = dataset.path(tables) else {
                continue;
            };
            if facet.life.is_some() {
                short_lived.insert(path.clone());
            }
            outputs.insert(path);
        }
        // Spark names what a job of its own reads as written, too.
        outputs.retain(|path| inputs.iter().all(|input| input.path != *path));
        let (edges, parts) = following(&run.facets, &job.facets, &name);
        let shoal = RunFacet::of(&run.facets, &job.facets)?;
        Ok(Self::Run(Box::new(RunEvent {
            phase,
            at_ms,
            run: run_id(&run.id)?,
            parents: parents(&run.facets),
            parent_job: run
                .facets
                .pointer("/parent/job")
                .and_then(job_of)
                .filter(|parent| *parent != name),
            nominal_ms: text(&run.facets, "/nominalTime/nominalStartTime").and_then(millis),
            inputs,
            outputs: outputs.into_iter().collect(),
            edges: bounded_by(edges, EDGES_MAX, "pairs of jobs")?,
            parts: bounded(parts, "first tasks")?,
            deadline_ms: shoal.deadline_ms,
            submit_ms: shoal.submit_ms,
            priority: shoal.priority,
            expected_bytes,
            short_lived: short_lived.into_iter().collect(),
            stages: shoal.stages,
            job: name,
        })))
    }
}

impl RunEvent {
    /// Returns the time at which the run began, in milliseconds since 1970, as far as this event shows: by
    /// its schedule, or by a run id that has the time in it (UUID, version 7); else the time of the event.
    pub fn began_ms(&self) -> u64 {
        let of_id = (self.run.as_bytes().get(14) == Some(&b'7')).then(|| {
            let digits = self.run.get(..13)?.replace('-', "");
            u64::from_str_radix(&digits, 16).ok()
        });
        let began = of_id.flatten().or(self.nominal_ms);
        began.filter(|began| *began <= self.at_ms).unwrap_or(self.at_ms)
    }
}

/// Returns the runs of which a run is a part, from its facet `parent`.
fn parents(facets: &Value) -> Vec<String> {
    let ids = ["/parent/run/runId", "/parent/root/run/runId"];
    let ids = ids.iter().filter_map(|place| run_id(text(facets, place)?).ok());
    let mut parents: Vec<String> = ids.collect();
    parents.dedup();
    parents
}

/// Pairs of jobs that follow each other.
type Edges = Vec<(JobName, JobName)>;

/// Returns the pairs of jobs that follow each other, as far as an event says: those in `jobDependencies`, and
/// those of the tasks of an Airflow DAG. Returns its first tasks, too.
fn following(run_facets: &Value, job_facets: &Value, job: &JobName) -> (Edges, Vec<JobName>) {
    let downstream = run_facets.pointer("/jobDependencies/downstream");
    let downstream = downstream.and_then(Value::as_array).into_iter().flatten();
    let announced = downstream.filter_map(|next| Some((job.clone(), job_of(next.get("job")?)?)));
    let (mut edges, mut parts) = (announced.collect::<Edges>(), Vec::new());
    if let Some(airflow) = job_facets.get("airflow") {
        let task = |id: &str| JobName {
            namespace: job.namespace.clone(),
            name: format!("{}.{id}", job.name),
        };
        for (before, next) in tasks(airflow) {
            match before {
                Some(before) => edges.push((task(before), task(next))),
                None => parts.push(task(next)),
            }
        }
    }
    edges.retain(|(one, other)| one != other && checked(one).is_ok() && checked(other).is_ok());
    parts.retain(|part| checked(part).is_ok());
    edges.sort_unstable();
    edges.dedup();
    parts.sort_unstable();
    parts.dedup();
    (edges, parts)
}

/// Returns the tasks of an Airflow DAG, each with one that it follows, or with none if it is a first one.
/// Providers before 1.11 send a tree, later ones what follows each task.
fn tasks(airflow: &Value) -> Vec<(Option<&str>, &str)> {
    let mut pairs = Vec::new();
    let mut trees = vec![(None::<&str>, airflow.get("taskTree"), 0)];
    while let Some((parent, tree, depth)) = trees.pop() {
        for (id, below) in tree.and_then(Value::as_object).into_iter().flatten() {
            pairs.push((parent, id.as_str()));
            if depth < DEPTH_MAX && pairs.len() <= EDGES_MAX {
                trees.push((Some(id), Some(below), depth + 1));
            }
        }
    }
    let has_tree = !pairs.is_empty();
    let listed = airflow.get("tasks").and_then(Value::as_object);
    let listed: Vec<_> = listed.into_iter().flatten().collect();
    let mut later = BTreeSet::new();
    for (id, facts) in &listed {
        let below = facts.get("downstream_task_ids").and_then(Value::as_array);
        for next in below.into_iter().flatten().filter_map(Value::as_str) {
            later.insert(next);
            pairs.push((Some(id), next));
        }
    }
    // A tree names the first tasks itself, and what comes with it does not say what follows.
    if !has_tree {
        let first = listed
            .iter()
            .map(|(id, _)| id.as_str())
            .filter(|id| !later.contains(id));
        pairs.extend(first.map(|id| (None, id)));
    }
    pairs.truncate(EDGES_MAX + 1);
    pairs
}

fn job_of(job: &Value) -> Option<JobName> {
    let job = JobName {
        namespace: job.get("namespace")?.as_str()?.to_owned(),
        name: job.get("name")?.as_str()?.to_owned(),
    };
    checked(&job).ok()?;
    Some(job)
}

pub(crate) fn text<'v>(value: &'v Value, place: &str) -> Option<&'v str> {
    value.pointer(place)?.as_str()
}

fn phase(word: &str) -> Option<Phase> {
    Phase::ALL
        .into_iter()
        .find(|phase| phase.as_str().eq_ignore_ascii_case(word))
}

/// Reads a time of RFC 3339, in milliseconds since 1970. A time without an offset is UTC.
pub(crate) fn millis(text: &str) -> Option<u64> {
    let time = OffsetDateTime::parse(text, &Rfc3339)
        .or_else(|_| OffsetDateTime::parse(&format!("{text}Z"), &Rfc3339));
    u64::try_from(time.ok()?.unix_timestamp_nanos() / 1_000_000).ok()
}

/// Checks a UUID, and writes it in lower case.
fn run_id(text: &str) -> Result<String, EventError> {
    let lower = text.to_ascii_lowercase();
    let is_dash = |place: usize| [8, 13, 18, 23].contains(&place);
    let fits = |(place, byte): (usize, u8)| {
        if is_dash(place) {
            byte == b'-'
        } else {
            byte.is_ascii_hexdigit()
        }
    };
    if lower.len() == 36 && lower.bytes().enumerate().all(fits) {
        return Ok(lower);
    }
    Err(bad(format!("its runId {:?} is no UUID", cut(text))))
}

fn checked(job: &JobName) -> Result<(), EventError> {
    for (what, text) in [("namespace", &job.namespace), ("name", &job.name)] {
        if text.trim().is_empty() || text.len() > NAME_BYTES_MAX || text.contains(char::is_control) {
            let why =
                format!("the {what} of its job is empty, longer than {NAME_BYTES_MAX} bytes, or no text");
            return Err(bad(why));
        }
    }
    Ok(())
}

fn bounded<T>(list: Vec<T>, what: &str) -> Result<Vec<T>, EventError> {
    bounded_by(list, NAMES_MAX, what)
}

fn bounded_by<T>(list: Vec<T>, most: usize, what: &str) -> Result<Vec<T>, EventError> {
    if list.len() > most {
        return Err(bad(format!("it has more than {most} {what}")));
    }
    Ok(list)
}

fn bad(why: impl Into<String>) -> EventError {
    EventError::new(why)
}

/// Returns the beginning of a text, for an error or a name.
pub(crate) fn cut(text: &str) -> &str {
    text.char_indices().nth(80).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::{Event, Phase, RunEvent};

    const RUN: &str = "019ad3f0-0000-7000-8000-0000000000AB";

    fn parse(json: &str) -> Result<Event, String> {
        Event::parse(json.as_bytes(), &[]).map_err(|error| error.to_string())
    }

    fn run(json: &str) -> RunEvent {
        match parse(json).unwrap() {
            Event::Run(event) => *event,
            Event::Other => panic!("{json} is of no run"),
        }
    }

    #[test]
    fn an_event_is_read_with_its_facets_and_the_rest_is_left_alone() {
        let event = run(&format!(
            r#"{{"eventType":"start","eventTime":"2026-11-29T10:00:00.5+01:00","producer":"p","schemaURL":"u",
            "run":{{"runId":"{RUN}","facets":{{
                "parent":{{"run":{{"runId":"11111111-2222-4333-8444-555555555555"}},"job":{{"namespace":"n","name":"dag"}},
                           "root":{{"run":{{"runId":"11111111-2222-4333-8444-555555555555"}}}}}},
                "nominalTime":{{"nominalStartTime":"2026-11-29T08:55:00Z"}},
                "jobDependencies":{{"upstream":[],"downstream":[{{"job":{{"namespace":"n","name":"next"}}}},
                                                               {{"job":{{"namespace":"n","name":"j"}}}},{{}}]}},
                "unknown":[1,2]}}}},
            "job":{{"namespace":"n","name":"j","facets":{{"shoal":{{"deadline":"2026-11-29T12:00:00Z",
                "stages":[{{"name":"s","reads":["s3://b/x","no"],"writes":["s3a://b/y"]}},{{}}]}}}}}},
            "inputs":[{{"namespace":"s3://b","name":"t"}},{{"namespace":"file","name":"/t"}}],
            "outputs":[{{"namespace":"s3://b","name":"o"}}]}}"#
        ));
        assert_eq!((event.phase, &*event.run), (Phase::Start, &*RUN.to_lowercase()));
        assert_eq!(event.at_ms, 1_795_942_800_500);
        assert_eq!(event.parents, ["11111111-2222-4333-8444-555555555555"]);
        assert_eq!(event.parent_job.unwrap().name, "dag");
        assert_eq!(event.nominal_ms, Some(1_795_942_500_000));
        assert_eq!(event.edges.len(), 1, "a job is not behind itself");
        assert_eq!(event.inputs.len(), 1);
        assert_eq!(event.outputs, ["s3://b/o"]);
        assert_eq!(event.deadline_ms, Some(1_795_953_600_000));
        assert_eq!(event.stages[0].reads, ["s3://b/x"]);
        assert_eq!(event.stages[0].writes, ["s3://b/y"]);
        assert_eq!(event.stages[1].name, "1");
    }

    #[test]
    fn events_without_a_run_are_no_hints() {
        let json = r#"{"eventTime":"2026-11-29T10:00:00","dataset":{"namespace":"n","name":"d"}}"#;
        assert_eq!(parse(json), Ok(Event::Other));
    }

    #[test]
    fn a_run_began_when_its_id_was_made_or_it_was_to_begin() {
        let began = |run_id: &str, facets: &str| {
            let event = run(&format!(
                r#"{{"eventType":"COMPLETE","eventTime":"2026-11-29T10:00:00Z",
                "run":{{"runId":"{run_id}","facets":{facets}}},"job":{{"namespace":"n","name":"j"}}}}"#
            ));
            event.at_ms - event.began_ms()
        };
        let nominal = r#"{"nominalTime":{"nominalStartTime":"2026-11-29T09:59:00Z"}}"#;
        let v4 = "11111111-2222-4333-8444-555555555555";
        // 2026-11-29T09:58:00Z
        let v7 = "01a226bd-7440-7000-8000-000000000000";
        assert_eq!(began(v4, "{}"), 0);
        assert_eq!(began(v4, nominal), 60_000);
        let of_id = began(v7, nominal);
        assert_eq!(of_id, 120_000, "{of_id}");
        assert_eq!(
            began("ffffffff-ffff-7000-8000-000000000000", "{}"),
            0,
            "a time to come is none"
        );
    }

    #[test]
    fn what_is_no_event_is_refused_with_the_reason() {
        let job = r#""job":{"namespace":"n","name":"j"}"#;
        let time = r#""eventTime":"2026-11-29T10:00:00Z""#;
        let many = vec![r#"{"namespace":"s3://b","name":"x"}"#; 1_001].join(",");
        let id = format!(r#""run":{{"runId":"{RUN}"}}"#);
        for (json, why) in [
            ("[]".to_owned(), "expected struct"),
            ("{}".to_owned(), "eventTime"),
            (r#"{"eventTime":"today"}"#.to_owned(), "is no time"),
            (
                format!("{{{time},{job},\"run\":{{\"runId\":\"7\"}}}}"),
                "is no UUID",
            ),
            (format!("{{{time},{id}}}"), "no job"),
            (
                format!("{{{time},{id},{job},\"eventType\":\"BEGIN\"}}"),
                "is none of START",
            ),
            (
                format!("{{{time},{id},\"job\":{{\"namespace\":\" \",\"name\":\"j\"}}}}"),
                "the namespace",
            ),
            (
                format!("{{{time},{id},{job},\"inputs\":[{many}]}}"),
                "more than 1000 inputs",
            ),
        ] {
            let error = parse(&json).unwrap_err();
            assert!(error.contains(why), "{json}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_refused(bytes in vec(any::<u8>(), 0..300)) {
            let _ = Event::parse(&bytes, &[]);
        }
    }
}
