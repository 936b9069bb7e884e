//! Carries one plan out, from where it is to its end, on the node that is its coordinator.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_net::clock;
use shoal_plan::Document;
use shoal_plan::document::ExpectedFile;
use shoal_plan::execution::{Deviation, Execution, JobStatus, Step};
use shoal_policy::Source;
use shoal_s3::identity::Caller;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use ulid::Ulid;

use super::document::{moment, seconds};
use super::objects::NoFile;
use super::planner::{NewPlan, Planner};
use crate::tasks::parts::TaskParts;
use crate::tasks::parts::lake_view::LakeView;
use crate::tasks::parts::placer::Placer;
use crate::tasks::records::moment::Moment;
use crate::tasks::records::plan_progress::{JobCounts, JobNote, PlanProgress, Replanned, TransferNote, cut};
use crate::tasks::records::progress::Progress;

/// How often a coordinator looks what is due: four times in a slot, within these bounds.
const LOOK_MIN: Duration = Duration::from_millis(50);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// A plan that this node carries out.
pub(super) struct Executor {
    pub(super) parts: Arc<TaskParts>,
    pub(super) id: u128,
    pub(super) lake: LakeView,
    pub(super) placer: Placer,
    pub(super) expected: Vec<ExpectedFile>,
    pub(super) epoch_ms: u64,
    planner: Planner,
    /// The plan in force, and how often there was a new one. Work for a former one no longer counts.
    execution: Mutex<(u64, Execution)>,
    progress: Arc<Mutex<Progress>>,
}

/// The result of a step, and the number of the plan that the step is a part of.
struct Ended {
    generation: u64,
    step: Step,
    result: Result<u64, NoFile>,
}

/// An event that wakes a coordinator.
enum Event {
    Look,
    Ended(Option<Ended>),
    Planned(Option<Box<NewPlan>>),
}

impl Executor {
    /// The plan `id`, which goes on where `progress` ends, in the name of `caller`.
    pub(super) fn new(
        parts: &Arc<TaskParts>,
        id: u128,
        caller: Caller,
        document: Document,
        progress: &Arc<Mutex<Progress>>,
        planner: Planner,
    ) -> Self {
        let (epoch_ms, expected) = (document.epoch_ms, document.files.clone());
        let now_s = seconds(epoch_ms, clock::utc_now());
        let execution = Execution::new(document, &plan_of(&mut progress.lock()).verdicts, now_s);
        Self {
            placer: Placer::new(parts, None, &caller),
            lake: LakeView::new(&parts.lake, &parts.endpoint, caller, parts.block_bytes),
            parts: Arc::clone(parts),
            id,
            expected,
            epoch_ms,
            planner,
            execution: Mutex::new((0, execution)),
            progress: Arc::clone(progress),
        }
    }

