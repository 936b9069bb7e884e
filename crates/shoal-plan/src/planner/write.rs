//! Converts a decision into a plan: numbers into names, slots into times, bytes into blocks.

use std::collections::HashSet;

use crate::instance::slots::Slots;
use crate::instance::{Arrival, FileUse, Instance};
use crate::model::{Request, VERSION};
use crate::plan::{
    Cached, Eviction, FilePlan, JobPlan, Outcome, Plan, Quality, ReadPlan, Reason, Short, TransferPlan, Usage,
};
use crate::planner::decision::Decision;
use crate::planner::translate::{Blocks, Skyline, translate};
use crate::schedule::{FileSchedule, Schedule};

/// Returns the plan of a decision.
pub fn write(request: &Request, instance: &Instance, decision: &Decision) -> Plan {
    let usage = usage(instance, decision);
    let schedule = &decision.schedule;
    let fetched: f64 = schedule
        .files
        .iter()
        .flat_map(|file| &file.fetches)
        .map(|fetch| fetch.1)
        .sum();
    let quality = Quality {
        planned: schedule.planned(),
        planned_at_most: decision.planned_at_most.max(schedule.planned() as f64),
        peak_share: peak_share(&usage),
        peak_share_at_least: decision.peak_share_at_least,
        fetched_bytes: fetched,
        remote_bytes: schedule.jobs.iter().flatten().flatten().sum(),
        paged_bytes: schedule.hits.values().fold(0.0, |all, bytes| all + bytes),
    };
    let files = files(request, instance, decision);
    Plan {
        version: VERSION,
        objective: decision.objective,
        quality,
        jobs: jobs(request, instance, decision),
        files,
        usage,
    }
}

pub(super) fn peak_share(usage: &Usage) -> f64 {
    let slots = 0..usage.link_bytes_per_second.len();
    let share = |slot: usize| {
        let used = usage.promised_bytes_per_second[slot]
            + usage.fetched_bytes_per_second[slot]
            + usage.remote_bytes_per_second[slot];
        let link = usage.link_bytes_per_second[slot];
        if link > 0.0 { used / link } else { 0.0 }
    };
    slots.map(share).fold(0.0, f64::max)
}

fn usage(instance: &Instance, decision: &Decision) -> Usage {
    let (slots, schedule) = (&instance.slots, &decision.schedule);
    let mut fetched = vec![0.0; slots.len()];
    for &(slot, bytes) in schedule.files.iter().flat_map(|file| &file.fetches) {
        fetched[slot] += bytes / slots.seconds();
    }
    let mut remote = vec![0.0; slots.len()];
    for (job, bytes) in instance.jobs.iter().zip(&schedule.jobs) {
        let rate = bytes.iter().flatten().sum::<f64>() / job.seconds;
        remote[job.from..job.until]
            .iter_mut()
            .for_each(|all| *all += rate);
    }
    let mut paged = vec![0.0; slots.len()];
    for page in &decision.pages {
        paged[page.from..page.until]
            .iter_mut()
            .for_each(|all| *all += page.bytes);
    }
    Usage {
        start_s: slots.start_s(0),
        slot_s: slots.seconds(),
        link_bytes_per_second: slots.link.clone(),
        promised_bytes_per_second: slots.promised.clone(),
        fetched_bytes_per_second: fetched,
        remote_bytes_per_second: remote,
        capacity_bytes: instance.capacity_bytes,
        cached_bytes: schedule
            .cache_left
            .iter()
            .map(|left| (instance.capacity_bytes - left).max(0.0))
            .collect(),
        paged_bytes: paged,
    }
}

