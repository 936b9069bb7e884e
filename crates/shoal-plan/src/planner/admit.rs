//! Admits a job that arrives while a plan is in force.
//!
//! The paper plans such jobs "as they are submitted" (6.2, online): once each, in what the plan leaves of
//! link and cache. The jobs in force keep their fetches, their rates and their room, so none of them can miss
//! its deadline for a later job. A job that finds too little is refused, and is not tried again.

use std::collections::{HashMap, HashSet};

use super::decision::Decision;
use super::replan::rises;
use super::write;
use crate::instance::{Arrival, Instance};
use crate::model::{File, Job, Objective, Request, RequestError};
use crate::plan::{FilePlan, JobPlan, Outcome, Plan};
use crate::schedule::Schedule;
use crate::schedule::augment::Page;

/// The link and the cache that a plan takes in each slot.
struct Taken {
    /// Bytes a second.
    fetched: Vec<f64>,
    remote: Vec<f64>,
    /// Bytes.
    cached: Vec<f64>,
    paged: Vec<f64>,
}

/// Returns the plan `former` with the jobs of `request`, as far as they find room in one pass, in their
/// order. The request has the slots of the plan from now on, all of its files, and what the cache holds of
/// them. `in_force` are the jobs of the plan that are not over.
///
/// # Errors
/// Fails if the request is invalid.
pub fn admit(request: &Request, former: &Plan, in_force: &[Job]) -> Result<Plan, RequestError> {
    request.check()?;
    let mut instance = Instance::new(request);
    let mut schedule = Schedule::new(&instance);
    let taken = lay_out(request, &instance, former, in_force, &mut schedule);
    let laid = schedule.clone();
    let mut changed = vec![false; instance.files.len()];
    let mut pages = Vec::new();
    for job in 0..instance.jobs.len() {
        let before = schedule.clone();
        let of_job = pages_of(request, &instance, former, in_force, &mut schedule, job);
        // The slot that has begun is too short for a fetch.
        if schedule.insert_from(&instance, job, 1) {
            pages.extend(of_job);
            for file in parted_by(request, &instance, former, job) {
                changed[file] = true;
            }
        } else {
            schedule = before;
        }
    }
    for page in &pages {
        changed[page.file] = true;
    }
    for (number, file) in instance.files.iter_mut().enumerate() {
        changed[number] |= schedule.files[number] != laid.files[number];
        let name = &request.files[file.number].name;
        let readers = in_force
            .iter()
            .filter(|job| changed[number] && job.inputs.contains(name));
        file.arrivals.extend(readers.map(|job| Arrival {
            slot: instance.slots.slot(job.submit_s),
            until: instance.slots.until(job),
            jobs: Vec::new(),
        }));
    }
    let decision = Decision {
        objective: Objective::MostDeadlines,
        schedule,
        pages,
        planned_at_most: 0.0,
        peak_share_at_least: None,
    };
    let changed = changed.into_iter().zip(&instance.files);
    let changed = changed.filter(|(is_changed, _)| *is_changed);
    let changed = changed.map(|(_, file)| request.files[file.number].name.as_str());
    let (before, after) = ((&taken, &laid), (&decision, &changed.collect()));
    Ok(merge(request, &instance, former, in_force, before, after))
}

/// Returns the files of a job with a transfer that goes on after the job has begun: the job counts on the
/// blocks that come before, so these need a transfer of their own.
fn parted_by(request: &Request, instance: &Instance, former: &Plan, job: usize) -> Vec<usize> {
    let reader = &instance.jobs[job];
    let begins_s = instance.slots.start_s(reader.from);
    let is_parted = |file: &usize| {
        let name = &request.files[instance.files[*file].number].name;
        let plan = former.files.iter().find(|plan| plan.file == *name);
        let mut transfers = plan.into_iter().flat_map(|plan| &plan.transfers);
        transfers.any(|transfer| transfer.start_s < begins_s && begins_s < transfer.end_s)
    };
    reader.reads.iter().map(|read| read.0).filter(is_parted).collect()
}

