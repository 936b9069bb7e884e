//! The linear programs of 4.2: the least peak and the most deadlines, as they scale.
//!
//! The paper's variables are `C` and `X` for every file and slot: millions for a day. This module builds a
//! smaller program with the same optimum (a test of `shoal-planner` compares it with `printed` of
//! `shoal-lab`). It rests on these observations:
//!
//! - A file's cached bytes matter only when a job starts to read it. Between two such *arrivals* it is best
//!   to evict at once what will be evicted, when the last reader is done, and then only to fetch. So a file
//!   has, for each arrival, the bytes kept from the arrival before and the bytes fetched in the gap.
//! - Fetched bytes of different files with the same gap are alike. Each slot at which bytes are *due* has one
//!   column for every slot in which bytes due then can be fetched, for all files together, and a chain of
//!   rows which says that bytes are fetched no sooner than their file allows. [`crate::schedule`] assigns
//!   them to files again.
//! - The cache's occupancy changes by the bytes fetched and evicted in a slot; so it is one column per slot.
//! - A job's remote reads have one rate together. Files that only one job reads and that can be fetched from
//!   the same slot on are one file to the program: a solution that treats their bytes alike is as good as
//!   any.
//!
//! Differences from the program that the paper prints:
//!
//! - Constraint (1) takes `C` at `a_j`, and (2) lets bytes fetched in slot `t` count in `C` at `t`: if `t` is
//!   a job's first slot, they would count as read from its beginning. Here `C - X` at `a_j` counts: fetched
//!   bytes are cached from the next slot on, and use the cache's room from the slot in which they are
//!   fetched.
//! - Constraint (5) has the sum over files, with `X`, inside the sum over running jobs: fetched bytes would
//!   count once for each job that runs, and not at all while none does. Here they count once.
//! - `r` is a rate and `X` bytes; (5) adds them, so its slot is one second. Here bytes are divided by the
//!   slot.
//! - Constraint (3) forbids evictions for all `t` in `[a_j, d_j]` and so also from `d_j` to `d_j + 1`. Here a
//!   file can be evicted at the end of the slot in which the deadline lies.
//! - The least peak alone does not limit the bytes away from the peak. A small price on all bytes, here
//!   [`PEAK_SHARE`] and [`DEADLINE_SHARE`], chooses the plan with few bytes among those of nearly the same
//!   value.

use std::collections::HashMap;

use crate::instance::Instance;
use crate::lp::{ColumnId, LinearProgram, Solution};
use crate::model::Objective;

/// The share of the least peak that the price of bytes can cost at most.
pub const PEAK_SHARE: f64 = 0.002;
/// The share of all jobs that the price of bytes can cost at most.
pub const DEADLINE_SHARE: f64 = 0.0005;

/// The price of a fetched byte, as a share of that of a byte read remotely. Of two plans that move the same
/// bytes, the better one has them in the cache when the job starts: the job then does not depend on the link.
const FETCH_PRICE: f64 = 0.98;

/// A linear program, and the meaning of its columns.
#[derive(Clone, Debug)]
pub struct Formulation {
    /// The program. Bytes are counted in those that the link gives in a slot.
    pub program: LinearProgram,
    objective: Objective,
    unit_bytes: f64,
    /// Files, single ones of a job joined.
    groups: Vec<Group>,
    /// The fraction of each job, for the most deadlines.
    fractions: Vec<ColumnId>,
    /// The peak, for the least peak.
    peak: Option<ColumnId>,
    /// The remote bytes of each job.
    remote: Vec<ColumnId>,
    /// Fetches: due slot, slot, column.
    fetches: Vec<(usize, usize, ColumnId)>,
    /// The price of a unit of bytes.
    byte_price: f64,
    /// The greatest number of bytes, in units a slot, that a solution of peak 1 moves.
    mean_link: f64,
}

/// Files that the program treats as one.
#[derive(Clone, Debug)]
struct Group {
    /// Their positions in [`Instance::files`]. More than one only if one job reads each of them.
    files: Vec<usize>,
    bytes: f64,
    arrivals: Vec<GroupArrival>,
    /// Held bytes that are kept for the first arrival.
    held_kept: Option<ColumnId>,
}

