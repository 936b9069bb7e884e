//! Carries one plan out, from where it is to its end, on the node that is its coordinator.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_plan::Document;
use shoal_plan::course::{Course, Deviation, Standing, Step};
use shoal_plan::document::ExpectedFile;
use shoal_policy::Source;
use shoal_s3::identity::Caller;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use ulid::Ulid;

use super::objects::NoFile;
use super::order::{PlanOrder, moment, seconds};
use super::planner::{NewPlan, Planner};
use super::progress::{JobCounts, JobNote, PlanProgress, PlanState, Replanned, TransferNote};
use crate::clock;
use crate::tasks::{LakeView, Targets, TaskParts, now};

/// How often a coordinator looks what is due: four times in a slot, within these bounds.
const LOOK_MIN: Duration = Duration::from_millis(50);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// After this time progress is written although only bytes have moved.
const QUIET: Duration = Duration::from_secs(5);

/// Counters of the plans that a node has carried out, for its metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanTotals {
    /// Jobs that met their deadlines.
    pub met: u64,
    /// Jobs that missed them.
    pub missed: u64,
    /// New plans.
    pub replans: u64,
    /// Bytes that came from the lake or a tier, that came from other nodes, and that were there before.
    pub bytes: [u64; 3],
}

/// A plan that this node carries out.
pub(super) struct Carrier {
    pub(super) parts: Arc<TaskParts>,
    pub(super) id: u128,
    pub(super) caller: Caller,
    pub(super) lake: LakeView,
    pub(super) targets: Targets,
    pub(super) expected: Vec<ExpectedFile>,
    pub(super) epoch_ms: u64,
    planner: Planner,
    /// The plan in force, and how often there was a new one. Work for a former one no longer counts.
    course: Mutex<(u64, Course)>,
    progress: Mutex<PlanProgress>,
    totals: Arc<Mutex<PlanTotals>>,
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

impl Carrier {
    /// The plan `id`, which goes on where `progress` ends.
    pub(super) fn new(
        parts: &Arc<TaskParts>,
        (id, order): (u128, &PlanOrder),
        document: Document,
        mut progress: PlanProgress,
        (planner, totals): (Planner, &Arc<Mutex<PlanTotals>>),
    ) -> Result<Self, String> {
        let caller = parts.caller(order.identity.as_deref())?;
        let (epoch_ms, expected) = (document.epoch_ms, document.files.clone());
        let now_s = seconds(epoch_ms, clock::utc_now());
        let course = Course::new(document, &progress.verdicts, now_s);
        progress.state = PlanState::Running;
        progress.coordinator = Some(parts.name.clone());
        progress.started.get_or_insert_with(now);
        Ok(Self {
            lake: LakeView::new(&parts.lake, &parts.endpoint, caller.clone(), parts.block_bytes),
            targets: Targets::new(&parts.cooperation, None),
            parts: Arc::clone(parts),
            id,
            caller,
            expected,
            epoch_ms,
            planner,
            course: Mutex::new((0, course)),
            progress: Mutex::new(progress),
            totals: Arc::clone(totals),
        })
    }

