//! Jobs that are announced while a plan is carried out: hints with a deadline are admitted into what the plan
//! leaves, or refused.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use shoal_hints::{JobName, Jobs};
use shoal_net::clock;
use shoal_net::link::JobNames;
use shoal_plan::Document;
use shoal_plan::document::{DeadlineRule, ExpectedFile, ExpectedJob, Extent};
use shoal_plan::execution::{Arrival, Execution};
use shoal_plan::model::{File, Job};
use tokio::time::{Instant, timeout};
use ulid::Ulid;

use super::ahead::leading_bytes;
use super::document::seconds;
use super::executor::{Executor, PlannedFile, Reader, plan_of};
use super::objects::{self, Part};
use crate::tasks::parts::lake_view::{LakeView, ObjectFailure};
use crate::tasks::records::Records;
use crate::tasks::records::entry::Entry;
use crate::tasks::records::files::HintFacts;
use crate::tasks::records::moment::Moment;
use crate::tasks::records::order::Order;
use crate::tasks::records::plan_progress::ArrivalNote;

/// The time within which the lake says what the inputs of a job are, and after which it is asked again if it
/// did not.
const LAKE_PATIENCE: Duration = Duration::from_secs(30);
const LAKE_PAUSE: Duration = Duration::from_secs(5);

/// The hints that a coordinator has looked at, each with the time at which it looks again; `None` if it has
/// decided.
pub(super) type LookedAt = HashMap<u128, Option<Instant>>;

/// The runs that were announced to a coordinator.
#[derive(Default)]
pub(super) struct AnnouncedRuns {
    /// The run of each job of the document that has begun.
    of_document: HashMap<usize, String>,
    /// The jobs that were admitted, each with its run and its reader. A later event of a run may name more.
    admitted: Vec<(String, JobName, usize)>,
}

/// A job that was announced, and what the lake says of its inputs.
pub(super) struct Announced {
    /// The id of its hint, its run and its reader.
    hint: u128,
    run: String,
    reader: JobName,
    names: JobNames,
    found: Result<(Arrival, Vec<PlannedFile>), ObjectFailure>,
}

impl Announced {
    /// Has the coordinator look at the hint again later if the lake did not answer. Returns true if it did.
    pub(super) fn is_answered(&self, looked_at: &mut LookedAt) -> bool {
        let Err(ObjectFailure::Failed(why)) = &self.found else {
            return true;
        };
        tracing::debug!(id = %Ulid(self.hint), why, "the inputs of a job that was announced are not known yet");
        looked_at.insert(self.hint, Some(clock::runtime_instant() + LAKE_PAUSE));
        false
    }
}

/// Returns the name of the run that a hint announces.
pub(in crate::tasks) fn name_of_run(hint: &HintFacts, announced: Moment) -> String {
    format!("{}@{announced}", hint.reader)
}

/// An input of a job, and its objects.
pub(in crate::tasks) struct FoundInput {
    pub(in crate::tasks) expected: ExpectedFile,
    pub(in crate::tasks) parts: Vec<Part>,
}

/// Finds the inputs of a job that a hint announces. `known` are the bytes that its last run read of them.
pub(in crate::tasks) async fn find_inputs(
    lake: &LakeView,
    hint: &HintFacts,
    known: &HashMap<String, u64>,
) -> Result<Vec<FoundInput>, ObjectFailure> {
    let mut inputs = Vec::new();
    for path in &hint.inputs {
        let mut expected = ExpectedFile {
            path: format!("{path}/"),
            extent: Extent::Prefix,
            bytes_low: 0,
            bytes_high: 0,
            objects: None,
        };
        let mut parts = objects::parts(lake, &expected).await;
        if let Err(ObjectFailure::Refused(_)) = parts {
            (expected.path, expected.extent) = (path.clone(), Extent::Object);
            parts = objects::parts(lake, &expected).await;
        }
        let parts = parts.map_err(|failure| failure.of(path))?;
        let bytes = parts.iter().map(|part| part.bytes).sum();
        if bytes == 0 {
            continue;
        }
        // A job may read less of a table than is there, and then reads as much the next time.
        expected.bytes_low = known.get(path).map_or(bytes, |read| bytes.min(*read));
        expected.bytes_high = bytes;
        expected.objects = Some(parts.len() as u64);
        inputs.push(FoundInput { expected, parts });
    }
    if inputs.is_empty() {
        return Err(ObjectFailure::Refused("its inputs have no bytes".into()));
    }
    Ok(inputs)
}

/// Returns what the lake answered in time.
async fn in_time<T>(asking: impl Future<Output = Result<T, ObjectFailure>>) -> Result<T, ObjectFailure> {
    let answered = timeout(LAKE_PATIENCE, asking).await;
    answered.unwrap_or_else(|_| Err(ObjectFailure::Failed("the lake does not answer".into())))
}

