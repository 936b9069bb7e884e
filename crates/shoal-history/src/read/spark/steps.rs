//! The steps of an application: its queries, and the jobs that are no part of one.

use std::collections::{BTreeMap, BTreeSet};

use super::application::{OpenApplication, StepId};
use crate::moment::Moment;
use crate::run::{History, Passed, normalized};

/// An application of Spark, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// Its name.
    pub name: String,
    /// When it was submitted.
    pub submitted: Moment,
    /// Its steps that read or write in S3, in the order in which they began.
    pub steps: Vec<Step>,
    /// The parts of the log that were left out, with counts.
    pub passed: Vec<(Passed, u64)>,
}

/// A query, or a job that is no part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// `query-2` or `job-5`, by the numbers that Spark's own pages show.
    pub name: String,
    /// The paths that it reads, with the bytes of each: objects, or prefixes with a trailing slash. A read of
    /// what the application itself wrote has the path that was written.
    pub reads: BTreeMap<String, u64>,
    /// The paths that it writes.
    pub writes: BTreeSet<String>,
}

impl Application {
    /// Returns the steps of an application that was read to its end.
    pub(super) fn of(application: &OpenApplication) -> Self {
        let mut skipped = History::default();
        let mut steps: Vec<Step> = application
            .steps
            .iter()
            .map(|id| Step {
                name: match id {
                    StepId::Query(number) => format!("query-{number}"),
                    StepId::Job(number) => format!("job-{number}"),
                },
                ..Step::default()
            })
            .collect();
        let place = |id| application.steps.get_index_of(&id);
        for read in application.reads(&mut skipped) {
            let path = normalized(read.own.unwrap_or(&read.path));
            match (path, place(read.step)) {
                (Some(path), Some(step)) => {
                    let bytes = steps[step].reads.entry(path).or_default();
                    *bytes = read.bytes.max(*bytes);
                }
                (None, _) => skipped.pass(Passed::NotInS3),
                (Some(_), None) => {}
            }
        }
        for (path, output) in &application.outputs {
            if let Some((step, path)) = place(output.step).zip(normalized(path)) {
                steps[step].writes.insert(path);
            }
        }
        steps.retain(|step| !step.reads.is_empty() || !step.writes.is_empty());
        Self {
            name: application.name.clone(),
            submitted: application.submitted(),
            steps,
            passed: skipped.passed().collect(),
        }
    }
}
