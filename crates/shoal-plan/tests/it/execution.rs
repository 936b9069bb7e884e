//! Stories of plans on their courses, without a clock.

use shoal_lab::netco::SmallSolver;
use shoal_plan::document::{DeadlineRule, Document, ExpectedFile, ExpectedJob, Extent};
use shoal_plan::execution::{Deviation, Difference, Execution, JobStatus, Step, Verdicts};
use shoal_plan::model::{Cache, File, Held, Job, Link, Objective, Options, Request, VERSION, Window};
use shoal_plan::plan::Outcome;
use shoal_plan::planner::replan::replan;

pub(super) const BLOCK: u64 = 100;

/// Files of ten blocks; each job reads one of them whole in the first second after its submission, which the
/// link cannot carry.
pub(super) fn request(jobs: &[(f64, usize)]) -> Request {
    let files = jobs.iter().map(|job| job.1 + 1).max().unwrap_or(0);
    let file = |number: usize| File {
        name: format!("f{number}"),
        bytes: 10 * BLOCK,
        available_s: None,
        block_bytes: BLOCK,
    };
    let job = |(number, (submit_s, file)): (usize, &(f64, usize))| Job {
        name: format!("j{number}"),
        submit_s: *submit_s,
        deadline_s: submit_s + 1.0,
        inputs: vec![format!("f{file}")],
        bytes_per_second_max: None,
    };
    Request {
        version: VERSION,
        window: Window {
            start_s: 0.0,
            end_s: 60.0,
            slot_s: 1.0,
        },
        link: Link {
            bytes_per_second: 2.0 * BLOCK as f64,
            changes: Vec::new(),
            promised: Vec::new(),
        },
        cache: Cache {
            capacity_bytes: 100 * BLOCK,
            bytes_per_second: None,
            held: Vec::new(),
        },
        files: (0..files).map(file).collect(),
        jobs: jobs.iter().enumerate().map(job).collect(),
        options: Options::default(),
    }
}

pub(super) fn document(request: Request) -> Document {
    let plan = shoal_plan::plan(&request, &SmallSolver).unwrap();
    let document = Document {
        version: VERSION,
        epoch_ms: 0,
        files: request
            .files
            .iter()
            .map(|file| ExpectedFile {
                path: format!("s3://b/{}", file.name),
                extent: Extent::Object,
                bytes_low: file.bytes,
                bytes_high: file.bytes,
                objects: None,
            })
            .collect(),
        jobs: request
            .jobs
            .iter()
            .map(|job| ExpectedJob {
                name: job.name.clone(),
                early_s: job.submit_s,
                late_s: job.submit_s,
                probability: 1.0,
                deadline_rule: DeadlineRule::Given,
            })
            .collect(),
        left_out: Vec::new(),
        request,
        plan,
    };
    document.check().unwrap();
    document
}

fn execution(jobs: &[(f64, usize)]) -> Execution {
    Execution::new(document(request(jobs)), &Verdicts::default(), 0.0)
}

/// Continues until `until_s` in steps of a tenth of a second, at `share` of the rates. Returns the steps
/// taken.
pub(super) fn go(execution: &mut Execution, from_s: f64, until_s: f64, share: f64) -> Vec<Step> {
    let is_running = |transfer: &usize| execution.transfers()[*transfer].is_running();
    let mut running: Vec<usize> = (0..execution.transfers().len()).filter(is_running).collect();
    let (mut steps, mut now_s) = (Vec::new(), from_s);
    let mut carry = vec![0.0; execution.transfers().len()];
    while now_s < until_s {
        for step in execution.due(now_s) {
            steps.push(step);
            if let Step::Fetch(transfer) = step {
                running.push(transfer);
            }
        }
        running.retain(|&transfer| {
            carry[transfer] += execution.rate(transfer, now_s, None) * share * 0.1;
            let whole = carry[transfer].floor();
            carry[transfer] -= whole;
            #[expect(clippy::cast_sign_loss, reason = "a rate is positive")]
            execution.moved(transfer, whole as u64);
            let goes_on = execution.transfers()[transfer].left_bytes() > 0;
            if !goes_on {
                execution.done(transfer);
            }
            goes_on
        });
        now_s += 0.1;
        execution.tick(now_s);
        execution.judge(now_s);
    }
    steps
}

