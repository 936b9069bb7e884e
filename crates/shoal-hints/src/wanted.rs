//! Which inputs are wanted now: those of a run that has started, and those of the jobs behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::{RunEvent, Stage};
use crate::job::{JobName, JobRecord, Jobs};

/// The number of stages behind a run whose inputs are wanted. What is read later has time, and may change.
pub const STAGES_MAX: u8 = 3;

/// Maximum number of readers of one event behind it, and of jobs of one stage.
const READERS_MAX: usize = 32;
const LEVEL_MAX: usize = 256;

/// The inputs of one reader, which are wanted together or not at all: a stage that lacks one of them waits
/// for the lake anyway (Kariz: all or nothing).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The job that reads them.
    pub reader: JobName,
    /// The number of jobs or stages that end before it begins: 0 for the run itself.
    pub stage: u8,
    /// True if it is another job, which comes after the run.
    pub is_behind: bool,
    /// The paths that it reads: `s3://bucket/key`, each an object or all objects below it.
    pub inputs: Vec<String>,
}

/// Returns what is wanted when a run has started, the nearest readers first: the inputs that the event names,
/// then those that the jobs behind it read in their last runs, without what jobs on the way will write again.
pub fn wanted(event: &RunEvent, jobs: &Jobs) -> Vec<Wanted> {
    let own = if event.stages.is_empty() {
        let inputs = event.inputs.iter().map(|input| input.path.clone()).collect();
        vec![(event.job.clone(), 0, inputs)]
    } else {
        of_stages(event)
    };
    let mut written: BTreeSet<&str> = event.outputs.iter().map(String::as_str).collect();
    let stages = event.stages.iter();
    written.extend(stages.flat_map(|stage| stage.writes.iter().map(String::as_str)));
    written.extend(jobs.get(&event.job).into_iter().flat_map(|last| outputs(last)));
    let behind = behind(event, jobs);
    for reader in &behind {
        written.extend(outputs(&jobs[reader.job]));
    }
    let behind = behind.into_iter().map(|reader| {
        let inputs = jobs[reader.job].inputs.iter().map(|input| input.path.clone());
        let inputs = inputs.filter(|path| !written.contains(&**path));
        let inputs = inputs.collect::<Vec<String>>();
        ((reader.job.clone(), reader.stage, inputs), reader.is_behind)
    });
    let own = own.into_iter().map(|reader| (reader, false));
    let (mut seen, mut list) = (BTreeSet::new(), Vec::new());
    for ((reader, stage, mut inputs), is_behind) in own.chain(behind) {
        inputs.retain(|path| seen.insert(path.clone()));
        if !inputs.is_empty() {
            list.push(Wanted {
                reader,
                stage,
                is_behind,
                inputs,
            });
        }
    }
    list
}

/// Returns the stages of the facet `shoal`, each with the number of stages that end before it begins.
fn of_stages(event: &RunEvent) -> Vec<(JobName, u8, Vec<String>)> {
    let reads_of = |stage: &Stage, other: &Stage| stage.reads.iter().any(|path| other.writes.contains(path));
    let before: Vec<Vec<usize>> = event
        .stages
        .iter()
        .map(|stage| {
            let others = event.stages.iter().enumerate();
            let others = others.filter(|(_, other)| reads_of(stage, other));
            others.map(|(place, _)| place).collect()
        })
        .collect();
    let mut depth = vec![0_usize; event.stages.len()];
    // Each round settles the stages one step further on. A circle never settles, and ends here.
    for _ in 0..event.stages.len() {
        let after = |before: &Vec<usize>| before.iter().map(|&other| depth[other] + 1).max();
        let next: Vec<usize> = before
            .iter()
            .map(|before| after(before).unwrap_or_default())
            .collect();
        if next == depth {
            break;
        }
        depth = next;
    }
    let stages = event.stages.iter().zip(depth);
    let mut stages: Vec<_> = stages
        .map(|(stage, depth)| {
            let reader = JobName {
                namespace: event.job.namespace.clone(),
                name: format!("{}/{}", event.job.name, stage.name),
            };
            let inputs = stage
                .reads
                .iter()
                .filter(|path| event.stages.iter().all(|other| !other.writes.contains(path)));
            (
                reader,
                u8::try_from(depth).unwrap_or(u8::MAX),
                inputs.cloned().collect(),
            )
        })
        .collect();
    stages.sort_by_key(|(_, depth, _): &(JobName, u8, Vec<String>)| *depth);
    stages
}

