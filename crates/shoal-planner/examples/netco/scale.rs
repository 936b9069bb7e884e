//! How long planning takes, and how far from the optimum a plan can be at most.

use std::path::Path;

use shoal_lab::netco::workload::{Unit, Workload};
use shoal_plan::model::{LinkChange, Objective, Request};
use shoal_plan::planner::replan::replan;
use shoal_plan::{Plan, plan};

use crate::SOLVER;
use crate::table::Table;

pub fn run(out: &Path, is_quick: bool) {
    let mut table = Table::new(&[
        "jobs",
        "files",
        "reads",
        "objective",
        "planned",
        "at most",
        "peak",
        "at least",
        "gap %",
        "processor s",
    ]);
    let sizes: &[(f64, f64, f64)] = if is_quick {
        &[(0.02, 1.0, 60.0)]
    } else {
        &[
            (0.0556, 1.0, 60.0),
            (0.111, 1.0, 60.0),
            (0.222, 1.0, 60.0),
            (1.0, 24.0, 300.0),
        ]
    };
    for &(scale, hours, slot_s) in sizes {
        for (objective, load) in [
            (Objective::LeastPeak, 0.6),
            (Objective::MostDeadlines, 1.5),
            (Objective::MostDeadlines, 3.0),
        ] {
            let request = request(scale, hours, slot_s, objective, load);
            let (plan, seconds) = timed(|| plan(&request, &SOLVER).expect("the request is sound"));
            table.row(&row(
                &request,
                &plan,
                &format!("{}, load {load}", name(plan.objective)),
                seconds,
            ));
            if objective == Objective::LeastPeak {
                for (name, changed) in changes(&request) {
                    let (plan, seconds) = timed(|| replan(&changed, &plan).expect("the request is sound"));
                    table.row(&row(&changed, &plan, &format!("replanned: {name}"), seconds));
                }
            }
        }
    }
    table.write(out, "results");
}

/// Returns the name of an objective.
const fn name(objective: Objective) -> &'static str {
    match objective {
        Objective::LeastPeak => "least peak",
        Objective::MostDeadlines => "most deadlines",
    }
}

/// A workload of B1 with Table 2's files, 6.7 files a job. `load`: the bytes that jobs read, as a share of
/// those that the link carries while they are submitted. The cache has room for a tenth of the files.
fn request(scale: f64, hours: f64, slot_s: f64, objective: Objective, load: f64) -> Request {
    let workload = Workload {
        unit: Unit::B1,
        scale,
        hours,
        files_a_job: 6.7,
        ..Workload::default()
    };
    let drawn = workload.draw();
    let link = drawn.read_bytes() / (hours * 3600.0) / load;
    #[expect(clippy::cast_sign_loss, reason = "files have bytes")]
    let mut request = drawn.request(link, (drawn.file_bytes() * 0.1) as u64, slot_s);
    request.options.objective = objective;
    request
}

/// Changes that may happen between two plans, each with its name: a hundredth of the jobs comes five minutes
/// later, as many are new (the readers of other files), and the link is a tenth slower from the middle on.
fn changes(request: &Request) -> Vec<(&'static str, Request)> {
    let mut late = request.clone();
    for job in late.jobs.iter_mut().step_by(100) {
        job.submit_s += 300.0;
        job.deadline_s += 300.0;
    }
    late.window.end_s += 300.0;
    let mut new = request.clone();
    let more: Vec<_> = new.jobs.iter().step_by(100).cloned().collect();
    for (number, mut job) in more.into_iter().enumerate() {
        job.name = format!("new{number}");
        job.inputs
            .clone_from(&request.jobs[(number * 100 + 50) % request.jobs.len()].inputs);
        job.bytes_per_second_max = None;
        new.jobs.push(job);
    }
    let mut slower = request.clone();
    slower.link.changes.push(LinkChange {
        at_s: f64::midpoint(request.window.start_s, request.window.end_s),
        bytes_per_second: request.link.bytes_per_second * 0.9,
    });
    vec![("1% late", late), ("1% new", new), ("link -10%", slower)]
}

fn row(request: &Request, plan: &Plan, what: &str, seconds: f64) -> Vec<String> {
    let quality = &plan.quality;
    let gap = match quality.peak_share_at_least {
        Some(least) => (quality.peak_share - least) / least * 100.0,
        None => (quality.planned_at_most - quality.planned as f64) / quality.planned_at_most * 100.0,
    };
    vec![
        request.jobs.len().to_string(),
        request.files.len().to_string(),
        request
            .jobs
            .iter()
            .map(|job| job.inputs.len())
            .sum::<usize>()
            .to_string(),
        what.to_owned(),
        quality.planned.to_string(),
        format!("{:.1}", quality.planned_at_most),
        format!("{:.4}", quality.peak_share),
        quality
            .peak_share_at_least
            .map_or("-".to_owned(), |least| format!("{least:.4}")),
        format!("{gap:.2}"),
        format!("{seconds:.2}"),
    ]
}

/// A computation's value and its processor time in seconds: other programs may share the machine.
fn timed<T>(compute: impl FnOnce() -> T) -> (T, f64) {
    let before = processor_s();
    let value = compute();
    (value, processor_s() - before)
}

/// The processor time of the main thread so far, in seconds, from `/proc`.
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").expect("Linux has /proc");
    let nanos: f64 = stat
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .expect("its first word is a number");
    nanos / 1e9
}
