//! A schedule under construction: fetches, cached bytes and remote reads; and the rest of link and cache.
//!
//! Every change is made here and is rejected if it would exceed the link or the cache, so no plan promises
//! more than exists.

pub mod augment;
mod deal;
mod insert;
pub(crate) mod reuse;

use std::collections::BTreeMap;

use crate::instance::{Instance, JobUse};

/// The solver's rounding, as a share of the link or the cache.
pub const ROUNDING: f64 = 1e-6;

/// A schedule of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The rate that the link has left in each slot. Slightly negative only by rounding.
    pub link_left: Vec<f64>,
    /// The bytes that the cache has left in each slot.
    pub cache_left: Vec<f64>,
    /// Each file of the instance.
    pub files: Vec<FileSchedule>,
    /// Each job of the instance: its remote bytes of each of its reads, if it is planned.
    pub jobs: Vec<Option<Vec<f64>>>,
    /// Bytes that a job reads from pages of earlier jobs: job, read, bytes. See [`crate::schedule::augment`].
    pub hits: BTreeMap<(usize, usize), f64>,
}

/// A file's fetches, and its cached bytes over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileSchedule {
    /// Bytes fetched, by slot, in order.
    pub fetches: Vec<(usize, f64)>,
    /// The cached bytes from a slot on, in order. Fetched bytes use room in the slot in which they are
    /// fetched, and can be read from the next slot on.
    pub cached: Vec<(usize, f64)>,
}

impl FileSchedule {
    /// Returns the cached bytes in a slot.
    pub fn level(&self, slot: usize) -> f64 {
        match self.cached.partition_point(|step| step.0 <= slot) {
            0 => 0.0,
            step => self.cached[step - 1].1,
        }
    }

    /// Returns the cached bytes before a slot; `held_bytes` are cached before the first one.
    pub fn level_before(&self, slot: usize, held_bytes: f64) -> f64 {
        slot.checked_sub(1).map_or(held_bytes, |slot| self.level(slot))
    }

    /// Returns the bytes that are fetched in a slot.
    pub fn fetched(&self, slot: usize) -> f64 {
        let in_slot = self.fetches.iter().filter(|fetch| fetch.0 == slot);
        in_slot.map(|fetch| fetch.1).sum()
    }

    /// Returns the bytes that a job can read from the cache in `from..until`: those that are cached when it
    /// starts and stay until it ends. `held_bytes` are cached before the first slot.
    pub fn usable(&self, from: usize, until: usize, held_bytes: f64) -> f64 {
        let before = self.level_before(from, held_bytes);
        let begin = self.cached.partition_point(|step| step.0 <= from);
        let end = self.cached.partition_point(|step| step.0 < until);
        let during = self.cached[begin.min(end)..end].iter().map(|step| step.1);
        during.fold(before.min(self.level(from)), f64::min)
    }

    /// Adds `bytes` to the level of the slots in `from..until`.
    fn add(&mut self, from: usize, until: usize, bytes: f64) {
        if from >= until || bytes == 0.0 {
            return;
        }
        let first = self.step_at(from);
        let last = self.step_at(until);
        self.cached[first..last]
            .iter_mut()
            .for_each(|step| step.1 = (step.1 + bytes).max(0.0));
    }

    /// Gives the file these cached bytes in each slot, and these fetches.
    pub(crate) fn set(&mut self, levels: &[f64], fetches: Vec<(usize, f64)>) {
        self.cached = steps(levels);
        self.fetches = fetches;
    }

    /// Returns the position of a step that begins at `slot`; makes one if there is none.
    fn step_at(&mut self, slot: usize) -> usize {
        let position = self.cached.partition_point(|step| step.0 < slot);
        if self.cached.get(position).is_none_or(|step| step.0 != slot) {
            let level = if position == 0 {
                0.0
            } else {
                self.cached[position - 1].1
            };
            self.cached.insert(position, (slot, level));
        }
        position
    }
}