#[test]
fn a_job_that_begins_with_the_window_is_promised_its_rate_from_the_lake() {
    let mut request = request(&[(0.0, 0), (20.0, 1)]);
    request.jobs[0].deadline_s = 10.0;
    let mut execution = Execution::new(document(request), &Verdicts::default(), 0.0);
    let promise = execution.promise(0).unwrap();
    assert!(
        (promise.bytes_per_second - BLOCK as f64).abs() < 1.0,
        "{promise:?}"
    );
    assert_eq!((promise.files, promise.until_s), (vec![0], 10.0));
    assert_eq!(execution.promise(1), None, "it finds its file in the cache");
    assert!(execution.due(0.0).contains(&Step::Promise(0)));
    assert!(!execution.due(0.0).contains(&Step::Promise(0)), "once");
    // A new plan leaves a job that runs its promise.
    let asked = execution.request_from(
        1.0,
        Deviation {
            file: 1,
            difference: Difference::Behind { bytes: 1 },
        },
    );
    execution.adopt(replan(&asked.unwrap(), execution.plan()).unwrap(), 1.0);
    assert!(execution.due(1.0).contains(&Step::Promise(0)));
    let mut late = execution.clone();
    late.adopt(execution.plan().clone(), 10.0);
    assert!(
        !late.due(10.0).contains(&Step::Promise(0)),
        "its deadline is over"
    );
}

#[test]
fn a_job_may_read_from_the_lake_what_is_left_by_the_time_that_is_left() {
    const MIB: u64 = 1 << 20;
    let mut request = request(&[(0.0, 0)]);
    request.jobs[0].deadline_s = 20.0;
    let slow = Execution::new(document(request.clone()), &Verdicts::default(), 0.0);
    assert_eq!(
        slow.ceiling(0, 0, 0.0),
        Some(MIB as f64),
        "clients must not wait for minutes"
    );
    (request.files[0].bytes, request.files[0].block_bytes) = (1000 * MIB, MIB);
    request.link.bytes_per_second = 200.0 * MIB as f64;
    request.cache.capacity_bytes = 1 << 40;
    let mut execution = Execution::new(document(request.clone()), &Verdicts::default(), 0.0);
    // 1,000 MiB in 20 s, of which one is the reserve. (moved, now, size) → the ceiling, in MiB
    for (moved, now_s, bytes, expected) in [
        (0, 0.0, 1000, Some(1000.0 / 19.0)),
        (500, 9.0, 1000, Some(50.0)),
        (0, 9.0, 1000, Some(100.0)),
        (900, 9.0, 1000, Some(50.0)),
        (1000, 9.0, 1000, None),
        (500, 19.0, 1000, None),
        (500, 9.0, 2000, Some(150.0)),
    ] {
        execution.has_size(0, bytes * MIB);
        let found = execution.ceiling(0, moved * MIB, now_s);
        let found = found.map(|rate| rate / MIB as f64);
        let is_it = match (found, expected) {
            (Some(found), Some(expected)) => (found - expected).abs() < 1e-6,
            (found, expected) => found == expected,
        };
        assert!(is_it, "{moved} of {bytes} at {now_s}: {found:?}");
    }
    // A job whose cached bytes have not come needs more than planned.
    request.link.bytes_per_second = 60.0 * MIB as f64;
    request.jobs[0].submit_s = 10.0;
    let mut execution = Execution::new(document(request), &Verdicts::default(), 0.0);
    assert!(execution.promise(0).is_some() && !execution.transfers().is_empty());
    assert_eq!(execution.ceiling(0, 0, 10.0), None);
    go(&mut execution, 0.0, 10.0, 1.0);
    assert!(execution.ceiling(0, 0, 10.0).is_some());
}

