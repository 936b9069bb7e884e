//! Checks schedules: tests and experiments do so, and a planner need not.

use shoal_plan::instance::Instance;
use shoal_plan::schedule::{ROUNDING, Schedule};

/// Checks that a schedule keeps every bound.
///
/// # Errors
/// The first slot in which the link or the cache is promised beyond its bound, or the first file or job
/// whose bytes do not add up.
pub fn check(schedule: &Schedule, instance: &Instance) -> Result<(), String> {
    let slots = &instance.slots;
    let mut rates = vec![0.0; slots.len()];
    let mut levels = vec![0.0; slots.len()];
    for (file, of_file) in instance.files.iter().zip(&schedule.files) {
        for &(slot, bytes) in &of_file.fetches {
            if slot < file.available {
                return Err(format!(
                    "file {} is fetched in slot {slot}, before it is there",
                    file.number
                ));
            }
            rates[slot] += bytes / slots.seconds();
        }
        let mut before = file.held_bytes;
        for (slot, total) in levels.iter_mut().enumerate() {
            let (level, fetched, rounding) =
                (of_file.level(slot), of_file.fetched(slot), ROUNDING * file.bytes);
            if level > before + fetched + rounding {
                return Err(format!(
                    "file {} has {level} bytes in slot {slot} that were not fetched",
                    file.number
                ));
            }
            if fetched > (level - before).max(0.0) + rounding {
                return Err(format!(
                    "file {} fetches {fetched} bytes in slot {slot} that were cached",
                    file.number
                ));
            }
            *total += level;
            before = level;
        }
    }
    for (number, (job, remote)) in instance.jobs.iter().zip(&schedule.jobs).enumerate() {
        let Some(remote) = remote else { continue };
        let rate = remote.iter().sum::<f64>() / job.seconds;
        rates[job.from..job.until].iter_mut().for_each(|all| *all += rate);
        for (read, (&(file, _), remote)) in job.reads.iter().zip(remote).enumerate() {
            let paged = schedule.hits.get(&(number, read)).copied().unwrap_or(0.0);
            let file_use = &instance.files[file];
            let cached = schedule.files[file].usable(job.from, job.until, file_use.held_bytes);
            let cached = file_use.whole(cached);
            if cached + remote + paged < file_use.bytes * (1.0 - 4.0 * ROUNDING) {
                return Err(format!(
                    "job {} does not get all of file {}",
                    job.number, file_use.number
                ));
            }
        }
    }
    for slot in 0..slots.len() {
        if rates[slot] > slots.free(slot) + 4.0 * ROUNDING * slots.link[slot].max(1.0) {
            return Err(format!(
                "slot {slot} needs {} of {} bytes/s",
                rates[slot],
                slots.free(slot)
            ));
        }
        if levels[slot] > instance.capacity_bytes * (1.0 + 4.0 * ROUNDING) + 1.0 {
            return Err(format!(
                "slot {slot} caches {} of {} bytes",
                levels[slot], instance.capacity_bytes
            ));
        }
    }
    Ok(())
}
