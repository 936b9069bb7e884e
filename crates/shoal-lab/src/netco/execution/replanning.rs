//! The world as a planner sees it in the middle of a run.

use shoal_plan::model::{Cache, File, Held, Job, Link, Promise, Request, Window};

use super::Replanning;

/// A job that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningJob<'a> {
    pub(super) deadline_s: f64,
    pub(super) remote_left: f64,
    /// The files that it still reads from the cache.
    pub(super) cached_files: &'a [usize],
}

/// The state of a run at a moment.
pub(super) struct Known<'a> {
    pub(super) now_s: f64,
    /// The jobs and files of the whole run. A planner sees only those of the past.
    pub(super) actual: &'a Request,
    pub(super) has_arrived: &'a [bool],
    pub(super) running: &'a [RunningJob<'a>],
    /// Cached bytes of each file.
    pub(super) contents: &'a [f64],
    pub(super) link_bytes_per_second: f64,
    /// The room for jobs' reads that the former plan keeps.
    pub(super) page_bytes: f64,
}

/// Returns true if something has happened since that was not forecast: a job came earlier, or has not come; a
/// file has another size; the link another rate.
pub(super) fn deviates(replanning: &Replanning<'_>, known: &Known<'_>, since_s: f64) -> bool {
    let (forecast, slot_s) = (replanning.forecast, replanning.forecast.window.slot_s);
    let jobs = forecast
        .jobs
        .iter()
        .zip(&known.actual.jobs)
        .zip(known.has_arrived);
    let is_off = |((expected, actual), has_arrived): ((&Job, &Job), &bool)| {
        if *has_arrived {
            actual.submit_s > since_s && (actual.submit_s - expected.submit_s).abs() > slot_s
        } else {
            expected.submit_s < known.now_s
        }
    };
    let mut files = forecast.files.iter().zip(&known.actual.files);
    let is_new = |file: &File| {
        file.available_s
            .is_some_and(|at_s| since_s < at_s && at_s <= known.now_s)
    };
    jobs.into_iter().any(is_off)
        || files.any(|(expected, actual)| {
            is_new(actual) && actual.bytes.abs_diff(expected.bytes) * 100 > expected.bytes
        })
        || (known.link_bytes_per_second - forecast.link.bytes_per_second).abs()
            > 0.01 * forecast.link.bytes_per_second
}

/// The request for a plan from now on. Jobs that should have come and have not are expected in the next slot.
/// Jobs and files have the same positions in the forecast and in the actual request.
pub(super) fn request(replanning: &Replanning<'_>, known: &Known<'_>) -> Request {
    let (forecast, now_s) = (replanning.forecast, known.now_s);
    let next_s = now_s + forecast.window.slot_s;
    let files: Vec<_> = forecast
        .files
        .iter()
        .zip(&known.actual.files)
        .map(|(expected, actual)| {
            let is_there = actual.available_s.is_none_or(|available_s| available_s <= now_s);
            let mut file = expected.clone();
            if is_there {
                file.bytes = actual.bytes;
            }
            file
        })
        .collect();
    let jobs = forecast
        .jobs
        .iter()
        .zip(known.has_arrived)
        .filter(|(_, has_arrived)| !**has_arrived)
        .map(|(job, _)| {
            let late_s = (next_s - job.submit_s).max(0.0);
            let mut job = job.clone();
            job.submit_s += late_s;
            job.deadline_s += late_s;
            job
        });
    let jobs: Vec<_> = jobs.collect();
    let promised = known
        .running
        .iter()
        .filter(|job| job.remote_left > 0.0 && job.deadline_s > now_s + 1.0);
    let promised = promised.map(|job| Promise {
        start_s: now_s,
        end_s: job.deadline_s,
        bytes_per_second: job.remote_left / (job.deadline_s - now_s),
    });
    let held = known
        .contents
        .iter()
        .enumerate()
        .filter(|(_, bytes)| **bytes >= 1.0)
        .map(|(file, &bytes)| {
            let readers = known
                .running
                .iter()
                .filter(|job| job.cached_files.contains(&file));
            let pinned = readers
                .map(|job| job.deadline_s)
                .fold(f64::NEG_INFINITY, f64::max);
            #[expect(clippy::cast_sign_loss, reason = "cached bytes are positive")]
            let bytes = (bytes as u64).min(files[file].bytes);
            Held {
                file: files[file].name.clone(),
                bytes,
                pinned_until_s: (pinned > now_s).then_some(pinned),
            }
        });
    let mut held: Vec<Held> = held.collect();
    #[expect(clippy::cast_sign_loss, reason = "pages have bytes")]
    let capacity_bytes = forecast
        .cache
        .capacity_bytes
        .saturating_sub(known.page_bytes as u64);
    fit(&mut held, capacity_bytes);
    let end_s = jobs
        .iter()
        .map(|job| job.submit_s + 1.0)
        .fold(forecast.window.end_s, f64::max)
        .max(next_s);
    Request {
        version: forecast.version,
        window: Window {
            start_s: now_s,
            end_s,
            slot_s: forecast.window.slot_s,
        },
        link: Link {
            bytes_per_second: known.link_bytes_per_second,
            changes: Vec::new(),
            promised: promised.collect(),
        },
        cache: Cache {
            capacity_bytes,
            bytes_per_second: forecast.cache.bytes_per_second,
            held,
        },
        files,
        jobs,
        options: forecast.options,
    }
}

/// Leaves out files beyond the capacity: their bytes were evicted by plan, and stay until their room is
/// needed.
fn fit(held: &mut Vec<Held>, capacity_bytes: u64) {
    let mut left = capacity_bytes;
    held.retain(|one| {
        let fits = one.bytes <= left;
        left -= if fits { one.bytes } else { 0 };
        fits
    });
}
