//! Jobs that arrive while a plan is in force: they are admitted or refused, and cost the others nothing.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use shoal_lab::netco::SmallSolver;
use shoal_plan::execution::{Arrival, Execution, JobStatus, Step, Transfer, Verdicts};
use shoal_plan::model::{File, Held, Job, Request};
use shoal_plan::plan;
use shoal_plan::plan::{Cached, FilePlan, Outcome, Plan};
use shoal_plan::planner::admit::admit;

use crate::execution::{BLOCK, document, go, request};
use crate::properties;

/// A job that reads a file of ten blocks.
fn arrival(name: &str, submit_s: f64, deadline_s: f64, file: &str) -> Arrival {
    let bytes = 10 * BLOCK;
    let of_it = File {
        name: file.to_owned(),
        bytes,
        available_s: None,
        block_bytes: BLOCK,
    };
    Arrival {
        job: Job {
            name: name.to_owned(),
            submit_s,
            deadline_s,
            inputs: vec![file.to_owned()],
            bytes_per_second_max: None,
        },
        files: vec![(of_it, bytes..=bytes)],
        held: Vec::new(),
    }
}

/// One job at 30 s, whose file the link brings in five seconds before it.
fn execution() -> Execution {
    Execution::new(document(request(&[(30.0, 0)])), &Verdicts::default(), 0.0)
}

#[test]
fn a_job_that_begins_at_once_has_a_rate_and_one_that_begins_later_has_its_file_fetched() {
    let mut execution = execution();
    let before = execution.plan().clone();
    go(&mut execution, 0.0, 2.5, 1.0);
    execution.arrive(&arrival("now", 2.5, 22.5, "x"), 2.5).unwrap();
    let promise = execution.promise(1).unwrap();
    assert_eq!(promise.bytes_per_second, BLOCK as f64 / 2.0);
    assert_eq!((promise.files, promise.until_s), (vec![1], 22.5));
    execution.arrive(&arrival("later", 20.0, 21.0, "y"), 2.5).unwrap();
    assert_eq!(execution.promise(2), None, "all of it is fetched before");
    let plan = execution.plan();
    assert_eq!(plan.jobs[0], before.jobs[0]);
    assert_eq!(plan.files[0], before.files[0]);
    let steps = go(&mut execution, 2.5, 31.0, 1.0);
    assert!(
        steps.contains(&Step::Promise(1)) && steps.contains(&Step::Observe(2)),
        "{steps:?}"
    );
    let fetched = execution
        .transfers()
        .iter()
        .filter(|transfer| transfer.left_bytes() == 0);
    let mut fetched: Vec<usize> = fetched.map(|transfer| transfer.file).collect();
    fetched.dedup();
    assert_eq!(
        fetched.into_iter().collect::<BTreeSet<_>>(),
        [0, 2].into(),
        "a promised file is read, not fetched"
    );
    for (job, deadline_s) in [(0, 31.0), (1, 22.5), (2, 21.0)] {
        execution.has_read(job, 10 * BLOCK, deadline_s);
    }
    assert_eq!(execution.judge(31.0), [JobStatus::Met; 3]);
    assert_eq!(
        execution.verdicts().met,
        [(0, 1)],
        "the next coordinator has its own order of arrivals"
    );
}

#[test]
fn a_job_that_finds_no_room_is_refused_with_the_reason_and_nothing_of_it_stays() {
    let mut request = request(&[(30.0, 0)]);
    request.link.bytes_per_second = 0.4 * BLOCK as f64;
    let mut execution = Execution::new(document(request), &Verdicts::default(), 0.0);
    let before = format!("{execution:?}");
    for (arrival, why) in [
        (
            arrival("fast", 0.0, 1.0, "x"),
            "even alone, link and cache bring ",
        ),
        (arrival("beside", 0.0, 40.0, "x"), "the link is short"),
        (arrival("far", 0.0, 1e6, "x"), "at most 2000 are planned at once"),
    ] {
        let refused = execution.arrive(&arrival, 0.0).unwrap_err();
        assert!(refused.contains(why), "{refused}");
        assert_eq!(format!("{execution:?}"), before, "{why}");
    }
}

#[test]
fn a_file_that_is_there_for_another_job_stays_for_the_one_that_arrives() {
    let mut execution = execution();
    go(&mut execution, 0.0, 28.2, 1.0);
    // The link has nothing left before the first job, and the second one needs nothing of it.
    execution
        .arrive(&arrival("same", 31.0, 32.0, "f0"), 28.2)
        .unwrap();
    let kept = &execution.plan().files[0].cached;
    assert!(kept.last().unwrap().until_s >= 32.0, "{kept:?}");
    let steps = go(&mut execution, 28.2, 32.0, 1.0);
    let keeps = steps.iter().filter_map(|step| match step {
        Step::Keep { file: 0, until_s } => Some(*until_s),
        _ => None,
    });
    assert!(
        keeps.fold(0.0, f64::max) >= 32.0,
        "what was pinned for the first job is pinned for longer: {steps:?}"
    );
    let whole: u64 = execution.transfers().iter().map(Transfer::done_bytes).sum();
    assert!(whole < 11 * BLOCK, "no block is fetched twice: {whole}");
    for (job, deadline_s) in [(0, 31.0), (1, 32.0)] {
        execution.has_read(job, 10 * BLOCK, deadline_s);
    }
    assert_eq!(execution.judge(32.0), [JobStatus::Met; 2]);
}