fn jobs(request: &Request, instance: &Instance, decision: &Decision) -> Vec<JobPlan> {
    let plan = |number: usize, outcome, reads| JobPlan {
        job: request.jobs[number].name.clone(),
        outcome,
        reads,
    };
    let mut jobs: Vec<Option<JobPlan>> = vec![None; request.jobs.len()];
    for (number, reason) in &instance.hopeless {
        jobs[*number] = Some(plan(*number, Outcome::BestEffort(reason.clone()), Vec::new()));
    }
    let kept: HashSet<(usize, usize)> = decision.pages.iter().map(|page| (page.file, page.from)).collect();
    let schedule = &decision.schedule;
    for (position, job) in instance.jobs.iter().enumerate() {
        let written = match &schedule.jobs[position] {
            None => plan(
                job.number,
                Outcome::BestEffort(no_room(instance, schedule, position)),
                Vec::new(),
            ),
            Some(remote) => {
                let reads = job.reads.iter().zip(remote).enumerate();
                let reads = reads.map(|(read, (&(file, _), &remote))| {
                    let paged_bytes = schedule.hits.get(&(position, read)).copied().unwrap_or(0.0);
                    ReadPlan {
                        file: request.files[instance.files[file].number].name.clone(),
                        cached_bytes: (instance.files[file].bytes - remote - paged_bytes).max(0.0),
                        paged_bytes,
                        remote_bytes_per_second: remote / job.seconds,
                        keep: remote > 0.0 && kept.contains(&(file, job.from)),
                    }
                });
                plan(job.number, Outcome::Planned, reads.collect())
            }
        };
        jobs[job.number] = Some(written);
    }
    jobs.into_iter()
        .map(|job| job.expect("a job is hopeless or takes part"))
        .collect()
}

/// Returns why a job found no room: its missing bytes, and what is left of the link.
fn no_room(instance: &Instance, schedule: &Schedule, job: usize) -> Reason {
    let reader = &instance.jobs[job];
    let missing_bytes: f64 = schedule.missing(instance, job).iter().sum();
    let narrowest = (reader.from..reader.until)
        .min_by(|&a, &b| schedule.link_left[a].total_cmp(&schedule.link_left[b]))
        .unwrap_or(reader.from);
    let link_left_bytes = schedule.link_left[narrowest].max(0.0) * reader.seconds;
    let available = reader
        .reads
        .iter()
        .map(|&(file, _)| instance.files[file].available)
        .min()
        .unwrap_or(0);
    let before = (available.min(reader.from)..reader.from).map(|slot| schedule.link_left[slot].max(0.0));
    let fetchable = before.sum::<f64>() * instance.slots.seconds();
    let short = if fetchable + link_left_bytes >= missing_bytes {
        Short::Cache
    } else {
        Short::Link
    };
    let narrowest_s = instance.slots.start_s(narrowest);
    Reason::NoRoom {
        short,
        missing_bytes,
        link_left_bytes,
        narrowest_s,
    }
}

fn files(request: &Request, instance: &Instance, decision: &Decision) -> Vec<FilePlan> {
    let mut paged: Vec<Vec<Cached>> = vec![Vec::new(); instance.files.len()];
    let slots = &instance.slots;
    for page in &decision.pages {
        paged[page.file].push(Cached {
            from_s: slots.start_s(page.from),
            until_s: slots.start_s(page.until),
            bytes: page.bytes,
        });
    }
    let mut plans = Vec::new();
    for ((file, schedule), mut paged) in instance.files.iter().zip(&decision.schedule.files).zip(paged) {
        paged.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
        let plan = FilePlan {
            file: request.files[file.number].name.clone(),
            transfers: transfers(slots, file, schedule),
            cached: cached(slots, schedule),
            paged,
            evictions: evictions(slots, file, schedule),
        };
        if !(plan.transfers.is_empty()
            && plan.cached.is_empty()
            && plan.paged.is_empty()
            && plan.evictions.is_empty())
        {
            plans.push(plan);
        }
    }
    plans
}

