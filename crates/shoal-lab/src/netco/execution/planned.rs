//! The cache of a plan that is carried out: the planned bytes, as far as its fetches have come.

use std::collections::{HashMap, VecDeque};

use shoal_plan::model::Request;
use shoal_plan::plan::{Outcome, Plan};

/// A fetch that is planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedFetch {
    pub(super) file: usize,
    pub(super) start_s: f64,
    pub(super) bytes: f64,
    pub(super) bytes_per_second: f64,
}

/// The number of bytes of a file that the plan caches from a time on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) at_s: f64,
    file: usize,
    bytes: f64,
    pub(super) is_page: bool,
}

/// The cache of a plan. Evicted bytes stay until their room is needed.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    capacity_bytes: f64,
    sizes: Vec<f64>,
    /// The bytes of each file that the plan caches now.
    levels: Vec<f64>,
    /// The part of them that is there.
    bytes: Vec<f64>,
    /// The bytes of pages of each file that the plan keeps now.
    page_levels: Vec<f64>,
    /// The part of them that is there.
    pages: Vec<f64>,
    /// Bytes that no longer belong to the plan; the first ones leave first.
    leaving: VecDeque<(usize, f64)>,
    /// The planned rate of the remote reads of each job.
    rates: Vec<f64>,
    /// Whether each job is planned.
    takes_part: Vec<bool>,
    /// Whether the reads of a job are kept, by job and file.
    keeps: HashMap<(usize, usize), bool>,
}

impl Planned {
    /// The cache, its fetches and its steps, both in order of time.
    pub(super) fn new(request: &Request, plan: &Plan) -> (Self, Vec<PlannedFetch>, Vec<Step>) {
        let files: HashMap<&str, usize> = request
            .files
            .iter()
            .enumerate()
            .map(|(n, f)| (f.name.as_str(), n))
            .collect();
        let jobs: HashMap<&str, usize> = request
            .jobs
            .iter()
            .enumerate()
            .map(|(n, j)| (j.name.as_str(), n))
            .collect();
        let count = request.files.len();
        let mut planned = Self {
            capacity_bytes: request.cache.capacity_bytes as f64,
            sizes: request.files.iter().map(|file| file.bytes as f64).collect(),
            levels: vec![0.0; count],
            bytes: vec![0.0; count],
            page_levels: vec![0.0; count],
            pages: vec![0.0; count],
            leaving: VecDeque::new(),
            rates: vec![0.0; request.jobs.len()],
            takes_part: vec![false; request.jobs.len()],
            keeps: HashMap::new(),
        };
        for held in &request.cache.held {
            planned
                .leaving
                .push_back((files[held.file.as_str()], held.bytes as f64));
        }
        for job in plan.jobs.iter().filter(|job| job.outcome == Outcome::Planned) {
            let Some(&number) = jobs.get(job.job.as_str()) else {
                continue;
            };
            planned.takes_part[number] = true;
            planned.rates[number] = job.reads.iter().map(|read| read.remote_bytes_per_second).sum();
            for read in &job.reads {
                planned
                    .keeps
                    .insert((number, files[read.file.as_str()]), read.keep);
            }
        }
        let (mut fetches, mut steps) = (Vec::new(), Vec::new());
        for file in &plan.files {
            let Some(&number) = files.get(file.file.as_str()) else {
                continue;
            };
            let described = &request.files[number];
            for transfer in &file.transfers {
                let bytes = transfer.bytes(described.bytes, described.block_bytes);
                fetches.push(PlannedFetch {
                    file: number,
                    start_s: transfer
                        .start_s
                        .max(described.available_s.unwrap_or(f64::NEG_INFINITY)),
                    bytes: (bytes.end - bytes.start) as f64,
                    bytes_per_second: transfer.bytes_per_second,
                });
            }
            for (intervals, is_page) in [(&file.cached, false), (&file.paged, true)] {
                for interval in intervals {
                    let step = |at_s, bytes| Step {
                        at_s,
                        file: number,
                        bytes,
                        is_page,
                    };
                    steps.push(step(interval.from_s, interval.bytes));
                    steps.push(step(interval.until_s, 0.0));
                }
            }
        }
        fetches.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
        // Where one interval ends and another begins, the end comes first.
        steps.sort_by(|a, b| a.at_s.total_cmp(&b.at_s).then(a.bytes.total_cmp(&b.bytes)));
        (planned, fetches, steps)
    }