/// Returns the bytes that the last run of a job read, by their paths, as far as they are known.
pub(in crate::tasks) fn last_reads(jobs: &Jobs, job: &JobName) -> HashMap<String, u64> {
    let inputs = jobs.get(job).into_iter().flat_map(|last| &last.inputs);
    inputs
        .filter_map(|input| Some((input.path.clone(), input.bytes?)))
        .collect()
}

/// Adds the job that a hint announces to a document, with those of its inputs that the document lacks.
pub(in crate::tasks) async fn add_job(
    lake: &LakeView,
    order: &Order,
    hint: &HintFacts,
    last_reads: &HashMap<String, u64>,
    document: &mut Document,
) -> Result<(), String> {
    let found = in_time(find_inputs(lake, hint, last_reads)).await;
    let found = found.map_err(|failure| failure.to_string())?;
    let deadline = order.request.deadline.ok_or("it has no deadline")?;
    let submit = hint.submit.unwrap_or(order.created);
    let [submit_s, deadline_s] = [submit, deadline].map(|at| seconds(document.epoch_ms, at.time()));
    let mut inputs = Vec::new();
    for FoundInput { expected, .. } in found {
        let (files, known) = (&document.request.files, &document.files);
        let is_it = |known: &ExpectedFile| known.extent == expected.extent && known.path == expected.path;
        if let Some(place) = known.iter().position(is_it) {
            inputs.push(files[place].name.clone());
            continue;
        }
        let block_bytes = files
            .first()
            .map_or_else(File::default_block_bytes, |file| file.block_bytes);
        inputs.push(expected.path.clone());
        document.request.files.push(File {
            name: expected.path.clone(),
            bytes: expected.bytes_high,
            available_s: None,
            block_bytes,
        });
        document.files.push(expected);
    }
    document.request.jobs.push(Job {
        name: name_of_run(hint, order.created),
        submit_s,
        deadline_s,
        inputs,
        bytes_per_second_max: None,
    });
    document.jobs.push(ExpectedJob {
        name: hint.reader.to_string(),
        early_s: submit_s,
        late_s: submit_s,
        probability: 1.0,
        deadline_rule: DeadlineRule::Given,
    });
    Ok(())
}

impl Executor {
    /// Returns the hints that announce jobs with a deadline and that this coordinator is to look at. Jobs
    /// that were admitted before are first, and those that were refused stay so.
    pub(super) fn announced(&self, records: &Records, looked_at: &mut LookedAt) -> Vec<Entry> {
        let now = clock::utc_now();
        let mut hints = records.live_hints();
        hints.retain(|entry| {
            let is_behind = entry.order.hint.as_ref().is_none_or(|hint| hint.is_behind);
            let deadline = entry.order.request.deadline;
            !is_behind && deadline.is_some_and(|deadline| !deadline.after(now).is_zero())
        });
        let live: HashSet<u128> = hints.iter().map(|entry| entry.id).collect();
        looked_at.retain(|id, _| live.contains(id));
        let instant = clock::runtime_instant();
        hints.retain(|entry| match looked_at.get(&entry.id) {
            None => true,
            Some(again) => again.is_some_and(|again| again <= instant),
        });
        looked_at.extend(hints.iter().map(|entry| (entry.id, None)));
        let progress = self.progress.lock();
        let notes = progress.plan.as_deref().map_or(&[][..], |plan| &plan.arrivals);
        let noted: HashMap<&str, bool> = notes
            .iter()
            .map(|note| (&*note.hint, note.why.is_none()))
            .collect();
        let is_admitted = |entry: &Entry| noted.get(&*Ulid(entry.id).to_string()).copied();
        hints.retain(|entry| is_admitted(entry) != Some(false));
        hints.sort_by_key(|entry| (is_admitted(entry).is_none(), entry.id));
        hints
    }

    /// Asks the lake for the inputs of jobs that were announced, in the names of their identities. Jobs that
    /// the plan expects are left out.
    pub(super) async fn find_announced(
        self: Arc<Self>,
        hints: Vec<Entry>,
        jobs: Arc<Jobs>,
    ) -> Vec<Announced> {
        let mut announced = Vec::new();
        for entry in hints {
            let Some(hint) = entry.order.hint.as_deref() else {
                continue;
            };
            if self.is_expected(hint) {
                continue;
            }
            let last_reads = last_reads(&jobs, &hint.reader);
            let found = in_time(self.find(&entry, hint, &last_reads)).await;
            announced.push(Announced {
                hint: entry.id,
                run: hint.run.clone(),
                reader: hint.reader.clone(),
                names: JobNames {
                    run: name_of_run(hint, entry.order.created),
                    all_runs: hint.reader.to_string(),
                },
                found,
            });
        }
        announced
    }

