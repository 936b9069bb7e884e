//! Carries one plan out, from where it is to its end, on the node that is its coordinator.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_net::clock;
use shoal_net::link::JobNames;
use shoal_net::pauses::ticks;
use shoal_plan::Document;
use shoal_plan::document::ExpectedFile;
use shoal_plan::execution::{Deviation, Execution, JobStatus, Step};
use tokio::task::JoinSet;
use ulid::Ulid;

use super::ahead::leading_bytes;
use super::arrivals::{Announced, AnnouncedRuns, LookedAt};
use super::document::{moment, seconds};
use super::planner::{self, NewPlan};
use crate::tasks::parts::lake_view::{LakeView, ObjectFailure};
use crate::tasks::parts::nodes::Nodes;
use crate::tasks::parts::placer::Placer;
use crate::tasks::parts::task_identity::TaskIdentity;
use crate::tasks::records::Records;
use crate::tasks::records::moment::Moment;
use crate::tasks::records::plan_progress::{JobCounts, JobNote, PlanProgress, Replanned, TransferNote, cut};
use crate::tasks::records::progress::Progress;

/// Bounds of the interval at which a coordinator looks for due steps: four times in a slot.
const LOOK_MIN: Duration = Duration::from_millis(50);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// A plan that this node carries out.
pub(super) struct Executor {
    pub(super) nodes: Arc<Nodes>,
    pub(super) id: u128,
    /// In whose name the plan is carried out.
    pub(super) reader: Arc<Reader>,
    /// Each file of the request.
    pub(super) files: Mutex<Vec<PlannedFile>>,
    /// The names of each job of the request.
    pub(super) names: Mutex<Vec<JobNames>>,
    pub(super) epoch_ms: u64,
    planner: Option<PathBuf>,
    /// The plan in force, and its generation: the number of plans before it. Work for a former one no longer
    /// counts. Locked before the files and the names.
    pub(super) execution: Mutex<(u64, Execution)>,
    pub(super) progress: Arc<Mutex<Progress>>,
    /// The runs that were announced.
    pub(super) runs: Mutex<AnnouncedRuns>,
    /// Jobs that arrived at former coordinators and are over.
    over_before: JobCounts,
}

/// Reads the lake and brings blocks in the name of one identity.
pub(super) struct Reader {
    /// The identity; `None`: the only one that there is.
    pub(super) name: Option<String>,
    pub(super) lake: LakeView,
    pub(super) placer: Placer,
}

/// A file of the request: the objects that it stands for, and in whose name they are read.
#[derive(Clone)]
pub(super) struct PlannedFile {
    pub(super) name: String,
    pub(super) expected: ExpectedFile,
    pub(super) reader: Arc<Reader>,
}

impl Reader {
    fn new(nodes: &Arc<Nodes>, name: Option<String>, identity: TaskIdentity) -> Self {
        Self {
            name,
            placer: Placer::new(nodes, None, identity.clone()),
            lake: LakeView::new(&nodes.parts, identity),
        }
    }

    /// Reads in the name of an identity.
    pub(super) fn named(nodes: &Arc<Nodes>, name: Option<String>) -> Self {
        // The plan does not wait for a key of it.
        let identity = TaskIdentity::named(name.as_deref(), &nodes.parts, &Arc::default());
        Self::new(nodes, name, identity)
    }
}

