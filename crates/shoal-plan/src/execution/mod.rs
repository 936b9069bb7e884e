//! The execution of a plan: the due steps, their rates, deviations, and the jobs at risk.
//!
//! A coordinator requests the due steps ([`Execution::due`]), performs them, and reports their results. This
//! module makes every decision and has no clock: times are seconds on the clock of the request. The
//! paper leaves deviations to future work (section 7); the rules for them are documented at
//! [`transfer::rate`], [`Execution::deviation`] and [`Execution::request_from`].

mod deviation;
mod job_status;
pub mod transfer;

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

pub use self::deviation::Deviation;
pub use self::job_status::{JobStatus, Verdicts};
pub use self::transfer::Transfer;

use self::transfer::State;
use crate::document::{Document, Extent};
use crate::model::Request;
use crate::plan::{Cached, FilePlan, Outcome, Plan};

/// Maximum number of concurrent transfers.
pub const TRANSFERS_AT_ONCE: usize = 64;

/// Maximum number of transfers and evictions of a plan that is carried out.
pub const TRANSFERS_MAX: usize = 200_000;

/// Tolerated difference of a file's size from its planned size, as a share of the latter, without a new plan.
pub const SIZE_TOLERANCE: f64 = 0.01;

/// Delay between the end of a file's last pin and its removal.
const EVICT_AFTER_S: f64 = 2.0;

/// An action that is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Fetch the bytes of this transfer.
    Fetch(usize),
    /// Keep a file that the request lists as held until this time.
    Keep {
        /// The file, by its position in the request.
        file: usize,
        /// The end.
        until_s: f64,
    },
    /// Look again for a file that the lake did not have.
    Ask {
        /// The file.
        file: usize,
    },
    /// Remove a file from the cache.
    Evict {
        /// The file.
        file: usize,
    },
    /// Promise a job its rate from the lake ([`Execution::promise`]), until its deadline.
    Promise {
        /// The job, by its position in the request.
        job: usize,
    },
}

/// The rate at which a job reads from the lake the bytes that are not cached for it: `r_j` of section 4.2,
/// for all of its files together.
#[derive(Clone, Debug, PartialEq)]
pub struct Promise {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// The files, by their positions in the request.
    pub files: Vec<usize>,
    /// The deadline of the job.
    pub until_s: f64,
}

/// Progress of the fetches of a plan, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Volume {
    /// Bytes that the plan fetches in total.
    pub total_bytes: f64,
    /// Bytes that the plan should have fetched by now.
    pub planned_bytes: f64,
    /// Bytes that have been fetched, or were in the cache already.
    pub done_bytes: f64,
}

/// The execution of a plan.
#[derive(Clone, Debug)]
pub struct Execution {
    request: Request,
    plan: Plan,
    files: Vec<FileState>,
    by_name: HashMap<String, usize>,
    /// In the order of their starts.
    transfers: Vec<Transfer>,
    /// All transfers before this one are over.
    first_open: usize,
    running: usize,
    /// Steps other than fetches, each with its time, in the order of time.
    others: Vec<(f64, Step)>,
    /// The number of those that are done.
    others_done: usize,
    /// For each job whether it met its deadline, once that is known.
    verdicts: Vec<Option<bool>>,
    /// The jobs that the original plan planned.
    promised: HashSet<String>,
    /// When this coordinator began.
    began_s: f64,
    /// The latest deviation in a file since the last plan.
    surprise: Option<Deviation>,
    replanned_s: f64,
    /// Bytes that the transfers of former plans should have fetched until their plan was replaced, and those
    /// that they did fetch.
    before: Volume,
    /// The part of the link's rate that is counted on, as measured.
    link_share: f64,
    /// The start of the current measurement of the link, and the bytes moved since then.
    moved: (f64, f64),
    /// The length of the measurement before, in seconds, and the bytes moved in it.
    moved_before: (f64, f64),
}

