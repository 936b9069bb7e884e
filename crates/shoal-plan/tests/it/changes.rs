//! Requests that change: what keeps its place, and which deadlines are saved.

use shoal_lab::netco::SmallSolver;
use shoal_plan::model::{
    Cache, File, Held, Job, Link, LinkChange, Objective, Options, Request, VERSION, Window,
};
use shoal_plan::plan;
use shoal_plan::plan::Outcome;
use shoal_plan::planner::replan::replan;
use shoal_plan::show::what_if::{Change, Effect};

const FILE_BYTES: u64 = 100_000_000;

/// A link of 10 MB/s, and jobs with their submissions and deadlines, each of which reads a file of its own.
fn request(jobs: &[(&str, f64, f64)], capacity_bytes: u64) -> Request {
    let file = |&(name, ..): &(&str, f64, f64)| File {
        name: name.to_owned(),
        bytes: FILE_BYTES,
        available_s: None,
        block_bytes: 1_000_000,
    };
    let job = |&(name, submit_s, deadline_s): &(&str, f64, f64)| Job {
        name: name.to_owned(),
        submit_s,
        deadline_s,
        inputs: vec![name.to_owned()],
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
        files: jobs.iter().map(file).collect(),
        jobs: jobs.iter().map(job).collect(),
        options: Options {
            objective: Objective::MostDeadlines,
            ..Options::default()
        },
    }
}

#[test]
fn a_slower_link_dismisses_jobs_and_the_others_keep_their_places() {
    let jobs = [("a", 100.0, 120.0), ("b", 100.0, 120.0), ("c", 100.0, 120.0)];
    let request = request(&jobs, 0);
    let former = plan(&request, &SmallSolver).unwrap();
    assert_eq!(former.quality.planned, 2, "10 MB/s for 20 s are two files");
    let mut slower = request.clone();
    slower.link.changes = vec![LinkChange {
        at_s: 50.0,
        bytes_per_second: 6e6,
    }];
    let replanned = replan(&slower, &former).unwrap();
    assert_eq!(replanned.quality.planned, 1);
    let kept = replanned
        .jobs
        .iter()
        .position(|job| job.outcome == Outcome::Planned)
        .unwrap();
    assert_eq!(former.jobs[kept].outcome, Outcome::Planned);
}

#[test]
fn more_link_or_slack_saves_deadlines_and_more_cache_does_where_it_is_short() {
    let jobs = [("a", 100.0, 105.0), ("b", 100.0, 105.0), ("c", 100.0, 120.0)];
    let request = request(&jobs, FILE_BYTES);
    let without = plan(&request, &SmallSolver).unwrap();
    assert_eq!(without.quality.planned, 2);
    let changes = [
        Change {
            bandwidth: 3.0,
            ..Change::default()
        },
        Change {
            cache: 2.0,
            ..Change::default()
        },
        Change {
            slack: 3.0,
            ..Change::default()
        },
        Change::default(),
    ];
    let effects = changes.map(|change| {
        let with = plan(&change.apply(&request), &SmallSolver).unwrap();
        Effect::between(&without, with)
    });
    let planned = effects.each_ref().map(|effect| effect.plan.quality.planned);
    assert_eq!(planned, [3, 3, 3, 2]);
    assert!(effects[3].saved.is_empty() && effects[3].lost.is_empty());
    assert_eq!(effects[1].saved.len(), 1);
}

#[test]
fn bytes_that_the_cache_holds_stay_for_a_new_job_that_reads_them_later() {
    let held = |file: &str, bytes| Held {
        file: file.to_owned(),
        bytes,
        pinned_until_s: None,
    };
    // `first` reads all of its file from the cache, and `gone` needs half of the link from the start on.
    let jobs = [("first", 0.0, 20.0), ("gone", 60.0, 80.0), ("new", 60.0, 80.0)];
    let mut changed = request(&jobs, 5 * FILE_BYTES);
    changed.files.truncate(2);
    changed.files[0].bytes = 6 * FILE_BYTES;
    changed.files[1].bytes = 4 * FILE_BYTES;
    changed
        .jobs
        .iter_mut()
        .for_each(|job| job.bytes_per_second_max = None);
    changed.jobs[2].inputs = changed.jobs[0].inputs.clone();
    changed.cache.capacity_bytes = 12 * FILE_BYTES;
    changed.cache.held = vec![held("first", 6 * FILE_BYTES), held("gone", 1)];
    changed.options.objective = Objective::LeastPeak;
    let mut request = changed.clone();
    request.jobs.pop();
    let former = plan(&request, &SmallSolver).unwrap();
    assert!(
        (former.quality.peak_share - 0.5).abs() < 0.01,
        "{:?}",
        former.quality
    );
    changed.jobs.remove(1);
    let replanned = replan(&changed, &former).unwrap();
    assert_eq!(replanned.quality.planned, 2, "{replanned:?}");
    let fetched: f64 = replanned.usage.fetched_bytes_per_second.iter().sum();
    assert_eq!(fetched, 0.0, "what is there stays instead of being fetched again");
}
