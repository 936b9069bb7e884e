//! Workflows of WfCommons (<https://wfcommons.org/format>), schema 1.5: tasks with their parents, input and
//! output files and run times.
//!
//! A task is a job: it starts when its parents are done, reads its input files whole, computes for the
//! measured run time, and writes its output files. (The run time includes the original input and output,
//! so the job computes longer than it should.)

use std::io::BufRead;
use std::time::Duration;

use serde::Deserialize;
use shoal_logs::{Mismatch, Place};

use super::{Job, Limits, Piece, TraceError};
use crate::clock::Time;
use crate::names::Names;
use shoal_policy::hash::KeyMap;

const SCHEMA: &str = "1.5";

/// Limit on a workflow, which is read as one document.
const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: String,
    workflow: serde_json::Value,
}

#[derive(Deserialize)]
struct Workflow {
    specification: Specification,
    execution: Option<Execution>,
}

#[derive(Deserialize)]
struct Specification {
    tasks: Vec<Task>,
    #[serde(default)]
    files: Vec<WorkflowFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    id: String,
    #[serde(default)]
    parents: Vec<String>,
    #[serde(default)]
    input_files: Vec<String>,
    #[serde(default)]
    output_files: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkflowFile {
    id: String,
    size_in_bytes: u64,
}

#[derive(Deserialize)]
struct Execution {
    tasks: Vec<Executed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Executed {
    id: String,
    runtime_in_seconds: f64,
}

/// The tasks of a workflow as jobs, in the order of the document.
pub(super) fn read(name: &str, input: impl BufRead, mut limits: Limits) -> Result<Vec<Job>, TraceError> {
    let mut place = Place::new(name);
    place.line = 1;
    let jobs = document(input).map_err(|mismatch| place.error(mismatch))?;
    for piece in jobs.iter().flat_map(|job| job.reads.iter().chain(&job.writes)) {
        limits.check(piece).map_err(|mismatch| place.error(mismatch))?;
    }
    Ok(jobs)
}

fn document(input: impl BufRead) -> Result<Vec<Job>, Mismatch> {
    let refused = |found: String| {
        let expected = format!("a workflow in WfCommons JSON, schema {SCHEMA}");
        Mismatch::new(found, expected)
    };
    let mut input = input.take(DOCUMENT_BYTES_MAX);
    let document: Result<Document, _> = serde_json::from_reader(&mut input);
    if input.limit() == 0 {
        return Err(refused(format!("more than {DOCUMENT_BYTES_MAX} bytes")));
    }
    let document = document.map_err(|error| refused(error.to_string()))?;
    if document.schema_version != SCHEMA {
        return Err(refused(format!("schema {}", document.schema_version)));
    }
    let workflow = serde_json::from_value(document.workflow).map_err(|error| refused(error.to_string()))?;
    jobs(&workflow)
}

fn jobs(workflow: &Workflow) -> Result<Vec<Job>, Mismatch> {
    let (mut files, mut tasks) = (Names::default(), Names::default());
    let sizes: KeyMap<u32, u64> = workflow
        .specification
        .files
        .iter()
        .map(|file| (files.number(&file.id), file.size_in_bytes))
        .collect();
    for task in &workflow.specification.tasks {
        tasks.number(&task.id);
    }
    if tasks.len() != workflow.specification.tasks.len() {
        return Err(Mismatch::new(
            "two tasks of one id",
            "tasks with an id of their own",
        ));
    }
    let executed: KeyMap<u32, f64> = workflow
        .execution
        .iter()
        .flat_map(|execution| &execution.tasks)
        .map(|task| (tasks.number(&task.id), task.runtime_in_seconds))
        .collect();
    // A file that is not listed has a name and zero bytes.
    let mut piece = |file: &String| {
        let object = files.number(file);
        Piece::whole(object, sizes.get(&object).copied().unwrap_or(0))
    };
    let count = workflow.specification.tasks.len() as u32;
    let mut jobs = Vec::new();
    for (position, task) in (0..).zip(&workflow.specification.tasks) {
        let after: Vec<_> = task.parents.iter().map(|parent| tasks.number(parent)).collect();
        if let Some(unknown) = after.iter().position(|&parent| parent >= count) {
            let found = format!("the parent {} of {}", task.parents[unknown], task.id);
            return Err(Mismatch::new(found, "parents that are tasks"));
        }
        let runtime_s = executed.get(&position).copied().unwrap_or(0.0);
        jobs.push(Job {
            at: Time::ZERO,
            client: None,
            reads: task.input_files.iter().map(&mut piece).collect(),
            compute: Duration::try_from_secs_f64(runtime_s).map_err(|_| {
                Mismatch::new(format!("a run time of {runtime_s} s"), "a run time in seconds")
            })?,
            writes: task.output_files.iter().map(&mut piece).collect(),
            after,
        });
    }
    if let Some(waiting) = never_starts(&jobs) {
        let task = &workflow.specification.tasks[waiting].id;
        let found = format!("the task {task}, which waits for itself");
        return Err(Mismatch::new(found, "tasks without a circle"));
    }
    Ok(jobs)
}

/// Finds a job that depends on itself, directly or indirectly.
fn never_starts(jobs: &[Job]) -> Option<usize> {
    let mut before: Vec<_> = jobs.iter().map(|job| job.after.len()).collect();
    let mut followers = vec![Vec::new(); jobs.len()];
    for (number, job) in jobs.iter().enumerate() {
        for &earlier in &job.after {
            followers[earlier as usize].push(number);
        }
    }
    let mut ready: Vec<_> = (0..jobs.len()).filter(|&job| before[job] == 0).collect();
    while let Some(job) = ready.pop() {
        for &follower in &followers[job] {
            before[follower] -= 1;
            if before[follower] == 0 {
                ready.push(follower);
            }
        }
    }
    before.iter().position(|&left| left > 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::trace::tests::{jobs, refusal};
    use crate::trace::{Format, Piece};

    /// In the form of the schema; the values are invented.
    const DOCUMENT: &str = r#"{"name": "w", "schemaVersion": "1.5", "workflow": {
        "specification": {
            "tasks": [
                {"name": "a", "id": "a1", "parents": [], "children": ["b1"], "inputFiles": ["raw"], "outputFiles": ["mid"]},
                {"name": "b", "id": "b1", "parents": ["a1"], "children": [], "inputFiles": ["mid", "raw"], "outputFiles": []}
            ],
            "files": [{"id": "raw", "sizeInBytes": 100}, {"id": "mid", "sizeInBytes": 7}]
        },
        "execution": {"makespanInSeconds": 3, "tasks": [{"id": "b1", "runtimeInSeconds": 1.5}, {"id": "a1", "runtimeInSeconds": 1}]}
    }}"#;

