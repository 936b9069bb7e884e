//! Invariants of every plan.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use shoal_lab::netco::execution::{Policy, Scenario, run};
use shoal_lab::netco::workload::{Sharing, Unit, Workload};
use shoal_lab::netco::{SmallSolver, check, cost};
use shoal_plan::instance::Instance;
use shoal_plan::lp::{LinearProgram, LpSolver};
use shoal_plan::model::{Job, Objective, Options, Paging, Request, Rounding};
use shoal_plan::plan::{FilePlan, Outcome, Plan, TransferPlan};
use shoal_plan::planner::replan::{self, replan};
use shoal_plan::planner::translate::{Blocks, Skyline, translate};
use shoal_plan::schedule::Schedule;
use shoal_plan::{plan, planner};

/// A dozen or two jobs, on a link and a cache of all sizes, with files from terabytes down to less than a
/// block. With the smallest, a block takes the link longer than a slot.
pub(super) fn request() -> impl Strategy<Value = Request> {
    let smaller = prop_oneof![Just(1), Just(1000), Just(100_000), Just(10_000_000)];
    (large_request(), smaller).prop_map(|(request, times)| made_smaller(request, times))
}

/// The same, but the link brings several blocks in a slot, so that transfers keep to it.
fn request_with_short_blocks() -> impl Strategy<Value = Request> {
    let smaller = prop_oneof![Just(1), Just(1000)];
    (large_request(), smaller).prop_map(|(request, times)| made_smaller(request, times))
}

fn made_smaller(mut request: Request, times: u32) -> Request {
    let rate = |rate: &mut f64| *rate /= f64::from(times);
    let bytes = |bytes: &mut u64| *bytes = (*bytes / u64::from(times)).max(1);
    rate(&mut request.link.bytes_per_second);
    request.cache.bytes_per_second.iter_mut().for_each(rate);
    bytes(&mut request.cache.capacity_bytes);
    request.files.iter_mut().for_each(|file| bytes(&mut file.bytes));
    let most = request
        .jobs
        .iter_mut()
        .filter_map(|job| job.bytes_per_second_max.as_mut());
    most.for_each(rate);
    request
}

fn large_request() -> impl Strategy<Value = Request> {
    let options = (
        prop_oneof![Just(Objective::LeastPeak), Just(Objective::MostDeadlines)],
        prop_oneof![Just(Rounding::Prefix), Just(Rounding::Randomized)],
        prop_oneof![Just(Paging::Off), Just(Paging::Belady), Just(Paging::Life)],
    );
    (0.1..3.0_f64, 0.0..1.0_f64, 0..1000_u64, options).prop_map(
        |(link, cache, seed, (objective, rounding, paging))| {
            let workload = Workload {
                unit: Unit::B4,
                scale: 0.02,
                hours: 1.0,
                sharing: Sharing::Week,
                seed,
                ..Workload::default()
            };
            let drawn = workload.draw();
            let mut request = drawn.request(
                drawn.read_bytes() / 3600.0 * link,
                (drawn.file_bytes() * cache) as u64,
                300.0,
            );
            request.options = Options {
                objective,
                rounding,
                paging,
                seed,
            };
            request
        },
    )
}

fn check_usage(plan: &Plan) {
    let usage = &plan.usage;
    for slot in 0..usage.link_bytes_per_second.len() {
        let used = usage.fetched_bytes_per_second[slot] + usage.remote_bytes_per_second[slot];
        let free = usage.link_bytes_per_second[slot] - usage.promised_bytes_per_second[slot];
        assert!(
            used <= free + usage.link_bytes_per_second[slot] * 1e-5,
            "slot {slot}: {used} of {free}"
        );
        let kept = usage.cached_bytes[slot] + usage.paged_bytes[slot];
        assert!(
            kept <= usage.capacity_bytes * (1.0 + 1e-5) + 1.0,
            "slot {slot}: {kept} of {}",
            usage.capacity_bytes
        );
    }
}

/// Each planned job finds whole blocks in the cache for all that it does not read from the lake or from what
/// another job left behind, from its submission until its deadline.
fn check_reads(request: &Request, plan: &Plan) {
    for (job, planned) in request.jobs.iter().zip(&plan.jobs) {
        for read in &planned.reads {
            let file = request.files.iter().find(|file| file.name == read.file).unwrap();
            let plan = plan.files.iter().find(|file| file.file == read.file);
            let blocks = plan.map_or_else(BTreeSet::new, |plan| blocks_until(plan, job));
            let len = |block: u64| file.block_bytes.min(file.bytes - block * file.block_bytes) as f64;
            let cached: f64 = blocks.into_iter().map(len).sum();
            let remote = read.remote_bytes_per_second * (job.deadline_s - job.submit_s);
            let promised = cached + remote + read.paged_bytes;
            assert!(
                promised >= file.bytes as f64 * (1.0 - 1e-5) - 1.0,
                "{} has {promised} of {} bytes: {read:?}",
                job.name,
                file.bytes
            );
        }
    }
}