#[derive(Clone, Debug, Default)]
struct GroupArrival {
    /// The columns whose sum is cached.
    level: Vec<ColumnId>,
    /// Bytes that are cached in any case.
    constant: f64,
    /// Fetched in the gap before it.
    fetched: Option<ColumnId>,
    /// The first slot of that gap.
    release: usize,
    /// Kept for the next arrival, if some may be evicted in between.
    kept: Option<ColumnId>,
}

/// The bytes that a job reads remotely, as columns and a constant.
#[derive(Clone, Debug, Default)]
struct Remote {
    terms: Vec<(ColumnId, f64)>,
    constant: f64,
}

/// A solution in the terms of the instance. All are bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Fractional {
    /// For each file and arrival.
    pub files: Vec<Vec<ArrivalValues>>,
    /// For each job, the fraction that the program does.
    pub fractions: Vec<f64>,
    /// For each job, its remote bytes.
    pub remote_bytes: Vec<f64>,
    /// For each due slot and slot: bytes fetched. Sorted.
    pub fetches: Vec<(usize, usize, f64)>,
    /// The optimum, for the least peak: the peak share of the link; for the most deadlines: jobs.
    pub value: f64,
    /// A bound that no plan passes: at least this peak, at most this many jobs.
    pub bound: f64,
}

/// Bytes of a file that are in the cache when jobs arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ArrivalValues {
    /// Cached at the arrival.
    pub cached_bytes: f64,
    /// Of which fetched in the gap before.
    pub fetched_bytes: f64,
    /// The first slot in which they could be fetched.
    pub release: usize,
}

impl Formulation {
    /// Returns the program of an instance. `objective` is one of the two definite ones.
    pub fn new(instance: &Instance, objective: Objective) -> Self {
        let slot_s = instance.slots.seconds();
        let greatest = instance.slots.link.iter().copied().fold(0.0, f64::max);
        // A link that is closed all the time still needs a unit.
        let greatest = if greatest > 0.0 { greatest } else { 1.0 };
        let unit_bytes = greatest * slot_s;
        let slots = instance.slots.len();
        let total: f64 = instance.jobs.iter().map(|job| job.bytes).sum();
        let byte_price = match objective {
            Objective::MostDeadlines => {
                DEADLINE_SHARE * instance.jobs.len() as f64 / (total / unit_bytes).max(f64::MIN_POSITIVE)
            }
            Objective::LeastPeak => PEAK_SHARE / slots.max(1) as f64,
        };
        let mean_link = instance.slots.link.iter().sum::<f64>() / greatest / slots.max(1) as f64;
        let mut formulation = Self {
            program: LinearProgram::default(),
            objective,
            unit_bytes,
            groups: groups(instance),
            fractions: Vec::new(),
            peak: None,
            remote: Vec::new(),
            fetches: Vec::new(),
            byte_price,
            mean_link,
        };
        formulation.add_columns(instance);
        formulation.add_reads(instance);
        formulation.add_fetches(instance);
        formulation
    }

    fn unit(&self, bytes: f64) -> f64 {
        bytes / self.unit_bytes
    }

    /// Makes it the mixed integer program: each job whole or not at all. Exact, and for small instances only.
    pub fn make_whole(&mut self) {
        self.fractions
            .iter()
            .for_each(|&fraction| self.program.make_whole(fraction));
    }

    /// Lets a job be done to this fraction.
    pub fn fix(&mut self, job: usize, fraction: f64) {
        self.program
            .bound_column(self.fractions[job], fraction..=fraction);
    }

    /// Undoes [`Formulation::fix`].
    pub fn free(&mut self, job: usize) {
        self.program.bound_column(self.fractions[job], 0.0..=1.0);
    }

    /// Adds the fractions of jobs or the peak, and the kept and fetched bytes of each group.
    fn add_columns(&mut self, instance: &Instance) {
        if self.objective == Objective::MostDeadlines {
            let fraction = |_| self.program.column(-1.0, 0.0..=1.0);
            self.fractions = (0..instance.jobs.len()).map(fraction).collect();
        } else {
            let most = most_load(instance, self.unit_bytes);
            self.peak = Some(self.program.column(1.0, 0.0..=most));
        }
        let mut groups = std::mem::take(&mut self.groups);
        for group in &mut groups {
            self.add_group(instance, group);
        }
        self.groups = groups;
    }