/// Fetches between two evictions are merged: together they raise the number of cached blocks. Those before a
/// job begins to read are not merged with later ones, as the job counts on their blocks.
fn transfers(slots: &Slots, file: &FileUse, schedule: &FileSchedule) -> Vec<TransferPlan> {
    let mut transfers = Vec::new();
    let mut fetches = schedule.fetches.as_slice();
    while let Some(&(first, _)) = fetches.first() {
        let before = schedule.level_before(first, file.held_bytes);
        let mut level = before.min(schedule.level(first));
        let start = level;
        let mut skyline = Skyline {
            start_s: slots.start_s(first),
            slot_s: slots.seconds(),
            rates: Vec::new(),
        };
        let mut slot = first;
        while let Some((&(_, bytes), rest)) = fetches.split_first().filter(|(fetch, _)| fetch.0 >= slot) {
            let at = fetches[0].0;
            let evicts = (slot..at).any(|slot| schedule.level(slot) < level * (1.0 - 1e-6));
            let is_due = |arrival: &Arrival| slot < arrival.slot && arrival.slot <= at;
            if evicts || file.arrivals.iter().any(is_due) {
                break;
            }
            skyline.rates.resize(at - first + 1, 0.0);
            skyline.rates[at - first] += bytes / slots.seconds();
            level += bytes;
            fetches = rest;
            slot = at;
        }
        let (from, to) = (file.blocks(start), file.blocks(level));
        let begin = from as f64 * file.block_bytes;
        let blocks = Blocks {
            first: from,
            count: to.saturating_sub(from),
            block_bytes: file.block_bytes,
            // The last block of the file may be short.
            bytes: ((to as f64 * file.block_bytes).min(file.bytes) - begin).max(0.0),
            cached_bytes: (start - begin).max(0.0),
        };
        transfers.extend(translate(&skyline, &blocks));
    }
    transfers
}

fn cached(slots: &Slots, schedule: &FileSchedule) -> Vec<Cached> {
    let steps = &schedule.cached;
    let ends = steps.iter().skip(1).map(|step| step.0).chain([slots.len()]);
    let intervals = steps.iter().zip(ends).filter(|((_, bytes), _)| *bytes > 0.0);
    intervals
        .map(|(&(from, bytes), until)| Cached {
            from_s: slots.start_s(from),
            until_s: slots.start_s(until),
            bytes,
        })
        .collect()
}

