//! Finds room for one more job in the rest of link and cache.

use std::ops::Range;

use crate::instance::Instance;

use super::{ROUNDING, Schedule};

/// A change that can be undone.
#[derive(Clone, Copy, Debug)]
enum Change {
    Held {
        file: usize,
        from: usize,
        until: usize,
        bytes: f64,
    },
    Fetched {
        file: usize,
        slot: usize,
        bytes: f64,
    },
}

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
        let mut changes = Vec::new();
        let reader = &instance.jobs[job];
        for &(file, _) in &reader.reads {
            self.extend(instance, file, reader.from..reader.until, &mut changes);
        }
        let slots = reader.from..reader.until;
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
                deficit -= self.fetch(
                    instance,
                    file,
                    known,
                    reader.from..reader.until,
                    deficit,
                    &mut changes,
                );
            }
        }
        if self.admit(instance, job) {
            return true;
        }
        self.undo(instance, changes);
        false
    }

    /// Undoes changes, the last one first.
    fn undo(&mut self, instance: &Instance, changes: Vec<Change>) {
        for change in changes.into_iter().rev() {
            match change {
                Change::Held {
                    file,
                    from,
                    until,
                    bytes,
                } => self.hold(file, from, until, -bytes),
                Change::Fetched { file, slot, bytes } => {
                    // Another job may have had as many bytes of the file fetched in this slot before.
                    let fetches = &mut self.files[file].fetches;
                    let last = fetches.iter().rposition(|fetch| *fetch == (slot, bytes));
                    fetches.remove(last.expect("no change was undone since"));
                    self.link_left[slot] += bytes / instance.slots.seconds();
                }
            }
        }
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

    /// Keeps the bytes of a file that are cached before a job starts until the job ends, as far as there is
    /// room.
    fn extend(&mut self, instance: &Instance, file: usize, slots: Range<usize>, changes: &mut Vec<Change>) {
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
                changes.push(Change::Held {
                    file,
                    from: slot,
                    until: slot + 1,
                    bytes: lacking,
                });
            }
        }
    }

    /// Fetches at most `wanted` more bytes of a file before a job starts; returns how many.
    fn fetch(
        &mut self,
        instance: &Instance,
        file: usize,
        known: usize,
        slots: Range<usize>,
        wanted: f64,
        changes: &mut Vec<Change>,
    ) -> f64 {
        let (available, size) = (instance.files[file].available, instance.files[file].bytes);
        let Range {
            start: from,
            end: until,
        } = slots;
        let usable = self.files[file].usable(from, until, instance.files[file].held_bytes);
        let wanted = wanted.min(size - usable);
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
            if bytes > ROUNDING * size {
                self.hold(file, slot, until, bytes);
                self.fetch_in(instance, file, slot, bytes);
                changes.push(Change::Held {
                    file,
                    from: slot,
                    until,
                    bytes,
                });
                changes.push(Change::Fetched { file, slot, bytes });
                fetched += bytes;
                room -= bytes;
            }
            if room <= 0.0 || wanted - fetched <= ROUNDING * size {
                break;
            }
        }
        self.files[file].fetches.sort_by_key(|fetch| fetch.0);
        fetched
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Schedule};
    use crate::instance::Instance;
    use crate::tests::table1;

    #[test]
    fn what_is_undone_leaves_an_equal_fetch_of_another_job() {
        let instance = Instance::new(&table1());
        let mut schedule = Schedule::new(&instance);
        let before = schedule.link_left[0];
        let fetch = (0, 7.0);
        schedule.files[0].fetches = vec![fetch, (1, 7.0), fetch];
        schedule.link_left[0] -= 7.0 / instance.slots.seconds();
        let changes = vec![Change::Fetched {
            file: 0,
            slot: fetch.0,
            bytes: fetch.1,
        }];
        schedule.undo(&instance, changes);
        assert_eq!(schedule.files[0].fetches, [fetch, (1, 7.0)]);
        assert!((schedule.link_left[0] - before).abs() < 1e-6);
    }
}
