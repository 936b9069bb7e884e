//! Which inputs are wanted now: those of a run that has started, and those of the jobs behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::RunEvent;
use crate::facet::Stage;
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
    /// The paths that it reads of what is written on the way to it, as far as all readers of these are
    /// announced: until it has read them, they are of use nowhere else.
    pub awaited: Vec<String>,
    /// The paths whose objects are of no use after the run, by its own word.
    pub short_lived: Vec<String>,
    /// Of several readers, the one with the highest goes first.
    pub priority: u8,
    /// The size of some inputs or of all, as far as it is expected.
    pub bytes: Option<u64>,
}

impl Wanted {
    fn is_empty(&self) -> bool {
        self.inputs.is_empty() && self.awaited.is_empty() && self.short_lived.is_empty()
    }
}

/// Returns what is wanted when a run has started, the nearest readers first: the inputs that the event names,
/// then those that the jobs behind it read in their last runs, without what jobs on the way will write again.
pub fn wanted(event: &RunEvent, jobs: &Jobs) -> Vec<Wanted> {
    let announced = announced(event);
    let elsewhere = read_elsewhere(&announced, jobs);
    let mut own = if event.stages.is_empty() {
        vec![of_run(event)]
    } else {
        of_stages(event, &elsewhere)
    };
    let mut written: BTreeSet<&str> = event.outputs.iter().map(String::as_str).collect();
    let stages = event.stages.iter();
    written.extend(stages.flat_map(|stage| stage.writes.iter().map(String::as_str)));
    written.extend(jobs.get(&event.job).into_iter().flat_map(|last| outputs(last)));
    let mut behind = behind(event, jobs);
    let mut awaited = written.clone();
    for reader in &behind {
        written.extend(outputs(&jobs[reader.job]));
        if announced.contains(reader.job) {
            awaited.extend(outputs(&jobs[reader.job]));
        }
    }
    let short_lived = own.iter().flat_map(|own| own.short_lived.iter().cloned());
    let short_lived: BTreeSet<String> = short_lived.collect();
    let short_lived: BTreeSet<&str> = short_lived.iter().map(String::as_str).collect();
    awaited.retain(|path| !elsewhere.contains(path) && !short_lived.contains(path));
    behind.extend(unknown(event, jobs).take(READERS_MAX.saturating_sub(behind.len())));
    behind.sort_by_key(|reader| reader.stage);
    own.extend(behind.into_iter().map(|reader| {
        let last = jobs.get(reader.job);
        let reads: BTreeSet<&str> = last.into_iter().flat_map(|last| inputs(last)).collect();
        let mut wanted = Wanted {
            reader: reader.job.clone(),
            stage: reader.stage,
            is_behind: reader.is_behind,
            inputs: owned(reads.difference(&written)),
            awaited: Vec::new(),
            short_lived: Vec::new(),
            priority: event.priority,
            bytes: None,
        };
        if announced.contains(reader.job) {
            let may_read = |path: &&&str| last.is_none() || reads.contains(*path);
            wanted.awaited = owned(reads.intersection(&awaited));
            wanted.short_lived = owned(short_lived.iter().filter(may_read));
        }
        wanted
    }));
    let mut seen = BTreeSet::new();
    for wanted in &mut own {
        wanted.inputs.retain(|path| seen.insert(path.clone()));
    }
    own.retain(|wanted| !wanted.is_empty());
    own
}

/// Returns what a run without stages reads itself.
fn of_run(event: &RunEvent) -> Wanted {
    Wanted {
        reader: event.job.clone(),
        stage: 0,
        is_behind: false,
        inputs: event.inputs.iter().map(|input| input.path.clone()).collect(),
        awaited: Vec::new(),
        short_lived: event.short_lived.clone(),
        priority: event.priority,
        bytes: event.expected_bytes,
    }
}

/// Returns the stages of the facet `shoal`, each with the number of stages that end before it begins.
fn of_stages(event: &RunEvent, elsewhere: &BTreeSet<&str>) -> Vec<Wanted> {
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
    let written = event.stages.iter().flat_map(|stage| &stage.writes);
    let written: BTreeSet<&String> = written.collect();
    let short_lived = event.stages.iter().filter(|stage| stage.life.is_some());
    let short_lived: BTreeSet<&String> = short_lived.flat_map(|stage| &stage.writes).collect();
    let stages = event.stages.iter().zip(depth);
    let mut stages: Vec<_> = stages
        .map(|(stage, depth)| {
            let (awaited, inputs): (Vec<_>, Vec<_>) = stage
                .reads
                .iter()
                .cloned()
                .partition(|path| written.contains(path));
            let is_guessed = |path: &String| !short_lived.contains(path) && !elsewhere.contains(&**path);
            Wanted {
                reader: JobName {
                    namespace: event.job.namespace.clone(),
                    name: format!("{}/{}", event.job.name, stage.name),
                },
                stage: u8::try_from(depth).unwrap_or(u8::MAX),
                is_behind: false,
                inputs,
                awaited: awaited.into_iter().filter(is_guessed).collect(),
                short_lived: stage.life.map_or_else(Vec::new, |_| stage.writes.clone()),
                priority: stage.priority.unwrap_or(event.priority),
                bytes: stage.bytes,
            }
        })
        .collect();
    // The whole run may say so of its outputs, too.
    if let Some(first) = stages.first_mut() {
        first.short_lived.extend(event.short_lived.iter().cloned());
    }
    stages.sort_by_key(|wanted| wanted.stage);
    stages
}

/// Returns the run's job and all jobs that it announces, the parts of the run and what follows.
fn announced(event: &RunEvent) -> BTreeSet<&JobName> {
    let mut next: BTreeMap<&JobName, Vec<&JobName>> = BTreeMap::new();
    for (before, after) in &event.edges {
        next.entry(before).or_default().push(after);
    }
    let mut all: BTreeSet<&JobName> = event.parts.iter().chain([&event.job]).collect();
    let mut ahead: Vec<&JobName> = all.iter().copied().collect();
    while let Some(job) = ahead.pop() {
        let more = next.get(job).into_iter().flatten().copied();
        ahead.extend(more.filter(|job| all.insert(job)));
    }
    all
}

/// Returns the paths that jobs other than these read in their last runs.
fn read_elsewhere<'j>(announced: &BTreeSet<&JobName>, jobs: &'j Jobs) -> BTreeSet<&'j str> {
    let others = jobs.iter().filter(|(job, _)| !announced.contains(job));
    others.flat_map(|(_, last)| inputs(last)).collect()
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

/// Returns the jobs that come next as the event says, and have not run yet: what they read is not known.
fn unknown<'j>(event: &'j RunEvent, jobs: &Jobs) -> impl Iterator<Item = Follower<'j>> {
    let next = event.edges.iter().filter(|(before, _)| *before == event.job);
    let unknown = next.filter(|(_, next)| !jobs.contains_key(next));
    unknown.map(|(_, job)| Follower {
        job,
        stage: 1,
        is_behind: true,
    })
}

fn owned<'p>(paths: impl Iterator<Item = &'p &'p str>) -> Vec<String> {
    paths.map(|path| (*path).to_owned()).collect()
}

fn outputs(record: &JobRecord) -> impl Iterator<Item = &str> {
    record.outputs.iter().map(String::as_str)
}

fn inputs(record: &JobRecord) -> impl Iterator<Item = &str> {
    record.inputs.iter().map(|input| &*input.path)
}

#[cfg(test)]
mod tests;