    /// Carries the plan out until it is over. The future may be dropped at any time.
    pub(super) async fn run(self: Arc<Self>) {
        let (mut work, mut planning) = (JoinSet::<Ended>::new(), JoinSet::<NewPlan>::new());
        let slot = self.execution.lock().1.slot_s();
        let look = Duration::try_from_secs_f64(slot / 4.0).unwrap_or(LOOK_MAX);
        let look = look.clamp(LOOK_MIN, LOOK_MAX);
        let mut looks = tokio::time::interval(look);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.begin_due(&mut work);
            let event = tokio::select! {
                Some(ended) = work.join_next(), if !work.is_empty() => Event::Ended(ended.ok()),
                Some(new) = planning.join_next(), if !planning.is_empty() => Event::Planned(new.ok().map(Box::new)),
                _ = looks.tick() => Event::Look,
            };
            match event {
                Event::Look => {
                    self.execution.lock().1.tick(self.now_s());
                    self.judge();
                    if self.is_over() {
                        break;
                    }
                    self.consider(&mut planning);
                }
                Event::Ended(Some(ended)) => self.ended(ended),
                Event::Planned(Some(new)) => {
                    if self.adopt(*new) {
                        // Blocks on their way arrive, and are found by the transfers of the new plan.
                        work = JoinSet::new();
                    }
                }
                // The runtime reports a task that panicked.
                Event::Ended(None) | Event::Planned(None) => {}
            }
        }
    }

    /// The time on the clock of the plan.
    pub(super) fn now_s(&self) -> f64 {
        seconds(self.epoch_ms, clock::utc_now())
    }

    /// The bandwidth of the link to the lake, if it is metered.
    pub(super) fn link_bytes_per_second(&self) -> Option<f64> {
        self.parts.endpoint.link().map(|link| link.bandwidth() as f64)
    }

    /// Calls `does` with the execution, if the plan of this generation is still in force.
    pub(super) fn on<T>(&self, generation: u64, does: impl FnOnce(&mut Execution) -> T) -> Option<T> {
        let mut execution = self.execution.lock();
        (execution.0 == generation).then(|| does(&mut execution.1))
    }

    /// Counts bytes by where they came from.
    pub(super) fn count(&self, bytes: u64, source: Option<Source>) {
        self.progress.lock().tally.brought(bytes, source);
    }

    fn begin_due(self: &Arc<Self>, work: &mut JoinSet<Ended>) {
        let (generation, steps) = {
            let mut execution = self.execution.lock();
            (execution.0, execution.1.due(self.now_s()))
        };
        for step in steps {
            let this = Arc::clone(self);
            work.spawn(async move {
                let result = match step {
                    Step::Fetch(transfer) => this.fetch(generation, transfer).await.map(|()| 0),
                    Step::Keep { file, until_s } => this.keep(file, until_s).await,
                    Step::Evict { file } => this.evict(file).await.map(|()| 0),
                    Step::Ask { file } => this.size(file).await,
                    Step::Promise { job } => {
                        this.promise(generation, job).await;
                        Ok(0)
                    }
                };
                Ended {
                    generation,
                    step,
                    result,
                }
            });
        }
    }

    fn ended(&self, ended: Ended) {
        let now_s = self.now_s();
        let Ended {
            generation,
            step,
            result,
        } = ended;
        let troubled = self.on(generation, |execution| {
            let file = match step {
                Step::Fetch(transfer) => execution.transfers()[transfer].file,
                Step::Keep { file, .. } | Step::Evict { file } | Step::Ask { file } => file,
                Step::Promise { .. } => return None,
            };
            match (step, &result) {
                (Step::Fetch(transfer), Ok(_)) => execution.done(transfer),
                (Step::Fetch(transfer), Err(NoFile::Missing(_))) => execution.missing(transfer, now_s),
                (Step::Fetch(transfer), Err(NoFile::Failed(_))) => execution.failed(transfer, now_s),
                (Step::Keep { .. }, Ok(bytes)) => execution.kept(file, *bytes),
                (Step::Keep { .. }, Err(_)) => execution.kept(file, 0),
                (Step::Evict { .. }, Ok(_)) => execution.evicted(file),
                (Step::Evict { .. }, Err(_)) | (Step::Promise { .. }, _) => {}
                (Step::Ask { .. }, Ok(bytes)) => execution.has_size(file, *bytes),
                (Step::Ask { .. }, Err(_)) => drop(execution.still_missing(file, now_s)),
            }
            Some(execution.name_of(file).to_owned())
        });
        if let (Some(Some(file)), Err(NoFile::Missing(why) | NoFile::Failed(why))) = (troubled, result) {
            tracing::debug!(file, why, "a transfer of a plan did not come to its end");
            plan_of(&mut self.progress.lock()).note(&file, &why, Moment::now());
        }
    }

    /// Begins to plan anew, if that is needed.
    fn consider(&self, planning: &mut JoinSet<NewPlan>) {
        if !planning.is_empty() {
            return;
        }
        let (now_s, mut execution) = (self.now_s(), self.execution.lock());
        let Some(why) = execution.1.deviation(now_s) else {
            return;
        };
        let (file, reason) = described(&execution.1, why);
        let request = execution.1.request_from(now_s, why);
        let former = execution.1.plan().clone();
        let mut progress = self.progress.lock();
        let progress = plan_of(&mut progress);
        progress.replanned = Some(Replanned {
            at: Moment::now(),
            why: reason.clone(),
            by: "nothing".to_owned(),
            detail: None,
        });
        progress.note(&file, &reason, Moment::now());
        let Some(request) = request else {
            execution.1.no_new_plan(now_s);
            return;
        };
        let planner = self.planner.clone();
        planning.spawn(async move { planner.plan(request, former).await });
    }

    /// Takes a new plan over. Returns whether it is one.
    fn adopt(&self, new: NewPlan) -> bool {
        let (now_s, mut execution) = (self.now_s(), self.execution.lock());
        let mut progress = self.progress.lock();
        let progress = plan_of(&mut progress);
        let replanned = progress.replanned.as_mut();
        let (is_new, by, detail) = match new.plan {
            Ok(plan) => {
                execution.0 += 1;
                execution.1.adopt(plan, now_s);
                (true, new.by, new.detail)
            }
            Err(why) => {
                execution.1.no_new_plan(now_s);
                (false, "nothing", Some(why))
            }
        };
        if let Some(replanned) = replanned {
            by.clone_into(&mut replanned.by);
            replanned.detail = detail.as_deref().map(cut);
        }
        if is_new {
            progress.replans += 1;
        }
        let why = progress
            .replanned
            .as_ref()
            .map(|replanned| replanned.why.as_str());
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
        let (counts, volume) = (JobCounts::of(&statuses), execution.volume(now_s));
        let jobs = execution.request().jobs.iter().zip(&statuses);
        let troubled = jobs.filter(|(_, status)| matches!(status, JobStatus::AtRisk | JobStatus::Missed));
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
        plan.jobs = counts;
        plan.verdicts = execution.verdicts();
        plan.name_jobs(troubled.collect());
        plan.name_transfers(execution.running().map(|transfer| TransferNote {
            file: execution.name_of(transfer.file).to_owned(),
            bytes: transfer.bytes,
            planned_bytes: whole(transfer.expected_bytes(now_s)),
            done_bytes: transfer.done_bytes(),
            bytes_per_second: whole(transfer.bytes_per_second),
        }));
    }

    fn is_over(&self) -> bool {
        self.execution.lock().1.is_over(self.now_s())
    }
}

/// The rest of the progress of a plan.
fn plan_of(progress: &mut Progress) -> &mut PlanProgress {
    progress.plan.get_or_insert_default()
}

/// The file that is not as planned, and what is wrong with it, in words.
fn described(execution: &Execution, why: Deviation) -> (String, String) {
    let (file, text) = match why {
        Deviation::Missing { file } => (file, "the lake does not have it".to_owned()),
        Deviation::Found { file } => (file, "the lake has it by now".to_owned()),
        Deviation::Resized {
            file,
            planned_bytes,
            bytes,
        } => (
            file,
            format!("it has {bytes} bytes, and {planned_bytes} were planned"),
        ),
        Deviation::NotHeld { file, bytes } => (file, format!("the cache holds only {bytes} bytes of it")),
        Deviation::Behind { file, bytes } => (
            file,
            format!("its transfer is more than a slot behind; {bytes} bytes are left"),
        ),
    };
    (execution.name_of(file).to_owned(), text)
}

#[expect(clippy::cast_sign_loss, reason = "bytes are never negative")]
fn whole(bytes: f64) -> u64 {
    bytes.max(0.0) as u64
}