#[test]
fn what_the_cache_holds_of_an_input_is_kept_and_not_fetched() {
    let mut execution = execution();
    let mut held = arrival("held", 10.0, 10.5, "x");
    held.held = vec![("x".to_owned(), 10 * BLOCK)];
    execution.arrive(&held, 0.0).unwrap();
    let steps = go(&mut execution, 0.0, 11.0, 1.0);
    assert!(
        steps
            .iter()
            .any(|step| matches!(step, Step::Keep { file: 1, .. })),
        "{steps:?}"
    );
    assert!(execution.transfers().iter().all(|transfer| transfer.file == 0));
}

#[test]
fn what_a_job_in_force_reads_from_the_lake_stays_for_the_one_that_arrives() {
    let mut request = request(&[(5.0, 0)]);
    request.jobs[0].deadline_s = 15.0;
    request.cache.capacity_bytes = 10 * BLOCK;
    // It cannot be fetched before, and the link has room for the read of the first job only.
    request.files[0].available_s = Some(5.0);
    request.link.bytes_per_second = 1.1 * BLOCK as f64;
    let mut execution = Execution::new(document(request), &Verdicts::default(), 0.0);
    assert!(execution.promise(0).is_some(), "{:?}", execution.plan());
    execution
        .arrive(&arrival("later", 16.0, 17.0, "f0"), 0.0)
        .unwrap();
    assert_eq!(execution.promise(1), None, "{:?}", execution.plan());
    let read = &execution.plan().jobs[1].reads[0];
    assert!(
        read.paged_bytes > 0.0 && execution.plan().jobs[0].reads[0].keep,
        "{read:?}"
    );
    let steps = go(&mut execution, 0.0, 18.0, 1.0);
    assert!(
        steps
            .iter()
            .any(|step| matches!(step, Step::Page { file: 0, until_s } if *until_s >= 17.0)),
        "{steps:?}"
    );
}

/// The bytes of the blocks of a file that are cached from the submission of a job to its deadline: those that
/// were `held` when its plan was made, and those that its transfers bring.
fn cached_bytes(file: &File, plan: Option<&FilePlan>, held: u64, job: &Job) -> f64 {
    let mut blocks: BTreeSet<u64> = (0..held.div_ceil(file.block_bytes)).collect();
    let mut changes = Vec::new();
    if let Some(plan) = plan {
        for transfer in &plan.transfers {
            let range = transfer.first_block..transfer.first_block + transfer.blocks;
            changes.push((transfer.end_s, true, range));
        }
        for eviction in &plan.evictions {
            let range = eviction.first_block..eviction.first_block + eviction.blocks;
            changes.push((eviction.at_s, false, range));
        }
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at_s, is_fetched, range) in changes {
        if !is_fetched && at_s < job.deadline_s - 1e-6 {
            blocks.retain(|block| !range.contains(block));
        } else if is_fetched && at_s <= job.submit_s + 1e-6 {
            blocks.extend(range);
        }
    }
    let bytes = |block: u64| {
        file.block_bytes
            .min(file.bytes.saturating_sub(block * file.block_bytes))
    };
    blocks.into_iter().map(bytes).sum::<u64>() as f64
}

/// Returns the bytes of whole blocks of each file that a plan has in the cache at a time.
fn held_at(request: &Request, plan: &Plan, at_s: f64) -> BTreeMap<String, u64> {
    let mut held = BTreeMap::new();
    for of_file in &plan.files {
        let file = request
            .files
            .iter()
            .find(|file| file.name == of_file.file)
            .unwrap();
        let is_then = |from_s: f64, until_s: f64| from_s < at_s - 1e-6 && at_s <= until_s + 1e-6;
        let level = of_file.cached.iter().find(|one| is_then(one.from_s, one.until_s));
        // A level is whole blocks but for the solver's rounding.
        let rounding = 1e-6 * file.block_bytes.min(file.bytes) as f64;
        let bytes = level.map_or(0.0, |level| level.bytes + rounding) as u64;
        let whole = if bytes as f64 >= file.bytes as f64 * (1.0 - 1e-6) - 1.0 {
            file.bytes
        } else {
            bytes - bytes % file.block_bytes
        };
        if whole > 0 {
            held.insert(file.name.clone(), whole);
        }
    }
    held
}