    /// Returns true if the document has a job of this name that is due now, and no other run of it has begun.
    fn is_expected(&self, hint: &HintFacts) -> bool {
        let (now_s, execution, names) = (self.now_s(), self.execution.lock(), self.names.lock());
        let (mut runs, reader) = (self.runs.lock(), hint.reader.to_string());
        (0..execution.1.document_jobs()).any(|job| {
            let is_named = names[job].include(&hint.reader.name) || names[job].include(&reader);
            let is_it = is_named && execution.1.is_due(job, now_s);
            is_it && *runs.of_document.entry(job).or_insert_with(|| hint.run.clone()) == hint.run
        })
    }

    async fn find(
        &self,
        entry: &Entry,
        hint: &HintFacts,
        last_reads: &HashMap<String, u64>,
    ) -> Result<(Arrival, Vec<PlannedFile>), ObjectFailure> {
        let identity = entry.order.request.identity.clone();
        let reader = if identity == self.reader.name {
            Arc::clone(&self.reader)
        } else {
            Arc::new(Reader::named(&self.nodes, identity))
        };
        let inputs = find_inputs(&reader.lake, hint, last_reads).await?;
        let deadline = entry.order.request.deadline;
        let deadline = deadline.ok_or_else(|| ObjectFailure::Refused("it has no deadline".into()))?;
        let name = name_of_run(hint, entry.order.created);
        let mut arrival = Arrival {
            job: Job {
                name,
                submit_s: seconds(self.epoch_ms, hint.submit.unwrap_or(entry.order.created).time()),
                deadline_s: seconds(self.epoch_ms, deadline.time()),
                inputs: Vec::new(),
                bytes_per_second_max: None,
            },
            files: Vec::new(),
            held: Vec::new(),
        };
        let mut files = Vec::new();
        for FoundInput { expected, parts } in inputs {
            let name = self.name_of_file(&expected, &reader, &arrival.job.name);
            if arrival.job.inputs.contains(&name) {
                continue;
            }
            let held = leading_bytes(&self.nodes, &parts).await;
            arrival.held.push((name.clone(), held));
            arrival.job.inputs.push(name.clone());
            let file = File {
                name: name.clone(),
                bytes: expected.bytes_high,
                available_s: None,
                block_bytes: self.nodes.parts.cache().block_bytes,
            };
            arrival
                .files
                .push((file, expected.bytes_low..=expected.bytes_high));
            let reader = Arc::clone(&reader);
            files.push(PlannedFile {
                name,
                expected,
                reader,
            });
        }
        Ok((arrival, files))
    }

    /// Returns the name of a file of the plan that is read in this name, or one for a new file.
    fn name_of_file(&self, wanted: &ExpectedFile, reader: &Arc<Reader>, job: &str) -> String {
        let files = self.files.lock();
        let is_it = |file: &&PlannedFile| {
            let (expected, is_same) = (&file.expected, file.reader.name == reader.name);
            is_same && expected.extent == wanted.extent && expected.path == wanted.path
        };
        if let Some(file) = files.iter().find(is_it) {
            return file.name.clone();
        }
        let is_taken = files.iter().any(|file| file.name == wanted.path);
        if is_taken {
            format!("{} for {job}", wanted.path)
        } else {
            wanted.path.clone()
        }
    }

    /// Admits a job into what the plan in force leaves, or notes why not.
    pub(super) fn admit(&self, announced: Announced) {
        let Announced {
            hint,
            run,
            reader,
            names,
            found,
        } = announced;
        let (job, now_s) = (names.run.clone(), self.now_s());
        let mut execution = self.execution.lock();
        let execution: &mut Execution = &mut execution.1;
        let admitted = found
            .map_err(|failure| failure.to_string())
            .and_then(|(mut arrival, mut files)| {
                arrival.job.submit_s = arrival.job.submit_s.max(now_s);
                if arrival.job.deadline_s <= arrival.job.submit_s {
                    return Err("its deadline is over before it can begin".into());
                }
                let mut runs = self.runs.lock();
                let before = runs
                    .admitted
                    .iter()
                    .filter(|(of, by, _)| *of == run && *by == reader);
                let jobs = before.map(|(.., job)| &execution.request().jobs[*job]);
                let read: HashSet<&String> = jobs.flat_map(|job| &job.inputs).collect();
                arrival.job.inputs.retain(|input| !read.contains(input));
                if arrival.job.inputs.is_empty() {
                    return Ok(());
                }
                let known = execution.request().files.len();
                execution.arrive(&arrival, now_s)?;
                let mut of_plan = self.files.lock();
                for file in &execution.request().files[known..] {
                    let place = files.iter().position(|one| one.name == file.name);
                    let place = place.expect("each new file is an input of the job");
                    of_plan.push(files.swap_remove(place));
                }
                self.names.lock().push(names);
                runs.admitted
                    .push((run, reader, execution.request().jobs.len() - 1));
                Ok(())
            });
        let why = admitted.err();
        tracing::info!(id = %Ulid(self.id), job, why, "a job was announced to a plan");
        plan_of(&mut self.progress.lock()).note_arrival(ArrivalNote {
            hint: Ulid(hint).to_string(),
            job,
            at: Moment::now(),
            why,
        });
    }
}
