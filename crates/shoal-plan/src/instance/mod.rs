//! A request in the terms of the linear program: numbers for names, slots for times.

pub mod slots;

use std::collections::HashMap;

use crate::instance::slots::Slots;
use crate::model::{Job, Request};
use crate::plan::Reason;

/// A request in the form that the formulation uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// The time.
    pub slots: Slots,
    /// The room of the cache.
    pub capacity_bytes: f64,
    /// The files that planned jobs read, and those that the cache holds.
    pub files: Vec<FileUse>,
    /// The jobs that can meet their deadlines on their own.
    pub jobs: Vec<JobUse>,
    /// The jobs that cannot, by their position in the request.
    pub hopeless: Vec<(usize, Reason)>,
}

/// The files in the cache at the start, by their position in the request: their bytes, and the first slot in
/// which these may be evicted.
type HeldFiles = HashMap<usize, (f64, usize)>;

/// A file, and when it is needed.
#[derive(Clone, Debug, PartialEq)]
pub struct FileUse {
    /// Its position in the request.
    pub number: usize,
    /// Its size.
    pub bytes: f64,
    /// The size of its blocks; the last one may be shorter.
    pub block_bytes: f64,
    /// The first slot in which it can be fetched.
    pub available: usize,
    /// Its bytes that are cached at the start, in whole blocks.
    pub held_bytes: f64,
    /// The first slot in which held bytes may be evicted.
    pub held_until: usize,
    /// The slots at which jobs start to read it, in order.
    pub arrivals: Vec<Arrival>,
}

impl FileUse {
    /// Bytes of the file that differ by less than this are equal.
    pub fn rounding(&self) -> f64 {
        SOLVED * self.block_bytes.min(self.bytes)
    }

    /// The same at the end of the file, whose last block may have fewer bytes than [`FileUse::rounding`].
    fn last_rounding(&self) -> f64 {
        let last = self.bytes % self.block_bytes;
        if last > 0.0 {
            self.rounding().min(last / 2.0)
        } else {
            self.rounding()
        }
    }

    /// Returns the number of whole blocks in the first `bytes` of the file.
    #[expect(clippy::cast_sign_loss, reason = "bytes are positive")]
    pub fn blocks(&self, bytes: f64) -> u64 {
        if bytes + self.last_rounding() >= self.bytes {
            return (self.bytes / self.block_bytes).ceil() as u64;
        }
        ((bytes + self.rounding()) / self.block_bytes).floor() as u64
    }

    /// Returns the bytes of these blocks: nodes cache no part of a block.
    pub fn whole(&self, bytes: f64) -> f64 {
        (self.blocks(bytes) as f64 * self.block_bytes).min(self.bytes)
    }

    /// Returns the bytes of the blocks that have the first `bytes` of the file.
    pub fn rounded_up(&self, bytes: f64) -> f64 {
        let last = self.bytes % self.block_bytes;
        if bytes > self.bytes - last + self.last_rounding() {
            return self.bytes;
        }
        let blocks = (bytes - self.rounding()) / self.block_bytes;
        (blocks.ceil().max(0.0) * self.block_bytes).min(self.bytes)
    }
}

/// A slot in which one or more jobs start to read a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// The slot. Bytes that a job reads from the cache are there when it begins.
    pub slot: usize,
    /// The first slot in which no job that has arrived so far reads the file.
    pub until: usize,
    /// The jobs, by their position in [`Instance::jobs`].
    pub jobs: Vec<usize>,
}

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobUse {
    /// Its position in the request.
    pub number: usize,
    /// The slot in which it is submitted.
    pub from: usize,
    /// The first slot after its deadline.
    pub until: usize,
    /// The time between its submission and its deadline.
    pub seconds: f64,
    /// Its reads: the position of the file in [`Instance::files`], and that of the arrival in
    /// [`FileUse::arrivals`].
    pub reads: Vec<(usize, usize)>,
    /// The bytes of all its inputs.
    pub bytes: f64,
}

impl Instance {
    /// Returns the instance of a checked request.
    pub fn new(request: &Request) -> Self {
        let slots = Slots::new(request);
        let by_name: HashMap<&str, usize> = request
            .files
            .iter()
            .enumerate()
            .map(|(number, file)| (file.name.as_str(), number))
            .collect();
        let mut held = HeldFiles::new();
        for one in &request.cache.held {
            let until = one
                .pinned_until_s
                .map_or(0, |until_s| slots.end(until_s).min(slots.len()));
            let number = by_name[one.file.as_str()];
            let file = &request.files[number];
            // Nodes hold no part of a block; the last one may be short.
            let bytes = match one.bytes {
                bytes if bytes >= file.bytes => file.bytes,
                bytes => bytes - bytes % file.block_bytes,
            };
            held.insert(number, (bytes as f64, until));
        }
        let mut instance = Self {
            slots,
            capacity_bytes: request.cache.capacity_bytes as f64,
            files: Vec::new(),
            jobs: Vec::new(),
            hopeless: Vec::new(),
        };
        let alone = Alone::new(request, &instance.slots, &held);
        let mut inputs: Vec<Vec<usize>> = Vec::new();
        for (number, job) in request.jobs.iter().enumerate() {
            let files: Vec<usize> = job.inputs.iter().map(|name| by_name[name.as_str()]).collect();
            if let Some(reason) = alone.hopeless(job, &files) {
                instance.hopeless.push((number, reason));
                continue;
            }
            inputs.push(files);
            instance.jobs.push(JobUse {
                number,
                from: instance.slots.slot(job.submit_s),
                until: instance.slots.until(job),
                seconds: job.deadline_s - job.submit_s,
                reads: Vec::new(),
                bytes: 0.0,
            });
        }
        instance.add_files(request, &inputs, &held);
        instance
    }