    /// The bytes of each file that are in the cache, without the pages that the plan keeps.
    pub(super) fn contents(&self) -> Vec<f64> {
        let mut contents = self.bytes.clone();
        self.leaving
            .iter()
            .for_each(|&(file, bytes)| contents[file] += bytes);
        contents
            .iter()
            .zip(&self.sizes)
            .map(|(bytes, size)| bytes.min(*size))
            .collect()
    }

    /// Takes over the bytes that another plan has cached, and its pages with the jobs that fill them.
    pub(super) fn take_over(&mut self, former: &Self) {
        for file in 0..self.sizes.len() {
            self.pages[file] = former.pages[file];
            self.page_levels[file] = former.page_levels[file];
            if former.bytes[file] > 0.0 {
                self.leaving.push_back((file, former.bytes[file]));
            }
        }
        self.leaving.extend(former.leaving.iter().copied());
        for (read, keep) in &former.keeps {
            self.keeps.entry(*read).or_insert(*keep);
        }
    }

    /// The room that the plan keeps for jobs' reads now.
    pub(super) fn page_bytes(&self) -> f64 {
        self.page_levels.iter().sum()
    }

    /// Returns true if a job is planned.
    pub(super) fn plans(&self, job: usize) -> bool {
        self.takes_part[job]
    }

    /// The rate that is planned for a job's remote reads.
    pub(super) fn rate(&self, job: usize) -> f64 {
        self.rates[job]
    }

    /// The bytes of a file that a job can read from the cache now.
    pub(super) fn readable(&self, file: usize) -> f64 {
        let leaving: f64 = self
            .leaving
            .iter()
            .filter(|one| one.0 == file)
            .map(|one| one.1)
            .sum();
        (self.bytes[file] + self.pages[file] + leaving).min(self.sizes[file])
    }

    /// Carries out a step. [`Planned::make_room`] follows the last step of a moment: in between, bytes of a
    /// file whose next interval begins have left the one before.
    pub(super) fn step(&mut self, step: Step) {
        let (levels, bytes) = if step.is_page {
            (&mut self.page_levels, &mut self.pages)
        } else {
            (&mut self.levels, &mut self.bytes)
        };
        levels[step.file] = step.bytes;
        let beyond = bytes[step.file] - step.bytes;
        if beyond > 0.0 {
            bytes[step.file] -= beyond;
            self.leaving.push_back((step.file, beyond));
        } else if !step.is_page {
            // Kept after all: bytes that have not left come back.
            let mut wanted = -beyond;
            for one in self.leaving.iter_mut().filter(|one| one.0 == step.file) {
                let back = one.1.min(wanted);
                one.1 -= back;
                wanted -= back;
                bytes[step.file] += back;
            }
        }
    }

    /// A fetch has brought bytes of a file. Whole blocks may be a little more than the level that was
    /// planned.
    pub(super) fn fetched(&mut self, file: usize, bytes: f64) {
        self.bytes[file] = (self.bytes[file] + bytes).min(self.sizes[file]);
    }

    /// A job has read remote bytes of a file.
    pub(super) fn read(&mut self, job: usize, file: usize, bytes: f64) {
        if self.keeps.get(&(job, file)) == Some(&true) {
            self.pages[file] = bytes.min(self.page_levels[file]).max(self.pages[file]);
        }
    }

    /// Evicts bytes that no longer belong to the plan where planned bytes need the room.
    pub(super) fn make_room(&mut self) {
        let planned: f64 = self.levels.iter().chain(&self.page_levels).sum();
        let mut beyond =
            self.leaving.iter().map(|one| one.1).sum::<f64>() - (self.capacity_bytes - planned).max(0.0);
        while beyond > 0.0 {
            let Some((file, bytes)) = self.leaving.pop_front() else {
                break;
            };
            if bytes > beyond {
                self.leaving.push_front((file, bytes - beyond));
            }
            beyond -= bytes;
        }
    }
}