/// The known state of a file.
#[derive(Clone, Debug)]
struct FileState {
    bytes: u64,
    /// The size assumed by the plan in force.
    planned_bytes: u64,
    /// The expected range of sizes.
    expected_bytes: RangeInclusive<u64>,
    block_bytes: u64,
    /// The number of its first bytes that are known to be cached.
    have_bytes: u64,
    /// While the lake does not have it: the number of retries, and the time of the next one.
    missing: Option<(u32, f64)>,
    may_be_fetched: bool,
}

impl Execution {
    /// Starts the execution of a checked document, with the verdicts of a former coordinator.
    pub fn new(document: Document, verdicts: &Verdicts, now_s: f64) -> Self {
        let Document {
            files: expected,
            request,
            plan,
            ..
        } = document;
        let files = request
            .files
            .iter()
            .zip(&expected)
            .map(|(file, expected)| FileState {
                bytes: file.bytes,
                planned_bytes: file.bytes,
                expected_bytes: expected.bytes_low..=expected.bytes_high,
                block_bytes: file.block_bytes.max(1),
                have_bytes: 0,
                missing: None,
                may_be_fetched: expected.extent != Extent::PartOfPrefix,
            });
        let planned = plan.jobs.iter().filter(|job| job.outcome == Outcome::Planned);
        let promised = planned.map(|job| job.job.clone()).collect();
        let names = request.files.iter().enumerate();
        let by_name = names.map(|(number, file)| (file.name.clone(), number)).collect();
        let mut execution = Self {
            files: files.collect(),
            by_name,
            transfers: Vec::new(),
            first_open: 0,
            running: 0,
            others: Vec::new(),
            others_done: 0,
            verdicts: verdicts.by_job(request.jobs.len()),
            promised,
            began_s: now_s,
            surprise: None,
            replanned_s: f64::NEG_INFINITY,
            before: Volume::default(),
            link_share: 1.0,
            moved: (now_s, 0.0),
            moved_before: (0.0, 0.0),
            request,
            plan: plan.clone(),
        };
        execution.lay_out(&plan);
        let kept = execution.request.cache.held.iter().filter_map(|held| {
            let file = execution.by_name[&held.file];
            let plan = plan.files.iter().find(|plan| plan.file == held.file)?;
            let until_s = transfer::kept_until(&plan.cached, execution.request.window.start_s, 0.0)?;
            Some((execution.request.window.start_s, Step::Keep { file, until_s }))
        });
        let mut kept: Vec<_> = kept.collect();
        kept.append(&mut execution.others);
        execution.others = kept;
        execution.lay_out_promises();
        execution
    }

    /// The request that the plan answers, as it was given.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The length of a slot.
    pub fn slot_s(&self) -> f64 {
        self.request.window.slot_s
    }

    /// The transfers of the plan in force, in the order of their starts.
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// The transfers under way.
    pub fn running(&self) -> impl Iterator<Item = &Transfer> {
        let open = &self.transfers[self.first_open..];
        open.iter().filter(|transfer| transfer.state == State::Running)
    }

    /// The name of a file.
    pub fn name_of(&self, file: usize) -> &str {
        &self.request.files[file].name
    }

    /// The end of the last job.
    pub fn ends_s(&self) -> f64 {
        let deadlines = self.request.jobs.iter().map(|job| job.deadline_s);
        deadlines.fold(self.request.window.end_s, f64::max)
    }

    /// Returns true if the execution is finished.
    pub fn is_over(&self, now_s: f64) -> bool {
        now_s >= self.ends_s() && self.running == 0
    }

