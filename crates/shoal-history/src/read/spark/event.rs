//! The events with the times and the inputs of an application.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use shoal_logs::Mismatch;

use super::plan::{Plan, plan};

const EXPECTED: &str = "an event of a Spark event log in JSON";

/// A relevant event.
#[derive(Debug)]
pub(super) enum Event<'line> {
    Start(Start),
    End(End),
    /// Plan of a query with this id, at its start or after adaptive execution has changed it.
    Plan(i64, Plan),
    DriverMetrics(DriverMetrics),
    Job(Job<'line>),
    Task(Task),
}

/// The start of an application.
#[derive(Debug, Deserialize)]
pub(super) struct Start {
    #[serde(rename = "App Name")]
    pub(super) name: String,
    #[serde(rename = "App ID", default)]
    pub(super) id: Option<String>,
    #[serde(rename = "Timestamp")]
    pub(super) at_ms: i64,
}

/// The end of an application.
#[derive(Debug, Deserialize)]
pub(super) struct End {
    #[serde(rename = "Timestamp")]
    pub(super) at_ms: i64,
}

#[derive(Deserialize)]
struct PlanLine<'line> {
    #[serde(rename = "executionId", default)]
    query: i64,
    #[serde(rename = "sparkPlanInfo", borrow)]
    plan: &'line RawValue,
}

/// Metrics of the driver.
#[derive(Debug, Deserialize)]
pub(super) struct DriverMetrics {
    /// Pairs of accumulator id and value.
    #[serde(rename = "accumUpdates", default)]
    pub(super) updates: Vec<(i64, i64)>,
}

/// The start of a job of an application.
#[derive(Debug, Deserialize)]
pub(super) struct Job<'line> {
    #[serde(rename = "Job ID", default)]
    pub(super) id: i64,
    #[serde(rename = "Submission Time", default)]
    pub(super) at_ms: i64,
    #[serde(rename = "Stage Infos", borrow, default)]
    pub(super) stages: Vec<Stage<'line>>,
    #[serde(rename = "Properties", borrow)]
    properties: Option<Properties<'line>>,
}

/// A stage of a job.
#[derive(Debug, Deserialize)]
pub(super) struct Stage<'line> {
    #[serde(rename = "Stage ID")]
    pub(super) id: i64,
    #[serde(rename = "RDD Info", borrow, default)]
    rdds: Vec<Rdd<'line>>,
}

#[derive(Debug, Deserialize)]
struct Rdd<'line> {
    #[serde(rename = "Name", borrow, default)]
    name: Cow<'line, str>,
}

#[derive(Debug, Deserialize)]
struct Properties<'line> {
    #[serde(rename = "spark.app.submitTime", borrow)]
    submitted_ms: Option<Cow<'line, str>>,
    #[serde(rename = "spark.sql.execution.id", borrow)]
    query: Option<Cow<'line, str>>,
}

/// The end of a task.
#[derive(Debug, Deserialize)]
pub(super) struct Task {
    #[serde(rename = "Stage ID", default)]
    pub(super) stage: i64,
    #[serde(rename = "Task Info")]
    info: Option<TaskInfo>,
    #[serde(rename = "Task Metrics")]
    metrics: Option<TaskMetrics>,
}

#[derive(Debug, Deserialize)]
struct TaskInfo {
    #[serde(rename = "Finish Time", default)]
    ended_ms: i64,
}

#[derive(Debug, Deserialize)]
struct TaskMetrics {
    #[serde(rename = "Input Metrics")]
    input: Option<InputMetrics>,
}

#[derive(Debug, Deserialize)]
struct InputMetrics {
    #[serde(rename = "Bytes Read", default)]
    bytes: u64,
}

impl Job<'_> {
    /// Returns the id of the query of which it is a part.
    pub(super) fn query(&self) -> Option<i64> {
        self.properties.as_ref()?.query.as_ref()?.parse().ok()
    }

    /// Returns when the application was submitted.
    pub(super) fn submitted_ms(&self) -> Option<i64> {
        self.properties.as_ref()?.submitted_ms.as_ref()?.parse().ok()
    }
}