    /// Collects the arrivals of each file, and the reads of each job.
    fn add_files(&mut self, request: &Request, inputs: &[Vec<usize>], held: &HeldFiles) {
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); request.files.len()];
        for (job, files) in inputs.iter().enumerate() {
            for &file in files {
                readers[file].push(job);
            }
        }
        for (number, mut jobs) in readers.into_iter().enumerate() {
            let &(held_bytes, held_until) = held.get(&number).unwrap_or(&(0.0, 0));
            if jobs.is_empty() && held_bytes == 0.0 {
                continue;
            }
            jobs.sort_by_key(|&job| (self.jobs[job].from, job));
            let mut arrivals: Vec<Arrival> = Vec::new();
            // Pinned bytes stay as if a job read them.
            let mut until = if held_bytes > 0.0 { held_until } else { 0 };
            for job in jobs {
                let reader = &self.jobs[job];
                until = until.max(reader.until);
                match arrivals.last_mut() {
                    Some(last) if last.slot == reader.from => {
                        last.jobs.push(job);
                        last.until = until;
                    }
                    _ => arrivals.push(Arrival {
                        slot: reader.from,
                        until,
                        jobs: vec![job],
                    }),
                }
            }
            debug_assert!(
                arrivals.is_sorted_by_key(|arrival| arrival.slot),
                "arrivals are in order"
            );
            let file = &request.files[number];
            for (arrival, at) in arrivals.iter().enumerate() {
                for &job in &at.jobs {
                    self.jobs[job].reads.push((self.files.len(), arrival));
                    self.jobs[job].bytes += file.bytes as f64;
                }
            }
            self.files.push(FileUse {
                number,
                bytes: file.bytes as f64,
                block_bytes: file.block_bytes as f64,
                available: file
                    .available_s
                    .map_or(0, |available_s| self.slots.next(available_s)),
                held_bytes,
                held_until,
                arrivals,
            });
        }
    }
}

/// Link and cache for a single job.
struct Alone<'a> {
    request: &'a Request,
    slots: &'a Slots,
    held: &'a HeldFiles,
    /// The bytes that the link gives before each slot, from the first slot on.
    given_bytes: Vec<f64>,
}

impl<'a> Alone<'a> {
    fn new(request: &'a Request, slots: &'a Slots, held: &'a HeldFiles) -> Self {
        let mut given = 0.0;
        let mut given_bytes = vec![0.0];
        given_bytes.extend(slots.link.iter().map(|rate| {
            given += rate * slots.seconds();
            given
        }));
        Self {
            request,
            slots,
            held,
            given_bytes,
        }
    }

    /// Returns why a job could not meet its deadline even alone, if so.
    ///
    /// The paper's formulation has no constraint for a job's greatest rate (Table 1). None is needed in the
    /// linear program: remote reads take place at a constant rate over the whole window, so they never need
    /// more than `Σ s / (d - a)`, and cached bytes are read beside them. But a job whose rate is below that
    /// quotient is late whatever is cached, and must be left out.
    fn hopeless(&self, job: &Job, files: &[usize]) -> Option<Reason> {
        let size = |file: usize| self.request.files[file].bytes as f64;
        let bytes: f64 = files.iter().map(|&file| size(file)).sum();
        let seconds = job.deadline_s - job.submit_s;
        let (from, until) = (self.slots.slot(job.submit_s), self.slots.until(job));
        let slowest = (from..until)
            .map(|slot| self.slots.link[slot])
            .fold(f64::INFINITY, f64::min);
        let cache_rate = self.request.cache.bytes_per_second.unwrap_or(f64::INFINITY);
        let rate = job
            .bytes_per_second_max
            .unwrap_or(f64::INFINITY)
            .min(cache_rate + slowest);
        if bytes > rate * seconds * (1.0 + ROUNDING) {
            return Some(Reason::TooSlow {
                needs_s: bytes / rate,
                has_s: seconds,
            });
        }
        // Alone, it can have the held bytes, those that can be fetched before it starts, and those that it
        // reads while it runs.
        let cached: f64 = files
            .iter()
            .map(|&file| {
                let available = self.request.files[file]
                    .available_s
                    .map_or(0, |s| self.slots.next(s))
                    .min(from);
                let fetched = self.given_bytes[from] - self.given_bytes[available];
                (self.held.get(&file).map_or(0.0, |held| held.0) + fetched).min(size(file))
            })
            .sum();
        let most_bytes = cached.min(self.request.cache.capacity_bytes as f64) + slowest * seconds;
        (bytes > most_bytes * (1.0 + ROUNDING)).then_some(Reason::TooLarge { bytes, most_bytes })
    }
}

/// Sums of bytes and rates that differ by less than this share are equal.
const ROUNDING: f64 = 1e-9;

/// The solver's rounding, as a share of a block.
const SOLVED: f64 = 1e-6;