impl Executor {
    /// Carries out the plan `id` in the name of `identity`, from where `progress` ends.
    pub(super) fn new(
        nodes: &Arc<Nodes>,
        id: u128,
        (name, identity): (Option<String>, TaskIdentity),
        document: Document,
        progress: &Arc<Mutex<Progress>>,
        planner: Option<PathBuf>,
    ) -> Self {
        let reader = Arc::new(Reader::new(nodes, name, identity));
        let (epoch_ms, files) = (document.epoch_ms, document.files.iter());
        let files = files
            .zip(&document.request.files)
            .map(|(expected, file)| PlannedFile {
                name: file.name.clone(),
                expected: expected.clone(),
                reader: Arc::clone(&reader),
            });
        let files = files.collect();
        let jobs = document.request.jobs.iter().zip(&document.jobs);
        let names = jobs.map(|(run, expected)| JobNames {
            run: run.name.clone(),
            all_runs: expected.name.clone(),
        });
        let names = names.collect();
        let now_s = seconds(epoch_ms, clock::utc_now());
        let (execution, over_before) = {
            let mut progress = progress.lock();
            let plan = plan_of(&mut progress);
            (
                Execution::new(document, &plan.verdicts, now_s),
                plan.arrivals_over,
            )
        };
        Self {
            nodes: Arc::clone(nodes),
            id,
            reader,
            files: Mutex::new(files),
            names: Mutex::new(names),
            epoch_ms,
            planner,
            execution: Mutex::new((0, execution)),
            progress: Arc::clone(progress),
            runs: Mutex::default(),
            over_before,
        }
    }

    /// Carries the plan out until it is over, with the jobs that are announced among `records` meanwhile. The
    /// future may be dropped at any time.
    pub(super) async fn run(self: Arc<Self>, records: &Records) {
        let (mut work, mut planning) = (JoinSet::new(), JoinSet::new());
        let (mut finding, mut announced) = (JoinSet::<Vec<Announced>>::new(), Vec::new());
        let mut looked_at = LookedAt::new();
        let mut arrivals = ticks(LOOK_MAX);
        let slot = self.execution.lock().1.request().window.slot_s;
        let look = Duration::try_from_secs_f64(slot / 4.0).unwrap_or(LOOK_MAX);
        let mut looks = ticks(look.clamp(LOOK_MIN, LOOK_MAX));
        loop {
            // A plan that is being made does not know the jobs that arrive meanwhile.
            if planning.is_empty() {
                announced.drain(..).for_each(|job| self.admit(job));
            }
            self.begin_due(&mut work);
            tokio::select! {
                // A step has noted its end, and another may be due.
                Some(_) = work.join_next() => {}
                Some(planned) = planning.join_next() => {
                    // The runtime reports a task that panicked.
                    if planned.is_ok_and(|new| self.adopt(new)) {
                        // Blocks on their way arrive, and the transfers of the new plan find them.
                        work = JoinSet::new();
                    }
                }
                Some(found) = finding.join_next() => {
                    let found = found.unwrap_or_default().into_iter();
                    announced.extend(found.filter(|job| job.is_answered(&mut looked_at)));
                }
                _ = arrivals.tick(), if finding.is_empty() => {
                    let hints = self.announced(records, &mut looked_at);
                    if !hints.is_empty() {
                        let jobs = records.jobs();
                        finding.spawn(Arc::clone(&self).find_announced(hints, jobs));
                    }
                }
                _ = looks.tick() => {
                    self.execution.lock().1.tick(self.now_s());
                    self.judge();
                    if self.execution.lock().1.is_over(self.now_s()) {
                        break;
                    }
                    Self::consider(&self, &mut planning);
                }
            }
        }
    }

    /// Returns the time on the clock of the plan.
    pub(super) fn now_s(&self) -> f64 {
        seconds(self.epoch_ms, clock::utc_now())
    }

    /// Returns the bandwidth of the link to the lake, if it is metered.
    pub(super) fn link_bytes_per_second(&self) -> Option<f64> {
        let link = self.nodes.parts.cache().lake.link();
        link.map(|link| link.bandwidth() as f64)
    }

    /// Calls `does` with the execution, if the plan of this generation is still in force.
    pub(super) fn on<T>(&self, generation: u64, does: impl FnOnce(&mut Execution) -> T) -> Option<T> {
        let mut execution = self.execution.lock();
        (execution.0 == generation).then(|| does(&mut execution.1))
    }

