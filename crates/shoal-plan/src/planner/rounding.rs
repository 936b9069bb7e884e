//! Whole jobs from a fractional solution (4.2): randomized as printed, and by a sorted prefix.

use shoal_base::seeded::Chance;

use crate::instance::Instance;
use crate::lp::formulation::Fractional;
use crate::model::Rounding;
use crate::schedule::Schedule;

/// A job with at least this fraction counts as whole: the rest is the solver's rounding.
pub(crate) const WHOLE: f64 = 1.0 - 1e-5;

/// Returns the schedule of a fractional solution with whole jobs.
pub fn round(instance: &Instance, fractional: &Fractional, rounding: Rounding, seed: u64) -> Schedule {
    let mut schedule = Schedule::from_fractional(instance, fractional);
    match rounding {
        Rounding::Prefix => {
            for job in order(instance, fractional, &schedule) {
                schedule.admit(instance, job);
            }
        }
        Rounding::Randomized => randomized(instance, fractional, &mut schedule, seed),
    }
    schedule.trim(instance);
    schedule
}

/// Plans further jobs in the rest of link and cache, in the order of the sorted prefix.
pub fn improve(instance: &Instance, fractional: &Fractional, schedule: &mut Schedule) {
    for job in order(instance, fractional, schedule) {
        if schedule.jobs[job].is_none() {
            schedule.insert(instance, job);
        }
    }
    schedule.trim(instance);
}

/// Tries to replace one planned job by two others, as long as that succeeds. A step for small instances: each
/// try looks at all jobs that are not planned.
pub fn exchange(instance: &Instance, schedule: &mut Schedule) {
    for _ in 0..EXCHANGES {
        let planned: Vec<usize> = (0..instance.jobs.len())
            .filter(|&job| schedule.jobs[job].is_some())
            .collect();
        let mut out = schedule.left_out();
        out.sort_by(|&a, &b| {
            instance.jobs[a]
                .bytes
                .total_cmp(&instance.jobs[b].bytes)
                .then(a.cmp(&b))
        });
        let better = planned.into_iter().find_map(|job| {
            let mut tried = schedule.clone();
            tried.dismiss(instance, job);
            instance.jobs[job]
                .reads
                .iter()
                .for_each(|&(file, _)| tried.trim_file(instance, file));
            let inserted = out.iter().filter(|&&other| tried.insert(instance, other)).count();
            (inserted > 1).then_some(tried)
        });
        let Some(better) = better else { break };
        *schedule = better;
        schedule.trim(instance);
    }
}

/// Maximum number of exchanges.
const EXCHANGES: usize = 32;

/// Returns the order of the prefix: jobs that the solution does whole, then by the fraction that it does for
/// each byte that the link still has to bring. The order is deterministic.
pub(crate) fn order(instance: &Instance, fractional: &Fractional, schedule: &Schedule) -> Vec<usize> {
    let worth = |job: usize| {
        let fraction = fractional.fractions[job];
        if fraction >= WHOLE {
            return f64::INFINITY;
        }
        let missing: f64 = schedule.missing(instance, job).iter().sum();
        (fraction + (1.0 - WHOLE)) / missing.max(1.0)
    };
    let mut jobs: Vec<(usize, f64)> = (0..instance.jobs.len()).map(|job| (job, worth(job))).collect();
    jobs.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    jobs.into_iter().map(|(job, _)| job).collect()
}

/// As printed: the cache's part is that of the fractional solution; each job gets the rectangle that reads
/// the rest with the probability `p'`, the fraction of that rest which the solution reads. The printed
/// procedure exceeds the link with a small probability; then jobs are removed, the heaviest first.
fn randomized(instance: &Instance, fractional: &Fractional, schedule: &mut Schedule, seed: u64) {
    let mut chance = Chance::stream(seed, 0);
    for job in 0..instance.jobs.len() {
        let remote = schedule.missing(instance, job);
        let missing: f64 = remote.iter().sum();
        let probability = if missing > 0.0 {
            fractional.remote_bytes[job] / missing
        } else {
            1.0
        };
        if chance.unit() < probability || fractional.fractions[job] >= WHOLE {
            schedule.force(instance, job, remote);
        }
    }
    schedule.shed(instance);
}