/// Returns the jobs that the scheduler runs after a job: as the event says, or the last run of the job.
fn named_after<'j>(event: &'j RunEvent, jobs: &'j Jobs, job: &JobName) -> impl Iterator<Item = &'j JobName> {
    let edges = event.edges.iter().filter(move |(before, _)| before == job);
    let last = jobs.get(job).into_iter().flat_map(|last| &last.next);
    edges.map(|(_, next)| next).chain(last)
}

/// Returns the jobs with which a run of `job` begins, by its last run: the parts of it that read nothing of
/// what other parts wrote.
fn parts_of<'j>(jobs: &'j Jobs, job: &JobName) -> Vec<&'j JobName> {
    let of_job = |record: &&Arc<JobRecord>| record.parent.as_ref().is_some_and(|parent| parent.job == *job);
    let parts = jobs.values().filter(of_job);
    let last = parts.clone().max_by_key(|record| record.ended_ms);
    let run = last
        .and_then(|last| last.parent.as_ref())
        .map(|parent| &parent.run);
    let is_of_last = |record: &&Arc<JobRecord>| record.parent.as_ref().map(|parent| &parent.run) == run;
    let parts: Vec<_> = parts.filter(is_of_last).collect();
    let written: BTreeSet<&String> = parts.iter().flat_map(|part| &part.outputs).collect();
    let is_first = |part: &&&Arc<JobRecord>| part.inputs.iter().all(|input| !written.contains(&input.path));
    parts.iter().filter(is_first).map(|part| &part.job).collect()
}

/// A job behind a run, or a part of it.
struct Follower<'j> {
    job: &'j JobName,
    /// The number of jobs or stages that end before it begins.
    stage: u8,
    /// False for a part of the run.
    is_behind: bool,
}

/// Returns the jobs that a run is followed by or consists of, the nearest first.
fn behind<'j>(event: &'j RunEvent, jobs: &'j Jobs) -> Vec<Follower<'j>> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::from([&event.job]));
    let mut level = BTreeMap::from([(&event.job, true)]);
    for stage in 1..=STAGES_MAX {
        let mut next = BTreeMap::new();
        for (job, is_behind) in level {
            let (last, is_first) = (jobs.get(job), *job == event.job);
            let mut written: BTreeSet<&str> = last.into_iter().flat_map(|last| outputs(last)).collect();
            if is_first {
                written.extend(event.outputs.iter().map(String::as_str));
            }
            let parts = parts_of(jobs, job).into_iter();
            let parts = parts.chain(event.parts.iter().filter(|_| is_first));
            next.extend(parts.map(|part| (part, is_behind && !is_first)));
            // A job that has not run since the last run before it is not due with every run.
            let ended_ms = last.map_or(0, |last| last.ended_ms);
            let reads = |record: &JobRecord| {
                let mut inputs = record.inputs.iter();
                record.started_ms >= ended_ms && inputs.any(|input| written.contains(&*input.path))
            };
            let readers = jobs
                .iter()
                .filter(|(_, record)| reads(record))
                .map(|(name, _)| name);
            for name in named_after(event, jobs, job).chain(readers) {
                next.entry(name).or_insert(is_behind);
            }
        }
        next.retain(|name, _| seen.insert(*name));
        // Jobs that have not run yet are only stations on the way.
        let known = next.iter().filter(|(name, _)| jobs.contains_key(**name));
        let known = known.take(READERS_MAX - found.len());
        let known: Vec<_> = known
            .map(|(job, is_behind)| Follower {
                job,
                stage,
                is_behind: *is_behind,
            })
            .collect();
        found.extend(known);
        level = next.into_iter().take(LEVEL_MAX).collect();
    }
    found
}

fn outputs(record: &JobRecord) -> impl Iterator<Item = &str> {
    record.outputs.iter().map(String::as_str)
}

#[cfg(test)]
mod tests;