    fn begin_due(self: &Arc<Self>, work: &mut JoinSet<()>) {
        let (generation, steps) = {
            let mut execution = self.execution.lock();
            (execution.0, execution.1.due(self.now_s()))
        };
        for step in steps {
            let this = Arc::clone(self);
            work.spawn(async move { this.carry_out(generation, step).await });
        }
    }

    /// Carries out a step of the plan of this generation, and notes how it ended.
    async fn carry_out(&self, generation: u64, step: Step) {
        let (file, failure) = match step {
            Step::Fetch(transfer) => {
                let file = self.on(generation, |execution| execution.transfers()[transfer].file);
                let Some(file) = file else { return };
                let fetched = self.fetch(generation, transfer, file).await;
                let is_dropped = |execution: &mut Execution| execution.transfers()[transfer].is_dropped();
                if self.on(generation, is_dropped).unwrap_or(true) {
                    return;
                }
                self.on(generation, |execution| match &fetched {
                    Ok(()) => execution.done(transfer),
                    Err(ObjectFailure::Refused(_)) => execution.missing(transfer, self.now_s()),
                    Err(_) => execution.failed(transfer, self.now_s()),
                });
                (file, fetched.err())
            }
            Step::Keep { file, until_s } => {
                let kept = self.keep(file, until_s).await;
                let bytes = kept.as_ref().copied().unwrap_or_default();
                self.on(generation, |execution| execution.kept(file, bytes));
                (file, kept.err())
            }
            Step::Page { file, until_s } => return self.keep_page(generation, file, until_s).await,
            Step::Release(file) => {
                let released = self.release(file).await;
                if released.is_ok() {
                    self.on(generation, |execution| execution.released(file));
                }
                (file, released.err())
            }
            Step::Ask(file) => {
                let size = self.size(file).await;
                self.on(generation, |execution| match size {
                    Ok(bytes) => execution.has_size(file, bytes),
                    Err(_) => drop(execution.still_missing(file, self.now_s())),
                });
                (file, size.err())
            }
            Step::Promise(job) => return self.promise(generation, job).await,
            Step::Observe(job) => return self.observe(generation, job).await,
        };
        if let Some(failure) = failure {
            self.note_failure(generation, file, &failure);
        }
    }

    /// Notes why a step about a file of the plan of this generation did not come to its end.
    pub(super) fn note_failure(&self, generation: u64, file: usize, failure: &ObjectFailure) {
        let name = |execution: &mut Execution| execution.request().files[file].name.clone();
        if let Some(file) = self.on(generation, name) {
            let why = failure.to_string();
            tracing::debug!(file, why, "a step of a plan did not come to its end");
            plan_of(&mut self.progress.lock()).note(&file, &why, Moment::now());
        }
    }

    /// Starts to make a new plan, if one is needed.
    fn consider(this: &Arc<Self>, planning: &mut JoinSet<Result<NewPlan, String>>) {
        if !planning.is_empty() {
            return;
        }
        let (now_s, execution) = (this.now_s(), this.execution.lock());
        let Some(why) = execution.1.deviation(now_s) else {
            return;
        };
        let (file, reason) = (
            execution.1.request().files[why.file].name.clone(),
            why.difference.to_string(),
        );
        let mut progress = this.progress.lock();
        let progress = plan_of(&mut progress);
        progress.replanned = Some(Replanned {
            at: Moment::now(),
            why: reason.clone(),
            by: "nothing".to_owned(),
            detail: None,
        });
        progress.note(&file, &reason, Moment::now());
        planning.spawn(Arc::clone(this).plan_again(why));
    }