    fn add_group(&mut self, instance: &Instance, group: &mut Group) {
        let file = &instance.files[group.files[0]];
        let size = self.unit(group.bytes);
        // Bytes kept from before, as columns and a constant.
        let (mut level, mut constant): (Vec<ColumnId>, f64) = (Vec::new(), 0.0);
        let Some(first) = file.arrivals.first() else {
            return;
        };
        if file.held_bytes > 0.0 {
            let held = self.unit(file.held_bytes);
            if file.held_until <= first.slot {
                let kept = self.program.column(0.0, 0.0..=held);
                group.held_kept = Some(kept);
                level.push(kept);
            } else {
                constant = held;
            }
        }
        let mut release = file.available;
        for (number, arrival) in file.arrivals.iter().enumerate() {
            let mut here = GroupArrival {
                constant,
                release,
                ..GroupArrival::default()
            };
            if release < arrival.slot {
                let fetched = self.program.column(0.0, 0.0..=size);
                here.fetched = Some(fetched);
                level.push(fetched);
            }
            if level.len() > 2 {
                let sum = self.program.column(0.0, 0.0..=size);
                let terms = level.drain(..).map(|column| (column, -1.0));
                self.program.row(0.0..=0.0, terms.chain([(sum, 1.0)]));
                level.push(sum);
            } else if level.len() == 2 || constant > 0.0 {
                let terms = level.iter().map(|&column| (column, 1.0));
                self.program.row(f64::NEG_INFINITY..=size - constant, terms);
            }
            here.level.clone_from(&level);
            if let Some(next) = file.arrivals.get(number + 1)
                && arrival.until <= next.slot
                && !(level.is_empty() && constant == 0.0)
            {
                let kept = self.program.column(0.0, 0.0..=size);
                let terms = level.iter().map(|&column| (column, 1.0));
                self.program
                    .row(-constant..=f64::INFINITY, terms.chain([(kept, -1.0)]));
                here.kept = Some(kept);
                level = vec![kept];
                constant = 0.0;
            }
            release = arrival.slot.max(file.available);
            group.arrivals.push(here);
        }
    }

    /// Adds (1): every job reads everything (or its fraction), cached or remotely; and the rate of its remote
    /// reads.
    ///
    /// Where it reads everything, the remote bytes are those that are not cached, and need no column. Nor do
    /// they where no other job reads the file: then no more is fetched than the job reads.
    fn add_reads(&mut self, instance: &Instance) {
        let mut remote: Vec<Remote> = vec![Remote::default(); instance.jobs.len()];
        for group in &self.groups {
            let file = &instance.files[group.files[0]];
            let size = group.bytes / self.unit_bytes;
            let is_single = group.arrivals.len() == 1 && file.held_bytes == 0.0;
            for (here, arrival) in group.arrivals.iter().zip(&file.arrivals) {
                for &job in &arrival.jobs {
                    let cached = here.level.iter().map(|&level| (level, -1.0));
                    let Some(&fraction) = self.fractions.get(job) else {
                        remote[job].constant += size - here.constant;
                        remote[job].terms.extend(cached);
                        continue;
                    };
                    if is_single && arrival.jobs.len() == 1 {
                        let terms: Vec<_> = cached.chain([(fraction, size)]).collect();
                        if terms.len() > 1 {
                            self.program.row(0.0..=f64::INFINITY, terms.iter().copied());
                        }
                        remote[job].terms.extend(terms);
                        continue;
                    }
                    let column = self.program.column(0.0, 0.0..=size);
                    remote[job].terms.push((column, 1.0));
                    let read = here.level.iter().map(|&level| (level, 1.0));
                    let terms = read.chain([(column, 1.0), (fraction, -size)]);
                    self.program.row(-here.constant..=f64::INFINITY, terms);
                }
            }
        }
        let mut link: Vec<Vec<(ColumnId, f64)>> = vec![Vec::new(); instance.slots.len()];
        for (job, remote) in instance.jobs.iter().zip(&remote) {
            let bytes = self.unit(job.bytes);
            let column = self.program.column(self.byte_price, 0.0..=bytes);
            let terms = remote.terms.iter().map(|&(column, factor)| (column, -factor));
            self.program
                .row(remote.constant..=remote.constant, terms.chain([(column, 1.0)]));
            self.remote.push(column);
            let factor = instance.slots.seconds() / job.seconds;
            (job.from..job.until).for_each(|slot| link[slot].push((column, factor)));
        }
        self.add_link(instance, link);
    }