    /// The transfers, pins and evictions of a plan.
    fn lay_out(&mut self, plan: &Plan) {
        let (mut transfers, mut others) = (Vec::new(), Vec::new());
        for planned in &plan.files {
            // The document was checked, so the file is known.
            let Some(&number) = self.by_name.get(&planned.file) else {
                continue;
            };
            let file = &self.files[number];
            if file.may_be_fetched {
                let of_file = planned.transfers.iter();
                transfers.extend(of_file.filter_map(|transfer| transfer_of(number, file, transfer, planned)));
            }
            let whole = planned
                .evictions
                .iter()
                .filter(|eviction| eviction.first_block == 0);
            others
                .extend(whole.map(|eviction| (eviction.at_s + EVICT_AFTER_S, Step::Evict { file: number })));
        }
        transfers.sort_by(|one: &Transfer, other| one.start_s.total_cmp(&other.start_s));
        others.sort_by(|one: &(f64, Step), other| one.0.total_cmp(&other.0));
        (self.transfers, self.first_open, self.running) = (transfers, 0, 0);
        (self.others, self.others_done) = (others, 0);
    }

    /// The promises to the jobs of the plan in force.
    fn lay_out_promises(&mut self) {
        let jobs = self.request.jobs.iter().enumerate();
        let promised = jobs.filter(|(job, _)| self.promise(*job).is_some());
        let promised: Vec<_> = promised
            .map(|(number, job)| (job.submit_s, Step::Promise { job: number }))
            .collect();
        self.others.extend(promised);
        self.others.sort_by(|one, other| one.0.total_cmp(&other.0));
    }

    /// The promise of the plan in force to a job: its rate from the lake while it runs. `None` if it reads
    /// nothing from the lake by plan.
    pub fn promise(&self, job: usize) -> Option<Promise> {
        let planned = self.plan.jobs.get(job)?;
        let reads = planned.reads.iter();
        let remote: Vec<_> = reads.filter(|read| read.remote_bytes_per_second > 0.0).collect();
        let is_promised = planned.outcome == Outcome::Planned && !remote.is_empty();
        is_promised.then(|| Promise {
            bytes_per_second: remote.iter().map(|read| read.remote_bytes_per_second).sum(),
            files: remote
                .iter()
                .filter_map(|read| self.by_name.get(&read.file).copied())
                .collect(),
            until_s: self.request.jobs[job].deadline_s,
        })
    }

    /// Replaces the plan in force with one made from [`Execution::request_from`]. The transfers of the former
    /// plan end.
    pub fn adopt(&mut self, plan: Plan, now_s: f64) {
        let volume = self.volume(now_s);
        self.before = Volume {
            total_bytes: volume.planned_bytes,
            ..volume
        };
        for file in &mut self.files {
            file.planned_bytes = file.bytes;
        }
        self.lay_out(&plan);
        let mut jobs: HashMap<String, _> = plan.jobs.into_iter().map(|job| (job.job.clone(), job)).collect();
        for job in &mut self.plan.jobs {
            if let Some(new) = jobs.remove(&job.job) {
                *job = new;
            }
        }
        self.plan.files = plan.files;
        self.plan.usage = plan.usage;
        self.plan.quality = plan.quality;
        self.lay_out_promises();
        self.surprise = None;
        self.replanned_s = now_s;
    }

    /// Records that no new plan can be made: the one in force stays for at least a slot.
    pub fn no_new_plan(&mut self, now_s: f64) {
        self.surprise = None;
        self.replanned_s = now_s;
    }

