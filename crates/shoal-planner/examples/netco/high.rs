//! High load (Fig. 7): jobs that are admitted, in relation to planning without a cache and with demand paging
//! alone.

use std::path::Path;

use shoal_base::seeded::Chance;
use shoal_lab::netco::check;
use shoal_lab::netco::workload::{Drawn, LEAD_S, Sharing, Unit, Workload};
use shoal_plan::instance::Instance;
use shoal_plan::model::{Objective, Options, Paging, Request};
use shoal_plan::planner;
use shoal_plan::schedule::Schedule;
use shoal_plot::{Line, Lines};

use crate::SOLVER;
use crate::setup::SLOT_S;
use crate::table::{Table, range};

/// The time that jobs are known before they start, in the online scenario.
const KNOWN_S: [f64; 2] = [1800.0, 0.0];

/// Admitted: without a cache, with demand paging, Netco offline, and online by [`KNOWN_S`]; and the bound.
type Admitted = [f64; 6];

pub fn run(out: &Path, is_quick: bool) {
    let loads: &[f64] = if is_quick { &[2.0] } else { &[1.0, 2.0, 3.0, 5.0] };
    let seeds: &[u64] = if is_quick { &[1] } else { &[1, 2] };
    let scale = if is_quick { 0.01 } else { 1.75 / 24.0 };
    let head = [
        "cache",
        "load",
        "jobs",
        "RemoteRead",
        "demand paging",
        "Netco",
        "bound",
        "Netco against RemoteRead",
        "against demand paging",
        "online, known 30 min before, against offline",
        "known at the start, against offline",
    ];
    let mut table = Table::new(&head);
    for cache in [0.1, 0.3] {
        let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); 4];
        for &load in loads {
            let admitted: Vec<(usize, Admitted)> = seeds
                .iter()
                .map(|&seed| admitted(scale, seed, load, cache))
                .collect();
            let of = |number: usize| {
                admitted
                    .iter()
                    .map(move |(_, counts)| counts[number])
                    .collect::<Vec<f64>>()
            };
            let against = |one: usize, other: usize| {
                let change = admitted
                    .iter()
                    .map(|(_, counts)| (counts[one] / counts[other] - 1.0) * 100.0);
                format!("{} %", range(&change.collect::<Vec<_>>(), 1))
            };
            table.row(&[
                format!("{:.0}%", cache * 100.0),
                load.to_string(),
                admitted[0].0.to_string(),
                range(&of(0), 0),
                range(&of(1), 0),
                range(&of(2), 0),
                range(&of(5), 1),
                against(2, 0),
                against(2, 1),
                against(3, 2),
                against(4, 2),
            ]);
            for (line, (one, other)) in lines.iter_mut().zip([(2, 0), (2, 1), (3, 0), (4, 0)]) {
                let mean = admitted
                    .iter()
                    .map(|(_, counts)| counts[one] / counts[other])
                    .sum::<f64>()
                    / seeds.len() as f64;
                line.push((load, mean * 100.0));
            }
        }
        let names = [
            "offline, of RemoteRead's",
            "offline, of paging's",
            "online 30 min, of RemoteRead's",
            "online, of RemoteRead's",
        ];
        let plot = Lines {
            title: format!("Jobs admitted by Netco, cache {:.0}% of the files", cache * 100.0),
            x_label: "bytes read, as a multiple of the link".to_owned(),
            y_label: "% of the other's".to_owned(),
            lines: names
                .iter()
                .zip(lines)
                .map(|(name, points)| Line {
                    name: (*name).to_owned(),
                    points,
                })
                .collect(),
        };
        std::fs::write(
            out.join(format!("admitted-cache-{:.0}.svg", cache * 100.0)),
            plot.svg(),
        )
        .expect("the folder can be written");
    }
    table.write(out, "results");
}

fn admitted(scale: f64, seed: u64, load: f64, cache: f64) -> (usize, Admitted) {
    let workload = Workload {
        unit: Unit::B1,
        scale,
        hours: 3.0,
        sharing: Sharing::Week,
        seed,
        ..Workload::default()
    };
    let drawn = hurried(workload.draw(), seed);
    let link = drawn.read_bytes() / (drawn.end_s - LEAD_S) / load;
    #[expect(clippy::cast_sign_loss, reason = "files have bytes")]
    let mut request = drawn.request(link, (drawn.file_bytes() * cache) as u64, SLOT_S);
    request.options.objective = Objective::MostDeadlines;
    request.check().expect("the request is sound");
    let count = |request: &Request| {
        let instance = Instance::new(request);
        let decision =
            planner::decide(&instance, &request.options, &SOLVER).expect("the program has a solution");
        check(&decision.schedule, &instance).expect("no plan promises more than there is");
        (decision.schedule.planned() as f64, decision.planned_at_most)
    };
    let (netco, bound) = count(&request);
    let mut remote = request.clone();
    remote.cache.capacity_bytes = 0;
    remote.options = Options {
        paging: Paging::Off,
        ..request.options
    };
    let mut paged = request.clone();
    // Nothing can be fetched ahead.
    paged
        .files
        .iter_mut()
        .for_each(|file| file.available_s = Some(1e9));
    paged.options = Options {
        paging: Paging::Life,
        ..request.options
    };
    let [online, at_once] = KNOWN_S.map(|known_s| online(&request, known_s));
    (
        request.jobs.len(),
        [count(&remote).0, count(&paged).0, netco, online, at_once, bound],
    )
}

/// Each gap between two jobs is divided by a factor between 2 and 5, drawn for each gap (6.2).
fn hurried(mut drawn: Drawn, seed: u64) -> Drawn {
    let mut chance = Chance::stream(seed, 3);
    let (mut before_s, mut now_s) = (LEAD_S, LEAD_S);
    let mut moved: std::collections::HashMap<String, f64> = std::collections::HashMap::new();
    for job in &mut drawn.jobs {
        now_s += (job.submit_s - before_s) / (2.0 + 3.0 * chance.unit());
        before_s = job.submit_s;
        job.deadline_s += now_s - job.submit_s;
        // A file is as old when it is first read as before.
        for file in &job.inputs {
            moved.entry(file.clone()).or_insert(now_s - job.submit_s);
        }
        job.submit_s = now_s;
    }
    for file in &mut drawn.files {
        let by_s = moved.get(&file.name).copied().unwrap_or(0.0);
        file.available_s = file.available_s.map(|available_s| (available_s + by_s).max(0.0));
    }
    drawn.end_s = now_s + 1.0;
    drawn
}

/// Jobs are planned one by one, in the order of their submission, when they become known.
fn online(request: &Request, known_s: f64) -> f64 {
    let instance = Instance::new(request);
    let mut schedule = Schedule::new(&instance);
    let mut jobs: Vec<usize> = (0..instance.jobs.len()).collect();
    jobs.sort_by_key(|&job| (instance.jobs[job].from, job));
    for job in jobs {
        let submit_s = request.jobs[instance.jobs[job].number].submit_s;
        let known = instance
            .slots
            .next((submit_s - known_s).max(request.window.start_s));
        schedule.insert_from(&instance, job, known);
    }
    check(&schedule, &instance).expect("no plan promises more than there is");
    schedule.planned() as f64
}