#[test]
fn what_a_job_reads_for_a_later_one_is_kept_as_long_as_the_plan_says() {
    // The second job reads what the first one has read, and the link has no room for it.
    let mut request = request(&[(0.0, 0), (30.0, 0)]);
    request.jobs[0].deadline_s = 10.0;
    let document = document(request);
    let read = &document.plan.jobs[0].reads[0];
    assert!(read.keep && document.plan.quality.paged_bytes > 0.0, "{read:?}");
    let mut execution = Execution::new(document, &Verdicts::default(), 0.0);
    let steps = go(&mut execution, 0.0, 12.0, 1.0);
    let pages: Vec<_> = steps
        .iter()
        .filter(|step| matches!(step, Step::Page { .. }))
        .collect();
    let [Step::Page { file: 0, until_s }] = pages[..] else {
        panic!("{steps:?}");
    };
    assert!(*until_s >= 31.0, "until the second job is done: {until_s}");
    // A new plan for some other reason fetches nothing of it, and keeps it.
    assert_eq!(
        (execution.paged_now(12.0), execution.paged_now(40.0)),
        (vec![0], vec![])
    );
    execution.holds(0, 10 * BLOCK);
    let difference = Difference::Behind { bytes: 1 };
    let asked = execution.request_from(12.0, Deviation { file: 0, difference });
    execution.adopt(replan(&asked.unwrap(), execution.plan()).unwrap(), 12.0);
    assert_eq!(execution.plan().jobs[1].outcome, Outcome::Planned);
    let steps = go(&mut execution, 12.0, 40.0, 1.0);
    let is_fetch = |step: &Step| matches!(step, Step::Fetch(_));
    assert!(!steps.iter().any(is_fetch), "{steps:?}");
    let is_kept = |step: &Step| matches!(step, Step::Keep { file: 0, until_s } if *until_s >= 31.0);
    assert!(steps.iter().any(is_kept), "{steps:?}");
}

#[test]
fn a_plan_on_course_meets_its_deadlines_and_moves_each_byte_once() {
    let mut execution = execution(&[(10.0, 0), (20.0, 1), (25.0, 0)]);
    assert_eq!(execution.judge(0.0), [JobStatus::Waiting; 3]);
    let steps = go(&mut execution, 0.0, 15.0, 1.0);
    assert!(
        steps.iter().any(|step| matches!(step, Step::Fetch(_))),
        "{steps:?}"
    );
    assert_eq!(execution.deviation(15.0), None);
    go(&mut execution, 15.0, 20.5, 1.0);
    assert_eq!(
        execution.judge(20.5)[1],
        JobStatus::Running,
        "its bytes are there to be read"
    );
    for job in 0..3 {
        execution.has_read(job, 10 * BLOCK, 20.5);
    }
    go(&mut execution, 20.5, 30.0, 1.0);
    assert_eq!(execution.judge(30.0), [JobStatus::Met; 3]);
    let volume = execution.volume(30.0);
    assert!(
        (volume.done_bytes - volume.planned_bytes).abs() < 1.0,
        "{volume:?}"
    );
    assert!(
        (volume.done_bytes - volume.total_bytes).abs() < 1e-6,
        "{volume:?}"
    );
    assert!(execution.is_over(60.0) && !execution.is_over(30.0));
}

#[test]
fn a_file_shorter_than_a_block_that_does_not_come_puts_its_jobs_at_risk_before_they_start() {
    let mut request = request(&[(10.0, 0), (10.0, 0)]);
    request.files[0].bytes = 30;
    request.link.bytes_per_second = 40.0;
    // A slot before its jobs.
    request.files[0].available_s = Some(9.0);
    request.options.objective = Objective::MostDeadlines;
    let mut execution = Execution::new(document(request), &Verdicts::default(), 0.0);
    let transfer = &execution.transfers()[0];
    assert_eq!((execution.transfers().len(), transfer.bytes), (1, 30));
    assert!((transfer.end_s - 10.0).abs() < 1e-6, "{transfer:?}");
    assert_eq!(execution.judge(9.0), [JobStatus::Waiting; 2]);
    go(&mut execution, 9.0, 9.5, 0.0);
    assert_eq!(execution.judge(9.5), [JobStatus::AtRisk; 2]);
}