/// Keeps for a job what a job in force will have read from the lake of its files by then (4.3), as far as the
/// cache has room. Returns the pages.
fn pages_of(
    request: &Request,
    instance: &Instance,
    former: &Plan,
    in_force: &[Job],
    schedule: &mut Schedule,
    job: usize,
) -> Vec<Page> {
    let (slots, reader) = (&instance.slots, &instance.jobs[job]);
    let mut pages = Vec::new();
    for (read, &(file, _)) in reader.reads.iter().enumerate() {
        let of_file = &instance.files[file];
        let name = &request.files[of_file.number].name;
        let earlier = in_force.iter().filter_map(|other| {
            // What a job has read by now may have left.
            let (from, readable) = (slots.slot(other.submit_s), slots.until(other));
            let is_before = other.submit_s > slots.start_s(1) && readable <= reader.from;
            let planned = former
                .jobs
                .iter()
                .find(|plan| is_before && plan.job == other.name)?;
            let read = planned.reads.iter().find(|read| read.file == *name)?;
            let bytes = read.remote_bytes_per_second * (other.deadline_s - other.submit_s);
            Some((from, readable, bytes))
        });
        let Some((from, readable, bytes)) = earlier.max_by(|one, other| one.2.total_cmp(&other.2)) else {
            continue;
        };
        let bytes = bytes.min(schedule.missing(instance, job)[read]);
        let kept = from..reader.until;
        let room = kept
            .clone()
            .map(|slot| schedule.cache_left[slot])
            .fold(f64::INFINITY, f64::min);
        if bytes <= of_file.rounding() || bytes > room {
            continue;
        }
        schedule.cache_left[kept]
            .iter_mut()
            .for_each(|left| *left -= bytes);
        schedule.hits.insert((job, read), bytes);
        pages.push(Page {
            file,
            from,
            readable,
            until: reader.until,
            bytes,
        });
    }
    pages
}

/// Takes from link and cache what the plan in force needs. Files that a job of the request reads, too, are
/// in the schedule as they are planned.
fn lay_out(
    request: &Request,
    instance: &Instance,
    former: &Plan,
    in_force: &[Job],
    schedule: &mut Schedule,
) -> Taken {
    let slots = &instance.slots;
    let none = vec![0.0; slots.len()];
    let mut taken = Taken {
        fetched: none.clone(),
        remote: none.clone(),
        cached: none.clone(),
        paged: none,
    };
    let by_name: HashMap<&str, &File> = request
        .files
        .iter()
        .map(|file| (file.name.as_str(), file))
        .collect();
    let numbers = instance.files.iter().enumerate();
    let numbers: HashMap<&str, usize> = numbers
        .map(|(number, file)| (request.files[file.number].name.as_str(), number))
        .collect();
    for plan in &former.files {
        let Some(file) = by_name.get(plan.file.as_str()) else {
            continue;
        };
        let number = numbers.get(plan.file.as_str()).copied();
        let held_bytes = number.map_or(0.0, |number| instance.files[number].held_bytes);
        let levels = levels(instance, plan);
        let mut fetches: Vec<(usize, f64)> = Vec::new();
        // What was to be here by now and is not is on its way.
        let late = levels.first().map_or(0.0, |level| level - held_bytes);
        if late > 0.0 {
            fetches.push((0, late));
        }
        for (from_s, bytes) in rises(plan, &former.usage, file.block_bytes) {
            if from_s > slots.start_s(0) + slots.seconds() / 2.0 {
                fetches.push((slots.slot(from_s), bytes));
            }
        }
        fetches.retain(|fetch| fetch.0 < slots.len());
        for &(slot, bytes) in &fetches {
            taken.fetched[slot] += bytes / slots.seconds();
        }
        for (all, level) in taken.cached.iter_mut().zip(&levels) {
            *all += level;
        }
        for page in &plan.paged {
            let range = slots.slot(page.from_s)..slots.end(page.until_s).min(slots.len());
            for all in taken.paged.get_mut(range).unwrap_or_default() {
                *all += page.bytes;
            }
        }
        if let Some(number) = number {
            schedule.files[number].set(&levels, fetches);
        }
    }
    let plans: HashMap<&str, &JobPlan> = former.jobs.iter().map(|job| (job.job.as_str(), job)).collect();
    for job in in_force.iter().filter(|job| job.deadline_s > slots.start_s(0)) {
        let reads = plans.get(job.name.as_str()).map(|plan| &plan.reads);
        let rate: f64 = reads
            .into_iter()
            .flatten()
            .map(|read| read.remote_bytes_per_second)
            .sum();
        let range = slots.slot(job.submit_s)..slots.until(job).min(slots.len());
        for all in taken.remote.get_mut(range).unwrap_or_default() {
            *all += rate;
        }
    }
    for slot in 0..slots.len() {
        let [link, cache] = [&mut schedule.link_left[slot], &mut schedule.cache_left[slot]];
        *link = (*link - taken.fetched[slot] - taken.remote[slot]).max(0.0);
        *cache = (*cache - taken.cached[slot] - taken.paged[slot]).max(0.0);
    }
    taken
}