    /// Adds (5): the link, with the columns of all fetches; each counts once.
    fn add_link(&mut self, instance: &Instance, mut link: Vec<Vec<(ColumnId, f64)>>) {
        let mut demands: Vec<Vec<(usize, ColumnId)>> = vec![Vec::new(); instance.slots.len() + 1];
        for group in &self.groups {
            let file = &instance.files[group.files[0]];
            for (here, arrival) in group.arrivals.iter().zip(&file.arrivals) {
                if let Some(fetched) = here.fetched {
                    demands[arrival.slot].push((here.release, fetched));
                }
            }
        }
        // Bytes due at a slot, from the latest slot of the gap to the earliest: bytes that have been fetched,
        // and not been claimed by files that could not be fetched sooner, are carried on.
        for (due, demands) in demands.iter_mut().enumerate() {
            let Some(first) = demands.iter().map(|demand| demand.0).min() else {
                continue;
            };
            demands.sort_unstable_by_key(|demand| std::cmp::Reverse(demand.0));
            let all: f64 = demands
                .iter()
                .map(|demand| self.program.columns()[demand.1.0].bounds.end())
                .sum();
            let mut demands = demands.iter().peekable();
            let mut carried: Option<ColumnId> = None;
            for slot in (first..due).rev() {
                let fetch = self.program.column(FETCH_PRICE * self.byte_price, 0.0..=all);
                self.fetches.push((due, slot, fetch));
                link[slot].push((fetch, 1.0));
                let mut terms = vec![(fetch, 1.0)];
                terms.extend(carried.map(|carried| (carried, 1.0)));
                while let Some((_, fetched)) = demands.next_if(|demand| demand.0 == slot) {
                    terms.push((*fetched, -1.0));
                }
                if slot > first {
                    let carry = self.program.column(0.0, 0.0..=all);
                    terms.push((carry, -1.0));
                    carried = Some(carry);
                }
                self.program.row(0.0..=0.0, terms);
            }
        }
        let greatest = self.unit_bytes / instance.slots.seconds();
        for (slot, mut terms) in link.into_iter().enumerate() {
            let (rate, promised) = (
                instance.slots.link[slot] / greatest,
                instance.slots.promised[slot] / greatest,
            );
            match self.peak {
                Some(peak) => {
                    terms.push((peak, -rate));
                    self.program.row(f64::NEG_INFINITY..=-promised, terms);
                }
                None => self
                    .program
                    .row(f64::NEG_INFINITY..=(rate - promised).max(0.0), terms),
            }
        }
    }

    /// Adds (4): the cache's room. Its occupancy in a slot is that of the slot before, plus the fetched bytes
    /// and minus the evicted ones.
    fn add_fetches(&mut self, instance: &Instance) {
        let slots = instance.slots.len();
        let mut change: Vec<Vec<(ColumnId, f64)>> = vec![Vec::new(); slots];
        let mut constant = vec![0.0; slots + 1];
        for &(_, slot, fetch) in &self.fetches {
            change[slot].push((fetch, -1.0));
        }
        for group in &self.groups {
            let file = &instance.files[group.files[0]];
            let held = self.unit(file.held_bytes);
            constant[0] += held;
            match (file.arrivals.first(), group.held_kept) {
                (None, _) => constant[file.held_until] -= held,
                (Some(_), Some(kept)) => {
                    if let Some(slot) = change.get_mut(file.held_until) {
                        slot.push((kept, -1.0));
                    }
                    constant[file.held_until] -= held;
                }
                (Some(_), None) => {}
            }
            for (number, (here, arrival)) in group.arrivals.iter().zip(&file.arrivals).enumerate() {
                let is_last = number + 1 == group.arrivals.len();
                if (is_last || here.kept.is_some()) && arrival.until < slots {
                    change[arrival.until].extend(here.level.iter().map(|&column| (column, 1.0)));
                    constant[arrival.until] -= here.constant;
                    change[arrival.until].extend(here.kept.map(|kept| (kept, -1.0)));
                }
            }
        }
        let room = self.unit(instance.capacity_bytes);
        let mut before: Option<ColumnId> = None;
        for (slot, mut terms) in change.into_iter().enumerate() {
            let occupied = self.program.column(0.0, 0.0..=room);
            terms.push((occupied, 1.0));
            terms.extend(before.map(|before| (before, -1.0)));
            self.program.row(constant[slot]..=constant[slot], terms);
            before = Some(occupied);
        }
    }

