//! Finds room for one more job in the rest of link and cache.

use std::ops::Range;

use crate::instance::Instance;

use super::{ROUNDING, Schedule};

impl Schedule {
    /// Plans a job in the rest of link and cache. Cached bytes of its files stay for it. Bytes that the link
    /// cannot bring while the job reads are fetched before, in the latest slots that have room. Returns
    /// false, and changes nothing, if that is not enough.
    pub fn insert(&mut self, instance: &Instance, job: usize) -> bool {
        self.place(instance, job, 0, false)
    }

    /// Plans a job that is unknown before the slot `known`, so that nothing is fetched for it earlier. Jobs
    /// that are still unknown will need the link later, so this one fetches as much as possible and reads the
    /// rest remotely; if that fails, the other way round.
    pub fn insert_from(&mut self, instance: &Instance, job: usize, known: usize) -> bool {
        self.place(instance, job, known, true) || self.place(instance, job, known, false)
    }

    fn place(&mut self, instance: &Instance, job: usize, known: usize, fetches_first: bool) -> bool {
        let reader = &instance.jobs[job];
        let before = (self.link_left.clone(), self.cache_left.clone());
        let files = reader.reads.iter().map(|&(file, _)| self.files[file].clone());
        let files: Vec<_> = files.collect();
        let slots = reader.from..reader.until;
        for &(file, _) in &reader.reads {
            self.keep_held(instance, file, slots.start);
            self.extend(instance, file, slots.clone());
        }
        let least = slots
            .map(|slot| self.link_left[slot])
            .fold(f64::INFINITY, f64::min)
            .max(0.0);
        let missing: f64 = self.missing(instance, job).iter().sum();
        // Slightly more than the deficit, so that the job does not fail by rounding.
        let remote = if fetches_first {
            0.0
        } else {
            least * reader.seconds
        };
        let mut deficit = (missing - remote) * (1.0 + ROUNDING);
        if deficit > 0.0 {
            let mut files: Vec<usize> = reader.reads.iter().map(|read| read.0).collect();
            // A large file needs the fewest fetches.
            files.sort_by(|&a, &b| instance.files[b].bytes.total_cmp(&instance.files[a].bytes));
            for file in files {
                if deficit <= 0.0 {
                    break;
                }
                deficit -= self.fetch(instance, file, known, reader.from..reader.until, deficit);
            }
        }
        if self.admit(instance, job) {
            return true;
        }
        (self.link_left, self.cache_left) = before;
        for (&(file, _), before) in reader.reads.iter().zip(files) {
            self.files[file] = before;
        }
        false
    }

    /// Copies a file of another plan: its cached bytes in each slot, and its fetches, as far as link and
    /// cache have room.
    pub(crate) fn lay(
        &mut self,
        instance: &Instance,
        number: usize,
        levels: &[f64],
        fetches: &[(usize, f64)],
    ) {
        let file = &instance.files[number];
        let mut before = file.held_bytes;
        let mut fetches = fetches.iter().peekable();
        for (slot, &wanted) in levels.iter().enumerate() {
            let mut fetched = 0.0;
            while let Some(fetch) = fetches.next_if(|fetch| fetch.0 <= slot) {
                fetched += if fetch.0 == slot { fetch.1 } else { 0.0 };
            }
            let fetched = fetched.min(self.link_left[slot].max(0.0) * instance.slots.seconds());
            // Pinned bytes are in the schedule already.
            let there = self.files[number].level(slot);
            let level = wanted.min(before + fetched).min(file.bytes).max(there);
            let level = level.min(there + self.cache_left[slot].max(0.0));
            let fetched = (level - before).clamp(0.0, fetched);
            if fetched > ROUNDING * file.bytes {
                self.fetch_in(instance, number, slot, fetched);
            }
            let level = if fetched > ROUNDING * file.bytes {
                level
            } else {
                level.min(before)
            };
            if level > there {
                self.hold(number, slot, slot + 1, level - there);
            }
            before = level.max(there);
        }
    }

    /// Keeps the bytes of a file that are cached at the start until a slot, as far as there is room.
    fn keep_held(&mut self, instance: &Instance, file: usize, until: usize) {
        if until > 0 && instance.files[file].held_bytes > 0.0 {
            self.extend(instance, file, 0..until);
        }
    }

    /// Keeps the bytes of a file that are cached before a job starts until the job ends, as far as there is
    /// room.
    fn extend(&mut self, instance: &Instance, file: usize, slots: Range<usize>) {
        let held_bytes = instance.files[file].held_bytes;
        let before = self.files[file].level_before(slots.start, held_bytes);
        let wanted = slots
            .clone()
            .map(|slot| self.files[file].level(slot) + self.cache_left[slot].max(0.0));
        let bytes = wanted.fold(before, f64::min);
        if bytes <= ROUNDING * instance.files[file].bytes {
            return;
        }
        for slot in slots {
            let lacking = bytes - self.files[file].level(slot);
            if lacking > 0.0 {
                self.hold(file, slot, slot + 1, lacking);
            }
        }
    }

    /// Fetches the blocks with at most `wanted` more bytes of a file before a job starts; returns how many
    /// bytes the job can then read from the cache besides.
    fn fetch(
        &mut self,
        instance: &Instance,
        file: usize,
        known: usize,
        slots: Range<usize>,
        wanted: f64,
    ) -> f64 {
        let of = &instance.files[file];
        let (available, size) = (of.available, of.bytes);
        let Range {
            start: from,
            end: until,
        } = slots;
        let usable = self.files[file].usable(from, until, of.held_bytes);
        let wanted = of.rounded_up(of.whole(usable) + wanted) - usable;
        let beside = |slot: usize| (size - self.files[file].level(slot)).max(0.0);
        let mut room = (from..until)
            .map(|slot| self.cache_left[slot].min(beside(slot)))
            .fold(f64::INFINITY, f64::min);
        let mut fetched = 0.0;
        for slot in (available.max(known)..from).rev() {
            // The file may not be cached more than whole.
            let beside = (size - self.files[file].level(slot)).max(0.0);
            room = room.min(self.cache_left[slot]).min(beside);
            let bytes = (wanted - fetched)
                .min(room)
                .min(self.link_left[slot] * instance.slots.seconds());
            if bytes > of.rounding() {
                self.hold(file, slot, until, bytes);
                self.fetch_in(instance, file, slot, bytes);
                fetched += bytes;
                room -= bytes;
            }
            if room <= 0.0 || wanted - fetched <= of.rounding() {
                break;
            }
        }
        self.files[file].fetches.sort_by_key(|fetch| fetch.0);
        of.whole(usable + fetched) - of.whole(usable)
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;
    use crate::instance::Instance;
    use crate::tests::table1;

    #[test]
    fn a_job_without_room_changes_nothing() {
        let instance = Instance::new(&table1());
        let mut schedule = Schedule::new(&instance);
        assert!(schedule.insert(&instance, 0));
        schedule.link_left[1..].fill(0.0);
        let mut refused = 0;
        for job in 1..instance.jobs.len() {
            let before = schedule.clone();
            if !schedule.insert(&instance, job) {
                assert_eq!(schedule, before, "job {job}");
                refused += 1;
            }
        }
        assert!(refused > 0, "the link is full");
    }
}
