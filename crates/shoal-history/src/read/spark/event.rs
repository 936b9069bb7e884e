//! The events with the times and the inputs of an application.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use shoal_logs::Mismatch;

use super::plan::{Plan, plan};

const EXPECTED: &str = "an event of a Spark event log in JSON";

/// A relevant event.
#[derive(Debug)]
pub(super) enum Event {
    Start(Start),
    /// End of the application, in milliseconds since 1970.
    End {
        at_ms: i64,
    },
    /// Plan of a query, at its start or after adaptive execution has changed it.
    Plan(Plan),
    /// Metrics of the driver: pairs of accumulator id and value.
    DriverMetrics {
        updates: Vec<(i64, i64)>,
    },
    Job(Job),
    /// Bytes that a task read.
    Task {
        stage: i64,
        bytes: u64,
        ended_ms: i64,
    },
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

/// Start of a job of an application.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) at_ms: i64,
    /// When the application was submitted.
    pub(super) submitted_ms: Option<i64>,
    /// Stages, with the paths found in the names of their RDDs.
    pub(super) stages: Vec<(i64, Vec<String>)>,
}

#[derive(Deserialize)]
struct EndLine {
    #[serde(rename = "Timestamp")]
    at_ms: i64,
}

#[derive(Deserialize)]
struct PlanLine<'line> {
    #[serde(rename = "sparkPlanInfo", borrow)]
    plan: &'line RawValue,
}

#[derive(Deserialize)]
struct MetricsLine {
    #[serde(rename = "accumUpdates", default)]
    updates: Vec<(i64, i64)>,
}

#[derive(Deserialize)]
struct JobLine<'line> {
    #[serde(rename = "Submission Time", default)]
    at_ms: i64,
    #[serde(rename = "Stage Infos", borrow, default)]
    stages: Vec<Stage<'line>>,
    #[serde(rename = "Properties", borrow, default)]
    properties: Option<Properties<'line>>,
}

#[derive(Deserialize)]
struct Stage<'line> {
    #[serde(rename = "Stage ID")]
    id: i64,
    #[serde(rename = "RDD Info", borrow, default)]
    rdds: Vec<Rdd<'line>>,
}

#[derive(Deserialize)]
struct Rdd<'line> {
    #[serde(rename = "Name", borrow, default)]
    name: Cow<'line, str>,
}

#[derive(Deserialize)]
struct Properties<'line> {
    #[serde(rename = "spark.app.submitTime", borrow, default)]
    submitted_ms: Option<Cow<'line, str>>,
}

#[derive(Deserialize)]
struct TaskLine {
    #[serde(rename = "Stage ID", default)]
    stage: i64,
    #[serde(rename = "Task Info", default)]
    info: Option<TaskInfo>,
    #[serde(rename = "Task Metrics", default)]
    metrics: Option<TaskMetrics>,
}

#[derive(Deserialize)]
struct TaskInfo {
    #[serde(rename = "Finish Time", default)]
    ended_ms: i64,
}

#[derive(Deserialize)]
struct TaskMetrics {
    #[serde(rename = "Input Metrics", default)]
    input: Option<InputMetrics>,
}

#[derive(Deserialize)]
struct InputMetrics {
    #[serde(rename = "Bytes Read", default)]
    bytes: u64,
}

/// Parses one line; returns `None` if the event is not relevant.
pub(super) fn parse(line: &[u8]) -> Result<Option<Event>, Mismatch> {
    let refused = |error: serde_json::Error| Mismatch::new(error.to_string(), EXPECTED);
    let name = name(line).ok_or_else(|| Mismatch::new("a line without `Event`", EXPECTED))?;
    // Events of other parts of Spark have a package name.
    let event = match name.rsplit('.').next().unwrap_or(name) {
        "SparkListenerApplicationStart" => Event::Start(serde_json::from_slice(line).map_err(refused)?),
        "SparkListenerApplicationEnd" => {
            let EndLine { at_ms } = serde_json::from_slice(line).map_err(refused)?;
            Event::End { at_ms }
        }
        "SparkListenerSQLExecutionStart" | "SparkListenerSQLAdaptiveExecutionUpdate" => {
            let PlanLine { plan: root } = serde_json::from_slice(line).map_err(refused)?;
            Event::Plan(plan(root.get()).map_err(refused)?)
        }
        "SparkListenerDriverAccumUpdates" => {
            let MetricsLine { updates } = serde_json::from_slice(line).map_err(refused)?;
            Event::DriverMetrics { updates }
        }
        "SparkListenerJobStart" => Event::Job(job(serde_json::from_slice(line).map_err(refused)?)),
        "SparkListenerTaskEnd" => task(&serde_json::from_slice(line).map_err(refused)?),
        _ => return Ok(None),
    };
    Ok(Some(event))
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

fn job(line: JobLine<'_>) -> Job {
    let submitted = line.properties.and_then(|properties| properties.submitted_ms);
    let is_path = |rdd: &Rdd<'_>| rdd.name.contains("://");
    let paths = |stage: Stage<'_>| {
        let paths = stage
            .rdds
            .into_iter()
            .filter(is_path)
            .map(|rdd| rdd.name.into_owned());
        (stage.id, paths.collect())
    };
    Job {
        at_ms: line.at_ms,
        submitted_ms: submitted.and_then(|ms| ms.parse().ok()),
        stages: line.stages.into_iter().map(paths).collect(),
    }
}

fn task(line: &TaskLine) -> Event {
    let input = line.metrics.as_ref().and_then(|metrics| metrics.input.as_ref());
    Event::Task {
        stage: line.stage,
        bytes: input.map_or(0, |input| input.bytes),
        ended_ms: line.info.as_ref().map_or(0, |info| info.ended_ms),
    }
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
        assert_eq!((job.at_ms, job.submitted_ms), (5, Some(3)));
        assert_eq!(job.stages, [(7, vec!["s3a://lake/words.txt".to_owned()])]);
    }
}
