//! The execution of a plan: the due steps, their rates, deviations, and the jobs at risk.
//!
//! A coordinator requests the due steps ([`Execution::due`]), performs them, and reports their results. This
//! module makes every decision and has no clock: times are seconds on the clock of the request. The
//! paper leaves deviations to future work (section 7); the rules for them are documented at
//! [`transfer::rate`], [`Execution::deviation`] and [`Execution::request_from`].

mod arrival;
mod deviation;
mod job_status;
mod link_meter;
pub mod promise;
pub mod transfer;
mod transfers;

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::RangeInclusive;

pub use self::arrival::Arrival;
pub use self::deviation::{Deviation, Difference};
pub use self::job_status::{JobStatus, Verdicts};
pub use self::promise::Promise;
pub use self::transfer::Transfer;

use self::job_status::ReadState;
use self::link_meter::LinkMeter;
use self::transfer::State;
use self::transfers::Transfers;
use crate::document::{Document, Extent};
use crate::model::{File, Job, Request};
use crate::plan::{Cached, FilePlan, Outcome, Plan};

/// Maximum number of transfers and evictions of a plan that is carried out.
pub const TRANSFERS_MAX: usize = 200_000;

/// Tolerated difference of a file's size from its planned size, as a share of the latter, without a new plan.
pub const SIZE_TOLERANCE: f64 = 0.01;

/// Delay between the end of a file's last pin and its release.
const RELEASE_AFTER_S: f64 = 2.0;

/// The time by which a job may begin before it is expected, so that its reads count.
const EARLY_S: f64 = 60.0;

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
    /// Look again for this file, which the lake did not have.
    Ask(usize),
    /// Keep what jobs read of this file from now on for later jobs: a page of section 4.3.
    Page {
        /// The file, by its position in the request.
        file: usize,
        /// The end.
        until_s: f64,
    },
    /// Let this file leave the cache before all others when room is needed.
    Release(usize),
    /// Promise this job, by its position in the request, its rates from the lake ([`Execution::promise`],
    /// [`Execution::ceiling`]), until its deadline.
    Promise(usize),
    /// Count what this job, by its position in the request, reads of its inputs ([`Execution::has_read`]),
    /// until its deadline.
    Observe(usize),
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
    transfers: Transfers,
    /// The steps other than fetches that are not due yet, each with its time, in the order of time.
    agenda: VecDeque<(f64, Step)>,
    link: LinkMeter,
    /// The final status of each job, once that is known.
    verdicts: Vec<Option<JobStatus>>,
    /// The reads of each job, as far as they are known.
    reads: Vec<ReadState>,
    /// When each job may begin.
    early_s: Vec<f64>,
    /// The jobs that the original plan planned, and those that were admitted since.
    promised: HashSet<String>,
    /// The number of jobs of the document. Behind them are those that arrived since.
    document_jobs: usize,
    /// When this coordinator began.
    began_s: f64,
    /// The latest deviation in a file since the last plan.
    surprise: Option<Deviation>,
    replanned_s: f64,
    /// Bytes that the transfers of former plans should have fetched until their plan was replaced, and those
    /// that they did fetch.
    before: Volume,
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
    /// The number of its first bytes that the document says the cache holds, until that is known.
    said_bytes: u64,
}

impl FileState {
    fn new(file: &File, expected_bytes: RangeInclusive<u64>) -> Self {
        Self {
            bytes: file.bytes,
            planned_bytes: file.bytes,
            expected_bytes,
            block_bytes: file.block_bytes.max(1),
            have_bytes: 0,
            missing: None,
            may_be_fetched: true,
            said_bytes: 0,
        }
    }
}

