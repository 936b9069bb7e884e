//! The transfers of a plan and those who read them: the bytes and the times are real.

use shoal_lab::netco::SmallSolver;
use shoal_plan::model::{Cache, File, Job, Link, Objective, Options, Request, VERSION, Window};
use shoal_plan::plan;
use shoal_plan::planner::replan::replan;
use shoal_plan::show::explain::{explain, since_zero};

/// Two jobs read a file of 120,345 bytes in the second after 300 s, so it is fetched before.
fn request() -> Request {
    let bytes = 120_345;
    let job = |name: &str| Job {
        name: name.to_owned(),
        submit_s: 300.0,
        deadline_s: 301.0,
        inputs: vec!["small".to_owned()],
        bytes_per_second_max: None,
    };
    Request {
        version: VERSION,
        window: Window {
            start_s: 0.0,
            end_s: 600.0,
            slot_s: 300.0,
        },
        link: Link {
            bytes_per_second: 1000.0,
            changes: Vec::new(),
            promised: Vec::new(),
        },
        cache: Cache {
            capacity_bytes: 1 << 20,
            bytes_per_second: None,
            held: Vec::new(),
        },
        files: vec![File {
            name: "small".to_owned(),
            bytes,
            available_s: None,
            block_bytes: File::default_block_bytes(),
        }],
        jobs: vec![job("job"), job("other")],
        options: Options {
            objective: Objective::MostDeadlines,
            ..Options::default()
        },
    }
}

#[test]
fn a_file_shorter_than_a_block_is_fetched_before_its_job_starts_and_told_by_its_real_bytes() {
    let request = request();
    let plan = plan(&request, &SmallSolver).unwrap();
    let told = explain(&request, &plan, "job", &since_zero).unwrap();
    assert!(
        told.contains("fetched from 0:00:00 to 0:05:00") && !told.contains("MiB"),
        "{told}"
    );
    let transfer = plan.files[0].transfers[0];
    assert!(transfer.end_s <= 300.0 + 1e-6, "{transfer:?}");
}

#[test]
fn a_new_plan_fetches_a_file_shorter_than_a_block_before_its_job_starts() {
    let mut finer = request();
    let former = plan(&finer, &SmallSolver).unwrap();
    finer.window.slot_s = 50.0;
    let again = replan(&finer, &former).unwrap();
    assert_eq!(again.quality.planned, 2);
    let transfers = &again.files[0].transfers;
    let blocks: u64 = transfers.iter().map(|transfer| transfer.blocks).sum();
    let end_s = transfers
        .iter()
        .map(|transfer| transfer.end_s)
        .fold(0.0, f64::max);
    assert!(blocks == 1 && end_s <= 300.0 + 1e-6, "{transfers:?}");
    assert!(
        (again.quality.fetched_bytes - 120_345.0).abs() < 1200.0,
        "{:?}",
        again.quality
    );
}

#[test]
fn a_file_shorter_than_a_block_is_cached_all_or_not_at_all() {
    let mut request = request();
    request.cache.capacity_bytes = 10_000_000;
    request.files[0].bytes = 3_000_000;
    request.jobs.truncate(1);
    request.jobs[0].deadline_s = 360.0;
    // The link brings the file in time, if the cache has it before.
    for link in [10_000.0, 100_000.0] {
        request.link.bytes_per_second = link;
        let plan = plan(&request, &SmallSolver).unwrap();
        let read = &plan.jobs[0].reads[0];
        let cached: u64 = plan
            .files
            .iter()
            .flat_map(|file| &file.transfers)
            .map(|transfer| transfer.blocks)
            .sum();
        let is_fetched = cached == 1;
        assert!(is_fetched || cached == 0, "{plan:?}");
        let expected = if is_fetched { 3e6 } else { 0.0 };
        assert!((read.cached_bytes - expected).abs() < 1.0, "{read:?}");
        let promised = read.cached_bytes + 60.0 * read.remote_bytes_per_second;
        assert!(promised >= 3e6 - 1.0, "{read:?}");
    }
}
