//! Bytes that planned jobs lack at their deadlines, with files from gigabytes down to kilobytes: plans are
//! carried out by the coordinator's own decisions, in whole blocks, on a link that transfers share.

use std::collections::HashMap;
use std::path::Path;

use shoal_lab::netco::workload::{Sharing, Unit, Workload};
use shoal_plan::document::{DeadlineRule, Document, ExpectedFile, ExpectedJob, Extent};
use shoal_plan::execution::{Execution, Step, Verdicts};
use shoal_plan::model::{Job, Objective, Options, Paging, Request, VERSION};
use shoal_plan::plan;
use shoal_plan::plan::{JobPlan, Outcome};

use crate::SOLVER;
use crate::table::Table;

/// What all sizes and rates are divided by: the workload's files have a median of some tens of gigabytes.
const SMALLER: [f64; 5] = [1.0, 1e3, 1e4, 1e5, 1e6];

/// The time of a look, as a part of a slot: a coordinator looks four times in a slot.
const LOOKS: f64 = 20.0;

const HEAD: [&str; 8] = [
    "median file",
    "shorter than a block %",
    "paging",
    "planned jobs",
    "jobs that lack more than 1%",
    "the most that one lacks %",
    "bytes lacking %",
    "the same by the plan alone %",
];

/// What planned jobs lack.
#[derive(Default)]
struct Lacks {
    jobs: u64,
    /// Jobs that lack more than 1% of their bytes.
    lacking: u64,
    /// The greatest share that a job lacks.
    most: f64,
    bytes: f64,
    lacking_bytes: f64,
    /// By the blocks of the transfers of the plan, carried out exactly.
    by_plan_bytes: f64,
}

pub fn run(out: &Path, is_quick: bool) {
    let seeds = if is_quick { 1..=1 } else { 1..=10 };
    let mut table = Table::new(&HEAD);
    for smaller in SMALLER {
        for paging in [Paging::Off, Paging::Belady] {
            let (mut lacks, mut sizes) = (Lacks::default(), Vec::new());
            for seed in seeds.clone() {
                let request = request(smaller, paging, seed);
                sizes.extend(request.files.iter().map(|file| file.bytes));
                let plan = plan(&request, &SOLVER).expect("the request can be planned");
                carry_out(document(request, plan), &mut lacks);
            }
            table.row(&row(paging, &lacks, sizes));
        }
    }
    table.write(out, "results");
}

fn row(paging: Paging, lacks: &Lacks, mut sizes: Vec<u64>) -> Vec<String> {
    sizes.sort_unstable();
    let block_bytes = shoal_plan::model::File::default_block_bytes();
    let short = sizes.iter().filter(|bytes| **bytes < block_bytes).count();
    let percent = |part: f64, of: f64| format!("{:.2}", part / of * 100.0);
    vec![
        shoal_base::amount::human_amount(sizes[sizes.len() / 2] as f64),
        percent(short as f64, sizes.len() as f64),
        format!("{paging:?}").to_lowercase(),
        lacks.jobs.to_string(),
        lacks.lacking.to_string(),
        percent(lacks.most, 1.0),
        percent(lacks.lacking_bytes, lacks.bytes),
        percent(lacks.by_plan_bytes, lacks.bytes),
    ]
}

/// An hour of some thirty jobs like B4's at half of what they need of the link, and a cache for a third of
/// their files.
fn request(smaller: f64, paging: Paging, seed: u64) -> Request {
    let drawn = Workload {
        unit: Unit::B4,
        scale: 0.02,
        hours: 1.0,
        sharing: Sharing::Week,
        seed,
        ..Workload::default()
    }
    .draw();
    #[expect(clippy::cast_sign_loss, reason = "files have bytes")]
    let room = (drawn.file_bytes() * 0.3) as u64;
    let mut request = drawn.request(drawn.read_bytes() / 3600.0 / 2.0, room, 60.0);
    #[expect(clippy::cast_sign_loss, reason = "files have bytes")]
    let bytes = |bytes: &mut u64| *bytes = (*bytes as f64 / smaller).max(1.0) as u64;
    request.link.bytes_per_second /= smaller;
    bytes(&mut request.cache.capacity_bytes);
    request.files.iter_mut().for_each(|file| bytes(&mut file.bytes));
    for job in &mut request.jobs {
        job.bytes_per_second_max = job.bytes_per_second_max.map(|rate| rate / smaller);
    }
    request.options = Options {
        objective: Objective::MostDeadlines,
        paging,
        ..Options::default()
    };
    request
}

fn document(request: Request, plan: shoal_plan::Plan) -> Document {
    let files = request.files.iter().map(|file| ExpectedFile {
        path: format!("s3://b/{}", file.name),
        extent: Extent::Object,
        bytes_low: file.bytes,
        bytes_high: file.bytes,
        objects: None,
    });
    let jobs = request.jobs.iter().map(|job| ExpectedJob {
        name: job.name.clone(),
        early_s: job.submit_s,
        late_s: job.submit_s,
        probability: 1.0,
        deadline_rule: DeadlineRule::Given,
    });
    Document {
        version: VERSION,
        epoch_ms: 0,
        files: files.collect(),
        jobs: jobs.collect(),
        left_out: Vec::new(),
        request,
        plan,
    }
}

/// The whole blocks of a file that are here.
#[derive(Clone, Default)]
struct Cached {
    blocks: std::collections::BTreeSet<u64>,
}