impl Schedule {
    /// Returns an empty schedule: the cache keeps its contents at the start for as long as they are pinned.
    pub fn new(instance: &Instance) -> Self {
        let slots = instance.slots.len();
        let mut schedule = Self {
            link_left: (0..slots).map(|slot| instance.slots.free(slot)).collect(),
            cache_left: vec![instance.capacity_bytes; slots],
            files: vec![FileSchedule::default(); instance.files.len()],
            jobs: vec![None; instance.jobs.len()],
            hits: BTreeMap::new(),
        };
        for (number, file) in instance.files.iter().enumerate() {
            schedule.hold(number, 0, file.held_until, file.held_bytes);
        }
        schedule
    }

    /// Returns the number of planned jobs.
    pub fn planned(&self) -> usize {
        self.jobs.iter().flatten().count()
    }

    /// Returns the jobs that are not planned.
    pub(crate) fn left_out(&self) -> Vec<usize> {
        let jobs = (0..self.jobs.len()).filter(|&job| self.jobs[job].is_none());
        jobs.collect()
    }

    /// Plans the jobs that fit into the rest of the link as it is.
    pub(crate) fn admit_others(&mut self, instance: &Instance) {
        for job in self.left_out() {
            self.admit(instance, job);
        }
    }

    /// Takes room for `bytes` of a file in the slots `from..until`.
    pub(crate) fn hold(&mut self, file: usize, from: usize, until: usize, bytes: f64) {
        self.files[file].add(from, until, bytes);
        self.cache_left[from.min(until)..until]
            .iter_mut()
            .for_each(|left| *left -= bytes);
    }

    /// Fetches bytes of a file in a slot.
    fn fetch_in(&mut self, instance: &Instance, file: usize, slot: usize, bytes: f64) {
        self.files[file].fetches.push((slot, bytes));
        self.link_left[slot] -= bytes / instance.slots.seconds();
    }

    /// Lets a job read `bytes` more from the lake, from its first slot to its last.
    fn read_remotely(&mut self, job: &JobUse, bytes: f64) {
        let rate = bytes / job.seconds;
        self.link_left[job.from..job.until]
            .iter_mut()
            .for_each(|left| *left -= rate);
    }

    /// Plans a job with the bytes that are cached: it reads the rest of its files remotely. Returns false,
    /// and changes nothing, if the link has too little left.
    pub fn admit(&mut self, instance: &Instance, job: usize) -> bool {
        let remote = self.missing(instance, job);
        let rate = remote.iter().sum::<f64>() / instance.jobs[job].seconds;
        let slots = instance.jobs[job].from..instance.jobs[job].until;
        if slots
            .clone()
            .any(|slot| rate > self.link_left[slot] + ROUNDING * instance.slots.link[slot])
        {
            return false;
        }
        self.force(instance, job, remote);
        true
    }

    /// Plans a job with these remote bytes, even beyond the rate that the link has left; [`Schedule::shed`]
    /// has to follow.
    pub(crate) fn force(&mut self, instance: &Instance, job: usize, remote: Vec<f64>) {
        self.read_remotely(&instance.jobs[job], remote.iter().sum());
        self.jobs[job] = Some(remote);
    }

    /// Removes a job from the plan, but not the bytes that are cached for it; see [`Schedule::trim`].
    pub fn dismiss(&mut self, instance: &Instance, job: usize) {
        if let Some(remote) = self.jobs[job].take() {
            self.read_remotely(&instance.jobs[job], -remote.iter().sum::<f64>());
        }
    }

    /// Lets a planned job read at most `bytes` of a file from a page.
    pub(crate) fn hit(&mut self, instance: &Instance, job: usize, read: usize, bytes: f64) {
        let Some(remote) = &mut self.jobs[job] else { return };
        let hit = remote[read].min(bytes);
        remote[read] -= hit;
        *self.hits.entry((job, read)).or_default() += hit;
        self.read_remotely(&instance.jobs[job], -hit);
    }

    /// Returns the bytes of each read of a job that it could not read from the cache, which has whole blocks,
    /// or from pages.
    pub fn missing(&self, instance: &Instance, job: usize) -> Vec<f64> {
        let reader = &instance.jobs[job];
        let missing = |(read, &(file, _)): (usize, &(usize, usize))| {
            let (file, schedule) = (&instance.files[file], &self.files[file]);
            let cached = schedule.usable(reader.from, reader.until, file.held_bytes);
            let paged = self.hits.get(&(job, read)).copied().unwrap_or(0.0);
            (file.bytes - file.whole(cached) - paged).max(0.0)
        };
        reader.reads.iter().enumerate().map(missing).collect()
    }