/// Link and cache, counted from the jobs and the files of a plan, have room in every slot from `start_s` on.
fn check_room(request: &Request, plan: &Plan, start_s: f64) {
    let usage = &plan.usage;
    let (slot_s, slots) = (usage.slot_s, usage.link_bytes_per_second.len());
    let at = |slot: usize| usage.start_s + (slot as f64 + 0.5) * slot_s;
    let touches = |job: &Job, slot: usize| {
        let from_s = usage.start_s + slot as f64 * slot_s;
        job.submit_s < from_s + slot_s - 1e-6 && job.deadline_s > from_s + 1e-6
    };
    for slot in (0..slots).filter(|slot| at(*slot) > start_s) {
        let jobs = request
            .jobs
            .iter()
            .zip(&plan.jobs)
            .filter(|(job, _)| touches(job, slot));
        let rates = jobs
            .flat_map(|(_, planned)| &planned.reads)
            .map(|read| read.remote_bytes_per_second);
        let remote: f64 = rates.sum();
        let link = usage.link_bytes_per_second[slot];
        assert!(
            (remote - usage.remote_bytes_per_second[slot]).abs() <= 1e-5 * link,
            "slot {slot}: {remote}"
        );
        let used = remote + usage.fetched_bytes_per_second[slot] + usage.promised_bytes_per_second[slot];
        // A part of a block that came in the slot before comes with its block.
        let parts = if slot == 0 { f64::INFINITY } else { 0.0 };
        assert!(
            used <= link * (1.0 + 1e-5) + parts,
            "slot {slot}: {used} of {link}"
        );
        let is_then = |from_s: f64, until_s: f64| from_s < at(slot) && at(slot) < until_s;
        let intervals = plan
            .files
            .iter()
            .flat_map(|file| file.cached.iter().chain(&file.paged));
        let kept: f64 = intervals
            .filter(|one| is_then(one.from_s, one.until_s))
            .map(|one| one.bytes)
            .sum();
        let room = usage.capacity_bytes * (1.0 + 1e-5) + 1.0;
        assert!(kept <= room, "slot {slot}: {kept} of {room}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn jobs_that_arrive_take_nothing_from_those_in_force_and_no_more_than_is_left(
        mut request in properties::request(),
        known_s in 0.0..1500.0_f64,
    ) {
        let mut arriving = Vec::new();
        let all = std::mem::take(&mut request.jobs);
        for (number, job) in all.into_iter().enumerate() {
            if number % 2 == 0 { request.jobs.push(job) } else { arriving.push(job) }
        }
        prop_assume!(!request.jobs.is_empty());
        request.window.end_s += 1500.0;
        let mut plan = plan(&request, &SmallSolver).unwrap();
        let (mut held, mut held_s) = (BTreeMap::new(), 0.0);
        arriving.sort_by(|a, b| a.submit_s.total_cmp(&b.submit_s));
        for job in arriving {
            let at_s = (job.submit_s - known_s).max(0.0);
            let start_s = (at_s / request.window.slot_s).floor() * request.window.slot_s;
            // A plan that has begun in this slot no longer says what came before.
            if start_s > held_s {
                (held, held_s) = (held_at(&request, &plan, start_s), start_s);
            }
            let mut beside = request.clone();
            (beside.window.start_s, beside.jobs) = (start_s, vec![job.clone()]);
            let held_then = held
                .iter()
                .map(|(file, bytes)| Held { file: file.clone(), bytes: *bytes, pinned_until_s: None });
            beside.cache.hold(held_then.collect());
            beside.window.end_s = request.ends_s();
            let in_force = request.jobs.iter().filter(|job| job.deadline_s > start_s).cloned();
            let with = admit(&beside, &plan, &in_force.collect::<Vec<_>>()).unwrap();
            let (last, others) = with.jobs.split_last().unwrap();
            let mut before = plan.jobs.clone();
            for (job, others) in before.iter_mut().zip(others) {
                for (read, other) in job.reads.iter_mut().zip(&others.reads) {
                    // What they read may be kept for the job.
                    read.keep |= other.keep;
                }
            }
            prop_assert_eq!(others, &before[..], "jobs in force keep what they have");
            if last.outcome != Outcome::Planned {
                prop_assert_eq!(&with.files, &plan.files, "a job that is refused changes nothing");
                continue;
            }
            request.jobs.push(job);
            plan = with;
            check_room(&request, &plan, start_s);
            for (job, planned) in request.jobs.iter().zip(&plan.jobs).filter(|(job, _)| job.submit_s >= start_s) {
                for read in &planned.reads {
                    let file = request.files.iter().find(|file| file.name == read.file).unwrap();
                    let of_file = plan.files.iter().find(|plan| plan.file == read.file);
                    let held = held.get(&read.file).copied().unwrap_or(0);
                    let cached = cached_bytes(file, of_file, held, job);
                    let remote = read.remote_bytes_per_second * (job.deadline_s - job.submit_s);
                    let is_page = |page: &Cached| page.from_s < job.submit_s && page.until_s >= job.deadline_s - 1e-6;
                    let pages = of_file.into_iter().flat_map(|plan| &plan.paged);
                    prop_assert!(
                        read.paged_bytes == 0.0 || pages.filter(|page| is_page(page)).any(|page| page.bytes > 0.0),
                        "{} reads a page of {} that is not kept", job.name, file.name
                    );
                    let has = cached + remote + read.paged_bytes;
                    prop_assert!(
                        has >= file.bytes as f64 * (1.0 - 1e-5) - 1.0,
                        "{} has {has} of {} bytes of {}: {read:?}", job.name, file.bytes, file.name
                    );
                }
            }
        }
    }
}