impl Cached {
    fn bytes(&self, size: u64, block_bytes: u64) -> u64 {
        let of_block = |block: &u64| block_bytes.min(size - block * block_bytes);
        self.blocks.iter().map(of_block).sum()
    }
}

/// Carries a plan out. A transfer has a block once all of its bytes came; a job reads what is cached from its
/// submission on and what comes for it until its deadline, and its rate from the lake.
fn carry_out(document: Document, lacks: &mut Lacks) {
    let (request, plan) = (document.request.clone(), document.plan.clone());
    let numbers = request.files.iter().enumerate();
    let numbers: HashMap<&str, usize> = numbers
        .map(|(number, file)| (file.name.as_str(), number))
        .collect();
    let mut execution = Execution::new(document, &Verdicts::default(), request.window.start_s);
    let mut cached = vec![Cached::default(); request.files.len()];
    let (mut running, mut moved) = (Vec::<usize>::new(), HashMap::<usize, f64>::new());
    // The bytes that each job has of each of its reads: from the cache, and from the lake.
    let mut has: Vec<Vec<[f64; 2]>> = plan
        .jobs
        .iter()
        .map(|job| vec![[0.0; 2]; job.reads.len()])
        .collect();
    let (look_s, mut now_s) = (request.window.slot_s / LOOKS, request.window.start_s);
    while now_s < request.ends_s() + request.window.slot_s {
        for step in execution.due(now_s) {
            match step {
                Step::Fetch(transfer) => running.push(transfer),
                // Nothing else needs the room, so that what is released goes at once, as the plan takes it.
                Step::Release(file) => {
                    cached[file] = Cached::default();
                    execution.released(file);
                }
                _ => {}
            }
        }
        // Remote reads have their rate first; transfers share what is left.
        let mut remote = 0.0;
        for (job, planned) in plan.jobs.iter().enumerate() {
            let facts = &request.jobs[job];
            let overlap_s = (facts.deadline_s.min(now_s + look_s) - facts.submit_s.max(now_s)).max(0.0);
            for (read, has) in planned.reads.iter().zip(&mut has[job]) {
                let bytes = read.remote_bytes_per_second * overlap_s;
                has[1] += bytes;
                remote += bytes;
            }
        }
        let link = request.link.rate_at(now_s);
        let left = (link * look_s - remote).max(0.0);
        let rates: Vec<f64> = running
            .iter()
            .map(|&one| execution.rate(one, now_s, Some(link)))
            .collect();
        let wanted = rates.iter().sum::<f64>() * look_s;
        let share = if wanted > left { left / wanted } else { 1.0 };
        for (&transfer, rate) in running.iter().zip(rates) {
            let facts = execution.transfers()[transfer].clone();
            let of = &request.files[facts.file];
            let bytes = moved.entry(transfer).or_default();
            *bytes = (*bytes + rate * share * look_s).min(facts.bytes as f64);
            let end = facts.first_byte as f64 + *bytes + 1e-6 * of.block_bytes.min(of.bytes) as f64;
            let mut block = facts.first_byte / of.block_bytes;
            let mut done = 0;
            while block * of.block_bytes < of.bytes {
                let block_end = ((block + 1) * of.block_bytes).min(of.bytes);
                if block_end as f64 > end || block_end > facts.first_byte + facts.bytes {
                    break;
                }
                cached[facts.file].blocks.insert(block);
                done = block_end - facts.first_byte;
                block += 1;
            }
            execution.moved(transfer, done.saturating_sub(facts.done_bytes()));
            if execution.transfers()[transfer].left_bytes() == 0 {
                execution.done(transfer);
            }
        }
        running.retain(|&transfer| execution.transfers()[transfer].left_bytes() > 0);
        now_s += look_s;
        execution.tick(now_s);
        execution.judge(now_s);
        for (job, planned) in plan.jobs.iter().enumerate() {
            let facts = &request.jobs[job];
            if now_s <= facts.submit_s || now_s > facts.deadline_s + 1e-6 {
                continue;
            }
            for (read, has) in planned.reads.iter().zip(&mut has[job]) {
                let file = numbers[read.file.as_str()];
                let of = &request.files[file];
                has[0] = f64::max(has[0], cached[file].bytes(of.bytes, of.block_bytes) as f64);
            }
        }
    }
    for (job, planned) in plan.jobs.iter().enumerate() {
        if planned.outcome == Outcome::Planned {
            lacks.add(&request, &request.jobs[job], planned, &has[job]);
        }
    }
}

impl Lacks {
    /// Counts a job that has had so much of each of its reads at its deadline: from the cache, and from the
    /// lake.
    fn add(&mut self, request: &Request, job: &Job, planned: &JobPlan, has: &[[f64; 2]]) {
        let (mut all, mut lacking, mut by_plan) = (0.0, 0.0, 0.0);
        for (read, has) in planned.reads.iter().zip(has) {
            let file = request.files.iter().find(|file| file.name == read.file);
            let size = file.expect("a plan reads files of its request").bytes as f64;
            all += size;
            lacking += (size - has[0] - has[1] - read.paged_bytes).max(0.0);
            let seconds = job.deadline_s - job.submit_s;
            let promised = read.cached_bytes + read.paged_bytes + read.remote_bytes_per_second * seconds;
            by_plan += (size - promised).max(0.0);
        }
        self.jobs += 1;
        self.lacking += u64::from(lacking > 0.01 * all);
        self.most = self.most.max(lacking / all);
        self.bytes += all;
        self.lacking_bytes += lacking;
        self.by_plan_bytes += by_plan;
    }
}