    /// Returns a solution of the program in the terms of the instance.
    pub fn read(&self, instance: &Instance, solution: &Solution) -> Fractional {
        let value = |column: ColumnId| solution.values[column.0].max(0.0);
        let bytes = |column: ColumnId| value(column) * self.unit_bytes;
        let mut files: Vec<Vec<ArrivalValues>> = vec![Vec::new(); instance.files.len()];
        for group in &self.groups {
            let values = group.arrivals.iter().map(|here| ArrivalValues {
                cached_bytes: (here.level.iter().map(|&column| bytes(column)).sum::<f64>()
                    + here.constant * self.unit_bytes)
                    .min(group.bytes),
                fetched_bytes: here.fetched.map_or(0.0, bytes),
                release: here.release,
            });
            let values: Vec<_> = values.collect();
            for &file in &group.files {
                let share = instance.files[file].bytes / group.bytes;
                let part = |value: &ArrivalValues| ArrivalValues {
                    cached_bytes: value.cached_bytes * share,
                    fetched_bytes: value.fetched_bytes * share,
                    release: value.release,
                };
                files[file] = values.iter().map(part).collect();
            }
        }
        let mut fetches: Vec<_> = self
            .fetches
            .iter()
            .map(|&(due, slot, column)| (due, slot, bytes(column)))
            .collect();
        fetches.retain(|fetch| fetch.2 > 0.0);
        fetches.sort_unstable_by_key(|fetch| (fetch.0, fetch.1));
        let fractions = match self.objective {
            Objective::MostDeadlines => self
                .fractions
                .iter()
                .map(|&column| value(column).min(1.0))
                .collect(),
            Objective::LeastPeak => vec![1.0; instance.jobs.len()],
        };
        let (value, bound) = match self.peak {
            // Let u be the least peak and b the bytes of its solution, in units a slot. The optimum of the
            // program is at most u + PEAK_SHARE · b, and b is at most u times the mean link.
            Some(peak) => (value(peak), solution.bound / (1.0 + PEAK_SHARE * self.mean_link)),
            // The most deadlines cost at most DEADLINE_SHARE of all jobs for their bytes.
            None => (
                fractions.iter().sum(),
                -solution.bound + DEADLINE_SHARE * instance.jobs.len() as f64,
            ),
        };
        let remote_bytes = self.remote.iter().map(|&column| bytes(column)).collect();
        Fractional {
            files,
            fractions,
            remote_bytes,
            fetches,
            value,
            bound,
        }
    }
}

/// Returns a peak that is enough for every job to read everything remotely, and everything that is promised:
/// no solution with the least peak needs more.
fn most_load(instance: &Instance, unit_bytes: f64) -> f64 {
    let slots = &instance.slots;
    let rates: f64 = instance.jobs.iter().map(|job| job.bytes / job.seconds).sum();
    let promised = slots.promised.iter().copied().fold(0.0, f64::max);
    let least = slots
        .link
        .iter()
        .copied()
        .filter(|rate| *rate > 0.0)
        .fold(f64::INFINITY, f64::min);
    1.0 + (rates + promised + unit_bytes / slots.seconds()) / least.min(unit_bytes / slots.seconds())
}

/// Joins the files that only one job reads, if they can be fetched from the same slot on and none is held.
fn groups(instance: &Instance) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut singles: HashMap<(usize, usize), usize> = HashMap::new();
    for (number, file) in instance.files.iter().enumerate() {
        let single = match file.arrivals.as_slice() {
            [arrival] if arrival.jobs.len() == 1 && file.held_bytes == 0.0 => {
                Some((arrival.jobs[0], file.available))
            }
            _ => None,
        };
        if let Some(single) = single {
            let group = *singles.entry(single).or_insert(groups.len());
            if let Some(group) = groups.get_mut(group) {
                group.files.push(number);
                group.bytes += file.bytes;
                continue;
            }
        }
        groups.push(Group {
            files: vec![number],
            bytes: file.bytes,
            arrivals: Vec::new(),
            held_kept: None,
        });
    }
    groups
}