    /// Removes jobs, those with the most remote bytes first, where the link is promised beyond its rate.
    pub fn shed(&mut self, instance: &Instance) -> Vec<usize> {
        let mut dismissed = Vec::new();
        for slot in 0..self.link_left.len() {
            while self.link_left[slot] < -ROUNDING * instance.slots.link[slot].max(1.0) {
                let reads_now = |job: &usize| {
                    let reader = &instance.jobs[*job];
                    (reader.from..reader.until).contains(&slot)
                };
                let load = |job: usize| {
                    self.jobs[job]
                        .as_ref()
                        .map_or(0.0, |remote| remote.iter().sum::<f64>())
                };
                let heaviest = (0..self.jobs.len())
                    .filter(|job| reads_now(job) && load(*job) > 0.0)
                    .max_by(|&a, &b| load(a).total_cmp(&load(b)));
                let Some(job) = heaviest else {
                    break;
                };
                self.dismiss(instance, job);
                dismissed.push(job);
            }
        }
        dismissed
    }

    /// Frees the link and the room used for bytes that no planned job reads.
    pub fn trim(&mut self, instance: &Instance) {
        for number in 0..self.files.len() {
            self.trim_file(instance, number);
        }
    }

    /// Keeps of each level, from the last slot to the first, only the bytes that a planned job reads later.
    pub(crate) fn trim_file(&mut self, instance: &Instance, number: usize) {
        let file = &instance.files[number];
        let schedule = &self.files[number];
        // The bytes that are needed in a slot: those that a reader uses from the slot before its first one to
        // its last, and before it as much as is there already.
        let mut needed: Vec<(usize, usize, f64)> = Vec::new();
        if file.held_until > 0 && file.held_bytes > 0.0 {
            needed.push((0, file.held_until, file.held_bytes));
        }
        for arrival in &file.arrivals {
            for &job in &arrival.jobs {
                if self.jobs[job].is_some() {
                    let until = instance.jobs[job].until;
                    let bytes = file.whole(schedule.usable(arrival.slot, until, file.held_bytes));
                    needed.push((arrival.slot.saturating_sub(1), until, bytes));
                }
            }
        }
        let end = schedule.cached.iter().map(|step| step.0).max().unwrap_or(0);
        let mut levels: Vec<f64> = (0..end).map(|slot| schedule.level(slot)).collect();
        if levels.is_empty() {
            return;
        }
        let mut wanted = vec![0.0_f64; end];
        for &(from, until, bytes) in &needed {
            wanted[from.min(end)..until.min(end)]
                .iter_mut()
                .for_each(|wanted| *wanted = wanted.max(bytes));
        }
        // Backwards: bytes that are wanted later and are there now are wanted now.
        for slot in (0..end.saturating_sub(1)).rev() {
            wanted[slot] = wanted[slot].max(wanted[slot + 1].min(levels[slot]));
        }
        let mut before = file.held_bytes;
        for slot in 0..end {
            let level = levels[slot].min(wanted[slot]);
            let fetched = self.files[number].fetched(slot);
            // Bytes that are cached already need not be fetched.
            let still = (level - before).clamp(0.0, fetched);
            if fetched > 0.0 {
                let share = still / fetched;
                let fetches = self.files[number].fetches.iter_mut();
                fetches
                    .filter(|fetch| fetch.0 == slot)
                    .for_each(|fetch| fetch.1 *= share);
                self.link_left[slot] += (fetched - still) / instance.slots.seconds();
            }
            self.cache_left[slot] += levels[slot] - level;
            levels[slot] = level;
            before = level;
        }
        let schedule = &mut self.files[number];
        schedule.fetches.retain(|fetch| fetch.1 > 0.0);
        schedule.cached = steps(&levels);
    }
}

/// Returns the levels of slots as steps.
fn steps(levels: &[f64]) -> Vec<(usize, f64)> {
    let mut steps: Vec<(usize, f64)> = Vec::new();
    let mut before = 0.0;
    for (slot, &level) in levels.iter().chain([&0.0]).enumerate() {
        if (level - before).abs() > 0.0 {
            steps.push((slot, level));
            before = level;
        }
    }
    steps
}
