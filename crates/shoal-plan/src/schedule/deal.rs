//! Assigns the fetches of a fractional solution, which has only the due times of bytes, to files.

use crate::instance::Instance;
use crate::lp::formulation::Fractional;

use super::{ROUNDING, Schedule};

/// Bytes of a file that are due at a slot.
#[derive(Clone, Copy, Debug)]
struct Demand {
    file: usize,
    release: usize,
    bytes: f64,
}

impl Schedule {
    /// Returns the schedule of a fractional solution: its fetches and cached bytes, and no job.
    pub fn from_fractional(instance: &Instance, fractional: &Fractional) -> Self {
        let mut schedule = Self::new(instance);
        let mut demands: Vec<Vec<Demand>> = vec![Vec::new(); instance.slots.len() + 1];
        for (file, values) in fractional.files.iter().enumerate() {
            for (arrival, value) in instance.files[file].arrivals.iter().zip(values) {
                if value.fetched_bytes > ROUNDING * instance.files[file].bytes {
                    let demand = Demand {
                        file,
                        release: value.release,
                        bytes: value.fetched_bytes,
                    };
                    demands[arrival.slot].push(demand);
                }
            }
        }
        let mut fetches = fractional.fetches.as_slice();
        for (due, demands) in demands.iter_mut().enumerate() {
            let count = fetches.partition_point(|fetch| fetch.0 <= due);
            let (of_due, rest) = fetches.split_at(count);
            fetches = rest;
            // From the latest slot to the earliest: bytes go to the files that could not be fetched sooner.
            demands.sort_by_key(|demand| std::cmp::Reverse(demand.release));
            for &(_, slot, mut bytes) in of_due.iter().rev() {
                for demand in demands.iter_mut().filter(|demand| demand.release <= slot) {
                    let part = bytes.min(demand.bytes);
                    if part > 0.0 {
                        schedule.fetch_in(instance, demand.file, slot, part);
                        demand.bytes -= part;
                        bytes -= part;
                    }
                    if bytes <= 0.0 {
                        break;
                    }
                }
            }
        }
        for file in 0..instance.files.len() {
            schedule.keep(instance, fractional, file);
        }
        schedule
    }

    /// Fills in a file's levels. Fetched bytes stay until their arrival, and bytes that are cached then stay
    /// until the last reader is done. After that, the bytes stay that the next arrival keeps.
    fn keep(&mut self, instance: &Instance, fractional: &Fractional, number: usize) {
        let file = &instance.files[number];
        let mut fetches = std::mem::take(&mut self.files[number].fetches);
        fetches.sort_by_key(|fetch| fetch.0);
        // The bytes that are cached before the slot `begin`. From that slot on, nothing is held yet.
        let (mut before, mut begin) = (file.held_bytes, file.held_until);
        for (arrival, value) in file.arrivals.iter().zip(&fractional.files[number]) {
            let gap = value.release..arrival.slot;
            let in_gap = || fetches.iter().filter(|fetch| gap.contains(&fetch.0));
            let fetched: f64 = in_gap().map(|fetch| fetch.1).sum();
            let kept = (value.cached_bytes - value.fetched_bytes).clamp(0.0, before);
            let kept = if begin > arrival.slot { before } else { kept };
            // Kept bytes use room from the moment at which the others leave; fetched ones from their slot on.
            if kept > ROUNDING * file.bytes {
                self.hold(number, begin, arrival.until.max(begin), kept);
            }
            for &(slot, bytes) in in_gap() {
                self.hold(number, slot, arrival.until, bytes);
            }
            before = if kept > ROUNDING * file.bytes {
                kept + fetched
            } else {
                fetched
            };
            begin = arrival.until.max(begin);
        }
        self.files[number].fetches = fetches;
    }
}