impl Execution {
    /// Starts the execution of a checked document, with the verdicts of a former coordinator.
    pub fn new(document: Document, verdicts: &Verdicts, now_s: f64) -> Self {
        let Document {
            files: expected,
            jobs,
            request,
            plan,
            ..
        } = document;
        let files = request
            .files
            .iter()
            .zip(&expected)
            .map(|(file, expected)| FileState {
                may_be_fetched: expected.extent != Extent::PartOfPrefix,
                ..FileState::new(file, expected.bytes_low..=expected.bytes_high)
            });
        let early_s = |(number, job): (usize, &Job)| {
            let expected = jobs.get(number).map_or(job.submit_s, |expected| expected.early_s);
            job.submit_s.min(expected) - EARLY_S
        };
        let early_s = request.jobs.iter().enumerate().map(early_s).collect();
        let planned = plan.jobs.iter().filter(|job| job.outcome == Outcome::Planned);
        let promised = planned.map(|job| job.job.clone()).collect();
        let names = request.files.iter().enumerate();
        let by_name = names.map(|(number, file)| (file.name.clone(), number)).collect();
        let mut execution = Self {
            files: files.collect(),
            by_name,
            transfers: Transfers::new(Vec::new()),
            agenda: VecDeque::new(),
            link: LinkMeter::new(now_s),
            verdicts: verdicts.by_job(request.jobs.len()),
            reads: vec![ReadState::default(); request.jobs.len()],
            early_s,
            promised,
            document_jobs: request.jobs.len(),
            began_s: now_s,
            surprise: None,
            replanned_s: f64::NEG_INFINITY,
            before: Volume::default(),
            request,
            plan,
        };
        for held in &execution.request.cache.held {
            execution.files[execution.by_name[&held.file]].said_bytes = held.bytes;
        }
        let start_s = execution.request.window.start_s;
        let kept = execution.request.cache.held.iter().filter_map(|held| {
            let file = execution.by_name[&held.file];
            let plan = execution.plan.files.iter().find(|plan| plan.file == held.file)?;
            let until_s = transfer::kept_until(&plan.cached, start_s, 0.0)?;
            Some((start_s, Step::Keep { file, until_s }))
        });
        let kept = kept.collect();
        execution.lay_out(kept);
        execution
    }

    /// Returns the request that the plan answers, as it was given.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the number of jobs of the document. Behind them in the request are those that arrived since.
    pub fn document_jobs(&self) -> usize {
        self.document_jobs
    }

    /// Returns true if a job may begin by now and is not over.
    pub fn is_due(&self, job: usize, now_s: f64) -> bool {
        self.early_s[job] <= now_s && now_s < self.request.jobs[job].deadline_s
    }