    /// Returns the steps that are due now, and marks them as begun.
    pub fn due(&mut self, now_s: f64) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(&(at_s, step)) = self.others.get(self.others_done).filter(|other| other.0 <= now_s) {
            self.others_done += 1;
            // A removal that is long overdue would remove bytes that were cached later.
            let is_late = match step {
                Step::Evict { .. } => at_s < now_s - self.slot_s(),
                Step::Keep { until_s, .. } => until_s <= now_s,
                Step::Promise { job } => self.request.jobs[job].deadline_s <= now_s,
                Step::Fetch(_) | Step::Ask { .. } => false,
            };
            if !is_late {
                steps.push(step);
            }
        }
        self.ask_again(now_s, &mut steps);
        let is_over = |transfer: &Transfer| matches!(transfer.state, State::Done | State::Dropped);
        while self.transfers.get(self.first_open).is_some_and(is_over) {
            self.first_open += 1;
        }
        for number in self.first_open..self.transfers.len() {
            let transfer = &mut self.transfers[number];
            if transfer.start_s > now_s || self.running >= TRANSFERS_AT_ONCE {
                break;
            }
            match transfer.state {
                State::Waiting { .. } if transfer.keep_until_s <= now_s => transfer.state = State::Dropped,
                State::Waiting { not_before_s } if not_before_s <= now_s => {
                    transfer.state = State::Running;
                    self.running += 1;
                    steps.push(Step::Fetch(number));
                }
                _ => {}
            }
        }
        steps
    }

    /// Retries files that the lake did not have and that no transfer will request.
    fn ask_again(&mut self, now_s: f64, steps: &mut Vec<Step>) {
        for (number, file) in self.files.iter_mut().enumerate() {
            let Some((_, again_s)) = file.missing.as_mut().filter(|(_, again_s)| *again_s <= now_s) else {
                continue;
            };
            let mut open = self.transfers[self.first_open..].iter();
            if !open.any(|transfer| transfer.file == number && transfer.is_open()) {
                *again_s = f64::INFINITY;
                steps.push(Step::Ask { file: number });
            }
        }
    }

    /// The rate of a transfer now, on a link of at most `link` bytes a second.
    pub fn rate(&self, transfer: usize, now_s: f64, link: Option<f64>) -> f64 {
        let planned = self.link_at(now_s);
        let link = link.map_or(planned, |link| link.min(planned));
        transfer::rate(&self.transfers[transfer], now_s, self.slot_s(), link)
    }

    /// The rate of the link at a time, according to the request.
    fn link_at(&self, now_s: f64) -> f64 {
        let link = &self.request.link;
        let changes = link.changes.iter().take_while(|change| change.at_s <= now_s);
        changes
            .last()
            .map_or(link.bytes_per_second, |change| change.bytes_per_second)
    }

    /// Records that bytes of a transfer are cached.
    pub fn moved(&mut self, transfer: usize, bytes: u64) {
        let transfer = &mut self.transfers[transfer];
        let bytes = bytes.min(transfer.bytes - transfer.done_bytes);
        transfer.done_bytes += bytes;
        self.moved.1 += bytes as f64;
        let file = &mut self.files[transfer.file];
        file.have_bytes = (file.have_bytes + bytes).min(file.bytes);
    }

    /// Records that a transfer is complete.
    pub fn done(&mut self, transfer: usize) {
        let left = self.transfers[transfer].left_bytes();
        self.moved(transfer, left);
        self.leave(transfer, State::Done);
    }

    /// Records that a transfer failed for a temporary reason. It is retried within a slot.
    pub fn failed(&mut self, transfer: usize, now_s: f64) {
        let not_before_s = now_s + self.slot_s().min(10.0);
        self.forget_moved(transfer);
        self.leave(transfer, State::Waiting { not_before_s });
    }

    fn leave(&mut self, transfer: usize, state: State) {
        if self.transfers[transfer].state == State::Running {
            self.running -= 1;
        }
        self.transfers[transfer].state = state;
    }

    /// Records that the lake does not have the file. It is looked for again after 1, 2, 4, … 64 slots.
    pub fn missing(&mut self, transfer: usize, now_s: f64) {
        let file = self.transfers[transfer].file;
        let not_before_s = self.still_missing(file, now_s);
        self.forget_moved(transfer);
        self.leave(transfer, State::Waiting { not_before_s });
        self.surprise = Some(Deviation::Missing { file });
    }

    /// Records that the lake does not have a file. Returns the time of the next retry.
    pub fn still_missing(&mut self, file: usize, now_s: f64) -> f64 {
        let slot_s = self.slot_s();
        let tries = self.files[file].missing.map_or(0, |(tries, _)| tries + 1);
        let again_s = now_s + slot_s * f64::from(1_u32 << tries.min(6));
        self.files[file].missing = Some((tries, again_s));
        again_s
    }

    /// Resets the bytes of a transfer; it finds those that are cached when it starts again.
    fn forget_moved(&mut self, transfer: usize) {
        let transfer = &mut self.transfers[transfer];
        let done_bytes = std::mem::take(&mut transfer.done_bytes);
        let file = &mut self.files[transfer.file];
        file.have_bytes = file.have_bytes.saturating_sub(done_bytes);
    }

    /// Records the size of a file that the lake has. A forecast is seldom exact, so the plan is followed as
    /// far as possible. Only a size outside the expected range that differs from the planned one by more than
    /// [`SIZE_TOLERANCE`] requires a new plan.
    pub fn has_size(&mut self, file: usize, bytes: u64) {
        let known = &mut self.files[file];
        let was_missing = known.missing.take().is_some();
        let mut transfers = self.transfers[self.first_open..].iter();
        if was_missing && !transfers.any(|transfer| transfer.file == file && transfer.is_open()) {
            self.surprise = Some(Deviation::Found { file });
        }
        if known.bytes == bytes {
            return;
        }
        known.bytes = bytes;
        known.have_bytes = known.have_bytes.min(bytes);
        let (planned_bytes, is_expected) = (known.planned_bytes, known.expected_bytes.contains(&bytes));
        for transfer in self
            .transfers
            .iter_mut()
            .filter(|transfer| transfer.file == file && transfer.is_open())
        {
            let left = bytes.saturating_sub(transfer.first_byte);
            transfer.bytes = transfer.bytes.min(left.max(transfer.done_bytes));
        }
        if !is_expected && bytes.abs_diff(planned_bytes) as f64 > planned_bytes as f64 * SIZE_TOLERANCE {
            self.surprise = Some(Deviation::Resized {
                file,
                planned_bytes,
                bytes,
            });
        }
    }

    /// Records how many bytes are still cached of a file that the request lists as held.
    pub fn kept(&mut self, file: usize, bytes: u64) {
        let name = &self.request.files[file].name;
        let held = self.request.cache.held.iter().find(|held| held.file == *name);
        let expected = held.map_or(0, |held| held.bytes);
        let known = &mut self.files[file];
        known.have_bytes = known.have_bytes.max(bytes.min(expected));
        if bytes < expected {
            self.surprise = Some(Deviation::NotHeld { file, bytes });
        }
    }

    /// Records that a file was evicted.
    pub fn evicted(&mut self, file: usize) {
        self.files[file].have_bytes = 0;
    }

    /// The progress of all transfers by now, those of former plans included.
    pub fn volume(&self, now_s: f64) -> Volume {
        let mut volume = self.before;
        for transfer in &self.transfers {
            volume.total_bytes += transfer.bytes as f64;
            volume.planned_bytes += transfer.expected_bytes(now_s);
            volume.done_bytes += transfer.done_bytes as f64;
        }
        volume
    }
}

fn transfer_of(
    number: usize,
    file: &FileState,
    transfer: &crate::plan::TransferPlan,
    planned: &FilePlan,
) -> Option<Transfer> {
    let part = transfer.bytes(file.bytes, file.block_bytes);
    let (first_byte, bytes) = (part.start, part.end - part.start);
    let keep = |cached: &[Cached]| transfer::kept_until(cached, transfer.start_s, first_byte as f64);
    (bytes > 0).then(|| Transfer {
        file: number,
        first_byte,
        bytes,
        start_s: transfer.start_s,
        end_s: transfer.end_s,
        bytes_per_second: transfer.bytes_per_second.max(1.0),
        keep_until_s: keep(&planned.cached).unwrap_or(transfer.end_s),
        state: State::Waiting {
            not_before_s: f64::NEG_INFINITY,
        },
        done_bytes: 0,
    })
}