/// Cache state (4.3, a): where a level falls, the blocks beyond it are evicted.
fn evictions(slots: &Slots, file: &FileUse, schedule: &FileSchedule) -> Vec<Eviction> {
    let mut before = file.blocks(file.held_bytes);
    let mut evictions = Vec::new();
    let first = (schedule.cached.first().is_none_or(|step| step.0 > 0)).then_some((0, 0.0));
    for (slot, bytes) in first.into_iter().chain(schedule.cached.iter().copied()) {
        let after = file.blocks(bytes);
        if after < before {
            evictions.push(Eviction {
                at_s: slots.start_s(slot),
                first_block: after,
                blocks: before - after,
            });
        }
        before = after;
    }
    evictions
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::float_cmp,
        clippy::cast_sign_loss,
        reason = "whole numbers are exact; bytes and times are positive"
    )]

    use proptest::prelude::*;

    use super::transfers;
    use crate::instance::FileUse;
    use crate::instance::slots::Slots;
    use crate::model::File;
    use crate::plan::TransferPlan;
    use crate::schedule::FileSchedule;

    const SLOT_S: f64 = 300.0;
    const BLOCK: f64 = File::default_block_bytes() as f64;

    /// Plans the transfers of one file of `bytes`, of which `held_bytes` are cached at the start and
    /// `fetches` are fetched, by slot. Fetched bytes stay cached.
    fn written(bytes: f64, held_bytes: f64, fetches: &[(usize, f64)]) -> Vec<TransferPlan> {
        let mut request = crate::tests::table1();
        request.jobs.clear();
        (request.window.slot_s, request.window.end_s) = (SLOT_S, 100.0 * SLOT_S);
        let file = FileUse {
            number: 0,
            bytes,
            block_bytes: BLOCK,
            available: 0,
            held_bytes,
            held_until: 0,
            arrivals: Vec::new(),
        };
        let mut level = held_bytes;
        let mut cached = vec![(0, held_bytes)];
        for &(slot, bytes) in fetches {
            level += bytes;
            cached.retain(|step| step.0 != slot);
            cached.push((slot, level));
        }
        let schedule = FileSchedule {
            fetches: fetches.to_vec(),
            cached,
        };
        transfers(&Slots::new(&request), &file, &schedule)
    }

    /// Returns the bytes of a transfer of such a file.
    fn bytes_of(bytes: f64, transfer: &TransferPlan) -> f64 {
        let end = (transfer.first_block + transfer.blocks) as f64 * BLOCK;
        end.min(bytes) - transfer.first_block as f64 * BLOCK
    }

    /// Asserts that each transfer has the bytes of its rate and time, and that all blocks are fetched in the
    /// end.
    fn check_bytes(bytes: f64, transfers: &[TransferPlan]) {
        let mut next = 0;
        for transfer in transfers {
            assert_eq!(transfer.first_block, next, "{transfers:?}");
            next += transfer.blocks;
            let lasts = (transfer.end_s - transfer.start_s) * transfer.bytes_per_second;
            let expected = bytes_of(bytes, transfer);
            assert!(
                (lasts - expected).abs() < 1.0,
                "{lasts} of {expected}: {transfer:?}"
            );
        }
        assert_eq!(next as f64, (bytes / BLOCK).ceil());
    }

    #[test]
    fn a_file_with_less_than_a_block_in_its_first_slot_is_there_when_its_last_slot_ends() {
        // A file of 100 MiB with 100 KiB in the first slot, and one of 1 GiB with a sliver of the solver.
        for (bytes, sliver) in [(100 << 20, 100 << 10), (1 << 30, 200)] {
            let (bytes, sliver) = (f64::from(bytes), f64::from(sliver));
            let transfers = written(bytes, 0.0, &[(0, sliver), (1, bytes - sliver)]);
            check_bytes(bytes, &transfers);
            let late = transfers.iter().find(|transfer| transfer.end_s > 2.0 * SLOT_S);
            assert_eq!(late, None, "{transfers:?}");
            // The blocks of the sliver come with the others.
            assert_eq!(transfers.len(), 1, "{transfers:?}");
            let planned = (bytes - sliver) / SLOT_S;
            assert!(
                transfers[0].bytes_per_second <= planned + sliver / SLOT_S + 1e-6,
                "{transfers:?}"
            );
        }
    }

    #[test]
    fn a_sliver_after_the_other_slots_takes_a_block_if_it_has_most_of_one() {
        let bytes = f64::from(1 << 30);
        for (sliver, end_s) in [
            (200.0, SLOT_S),
            (0.4 * BLOCK, SLOT_S),
            (0.6 * BLOCK, 5.0 * SLOT_S),
            (BLOCK, 5.0 * SLOT_S),
        ] {
            let transfers = written(bytes, 0.0, &[(0, bytes - sliver), (4, sliver)]);
            check_bytes(bytes, &transfers);
            let ends: Vec<f64> = transfers.iter().map(|transfer| transfer.end_s).collect();
            assert!(ends[0] <= SLOT_S, "{transfers:?}");
            assert!((ends[ends.len() - 1] - end_s).abs() < 1e-6, "{transfers:?}");
        }
    }

    #[test]
    fn a_block_of_two_slots_takes_both_and_one_that_is_almost_in_one_slot_takes_that() {
        let bytes = 300_000.0;
        for (first, start_s) in [(100_000.0, 0.0), (1000.0, SLOT_S)] {
            let transfers = written(bytes, 0.0, &[(0, first), (1, bytes - first)]);
            check_bytes(bytes, &transfers);
            assert_eq!(transfers.len(), 1, "{transfers:?}");
            let times = (transfers[0].start_s, transfers[0].end_s);
            assert!(times == (start_s, 2.0 * SLOT_S), "{transfers:?}");
        }
    }

    #[test]
    fn a_file_shorter_than_a_block_is_fetched_in_its_slot_at_its_planned_rate() {
        let bytes = 120_345.0;
        let transfers = written(bytes, 0.0, &[(0, bytes)]);
        check_bytes(bytes, &transfers);
        assert!((transfers[0].end_s - SLOT_S).abs() < 1e-6, "{transfers:?}");
        assert!(
            (transfers[0].bytes_per_second - bytes / SLOT_S).abs() < 1e-6,
            "{transfers:?}"
        );
    }

    /// Slots and the bytes that are fetched in each: nothing, slivers, and a few blocks.
    fn fetches() -> impl Strategy<Value = Vec<(usize, f64)>> {
        let bytes = prop_oneof![
            Just(0.0),
            1.0..1000.0_f64,
            (1.0..BLOCK).prop_map(f64::round),
            (1.0..9.0 * BLOCK).prop_map(f64::round),
            (1_u32..5).prop_map(|blocks| f64::from(blocks) * BLOCK),
        ];
        proptest::collection::vec(bytes, 1..30).prop_map(|bytes| {
            let slots = bytes.into_iter().map(f64::round).enumerate();
            slots.filter(|fetch| fetch.1 > 0.0).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

        #[test]
        fn every_block_of_a_file_is_fetched_once_within_its_slots_and_the_rates_are_those_of_the_slots(
            fetches in fetches(),
            held_bytes in (0_u32..4).prop_map(|blocks| f64::from(blocks) * BLOCK),
        ) {
            let fetched: f64 = fetches.iter().map(|fetch| fetch.1).sum();
            let bytes = held_bytes + fetched;
            let transfers = written(bytes, held_bytes, &fetches);
            // All blocks but those that were whole in the cache, each once; their bytes are those that were
            // fetched, and the part of a block that was cached.
            let mut next = (held_bytes / BLOCK).floor() as u64;
            let cached = if fetches.is_empty() { 0.0 } else { held_bytes % BLOCK };
            let mut moved = 0.0;
            for transfer in &transfers {
                prop_assert_eq!(transfer.first_block, next);
                next += transfer.blocks;
                let lasts = (transfer.end_s - transfer.start_s) * transfer.bytes_per_second;
                prop_assert!((lasts - bytes_of(bytes, transfer)).abs() < 1.0, "{:?}", transfer);
                moved += bytes_of(bytes, transfer);
                // It begins with a slot, and ends with the slots without a gap at the latest.
                let begin = (transfer.start_s / SLOT_S).round() as usize;
                let mut end = begin;
                while fetches.iter().any(|fetch| fetch.0 == end) {
                    end += 1;
                }
                prop_assert!(end > begin && transfer.end_s <= end as f64 * SLOT_S + 1e-6, "{:?}", transfer);
            }
            prop_assert!((moved - fetched - cached).abs() < 1.0, "{} of {}", moved, fetched);
            if !fetches.is_empty() {
                prop_assert_eq!(next as f64, (bytes / BLOCK).ceil());
            }
            // A transfer exceeds its part of a slot by less than a block over its own time.
            for slot in 0..30 {
                let (from_s, until_s) = (slot as f64 * SLOT_S, (slot + 1) as f64 * SLOT_S);
                let planned: f64 = fetches.iter().filter(|fetch| fetch.0 == slot).map(|fetch| fetch.1).sum();
                let (mut used, mut beyond) = (0.0, 0.0);
                for transfer in &transfers {
                    let (start_s, end_s) = (transfer.start_s, transfer.end_s);
                    let overlap_s = (end_s.min(until_s) - start_s.max(from_s)).max(0.0);
                    used += overlap_s * transfer.bytes_per_second;
                    beyond += overlap_s / (end_s - start_s) * BLOCK;
                }
                let most = planned + beyond + 1e-6 * bytes;
                prop_assert!(used <= most, "slot {}: {} of {}", slot, used, planned);
            }
        }
    }
}
