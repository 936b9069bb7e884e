//! Jobs, and what is kept of their last runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::RunEvent;

/// The longest record of a job in bytes, as JSON. Records are kept by all nodes.
pub const RECORD_BYTES_MAX: usize = 8 << 10;

/// The name of a job: unique within the namespace of its scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct JobName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// An input of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The object, or all objects below it: `s3://bucket/key`, without a slash at its end.
    pub path: String,
    /// Bytes that the run read of it, if the engine says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The last run of a job: what it read and wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The job.
    pub job: JobName,
    /// When it started, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// The paths that it read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Input>,
    /// The paths that it wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// The run of which it was a part, if it was one of a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRun>,
    /// The jobs that its scheduler runs after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<JobName>,
}

/// The last runs of jobs.
pub type Jobs = BTreeMap<JobName, Arc<JobRecord>>;

/// The run of which another one is a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentRun {
    /// Its job.
    pub job: JobName,
    /// Its id.
    pub run: String,
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Input {
    /// Adds `inputs` to `all`, each path once, with the bytes that the later one states.
    pub fn merge(all: &mut Vec<Self>, inputs: impl IntoIterator<Item = Self>) {
        let mut places: BTreeMap<String, usize> = all
            .iter()
            .enumerate()
            .map(|(place, input)| (input.path.clone(), place))
            .collect();
        for input in inputs {
            if let Some(place) = places.get(&input.path) {
                all[*place].bytes = input.bytes.or(all[*place].bytes);
            } else {
                places.insert(input.path.clone(), all.len());
                all.push(input);
            }
        }
    }
}

impl JobRecord {
    /// Returns the record of the run that `end` ends and that `start` began, if its first event came here.
    /// Engines name inputs in either event, or in both.
    pub fn of(start: Option<&RunEvent>, end: &RunEvent) -> Self {
        let (mut inputs, mut outputs, mut next) = (Vec::new(), Vec::new(), Vec::new());
        for event in start.into_iter().chain([end]) {
            Input::merge(&mut inputs, event.inputs.iter().cloned());
            outputs.extend(event.outputs.iter().cloned());
            let own = event.edges.iter().filter(|(before, _)| *before == end.job);
            next.extend(own.map(|(_, next)| next.clone()));
        }
        outputs.sort_unstable();
        outputs.dedup();
        next.sort_unstable();
        next.dedup();
        let parent = start.into_iter().chain([end]).find_map(|event| {
            Some(ParentRun {
                job: event.parent_job.clone()?,
                run: event.parents.first()?.clone(),
            })
        });
        let started_ms = start.map_or_else(|| end.began_ms(), |start| start.at_ms.min(end.at_ms));
        Self {
            job: end.job.clone(),
            started_ms,
            ended_ms: end.at_ms,
            inputs,
            outputs,
            parent,
            next,
        }
    }

    /// Returns the record as JSON, if it fits.
    pub fn to_json(&self) -> Option<Vec<u8>> {
        let json = serde_json::to_vec(self).ok()?;
        (json.len() <= RECORD_BYTES_MAX).then_some(json)
    }
}

#[cfg(test)]
mod tests {
    use super::{Input, JobRecord};
    use crate::event::{Event, RunEvent};

    fn event(json: &str) -> RunEvent {
        match Event::parse(json.as_bytes(), &[]).unwrap() {
            Event::Run(event) => *event,
            Event::Other => panic!("{json} is of no run"),
        }
    }

    #[test]
    fn a_record_has_what_either_event_names() {
        let run =
            r#""run":{"runId":"019ad3f0-0000-7000-8000-000000000001"},"job":{"namespace":"n","name":"j"}"#;
        let start = event(&format!(
            r#"{{"eventType":"START","eventTime":"2026-11-29T10:00:00Z",{run},
                "inputs":[{{"namespace":"s3://b","name":"x"}},{{"namespace":"s3a://b","name":"/y/"}}]}}"#
        ));
        let end = event(&format!(
            r#"{{"eventType":"COMPLETE","eventTime":"2026-11-29T10:05:00Z",{run},
                "inputs":[{{"namespace":"s3://b","name":"x","inputFacets":{{"inputStatistics":{{"size":7}}}}}}],
                "outputs":[{{"namespace":"s3://b","name":"z"}}]}}"#
        ));
        let record = JobRecord::of(Some(&start), &end);
        let input = |path: &str, bytes| Input {
            path: path.to_owned(),
            bytes,
        };
        assert_eq!(
            record.inputs,
            [input("s3://b/x", Some(7)), input("s3://b/y", None)]
        );
        assert_eq!(record.outputs, ["s3://b/z"]);
        assert_eq!(record.ended_ms - record.started_ms, 300_000);
        let json = record.to_json().unwrap();
        assert_eq!(serde_json::from_slice::<JobRecord>(&json).unwrap(), record);
        let alone = JobRecord::of(None, &end);
        assert_eq!(alone.inputs, [input("s3://b/x", Some(7))]);
    }
}