    /// Carries the plan out until it is over. `report` takes the progress for all nodes; the future may be
    /// dropped at any time.
    pub(super) async fn run(self: Arc<Self>, report: impl Fn(&PlanProgress)) {
        let (mut work, mut planning) = (JoinSet::<Ended>::new(), JoinSet::<NewPlan>::new());
        let slot = self.course.lock().1.slot_s();
        let look = Duration::try_from_secs_f64(slot / 4.0).unwrap_or(LOOK_MAX);
        let look = look.clamp(LOOK_MIN, LOOK_MAX);
        let mut looks = tokio::time::interval(look);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reports = Reports::default();
        loop {
            self.begin_due(&mut work);
            let event = tokio::select! {
                Some(ended) = work.join_next(), if !work.is_empty() => Event::Ended(ended.ok()),
                Some(new) = planning.join_next(), if !planning.is_empty() => Event::Planned(new.ok().map(Box::new)),
                _ = looks.tick() => Event::Look,
            };
            match event {
                Event::Look => {
                    self.course.lock().1.tick(self.now_s());
                    self.judge();
                    if self.is_over() {
                        break;
                    }
                    self.consider(&mut planning);
                    reports.tell(&self.progress.lock(), &report);
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
        let mut progress = self.progress.lock();
        progress.state = PlanState::Done;
        progress.ended = Some(now());
        progress.transfers.clear();
        report(&progress);
        let jobs = progress.jobs;
        tracing::info!(id = %Ulid(self.id), met = jobs.met, missed = jobs.missed, "a plan is over");
    }

    /// The time on the clock of the plan.
    pub(super) fn now_s(&self) -> f64 {
        seconds(self.epoch_ms, clock::utc_now())
    }

    /// The bandwidth of the link to the lake, if it is metered.
    pub(super) fn link_bytes_per_second(&self) -> Option<f64> {
        self.parts.endpoint.link().map(|link| link.bandwidth() as f64)
    }

    /// Does something with the course, if the plan of this generation is still in force.
    pub(super) fn on<T>(&self, generation: u64, does: impl FnOnce(&mut Course) -> T) -> Option<T> {
        let mut course = self.course.lock();
        (course.0 == generation).then(|| does(&mut course.1))
    }

    /// Counts bytes by where they came from.
    pub(super) fn count(&self, bytes: u64, source: Option<Source>) {
        let place = match source {
            Some(Source::Lake | Source::Tier) => 0,
            Some(Source::Peer) => 1,
            Some(Source::Local) | None => 2,
        };
        self.totals.lock().bytes[place] += bytes;
        let mut progress = self.progress.lock();
        match place {
            0 => progress.bytes.from_lake += bytes,
            1 => progress.bytes.from_peers += bytes,
            _ => {}
        }
    }

    fn begin_due(self: &Arc<Self>, work: &mut JoinSet<Ended>) {
        let (generation, steps) = {
            let mut course = self.course.lock();
            (course.0, course.1.due(self.now_s()))
        };
        for step in steps {
            let this = Arc::clone(self);
            work.spawn(async move {
                let result = match step {
                    Step::Fetch(errand) => this.fetch(generation, errand).await.map(|()| 0),
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
        let troubled = self.on(generation, |course| {
            let file = match step {
                Step::Fetch(errand) => course.errands()[errand].file,
                Step::Keep { file, .. } | Step::Evict { file } | Step::Ask { file } => file,
                Step::Promise { .. } => return None,
            };
            match (step, &result) {
                (Step::Fetch(errand), Ok(_)) => course.done(errand),
                (Step::Fetch(errand), Err(NoFile::Missing(_))) => course.missing(errand, now_s),
                (Step::Fetch(errand), Err(NoFile::Failed(_))) => course.failed(errand, now_s),
                (Step::Keep { .. }, Ok(bytes)) => course.kept(file, *bytes),
                (Step::Keep { .. }, Err(_)) => course.kept(file, 0),
                (Step::Evict { .. }, Ok(_)) => course.evicted(file),
                (Step::Evict { .. }, Err(_)) | (Step::Promise { .. }, _) => {}
                (Step::Ask { .. }, Ok(bytes)) => course.has_size(file, *bytes),
                (Step::Ask { .. }, Err(_)) => drop(course.still_missing(file, now_s)),
            }
            Some(course.name_of(file).to_owned())
        });
        if let (Some(Some(file)), Err(NoFile::Missing(why) | NoFile::Failed(why))) = (troubled, result) {
            tracing::debug!(file, why, "a transfer of a plan did not come to its end");
            self.progress.lock().note(&file, &why, now());
        }
    }

    /// Begins to plan anew, if that is needed.
    fn consider(&self, planning: &mut JoinSet<NewPlan>) {
        if !planning.is_empty() {
            return;
        }
        let (now_s, mut course) = (self.now_s(), self.course.lock());
        let Some(why) = course.1.deviation(now_s) else {
            return;
        };
        let told = told(&course.1, why);
        let request = course.1.request_from(now_s, why);
        let former = course.1.plan().clone();
        let mut progress = self.progress.lock();
        progress.replanned = Some(Replanned {
            at: now(),
            why: told.1.clone(),
            by: "nothing".to_owned(),
            detail: None,
        });
        progress.note(&told.0, &told.1, now());
        let Some(request) = request else {
            course.1.no_new_plan(now_s);
            return;
        };
        let planner = self.planner.clone();
        planning.spawn(async move { planner.plan(request, former).await });
    }

    /// Takes a new plan over. Returns whether it is one.
    fn adopt(&self, new: NewPlan) -> bool {
        let (now_s, mut course) = (self.now_s(), self.course.lock());
        let mut progress = self.progress.lock();
        let replanned = progress.replanned.as_mut();
        let (is_new, by, detail) = match new.plan {
            Ok(plan) => {
                course.0 += 1;
                course.1.adopt(plan, now_s);
                (true, new.by, new.detail)
            }
            Err(why) => {
                course.1.no_new_plan(now_s);
                (false, "nothing", Some(why))
            }
        };
        if let Some(replanned) = replanned {
            by.clone_into(&mut replanned.by);
            replanned.detail = detail.as_deref().map(super::progress::cut);
        }
        if is_new {
            progress.replans += 1;
            self.totals.lock().replans += 1;
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
        let (now_s, mut course) = (self.now_s(), self.course.lock());
        let course = &mut course.1;
        let standings = course.judge(now_s);
        let (counts, volume) = (JobCounts::of(&standings), course.volume(now_s));
        let jobs = course.request().jobs.iter().zip(&standings);
        let troubled = jobs.filter(|(_, standing)| matches!(standing, Standing::AtRisk | Standing::Missed));
        let troubled = troubled.map(|(job, standing)| JobNote {
            job: job.name.clone(),
            standing: *standing,
            submit: moment(self.epoch_ms, job.submit_s),
            deadline: moment(self.epoch_ms, job.deadline_s),
        });
        let mut progress = self.progress.lock();
        progress.name_jobs(troubled.collect());
        let transfers = course.running().map(|errand| TransferNote {
            file: course.name_of(errand.file).to_owned(),
            bytes: errand.bytes,
            planned_bytes: whole(errand.expected_bytes(now_s)),
            done_bytes: errand.done_bytes(),
            bytes_per_second: whole(errand.bytes_per_second),
        });
        progress.name_transfers(transfers);
        progress.bytes.total = whole(volume.total_bytes);
        progress.bytes.planned = whole(volume.planned_bytes);
        progress.bytes.done = whole(volume.done_bytes);
        let before = std::mem::replace(&mut progress.jobs, counts);
        progress.verdicts = course.verdicts();
        let mut totals = self.totals.lock();
        totals.met += counts.met.saturating_sub(before.met);
        totals.missed += counts.missed.saturating_sub(before.missed);
    }

    fn is_over(&self) -> bool {
        self.course.lock().1.is_over(self.now_s())
    }
}

/// Says when progress is to be written: soon after changes of jobs, plans or issues, and every few seconds
/// for bytes.
#[derive(Default)]
struct Reports {
    last: Option<(tokio::time::Instant, PlanProgress)>,
}

impl Reports {
    fn tell(&mut self, progress: &PlanProgress, report: impl Fn(&PlanProgress)) {
        let now = clock::runtime_instant();
        if let Some((then, last)) = &self.last {
            let elapsed = now.saturating_duration_since(*then);
            let is_news = (
                progress.jobs,
                progress.replans,
                progress.issues.len(),
                &progress.replanned,
            ) != (last.jobs, last.replans, last.issues.len(), &last.replanned);
            let is_due = elapsed >= QUIET || (is_news && elapsed >= LOOK_MAX / 5);
            if !is_due || progress == last {
                return;
            }
        }
        report(progress);
        self.last = Some((now, progress.clone()));
    }
}

/// The file that is not as planned, and what is wrong with it, in words.
fn told(course: &Course, why: Deviation) -> (String, String) {
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
    (course.name_of(file).to_owned(), text)
}

#[expect(clippy::cast_sign_loss, reason = "bytes are never negative")]
fn whole(bytes: f64) -> u64 {
    bytes.max(0.0) as u64
}
