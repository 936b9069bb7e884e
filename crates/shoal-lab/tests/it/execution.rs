//! Stories of jobs that share a link and a cache.

use shoal_lab::netco::SmallSolver;
use shoal_lab::netco::execution::{Policy, Replanning, Report, Scenario, run};
use shoal_plan::model::{Cache, File, Job, Link, Objective, Options, Request, VERSION, Window};
use shoal_plan::plan;

const MB: u64 = 1_000_000;

/// Files of 100 MB, a link of 10 MB/s, and jobs: submission, deadline, inputs.
fn request(files: &[&str], jobs: &[(&str, f64, f64, &[&str])], capacity_bytes: u64) -> Request {
    let file = |name: &&str| File {
        name: (*name).to_owned(),
        bytes: 100 * MB,
        available_s: None,
        block_bytes: MB,
    };
    let job = |&(name, submit_s, deadline_s, inputs): &(&str, f64, f64, &[&str])| Job {
        name: name.to_owned(),
        submit_s,
        deadline_s,
        inputs: inputs.iter().map(|&input| input.to_owned()).collect(),
        bytes_per_second_max: Some(50e6),
    };
    Request {
        version: VERSION,
        window: Window {
            start_s: 0.0,
            end_s: 1000.0,
            slot_s: 1.0,
        },
        link: Link {
            bytes_per_second: 10e6,
            changes: Vec::new(),
            promised: Vec::new(),
        },
        cache: Cache {
            capacity_bytes,
            bytes_per_second: None,
            held: Vec::new(),
        },
        files: files.iter().map(file).collect(),
        jobs: jobs.iter().map(job).collect(),
        options: Options {
            objective: Objective::MostDeadlines,
            ..Options::default()
        },
    }
}

fn reported(request: &Request, policy: Policy<'_>) -> Report {
    run(&Scenario {
        request,
        policy,
        ad_hoc: &[],
    })
}

fn rounded(report: &Report) -> (Vec<f64>, f64) {
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    (
        report.ends_s.iter().map(|end_s| round(*end_s)).collect(),
        round(report.link_bytes / 1e6),
    )
}

#[test]
fn a_file_that_was_read_is_a_hit_until_it_leaves() {
    let jobs: [(&str, f64, f64, &[&str]); 4] = [
        ("first", 0.0, 900.0, &["a"]),
        ("again", 20.0, 900.0, &["a"]),
        ("other", 40.0, 900.0, &["b"]),
        ("late", 60.0, 900.0, &["a"]),
    ];
    // Room for one file: b takes that of a.
    let request = request(&["a", "b"], &jobs, 100 * MB);
    assert_eq!(
        rounded(&reported(&request, Policy::Lru)),
        (vec![10.0, 22.0, 50.0, 70.0], 300.0)
    );
    assert_eq!(
        rounded(&reported(&request, Policy::RemoteRead)),
        (vec![10.0, 30.0, 50.0, 70.0], 400.0)
    );
}

#[test]
fn life_evicts_the_largest_file_and_lru_the_one_not_used_for_longest() {
    let jobs: [(&str, f64, f64, &[&str]); 4] = [
        ("small", 0.0, 900.0, &["small"]),
        ("large", 20.0, 900.0, &["large"]),
        ("new", 60.0, 900.0, &["new"]),
        ("again", 80.0, 900.0, &["small"]),
    ];
    let mut request = request(&["small", "large", "new"], &jobs, 300 * MB);
    request.files[1].bytes = 200 * MB;
    let bytes = [Policy::Lru, Policy::Life].map(|policy| rounded(&reported(&request, policy)).1);
    assert_eq!(bytes, [500.0, 400.0]);
}

#[test]
fn a_prefetch_of_fixed_time_is_there_when_its_job_starts() {
    let jobs: [(&str, f64, f64, &[&str]); 2] = [("a", 100.0, 105.0, &["a"]), ("b", 100.0, 105.0, &["b"])];
    let request = request(&["a", "b"], &jobs, 200 * MB);
    let report = reported(
        &request,
        Policy::FixedTimePrefetch {
            ahead_s: 50.0,
            forecast: &request,
        },
    );
    assert_eq!(rounded(&report), (vec![102.0, 102.0], 200.0));
    // Two files at 2 MB/s each.
    assert!((report.peak_bytes_per_second() - 4e6).abs() < 1.0);
}

#[test]
fn ad_hoc_jobs_get_what_planned_ones_leave() {
    let jobs: [(&str, f64, f64, &[&str]); 2] =
        [("planned", 0.0, 20.0, &["a"]), ("ad hoc", 0.0, 900.0, &["b"])];
    let request = request(&["a", "b"], &jobs, 0);
    let mut planned = request.clone();
    planned.jobs.truncate(1);
    let plan = plan(&planned, &SmallSolver).unwrap();
    let scenario = |is_metered| Scenario {
        request: &request,
        policy: Policy::Plan {
            plan: &plan,
            is_metered,
            replanning: None,
        },
        ad_hoc: &[false, true],
    };
    // Metered, the planned job takes half of the link until its deadline; else all of it first.
    assert_eq!(rounded(&run(&scenario(true))).0, [20.0, 20.0]);
    assert_eq!(rounded(&run(&scenario(false))).0, [10.0, 20.0]);
}

#[test]
fn a_plan_that_follows_what_happens_saves_a_job_that_comes_late() {
    // Without a cache of its own the second file has no place before 50 s, so the plan fetches it between the
    // jobs.
    let jobs: [(&str, f64, f64, &[&str]); 2] =
        [("first", 100.0, 104.0, &["a"]), ("second", 130.0, 134.0, &["b"])];
    let forecast = request(&["a", "b"], &jobs, 100 * MB);
    let plan = plan(&forecast, &SmallSolver).unwrap();
    assert_eq!(plan.quality.planned, 2);
    let mut actual = forecast.clone();
    actual.jobs[0].submit_s += 40.0;
    actual.jobs[0].deadline_s += 40.0;
    let replanning = Replanning {
        forecast: &forecast,
        every_s: 5.0,
    };
    let run = |replanning| {
        reported(
            &actual,
            Policy::Plan {
                plan: &plan,
                is_metered: true,
                replanning,
            },
        )
    };
    let fixed = run(None).in_time(&actual);
    assert_eq!(fixed, [false, true], "the plan has evicted the late job's file");
    let followed = run(Some(replanning)).in_time(&actual);
    assert!(followed.iter().filter(|in_time| **in_time).count() >= 1);
}