/// Returns the blocks of a file that are cached when a job is submitted and stay until its deadline.
fn blocks_until(plan: &FilePlan, job: &Job) -> BTreeSet<u64> {
    let transfers = plan.transfers.iter().map(|transfer| {
        let blocks = transfer.first_block..transfer.first_block + transfer.blocks;
        (transfer.end_s, true, blocks)
    });
    let evictions = plan.evictions.iter().map(|eviction| {
        let blocks = eviction.first_block..eviction.first_block + eviction.blocks;
        (eviction.at_s, false, blocks)
    });
    let mut changes: Vec<_> = transfers.chain(evictions).collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut cached = BTreeSet::new();
    for (at_s, is_fetched, blocks) in changes {
        if !is_fetched && at_s < job.deadline_s - 1e-6 {
            cached.retain(|block| !blocks.contains(block));
        } else if is_fetched && at_s <= job.submit_s + 1e-6 {
            cached.extend(blocks);
        }
    }
    cached
}

/// Transfers end with the slots in which their file is fetched without a gap. Together they have the bytes
/// that are fetched, but for the parts of blocks, and in no slot more than the link has, but for less than
/// one block of each over its time.
fn check_transfers(request: &Request, instance: &Instance, schedule: &Schedule, plan: &Plan) {
    let slots = &instance.slots;
    let mut used = vec![0.0; slots.len()];
    let mut beyond = vec![0.0; slots.len()];
    let mut transfers_of: HashMap<&str, &[TransferPlan]> = HashMap::new();
    for file in &plan.files {
        transfers_of.insert(&file.file, &file.transfers);
    }
    for (file, scheduled) in instance.files.iter().zip(&schedule.files) {
        let described = &request.files[file.number];
        let transfers = transfers_of
            .get(described.name.as_str())
            .copied()
            .unwrap_or_default();
        let is_fetched = |slot: usize| scheduled.fetches.iter().any(|fetch| fetch.0 == slot);
        let (mut moved, mut groups, mut next) = (0.0, 0, None);
        for transfer in transfers {
            let bytes = transfer.bytes(described.bytes, described.block_bytes);
            let bytes = (bytes.end - bytes.start) as f64;
            let lasts = (transfer.end_s - transfer.start_s) * transfer.bytes_per_second;
            assert!(
                (lasts - bytes).abs() < 1.0 + bytes * 1e-6,
                "{bytes}: {transfer:?}"
            );
            moved += bytes;
            // After an eviction, the blocks that left are fetched again.
            groups += usize::from(next != Some(transfer.first_block));
            next = Some(transfer.first_block + transfer.blocks);
            let begin = slots.slot(transfer.start_s);
            let end = (begin..slots.len())
                .find(|&slot| !is_fetched(slot))
                .unwrap_or(slots.len());
            assert!(
                end > begin && transfer.end_s <= slots.start_s(end) + 1e-6,
                "{transfer:?}"
            );
            for slot in begin..end {
                let overlap_s =
                    transfer.end_s.min(slots.start_s(slot + 1)) - transfer.start_s.max(slots.start_s(slot));
                let block_bytes = described.block_bytes.min(described.bytes) as f64;
                used[slot] += overlap_s.max(0.0) * transfer.bytes_per_second;
                beyond[slot] += overlap_s.max(0.0) / (transfer.end_s - transfer.start_s) * block_bytes;
            }
        }
        let fetched: f64 = scheduled.fetches.iter().map(|fetch| fetch.1).sum();
        let parts = described.block_bytes.min(described.bytes) as f64 * groups.max(1) as f64;
        let rounding = 1e-5 * file.bytes;
        assert!(
            (moved - fetched).abs() <= parts + rounding,
            "{moved} of {fetched}: {}",
            described.name
        );
        let evicts = plan
            .files
            .iter()
            .any(|one| one.file == described.name && !one.evictions.is_empty());
        let whole = file.held_bytes == 0.0 && fetched >= file.bytes * (1.0 - 1e-6);
        if whole && groups == 1 && !evicts {
            assert_eq!(
                moved, file.bytes,
                "a file that is fetched whole has all of its bytes"
            );
        }
    }
    for slot in 0..slots.len() {
        let planned = plan.usage.fetched_bytes_per_second[slot] * slots.seconds();
        let link = plan.usage.link_bytes_per_second[slot] * slots.seconds();
        assert!(
            used[slot] <= planned + beyond[slot] + 1e-5 * link,
            "slot {slot}: {} of {planned}",
            used[slot]
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_promises_more_than_link_and_cache_have(request in request()) {
        request.check().unwrap();
        let instance = Instance::new(&request);
        let decision = planner::decide(&instance, &request.options, &SmallSolver).unwrap();
        prop_assert_eq!(check(&decision.schedule, &instance), Ok(()));
        let plan = plan(&request, &SmallSolver).unwrap();
        check_usage(&plan);
        check_reads(&request, &plan);
        prop_assert!(plan.quality.planned as f64 <= plan.quality.planned_at_most + 1e-6);
    }

    #[test]
    fn a_plan_that_is_carried_out_serves_every_planned_job_in_time(request in request_with_short_blocks()) {
        let plan = plan(&request, &SmallSolver).unwrap();
        for is_metered in [false, true] {
            let policy = Policy::Plan { plan: &plan, is_metered, replanning: None };
            let report = run(&Scenario { request: &request, policy, ad_hoc: &[] });
            for (number, in_time) in report.in_time(&request).into_iter().enumerate() {
                let late_s = report.ends_s[number] - request.jobs[number].deadline_s;
                let is_planned = plan.jobs[number].outcome == Outcome::Planned;
                prop_assert!(in_time || !is_planned, "{} is late by {late_s} s", plan.jobs[number].job);
            }
        }
    }

    #[test]
    fn replanning_without_a_change_keeps_every_planned_job(request in request()) {
        let former = plan(&request, &SmallSolver).unwrap();
        let again = replan(&request, &former).unwrap();
        check_usage(&again);
        check_reads(&request, &again);
        // Pages are decided after the jobs, so a job or two that read what an earlier job has left behind may
        // find no other place.
        let lost_at_most = if request.options.paging == Paging::Off { 0 } else { 2 };
        let (planned, before) = (again.quality.planned, former.quality.planned);
        prop_assert!(planned + lost_at_most >= before, "{planned} of {before}");
    }

    #[test]
    fn transfers_end_with_the_slots_of_their_file_and_have_its_bytes(
        request in request(),
        slot_s in 100.0..250.0_f64,
    ) {
        let instance = Instance::new(&request);
        let former = plan(&request, &SmallSolver).unwrap();
        let decision = planner::decide(&instance, &request.options, &SmallSolver).unwrap();
        check_transfers(&request, &instance, &decision.schedule, &former);
        // Slots of another length leave less than a block in many of them.
        let mut finer = request;
        finer.window.slot_s = slot_s;
        let instance = Instance::new(&finer);
        let decision = replan::decide(&finer, &instance, &former);
        prop_assert_eq!(check(&decision.schedule, &instance), Ok(()));
        check_transfers(&finer, &instance, &decision.schedule, &replan(&finer, &former).unwrap());
    }

    #[test]
    fn rectangles_cover_the_blocks_and_stay_below_the_skyline(
        rates in proptest::collection::vec(prop_oneof![Just(0.0), 1.0..100.0_f64], 1..40),
        block_bytes in 0.5..30.0_f64,
    ) {
        let skyline = Skyline { start_s: 100.0, slot_s: 10.0, rates };
        let bytes: f64 = skyline.rates.iter().map(|rate| rate * skyline.slot_s).sum();
        let blocks = (bytes / block_bytes).floor() as u64;
        let bytes = blocks as f64 * block_bytes;
        let assigned = Blocks { first: 0, count: blocks, block_bytes, bytes, cached_bytes: 0.0 };
        let runs = translate(&skyline, &assigned);
        let mut next = 0;
        for run in &runs {
            prop_assert_eq!(run.first_block, next, "blocks are assigned in order, each once");
            next += run.blocks;
            let lasts = (run.end_s - run.start_s) * run.bytes_per_second;
            prop_assert!((lasts - run.blocks as f64 * block_bytes).abs() < 1e-6 * lasts.max(1.0));
        }
        prop_assert_eq!(next, if runs.is_empty() { 0 } else { blocks });
        for run in &runs {
            let begin = ((run.start_s - 100.0) / 10.0).round() as usize;
            let gap = skyline.rates[begin..].iter().position(|rate| *rate == 0.0);
            let end = begin + gap.unwrap_or(skyline.rates.len() - begin);
            prop_assert!(run.end_s <= 100.0 + 10.0 * end as f64 + 1e-9, "no run goes on in a gap: {:?}", run);
        }
        // The bytes beyond the skyline are less than one block a rectangle.
        for (slot, rate) in skyline.rates.iter().enumerate() {
            let (from, until) = (100.0 + 10.0 * slot as f64, 110.0 + 10.0 * slot as f64);
            let assigned: f64 = runs
                .iter()
                .map(|run| (run.end_s.min(until) - run.start_s.max(from)).max(0.0) * run.bytes_per_second)
                .sum();
            prop_assert!(assigned <= rate * 10.0 + runs.len() as f64 * block_bytes + 1e-6);
        }
    }

    #[test]
    fn no_prices_give_a_bound_above_the_optimum(prices in proptest::collection::vec(-3.0..3.0_f64, 3)) {
        // Least -x - 2y with x, y in 0..=4, x + y <= 5, x - y >= -2, x + 3y = 9: at (2.25, 2.25)? the solver
        // says.
        let mut program = LinearProgram::default();
        let [x, y] = [-1.0, -2.0].map(|price| program.column(price, 0.0..=4.0));
        program.row(f64::NEG_INFINITY..=5.0, [(x, 1.0), (y, 1.0)]);
        program.row(-2.0..=f64::INFINITY, [(x, 1.0), (y, -1.0)]);
        program.row(9.0..=9.0, [(x, 1.0), (y, 3.0)]);
        let optimum = cost(&program, &SmallSolver.solve(&program).unwrap().values);
        prop_assert!(program.bound(&prices) <= optimum + 1e-9);
    }
}