/// Returns the bytes of a file that its plan keeps in each slot, without pages.
fn levels(instance: &Instance, plan: &FilePlan) -> Vec<f64> {
    let slots = &instance.slots;
    let mut levels = vec![0.0; slots.len()];
    for interval in &plan.cached {
        let range = slots.slot(interval.from_s)..slots.end(interval.until_s).min(slots.len());
        for level in levels.get_mut(range).unwrap_or_default() {
            *level = f64::max(*level, interval.bytes);
        }
    }
    levels
}

/// Joins the plan in force and what was added to it: only the changed files are planned again.
fn merge(
    request: &Request,
    instance: &Instance,
    former: &Plan,
    in_force: &[Job],
    (taken, laid): (&Taken, &Schedule),
    (decision, changed): (&Decision, &HashSet<&str>),
) -> Plan {
    let mut added = write::write(request, instance, decision);
    added.files.retain(|file| changed.contains(file.file.as_str()));
    let (mut files, mut replaced) = (Vec::new(), Vec::new());
    for file in &former.files {
        if changed.contains(file.file.as_str()) {
            replaced.push(file);
        } else {
            files.push(file.clone());
        }
    }
    for file in replaced {
        let Some(new) = added.files.iter_mut().find(|new| new.file == file.file) else {
            continue;
        };
        new.paged.extend(file.paged.iter().copied());
        new.paged
            .sort_by(|one, other| one.from_s.total_cmp(&other.from_s));
    }
    files.append(&mut added.files);
    let mut jobs = former.jobs.clone();
    for page in &decision.pages {
        let name = &request.files[instance.files[page.file].number].name;
        let reads_it = |job: &&Job| instance.slots.slot(job.submit_s) == page.from;
        for job in in_force.iter().filter(reads_it) {
            let planned = jobs.iter_mut().filter(|planned| planned.job == job.name);
            let reads = planned.flat_map(|planned| &mut planned.reads);
            for read in reads.filter(|read| read.file == *name) {
                read.keep = read.remote_bytes_per_second > 0.0;
            }
        }
    }
    jobs.append(&mut added.jobs);

    let mut usage = added.usage;
    let seconds = instance.slots.seconds();
    for file in &laid.files {
        // They are among those that the plan in force takes.
        for &(slot, bytes) in &file.fetches {
            usage.fetched_bytes_per_second[slot] -= bytes / seconds;
        }
    }
    for slot in 0..instance.slots.len() {
        usage.fetched_bytes_per_second[slot] =
            (usage.fetched_bytes_per_second[slot] + taken.fetched[slot]).max(0.0);
        usage.remote_bytes_per_second[slot] += taken.remote[slot];
        let more = laid.cache_left[slot] - decision.schedule.cache_left[slot] - usage.paged_bytes[slot];
        usage.cached_bytes[slot] = (taken.cached[slot] + more).max(0.0);
        usage.paged_bytes[slot] += taken.paged[slot];
    }
    let mut quality = former.quality;
    quality.planned = jobs.iter().filter(|job| job.outcome == Outcome::Planned).count();
    quality.planned_at_most = quality.planned_at_most.max(quality.planned as f64);
    quality.peak_share = write::peak_share(&usage);
    quality.fetched_bytes += added.quality.fetched_bytes - fetched_bytes(laid);
    quality.remote_bytes += added.quality.remote_bytes;
    quality.paged_bytes += added.quality.paged_bytes;
    Plan {
        objective: former.objective,
        quality,
        jobs,
        files,
        usage,
        ..added
    }
}

fn fetched_bytes(schedule: &Schedule) -> f64 {
    let fetches = schedule.files.iter().flat_map(|file| &file.fetches);
    fetches.map(|fetch| fetch.1).sum()
}
