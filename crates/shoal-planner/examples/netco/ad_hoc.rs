//! Ad hoc jobs beside planned ones (Fig. 11): their run times with Netco, in relation to those with
//! PACMan-LIFE.

use std::path::Path;

use shoal_base::seeded::Chance;
use shoal_lab::netco::execution::{Policy, Scenario, run as execute};
use shoal_lab::netco::workload::{LEAD_S, Unit};
use shoal_plan::model::{File, Job};
use shoal_plan::plan;
use shoal_plot::{Bars, Spread};

use crate::SOLVER;
use crate::setup::{hour, medium};
use crate::table::{Table, range};

/// The share of all jobs, and of all bytes, that is ad hoc (6.4).
const AD_HOC: f64 = 0.4;
const PERCENTILES: [usize; 4] = [25, 50, 75, 90];
/// Facebook's jobs: 38 minutes with the inputs as published, see `experiments/traces`.
const FACEBOOK: &str = include_str!("../../../../experiments/traces/fb2010-window.tsv");

pub fn run(out: &Path, is_quick: bool) {
    let seeds: &[u64] = if is_quick { &[1] } else { &[1, 2, 3] };
    let mixes: &[(Unit, &str, bool)] = if is_quick {
        &[(Unit::B2, "B2/A2", true)]
    } else {
        &[
            (Unit::B1, "B1/A1", false),
            (Unit::B1, "B1/A2", true),
            (Unit::B2, "B2/A1", false),
            (Unit::B2, "B2/A2", true),
        ]
    };
    let mut table = Table::new(&[
        "mix",
        "rates of ad hoc jobs",
        "ad hoc jobs",
        "25th percentile %",
        "50th %",
        "75th %",
        "90th %",
        "planned jobs missed: LIFE %",
        "Netco %",
    ]);
    let mut bars: Vec<(String, Vec<Spread>)> = PERCENTILES
        .iter()
        .map(|p| (format!("{p}th"), Vec::new()))
        .collect();
    for (&(unit, name, is_facebook), is_unbounded) in mixes.iter().flat_map(|mix| [(mix, true), (mix, false)])
    {
        let run = |&seed: &u64| outcome(unit, seed, is_facebook, is_unbounded);
        let outcomes: Vec<Outcome> = seeds.iter().map(run).collect();
        let of = |number: usize| {
            outcomes
                .iter()
                .map(|outcome| outcome.change[number])
                .collect::<Vec<f64>>()
        };
        let rates = if is_unbounded { "the link's" } else { "their own" };
        let mut cells = vec![name.to_owned(), rates.to_owned(), outcomes[0].ad_hoc.to_string()];
        cells.extend((0..PERCENTILES.len()).map(|number| range(&of(number), 0)));
        for number in 0..2 {
            cells.push(range(
                &outcomes
                    .iter()
                    .map(|outcome| outcome.missed[number])
                    .collect::<Vec<f64>>(),
                1,
            ));
        }
        table.row(&cells);
        if !is_unbounded {
            continue;
        }
        bars.iter_mut().enumerate().for_each(|(number, (_, values))| {
            values.push(Spread::from_values(
                of(number).into_iter().map(|change| -change.min(0.0)),
            ));
        });
    }
    let plot = Bars {
        title: "Reduction of ad hoc jobs' run time by Netco, against PACMan-LIFE".to_owned(),
        y_label: "%".to_owned(),
        groups: mixes.iter().map(|mix| mix.1.to_owned()).collect(),
        series: bars,
    };
    std::fs::write(out.join("run-time.svg"), plot.svg()).expect("the folder can be written");
    table.write(out, "results");
}

struct Outcome {
    ad_hoc: usize,
    change: [f64; 4],
    missed: [f64; 2],
}