#[test]
fn a_slow_link_puts_jobs_at_risk_and_then_asks_for_a_plan_with_less_of_it() {
    let mut execution = execution(&[(10.0, 0), (20.0, 1)]);
    // A transfer may catch up by twice its rate: a quarter of that is half of the plan.
    go(&mut execution, 0.0, 9.0, 0.25);
    assert!(execution.judge(9.0).contains(&JobStatus::AtRisk));
    let why = execution.deviation(9.0).unwrap();
    assert!(
        why.file <= 1 && matches!(why.difference, Difference::Behind { .. }),
        "{why:?}"
    );
    let request = execution.request_from(9.0, why).unwrap();
    request.check().unwrap();
    assert!(
        request.link.bytes_per_second < 150.0,
        "{}",
        request.link.bytes_per_second
    );
    assert!(!request.cache.held.is_empty(), "what is there stays");
    let plan = replan(&request, execution.plan()).unwrap();
    execution.adopt(plan, 9.0);
    assert_eq!(execution.deviation(9.5), None, "at most one new plan in a slot");
    let volume = execution.volume(9.0);
    assert!(
        volume.done_bytes > 0.0 && volume.total_bytes > volume.done_bytes,
        "{volume:?}"
    );
}

#[test]
fn a_missing_file_is_asked_for_again_and_its_jobs_are_at_risk_until_they_miss() {
    let mut execution = execution(&[(10.0, 0), (30.0, 1)]);
    let mut fetched = 0;
    let mut now_s = 0.0;
    while now_s < 11.5 {
        for step in execution.due(now_s) {
            let Step::Fetch(transfer) = step else { continue };
            if execution.transfers()[transfer].file == 0 {
                fetched += 1;
                execution.missing(transfer, now_s);
            } else {
                execution.done(transfer);
            }
        }
        if let Some(why) = execution.deviation(now_s) {
            assert_eq!((why.file, why.difference), (0, Difference::Missing));
            if let Some(request) = execution.request_from(now_s, why) {
                let plan = replan(&request, execution.plan()).unwrap();
                execution.adopt(plan, now_s);
            }
        }
        let status = execution.judge(now_s)[0];
        assert!(
            fetched == 0 || now_s >= 11.0 || status == JobStatus::AtRisk,
            "{status:?} at {now_s}"
        );
        now_s += 0.25;
    }
    assert!((1..8).contains(&fetched), "{fetched}");
    assert_eq!(
        execution.judge(11.5)[0],
        JobStatus::AtRisk,
        "its reads are not counted yet"
    );
    execution.has_read(0, 0, 11.2);
    assert_eq!(execution.judge(11.5)[0], JobStatus::Missed);
    go(&mut execution, 11.5, 30.5, 1.0);
    execution.has_read(1, 10 * BLOCK, 30.5);
    assert_eq!(execution.judge(32.0), [JobStatus::Missed, JobStatus::Met]);
}

#[test]
fn a_file_of_another_size_leads_to_a_new_plan_only_if_that_was_not_expected() {
    // (size, the greatest that was expected) → true if there is a new plan
    for (bytes, bytes_high, is_other) in [
        (1000, 1000, false),
        (1009, 1000, false),
        (991, 1000, false),
        (1200, 1000, true),
        (1200, 1300, false),
        (500, 1300, true),
    ] {
        let mut document = document(request(&[(10.0, 0)]));
        document.files[0].bytes_high = bytes_high;
        let mut execution = Execution::new(document, &Verdicts::default(), 0.0);
        execution.has_size(0, bytes);
        assert_eq!(execution.deviation(0.0).is_some(), is_other, "{bytes}");
        go(&mut execution, 0.0, 10.5, 1.0);
        assert_eq!(
            execution.judge(10.5)[0],
            JobStatus::Running,
            "what is planned of it is there: {bytes}"
        );
        execution.has_read(0, bytes.min(1000), 10.5);
        assert_eq!(execution.judge(10.5)[0], JobStatus::Met, "{bytes}");
    }
}