    /// Makes a new plan for what is left. What jobs have read for later ones counts as cached.
    async fn plan_again(self: Arc<Self>, why: Deviation) -> Result<NewPlan, String> {
        let pages = self.execution.lock().1.paged_now(self.now_s());
        for file in pages {
            // A file that the lake does not show now has no pages that a job could read.
            let Ok(parts) = self.parts(file).await else {
                continue;
            };
            let bytes = leading_bytes(&self.nodes, &parts).await;
            self.execution.lock().1.holds(file, bytes);
        }
        let (request, former) = {
            let execution = &mut self.execution.lock().1;
            let request = execution.request_from(self.now_s(), why);
            (request, execution.plan().clone())
        };
        let request = request.ok_or("no job is left that a plan could help")?;
        planner::plan(self.planner.clone(), request, former).await
    }

    /// Puts a new plan in force. Returns true if there is one.
    fn adopt(&self, new: Result<NewPlan, String>) -> bool {
        let (now_s, mut execution) = (self.now_s(), self.execution.lock());
        let mut progress = self.progress.lock();
        let progress = plan_of(&mut progress);
        let is_new = new.is_ok();
        let (by, detail) = match new {
            Ok(new) => {
                execution.0 += 1;
                execution.1.adopt(new.plan, now_s);
                progress.replans += 1;
                (new.by, new.detail)
            }
            Err(why) => {
                execution.1.no_new_plan(now_s);
                ("nothing", Some(why))
            }
        };
        let why = progress.replanned.as_mut().map(|replanned| {
            by.clone_into(&mut replanned.by);
            replanned.detail = detail.as_deref().map(cut);
            &*replanned.why
        });
        if is_new {
            tracing::info!(id = %Ulid(self.id), by, why, detail, "a plan was made anew");
        } else {
            tracing::warn!(id = %Ulid(self.id), why, detail, "no new plan could be made; the one in force goes on");
        }
        is_new
    }

    /// Brings the progress up to date.
    fn judge(&self) {
        let (now_s, mut execution) = (self.now_s(), self.execution.lock());
        let execution = &mut execution.1;
        let statuses = execution.judge(now_s);
        let over = JobCounts::of(&statuses[execution.document_jobs()..]).over();
        let over = over.plus(self.over_before);
        let (counts, volume) = (JobCounts::of(&statuses), execution.volume(now_s));
        let jobs = execution.request().jobs.iter().zip(&statuses);
        let is_troubled =
            |status: &JobStatus| matches!(status, JobStatus::AtRisk | JobStatus::Missed | JobStatus::Unread);
        let troubled = jobs.filter(|(_, status)| is_troubled(status));
        let troubled = troubled.map(|(job, status)| JobNote {
            job: job.name.clone(),
            status: *status,
            submit: moment(self.epoch_ms, job.submit_s),
            deadline: moment(self.epoch_ms, job.deadline_s),
        });
        let mut progress = self.progress.lock();
        let moved = &mut progress.tally.bytes;
        (moved.total, moved.done) = (Some(whole(volume.total_bytes)), whole(volume.done_bytes));
        let plan = plan_of(&mut progress);
        plan.planned_bytes = whole(volume.planned_bytes);
        plan.jobs = counts.plus(self.over_before);
        plan.arrivals_over = over;
        plan.verdicts = execution.verdicts();
        plan.name_jobs(troubled.collect());
        let running = execution
            .transfers()
            .iter()
            .filter(|transfer| transfer.is_running());
        plan.name_transfers(running.map(|transfer| TransferNote {
            file: execution.request().files[transfer.file].name.clone(),
            bytes: transfer.bytes,
            planned_bytes: whole(transfer.expected_bytes(now_s)),
            done_bytes: transfer.done_bytes(),
            bytes_per_second: whole(transfer.bytes_per_second),
        }));
    }
}

/// Returns the part of the progress that only plans have.
pub(super) fn plan_of(progress: &mut Progress) -> &mut PlanProgress {
    progress.plan.get_or_insert_default()
}

#[expect(clippy::cast_sign_loss, reason = "bytes are never negative")]
fn whole(bytes: f64) -> u64 {
    bytes.max(0.0) as u64
}