fn outcome(unit: Unit, seed: u64, is_facebook: bool, is_unbounded: bool) -> Outcome {
    let drawn = hour(unit, seed).draw();
    let planned = medium(&drawn, 1.0, 0.3);
    let plan = plan(&planned, &SOLVER).expect("the request is sound");
    let bytes = drawn.read_bytes() * AD_HOC / (1.0 - AD_HOC);
    let (jobs, files) = if is_facebook {
        facebook(seed, bytes, is_unbounded)
    } else {
        drawn_jobs(seed, bytes, planned.jobs.len(), is_unbounded)
    };
    let mut request = planned.clone();
    let is_ad_hoc: Vec<bool> = (0..planned.jobs.len() + jobs.len())
        .map(|number| number >= planned.jobs.len())
        .collect();
    request.jobs.extend(jobs);
    request.files.extend(files);
    let mut missed = [0.0; 2];
    let policies = [
        Policy::Life,
        Policy::Plan {
            plan: &plan,
            is_metered: true,
            replanning: None,
        },
    ];
    let times: Vec<Vec<f64>> = policies
        .iter()
        .enumerate()
        .map(|(number, &policy)| {
            let report = execute(&Scenario {
                request: &request,
                policy,
                ad_hoc: &is_ad_hoc,
            });
            let late = report
                .in_time(&request)
                .iter()
                .zip(&is_ad_hoc)
                .filter(|(in_time, is_ad_hoc)| !**in_time && !**is_ad_hoc)
                .count();
            missed[number] = late as f64 / planned.jobs.len() as f64 * 100.0;
            let ends = report
                .ends_s
                .iter()
                .zip(&request.jobs)
                .zip(&is_ad_hoc)
                .filter(|(_, is_ad_hoc)| **is_ad_hoc);
            let mut times: Vec<f64> = ends.map(|((end_s, job), _)| end_s - job.submit_s).collect();
            times.sort_by(f64::total_cmp);
            times
        })
        .collect();
    let at = |times: &[f64], percentile: usize| times[(times.len() * percentile / 100).min(times.len() - 1)];
    let change = PERCENTILES.map(|p| (at(&times[1], p) / at(&times[0], p) - 1.0) * 100.0);
    Outcome {
        ad_hoc: times[0].len(),
        change,
        missed,
    }
}

/// 40% of Facebook's jobs by chance, over the hour of the planned ones, with these bytes together.
fn facebook(seed: u64, bytes: f64, is_unbounded: bool) -> (Vec<Job>, Vec<File>) {
    let mut chance = Chance::stream(seed, 11);
    let rows: Vec<(f64, f64)> = FACEBOOK
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            Some((fields.get(1)?.parse().ok()?, fields.get(3)?.parse().ok()?))
        })
        .filter(|(_, input): &(f64, f64)| *input > 0.0)
        .filter(|_| chance.happens(AD_HOC))
        .collect();
    let last_s = rows.iter().map(|row| row.0).fold(1.0, f64::max);
    let sum: f64 = rows.iter().map(|row| row.1).sum();
    let rows = rows
        .iter()
        .map(|(at_s, input)| (at_s / last_s * 3599.0, input / sum * bytes));
    jobs(rows, is_unbounded)
}

/// As many jobs as make up 40%, in sizes as uneven as those of the business units.
fn drawn_jobs(seed: u64, bytes: f64, planned: usize, is_unbounded: bool) -> (Vec<Job>, Vec<File>) {
    let drawn = hour(Unit::B3, seed + 100).draw();
    #[expect(clippy::cast_sign_loss, reason = "a share of the jobs is positive")]
    let count = (planned as f64 * AD_HOC / (1.0 - AD_HOC)) as usize;
    let sizes: std::collections::HashMap<&str, f64> = drawn
        .files
        .iter()
        .map(|file| (file.name.as_str(), file.bytes as f64))
        .collect();
    let step = (drawn.jobs.len() / count.max(1)).max(1);
    let chosen = drawn.jobs.iter().step_by(step).take(count);
    let rows: Vec<(f64, f64)> = chosen
        .map(|job| {
            (
                job.submit_s - LEAD_S,
                job.inputs.iter().map(|name| sizes[name.as_str()]).sum(),
            )
        })
        .collect();
    let sum: f64 = rows.iter().map(|row: &(f64, f64)| row.1).sum();
    jobs(
        rows.into_iter().map(|(at_s, input)| (at_s, input / sum * bytes)),
        is_unbounded,
    )
}

/// `is_unbounded`: the paper names no rate of their own, so only the link bounds them. Else each can read its
/// input in as long as the median planned job, five minutes at most, and a second for each 100 MB: the first
/// set-up.
fn jobs(rows: impl Iterator<Item = (f64, f64)>, is_unbounded: bool) -> (Vec<Job>, Vec<File>) {
    rows.enumerate()
        .map(|(number, (at_s, input))| {
            #[expect(clippy::cast_sign_loss, reason = "an input has bytes")]
            let bytes = (input as u64).max(1);
            let file = File {
                name: format!("ad-hoc-{number}"),
                bytes,
                available_s: None,
                block_bytes: File::default_block_bytes(),
            };
            let submit_s = LEAD_S + at_s;
            let job = Job {
                name: format!("ad-hoc-{number}"),
                submit_s,
                deadline_s: submit_s + 86_400.0,
                inputs: vec![file.name.clone()],
                bytes_per_second_max: (!is_unbounded)
                    .then(|| bytes as f64 / (bytes as f64 / 100e6).clamp(1.0, 300.0)),
            };
            (job, file)
        })
        .unzip()
}
