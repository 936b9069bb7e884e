//! Assigns the fetches of a fractional solution, which has only the due times of bytes, to files.

use std::ops::Range;

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
        let mut carry = 0.0;
        for file in 0..instance.files.len() {
            schedule.keep(instance, fractional, file, &mut carry);
        }
        schedule
    }

    /// Fills in a file's levels. Fetched bytes stay until their arrival, and bytes that are cached then stay
    /// until the last reader is done. After that, the bytes stay that the next arrival keeps.
    ///
    /// Readers find whole blocks. Levels are rounded to them so that the bytes of all files together stay
    /// those of the solution: `carry` is what the levels so far have less than it. A level that has no room
    /// to be rounded up is rounded down.
    fn keep(&mut self, instance: &Instance, fractional: &Fractional, number: usize, carry: &mut f64) {
        let file = &instance.files[number];
        let mut fetches = std::mem::take(&mut self.files[number].fetches);
        fetches.sort_by_key(|fetch| fetch.0);
        // The bytes that are cached before the slot `begin`. From that slot on, nothing is held yet.
        let (mut before, mut begin) = (file.held_bytes, file.held_until);
        for (arrival, value) in file.arrivals.iter().zip(&fractional.files[number]) {
            let gap = value.release..arrival.slot;
            let first = fetches.partition_point(|fetch| fetch.0 < gap.start);
            let last = fetches.partition_point(|fetch| fetch.0 < gap.end);
            let mut in_gap = fetches.drain(first..last.max(first)).collect::<Vec<_>>();
            let fetched: f64 = in_gap.iter().map(|fetch| fetch.1).sum();
            let kept = (value.cached_bytes - value.fetched_bytes).clamp(0.0, before);
            let kept = if begin > arrival.slot { before } else { kept };
            let wanted = kept + fetched;
            let until = arrival.until.max(begin);
            // Files that were rounded up before may have taken its room.
            let kept = file.whole(kept.min(self.room(begin..until).max(0.0)));
            // Kept bytes use room from the moment at which the others leave; fetched ones from their slot on.
            self.hold(number, begin, until, kept);
            for &(slot, bytes) in &in_gap {
                self.hold(number, slot, arrival.until, bytes);
            }
            let mut level = kept + fetched;
            let (down, up) = (file.whole(wanted), file.rounded_up(wanted));
            let mut bring = |schedule: &mut Self, level: &mut f64, wanted: f64| {
                *level += schedule.refetch(
                    instance,
                    number,
                    &gap,
                    arrival.until,
                    &mut in_gap,
                    wanted - *level,
                );
            };
            if wanted + *carry >= f64::midpoint(down, up) {
                bring(self, &mut level, up);
            }
            let whole = file.whole(level);
            bring(self, &mut level, whole);
            while level > kept + file.rounding()
                && self.room(gap.start..arrival.until) < -ROUNDING * instance.capacity_bytes
            {
                let fewer = file.whole((level - file.block_bytes).max(0.0));
                bring(self, &mut level, fewer.max(kept));
            }
            *carry += wanted - level;
            fetches.splice(first..first, in_gap);
            before = level;
            begin = until;
        }
        self.files[number].fetches = fetches;
    }

    /// Fetches `more` bytes of a file in a gap, or fewer if it is negative, from the latest slot to the
    /// earliest, as far as link and cache have room. They stay until the slot `until`. Returns how many more.
    fn refetch(
        &mut self,
        instance: &Instance,
        number: usize,
        gap: &Range<usize>,
        until: usize,
        fetches: &mut Vec<(usize, f64)>,
        more: f64,
    ) -> f64 {
        let seconds = instance.slots.seconds();
        let mut left = more;
        for slot in gap.clone().rev() {
            if left == 0.0 {
                break;
            }
            let at = fetches.partition_point(|fetch| fetch.0 < slot);
            let is_there = fetches.get(at).is_some_and(|fetch| fetch.0 == slot);
            let bytes = if is_there { fetches[at].1 } else { 0.0 };
            let room = (self.link_left[slot] * seconds).min(self.room(slot..until));
            let change = left.clamp(-bytes, room.max(0.0));
            if change == 0.0 {
                continue;
            }
            if !is_there {
                fetches.insert(at, (slot, 0.0));
            }
            fetches[at].1 += change;
            self.link_left[slot] -= change / seconds;
            self.hold(number, slot, until, change);
            left -= change;
        }
        fetches.retain(|fetch| fetch.1 > 0.0);
        more - left
    }

    /// Returns the bytes for which the cache has room in all these slots.
    fn room(&self, slots: Range<usize>) -> f64 {
        let left = self.cache_left[slots].iter().copied();
        left.fold(f64::INFINITY, f64::min)
    }
}