impl Stage<'_> {
    /// Returns the paths among the names of its RDDs.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        let names = self.rdds.iter().map(|rdd| rdd.name.as_ref());
        let paths = names.filter(|name| name.contains("://"));
        // `sc.textFile` accepts several paths, separated by commas.
        paths.flat_map(|paths| paths.split(',').map(str::trim))
    }
}

impl Task {
    /// Returns the bytes that it read.
    pub(super) fn bytes(&self) -> u64 {
        let input = self.metrics.as_ref().and_then(|metrics| metrics.input.as_ref());
        input.map_or(0, |input| input.bytes)
    }

    pub(super) fn ended_ms(&self) -> i64 {
        self.info.as_ref().map_or(0, |info| info.ended_ms)
    }
}

/// Parses one line; returns `None` if the event is not relevant.
pub(super) fn parse(line: &[u8]) -> Result<Option<Event<'_>>, Mismatch> {
    let name = name(line).ok_or_else(|| Mismatch::new("a line without `Event`", EXPECTED))?;
    // Events of other parts of Spark have a package name.
    let event = match name.rsplit('.').next().unwrap_or(name) {
        "SparkListenerApplicationStart" => serde_json::from_slice(line).map(Event::Start),
        "SparkListenerApplicationEnd" => serde_json::from_slice(line).map(Event::End),
        "SparkListenerSQLExecutionStart" | "SparkListenerSQLAdaptiveExecutionUpdate" => {
            serde_json::from_slice(line)
                .and_then(|line: PlanLine<'_>| Ok(Event::Plan(line.query, plan(line.plan.get())?)))
        }
        "SparkListenerDriverAccumUpdates" => serde_json::from_slice(line).map(Event::DriverMetrics),
        "SparkListenerJobStart" => serde_json::from_slice(line).map(Event::Job),
        "SparkListenerTaskEnd" => serde_json::from_slice(line).map(Event::Task),
        _ => return Ok(None),
    };
    event
        .map(Some)
        .map_err(|error| Mismatch::new(error.to_string(), EXPECTED))
}

/// Returns the type of an event, which Spark writes first.
fn name(line: &[u8]) -> Option<&str> {
    let rest = line.trim_ascii_start().strip_prefix(b"{")?.trim_ascii_start();
    let rest = rest
        .strip_prefix(b"\"Event\"")?
        .trim_ascii_start()
        .strip_prefix(b":")?;
    let rest = rest.trim_ascii_start().strip_prefix(b"\"")?;
    let end = rest.iter().position(|&byte| byte == b'"')?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::{Event, parse};

    #[test]
    fn events_that_do_not_matter_are_not_parsed() {
        assert!(matches!(
            parse(br#"{"Event":"SparkListenerBlockManagerAdded", broken"#),
            Ok(None)
        ));
        assert!(
            parse(br#"{"Event":"SparkListenerApplicationEnd"}"#)
                .unwrap_err()
                .found
                .contains("Timestamp")
        );
        assert!(parse(b"{}").unwrap_err().found.contains("without `Event`"));
        assert!(parse(b"[1]").is_err());
    }

    #[test]
    fn a_job_names_the_paths_of_its_rdds_and_the_time_of_submission() {
        let line = br#"{"Event":"SparkListenerJobStart","Job ID":0,"Submission Time":5,"Stage Infos":[{"Stage ID":7,"RDD Info":[{"Name":"s3a://lake/words.txt"},{"Name":"MapPartitionsRDD"}]}],"Properties":{"spark.app.submitTime":"3"}}"#;
        let Ok(Some(Event::Job(job))) = parse(line) else {
            panic!()
        };
        assert_eq!((job.at_ms, job.submitted_ms()), (5, Some(3)));
        assert_eq!((job.id, job.query()), (0, None));
        assert_eq!((job.stages.len(), job.stages[0].id), (1, 7));
        assert_eq!(
            job.stages[0].paths().collect::<Vec<_>>(),
            ["s3a://lake/words.txt"]
        );
    }
}