    /// Returns the plan in force.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the transfers of the plan in force, in the order of their starts.
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers.list
    }

    /// Returns true if the execution is finished.
    pub fn is_over(&self, now_s: f64) -> bool {
        now_s >= self.request.ends_s() && self.transfers.running == 0 && self.is_judged(now_s)
    }

    /// Begins the plan in force: its transfers, pages, releases and promises, and these steps before them.
    fn lay_out(&mut self, mut steps: Vec<(f64, Step)>) {
        let mut transfers = Vec::new();
        for planned in &self.plan.files {
            // The document was checked, so the file is known.
            let Some(&number) = self.by_name.get(&planned.file) else {
                continue;
            };
            let (more, of_file) = self.of_file(number, planned);
            transfers.extend(more);
            steps.extend(of_file);
        }
        let jobs = self.request.jobs.iter().enumerate();
        let promised = jobs.filter(|(job, _)| self.promise(*job).is_some());
        steps.extend(promised.map(|(job, submitted)| (submitted.submit_s, Step::Promise(job))));
        let observed = self.request.jobs.iter().enumerate();
        let observed = observed.filter(|(_, job)| self.promised.contains(&job.name));
        steps.extend(observed.map(|(job, _)| (self.early_s[job], Step::Observe(job))));
        self.transfers = Transfers::new(transfers);
        steps.sort_by(|one, other| one.0.total_cmp(&other.0));
        self.agenda = steps.into();
    }

    /// Returns the transfers of a file by its plan, and the other steps about it with their times.
    fn of_file(&self, number: usize, planned: &FilePlan) -> (Vec<Transfer>, Vec<(f64, Step)>) {
        let (file, mut transfers, mut steps) = (&self.files[number], Vec::new(), Vec::new());
        if file.may_be_fetched {
            let of_file = planned.transfers.iter();
            transfers.extend(of_file.filter_map(|transfer| transfer_of(number, file, transfer, planned)));
            let page = |page: &Cached| {
                let (file, until_s) = (number, page.until_s);
                (page.from_s, Step::Page { file, until_s })
            };
            steps.extend(planned.paged.iter().map(page));
        }
        let evictions = planned.evictions.iter();
        let whole = evictions.filter(|eviction| eviction.first_block == 0);
        steps.extend(whole.map(|eviction| (eviction.at_s + RELEASE_AFTER_S, Step::Release(number))));
        (transfers, steps)
    }

    /// Returns the step that keeps what is cached of a file for as long as a new plan does.
    fn keep_again(&self, file: usize, planned: &FilePlan, now_s: f64) -> Option<(f64, Step)> {
        let until_s = transfer::kept_until(&planned.cached, now_s, 0.0)?;
        (self.files[file].have_bytes > 0).then_some((now_s, Step::Keep { file, until_s }))
    }

    /// Returns the files of which something is a page now: what a job has read of them is kept for others.
    pub fn paged_now(&self, now_s: f64) -> Vec<usize> {
        let is_now = |page: &Cached| page.from_s <= now_s && page.until_s > now_s;
        let files = self
            .plan
            .files
            .iter()
            .filter(|file| file.paged.iter().any(is_now));
        files
            .filter_map(|file| self.by_name.get(&file.file).copied())
            .collect()
    }

    /// Returns the inputs of a job, both by their positions in the request.
    pub fn inputs(&self, job: usize) -> impl Iterator<Item = usize> {
        let inputs = self.request.jobs[job].inputs.iter();
        inputs.filter_map(|name| self.by_name.get(name).copied())
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
            (file.planned_bytes, file.said_bytes) = (file.bytes, 0);
        }
        let mut jobs: HashMap<String, _> = plan.jobs.into_iter().map(|job| (job.job.clone(), job)).collect();
        for job in &mut self.plan.jobs {
            if let Some(new) = jobs.remove(&job.job) {
                *job = new;
            }
        }
        self.plan.files = plan.files;
        self.plan.usage = plan.usage;
        self.plan.quality = plan.quality;
        let kept = self.plan.files.iter().filter_map(|planned| {
            let &file = self.by_name.get(&planned.file)?;
            self.keep_again(file, planned, now_s)
        });
        let kept = kept.collect();
        self.lay_out(kept);
        self.no_new_plan(now_s);
    }

    /// Records that no new plan can be made: the one in force stays for at least a slot.
    pub fn no_new_plan(&mut self, now_s: f64) {
        self.surprise = None;
        self.replanned_s = now_s;
    }

    /// Returns the steps that are due now, and marks them as begun.
    pub fn due(&mut self, now_s: f64) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some((at_s, step)) = self.agenda.pop_front_if(|(at_s, _)| *at_s <= now_s) {
            // A release that is long overdue would release bytes that were cached later.
            let is_late = match step {
                Step::Release(_) => at_s < now_s - self.request.window.slot_s,
                Step::Keep { until_s, .. } | Step::Page { until_s, .. } => until_s <= now_s,
                Step::Promise(job) => self.request.jobs[job].deadline_s <= now_s,
                Step::Observe(job) => self.verdicts[job].is_some(),
                Step::Fetch(_) | Step::Ask(_) => false,
            };
            if !is_late {
                steps.push(step);
            }
        }
        // Files that the lake did not have and that no transfer will request.
        for (file, known) in self.files.iter_mut().enumerate() {
            if let Some((_, again_s)) = known.missing.as_mut().filter(|(_, again_s)| *again_s <= now_s)
                && !self.transfers.are_open(file)
            {
                *again_s = f64::INFINITY;
                steps.push(Step::Ask(file));
            }
        }
        steps.extend(self.transfers.begin(now_s).into_iter().map(Step::Fetch));
        steps
    }

    /// Returns the rate of a transfer now, on a link of at most `link` bytes a second.
    pub fn rate(&self, transfer: usize, now_s: f64, link: Option<f64>) -> f64 {
        let planned = self.request.link.rate_at(now_s);
        let link = link.map_or(planned, |link| link.min(planned));
        transfer::rate(
            &self.transfers.list[transfer],
            now_s,
            self.request.window.slot_s,
            link,
        )
    }

    /// Records that bytes of a transfer are cached.
    pub fn moved(&mut self, transfer: usize, bytes: u64) {
        let transfer = &mut self.transfers.list[transfer];
        if transfer.state == State::Dropped {
            return;
        }
        let bytes = bytes.min(transfer.left_bytes());
        transfer.done_bytes += bytes;
        self.link.add(bytes);
        let file = &mut self.files[transfer.file];
        file.have_bytes = (file.have_bytes + bytes).min(file.bytes);
    }

    /// Records that a transfer is complete.
    pub fn done(&mut self, transfer: usize) {
        self.moved(transfer, u64::MAX);
        self.transfers.leave(transfer, State::Done);
    }

    /// Records that a transfer failed for a temporary reason. It is retried within a slot.
    pub fn failed(&mut self, transfer: usize, now_s: f64) {
        let again_s = now_s + self.request.window.slot_s.min(10.0);
        self.transfers.retry(transfer, again_s, &mut self.files);
    }

    /// Records that the lake does not have the file. It is looked for again after 1, 2, 4, … 64 slots.
    pub fn missing(&mut self, transfer: usize, now_s: f64) {
        let file = self.transfers.list[transfer].file;
        let again_s = self.still_missing(file, now_s);
        self.transfers.retry(transfer, again_s, &mut self.files);
        self.surprised(file, Difference::Missing);
    }

    /// Records that the lake does not have a file. Returns the time of the next retry.
    pub fn still_missing(&mut self, file: usize, now_s: f64) -> f64 {
        let tries = self.files[file].missing.map_or(0, |(tries, _)| tries + 1);
        let again_s = now_s + self.request.window.slot_s * f64::from(1_u32 << tries.min(6));
        self.files[file].missing = Some((tries, again_s));
        again_s
    }

    /// Records the size of a file that the lake has. A forecast is seldom exact, so the plan is followed as
    /// far as possible. Only a size outside the expected range that differs from the planned one by more than
    /// [`SIZE_TOLERANCE`] requires a new plan.
    pub fn has_size(&mut self, file: usize, bytes: u64) {
        let known = &mut self.files[file];
        let was_missing = known.missing.take().is_some();
        if was_missing && !self.transfers.are_open(file) {
            self.surprise = Some(Deviation {
                file,
                difference: Difference::Found,
            });
        }
        if known.bytes == bytes {
            return;
        }
        known.bytes = bytes;
        known.have_bytes = known.have_bytes.min(bytes);
        let (planned_bytes, is_expected) = (known.planned_bytes, known.expected_bytes.contains(&bytes));
        let transfers = self.transfers.list.iter_mut();
        for transfer in transfers.filter(|transfer| transfer.file == file && transfer.is_open()) {
            let left = bytes.saturating_sub(transfer.first_byte);
            transfer.bytes = transfer.bytes.min(left.max(transfer.done_bytes));
            assert!(
                transfer.done_bytes <= transfer.bytes,
                "no more is done than a transfer has"
            );
        }
        if !is_expected && bytes.abs_diff(planned_bytes) as f64 > planned_bytes as f64 * SIZE_TOLERANCE {
            self.surprised(file, Difference::Resized { planned_bytes, bytes });
        }
    }

    /// Records how many bytes are still cached of a file that the request lists as held.
    pub fn kept(&mut self, file: usize, bytes: u64) {
        let known = &mut self.files[file];
        let expected = known.said_bytes;
        known.have_bytes = known.have_bytes.max(bytes.min(expected));
        if bytes < expected {
            self.surprised(file, Difference::NotHeld { bytes });
        }
    }

    fn surprised(&mut self, file: usize, difference: Difference) {
        self.surprise = Some(Deviation { file, difference });
    }

    /// Records that a file was released: the plan no longer counts on its bytes.
    pub fn released(&mut self, file: usize) {
        self.files[file].have_bytes = 0;
    }

    /// Returns the progress of all transfers by now, those of former plans included.
    pub fn volume(&self, now_s: f64) -> Volume {
        let mut volume = self.before;
        for transfer in &self.transfers.list {
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
