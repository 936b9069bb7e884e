//! Derives a new plan quickly from the previous one: unchanged parts stay, the rest is inserted.
//!
//! No linear program is solved. The previous plan's fetches and remote reads are placed in the slots of the
//! new request. Where link or cache no longer suffice, jobs are removed. Then every job that is new, removed
//! or moved in time is inserted into the remaining capacity.

use std::collections::HashMap;

use crate::instance::Instance;
use crate::model::{Objective, Request, RequestError};
use crate::plan::{Cached, FilePlan, Outcome, Plan, Usage};
use crate::planner::decision::Decision;
use crate::planner::write::write;
use crate::schedule::Schedule;
use crate::schedule::augment::augment;

/// Plans a request based on a previous plan. The request describes the state from now on: the contents of the
/// cache, the future jobs, the link.
///
/// # Errors
/// Fails if the request is invalid.
pub fn replan(request: &Request, former: &Plan) -> Result<Plan, RequestError> {
    request.check()?;
    let instance = Instance::new(request);
    let decision = decide(request, &instance, former);
    Ok(write(request, &instance, &decision))
}

/// Returns the decision behind [`replan`].
pub fn decide(request: &Request, instance: &Instance, former: &Plan) -> Decision {
    let mut schedule = Schedule::new(instance);
    lay_out(request, instance, former, &mut schedule);
    let planned: HashMap<&str, bool> = former
        .jobs
        .iter()
        .map(|job| (job.job.as_str(), job.outcome == Outcome::Planned))
        .collect();
    let was_planned =
        |job: usize| planned.get(request.jobs[instance.jobs[job].number].name.as_str()) == Some(&true);
    // Placed jobs first, then the others, each by deadline.
    let mut order: Vec<usize> = (0..instance.jobs.len()).collect();
    order.sort_by(|&a, &b| {
        let deadline = |job: usize| request.jobs[instance.jobs[job].number].deadline_s;
        was_planned(b)
            .cmp(&was_planned(a))
            .then(deadline(a).total_cmp(&deadline(b)))
            .then(a.cmp(&b))
    });
    order.retain(|&job| !schedule.admit(instance, job));
    order.retain(|&job| !schedule.insert(instance, job));
    schedule.trim(instance);
    for job in order {
        schedule.insert(instance, job);
    }
    schedule.trim(instance);
    let pages = augment(instance, &mut schedule, request.options.paging);
    if !pages.is_empty() {
        schedule.admit_others(instance);
    }
    let planned_at_most = instance.jobs.len() as f64;
    Decision {
        objective: Objective::MostDeadlines,
        schedule,
        pages,
        planned_at_most,
        peak_share_at_least: None,
    }
}

/// Places the fetches and the cached intervals of the previous plan, as far as link and cache now suffice.
fn lay_out(request: &Request, instance: &Instance, former: &Plan, schedule: &mut Schedule) {
    let files: HashMap<&str, &FilePlan> = former
        .files
        .iter()
        .map(|file| (file.file.as_str(), file))
        .collect();
    let slots = &instance.slots;
    for (number, file) in instance.files.iter().enumerate() {
        let described = &request.files[file.number];
        let Some(plan) = files.get(described.name.as_str()) else {
            continue;
        };
        // Fetched bytes by slot. Those due before now have been fetched, or are missing.
        let mut fetched: Vec<(usize, f64)> = Vec::new();
        for (from_s, bytes) in rises(plan, &former.usage, described.block_bytes) {
            let end_s = from_s + former.usage.slot_s;
            let last = slots.end(end_s).min(slots.len());
            for slot in slots.slot(from_s).max(file.available)..last {
                let overlap_s = slots.start_s(slot + 1).min(end_s) - slots.start_s(slot).max(from_s);
                fetched.push((slot, bytes * overlap_s.max(0.0) / former.usage.slot_s));
            }
        }
        let mut levels = Vec::new();
        for interval in &plan.cached {
            let (first, last) = (
                slots.slot(interval.from_s),
                slots.end(interval.until_s).min(slots.len()),
            );
            if interval.until_s > slots.start_s(0) && first < last {
                levels.resize(last.max(levels.len()), 0.0);
                levels[first..last]
                    .iter_mut()
                    .for_each(|level: &mut f64| *level = level.max(interval.bytes));
            }
        }
        schedule.lay(instance, number, &levels, &fetched);
    }
}

/// Returns the slots of a plan in which a file's level rises, by their starts, and the bytes that are fetched
/// there.
///
/// The transfers of the file do not have them: their blocks are whole, so that a slot may have the part of a
/// block that belongs to the next one. If the link is full in both, that part has no place, and every job
/// that reads the file lacks it.
pub(super) fn rises(plan: &FilePlan, usage: &Usage, block_bytes: u64) -> Vec<(f64, f64)> {
    let mut before = Cached {
        from_s: usage.start_s,
        until_s: usage.start_s,
        bytes: held_bytes(plan, block_bytes),
    };
    let mut rises = Vec::new();
    for interval in &plan.cached {
        let is_next = interval.from_s < before.until_s + usage.slot_s / 2.0;
        let level = if is_next { before.bytes } else { 0.0 };
        if interval.bytes > level {
            rises.push((interval.from_s, interval.bytes - level));
        }
        before = *interval;
    }
    rises
}

/// Returns the bytes of a file that were cached before its plan, in whole blocks: those before its first
/// transfer. All that the plan keeps, if it fetches nothing before it evicts some.
fn held_bytes(plan: &FilePlan, block_bytes: u64) -> f64 {
    let first = plan.transfers.first();
    let is_evicted = |at_s: f64| plan.evictions.iter().any(|eviction| eviction.at_s <= at_s);
    match first.filter(|transfer| !is_evicted(transfer.start_s)) {
        Some(transfer) => transfer.first_block as f64 * block_bytes as f64,
        None => f64::INFINITY,
    }
}
