//! Drops fetches that demand paging makes unnecessary.
//!
//! The linear program does not know that a job's remote read can stay in the cache, so it fetches a file for
//! a later job although an earlier one has read it remotely by then. Such fetches are dropped here, and the
//! pages of [`crate::schedule::augment`] replace them. A fetch whose page finds no room is kept.

use std::collections::HashSet;

use crate::instance::Instance;
use crate::model::Paging;
use crate::schedule::Schedule;
use crate::schedule::augment::{Page, augment};

/// Maximum number of rounds, each without the fetches whose pages found no room in the previous one.
const ROUNDS: usize = 4;

/// Adds demand paging, with as few fetches as it needs. Returns the pages.
pub fn augment_and_reuse(instance: &Instance, schedule: &mut Schedule, paging: Paging) -> Vec<Page> {
    if paging == Paging::Off {
        return Vec::new();
    }
    let mut needed: HashSet<usize> = HashSet::new();
    for _ in 0..ROUNDS {
        let mut tried = schedule.clone();
        let given_up: Vec<usize> = (0..instance.files.len())
            .filter(|file| !needed.contains(file) && tried.give_up(instance, *file))
            .collect();
        if given_up.is_empty() {
            break;
        }
        let pages = augment(instance, &mut tried, paging);
        let reads_more = |&file: &usize| {
            let arrivals = &instance.files[file].arrivals;
            arrivals.iter().flat_map(|arrival| &arrival.jobs).any(|&job| {
                remote_bytes(&tried, instance, job, file)
                    > remote_bytes(schedule, instance, job, file) * (1.0 + 1e-6) + 1.0
            })
        };
        let failed: Vec<usize> = given_up.into_iter().filter(reads_more).collect();
        if failed.is_empty() {
            *schedule = tried;
            return pages;
        }
        needed.extend(failed);
    }
    augment(instance, schedule, paging)
}

/// Returns the remote bytes that a planned job reads of a file.
fn remote_bytes(schedule: &Schedule, instance: &Instance, job: usize, file: usize) -> f64 {
    let Some(remote) = &schedule.jobs[job] else {
        return 0.0;
    };
    let reads = instance.jobs[job].reads.iter().zip(remote);
    reads
        .filter(|((of, _), _)| *of == file)
        .map(|(_, bytes)| bytes)
        .sum()
}

impl Schedule {
    /// Drops the fetches of a file that a planned job has read remotely before they are due. Jobs that would
    /// read the fetched bytes read them remotely, for now. Returns true if there are any.
    fn give_up(&mut self, instance: &Instance, number: usize) -> bool {
        let file = &instance.files[number];
        if self.files[number].fetches.is_empty() || file.arrivals.len() < 2 {
            return false;
        }
        let mut given_up = false;
        for position in 0..self.files[number].fetches.len() {
            let (slot, fetched) = self.files[number].fetches[position];
            let Some(due) = file.arrivals.iter().find(|arrival| arrival.slot > slot) else {
                continue;
            };
            let read_before = file
                .arrivals
                .iter()
                .filter(|arrival| arrival.slot <= slot && arrival.until <= due.slot)
                .flat_map(|arrival| &arrival.jobs)
                .map(|&job| remote_bytes(self, instance, job, number))
                .fold(0.0, f64::max);
            let bytes = fetched.min(read_before);
            // The bytes must all leave together, or a later arrival would miss them.
            let level = self.files[number].level(slot);
            let end = (slot..instance.slots.len())
                .find(|&later| self.files[number].level(later) < level * (1.0 - 1e-6));
            let end = end.unwrap_or(instance.slots.len());
            let after = if end < instance.slots.len() {
                self.files[number].level(end)
            } else {
                0.0
            };
            if bytes <= 1e-6 * file.bytes || after > level - fetched + 1e-6 * file.bytes {
                continue;
            }
            given_up = true;
            self.files[number].fetches[position].1 -= bytes;
            self.link_left[slot] += bytes / instance.slots.seconds();
            self.hold(number, slot, end, -bytes);
        }
        self.files[number].fetches.retain(|fetch| fetch.1 > 0.0);
        if given_up {
            for &job in file.arrivals.iter().flat_map(|arrival| &arrival.jobs) {
                if self.jobs[job].is_some() {
                    self.dismiss(instance, job);
                    let remote = self.missing(instance, job);
                    self.force(instance, job, remote);
                }
            }
        }
        given_up
    }
}
