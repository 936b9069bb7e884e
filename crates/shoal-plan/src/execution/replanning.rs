//! The world as a planner sees it in the middle of a run.

use crate::model::{Cache, Held, Link, Promise, Request, Window};

use super::Replanning;

/// A job that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunningJob<'a> {
    pub(super) deadline_s: f64,
    pub(super) remote_left: f64,
    /// The files that it still reads from the cache.
    pub(super) cached_files: &'a [usize],
}

/// What is known at a moment.
pub(super) struct Known<'a> {
    pub(super) now_s: f64,
    /// What happens, of which only what has happened is looked at.
    pub(super) actual: &'a Request,
    pub(super) has_arrived: &'a [bool],
    pub(super) running: &'a [RunningJob<'a>],
    /// Cached bytes of each file.
    pub(super) contents: &'a [f64],
    pub(super) link_bytes_per_second: f64,
}

/// The request for a plan from now on. Jobs that should have come and have not are expected in the next slot. Jobs and
/// files have the same positions in the forecast and in what happens.
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
    fit(&mut held, forecast.cache.capacity_bytes);
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
            held,
            ..forecast.cache.clone()
        },
        files,
        jobs,
        options: forecast.options,
    }
}

/// Leaves out what is beyond the capacity: bytes that were evicted by plan and are there for as long as nothing else is.
fn fit(held: &mut Vec<Held>, capacity_bytes: u64) {
    let mut left = capacity_bytes;
    held.retain(|one| {
        let fits = one.bytes <= left;
        left -= if fits { one.bytes } else { 0 };
        fits
    });
}