#[test]
fn what_the_cache_is_said_to_hold_is_kept_first() {
    let mut request = request(&[(10.0, 0), (12.0, 1)]);
    request.cache.held = vec![Held {
        file: "f1".to_owned(),
        bytes: 10 * BLOCK,
        pinned_until_s: None,
    }];
    let mut execution = Execution::new(document(request), &Verdicts::default(), 0.0);
    let steps = execution.due(0.0);
    let first = steps.iter().find(|step| !matches!(step, Step::Observe(_)));
    let Some(Step::Keep { file: 1, until_s }) = first.copied() else {
        panic!("{steps:?}");
    };
    assert!(until_s >= 13.0, "{until_s}");
    execution.kept(1, 10 * BLOCK);
    assert_eq!(execution.deviation(0.0), None);
    execution.kept(1, 3 * BLOCK);
    assert_eq!(
        execution.deviation(0.0),
        Some(Deviation {
            file: 1,
            difference: Difference::NotHeld { bytes: 300 },
        })
    );
}

#[test]
fn verdicts_outlive_the_coordinator() {
    let jobs = [(10.0, 0), (20.0, 1), (25.0, 0)];
    let mut first = execution(&jobs);
    go(&mut first, 0.0, 22.0, 1.0);
    for job in 0..2 {
        first.has_read(job, 10 * BLOCK, 22.0);
    }
    first.judge(22.0);
    let mut next = Execution::new(document(request(&jobs)), &first.verdicts(), 22.0);
    assert_eq!(next.judge(22.0)[..2], [JobStatus::Met; 2]);
    // The new coordinator finds bytes that are in the cache at once.
    for step in next.due(22.0) {
        if let Step::Fetch(transfer) = step {
            next.done(transfer);
        }
    }
    next.has_read(2, 10 * BLOCK, 26.0);
    assert_eq!(next.judge(26.0), [JobStatus::Met; 3]);
}

#[test]
fn a_job_that_reads_nothing_or_not_all_has_not_met_its_deadline() {
    // (bytes that it read, the time up to which reads are counted, the time) → its status
    let all = 10 * BLOCK;
    for (bytes, counted_s, now_s, expected) in [
        (0, 10.5, 10.5, JobStatus::Running),
        (all, 10.5, 10.5, JobStatus::Met),
        (all - 1, 10.9, 10.9, JobStatus::Running),
        (0, 10.9, 11.1, JobStatus::Running),
        (0, 11.0, 11.1, JobStatus::Unread),
        (all - 1, 11.0, 11.1, JobStatus::Missed),
        (all, 11.0, 11.1, JobStatus::Met),
        // No node has answered since.
        (0, 10.9, 26.1, JobStatus::Unread),
        (1, 10.9, 26.1, JobStatus::Missed),
    ] {
        let mut execution = execution(&[(10.0, 0)]);
        go(&mut execution, 0.0, 10.4, 1.0);
        execution.has_read(0, bytes, counted_s);
        assert_eq!(
            execution.judge(now_s),
            [expected],
            "{bytes} by {counted_s}, at {now_s}"
        );
        assert_eq!(expected.is_final(), execution.verdicts() != Verdicts::default());
    }
    let mut last = execution(&[(59.0, 0)]);
    assert!(last.due(0.0).contains(&Step::Observe(0)), "a job may begin early");
    go(&mut last, 0.0, 60.0, 1.0);
    assert!(!last.is_over(60.5), "the count is still on its way");
    last.has_read(0, 0, 60.0);
    last.judge(60.5);
    assert!(last.is_over(60.5));
}