    #[test]
    fn a_task_is_a_job_after_its_parents() {
        let jobs = jobs(DOCUMENT, Format::WfCommons).unwrap();
        assert_eq!(jobs[0].reads, [Piece::whole(0, 100)]);
        assert_eq!(jobs[0].writes, [Piece::whole(1, 7)]);
        assert_eq!(jobs[1].reads, [Piece::whole(1, 7), Piece::whole(0, 100)]);
        assert_eq!(jobs[1].after, [0]);
        assert_eq!(jobs[1].compute, Duration::from_millis(1500));
    }

    #[test]
    fn a_document_that_is_no_workflow_is_refused_with_the_reason() {
        let told = refusal(&DOCUMENT.replace("1.5\"", "1.2\""), Format::WfCommons);
        assert!(told.contains("found schema 1.2"), "{told}");
        let told = refusal(&DOCUMENT.replace("[\"a1\"]", "[\"zz\"]"), Format::WfCommons);
        assert!(told.contains("the parent zz of b1"), "{told}");
        let circle = DOCUMENT.replace("\"parents\": []", "\"parents\": [\"b1\"]");
        let told = refusal(&circle, Format::WfCommons);
        assert!(told.contains("the task a1, which waits for itself"), "{told}");
        let told = refusal("[]", Format::WfCommons);
        assert!(told.contains("WfCommons JSON"), "{told}");
    }
}
