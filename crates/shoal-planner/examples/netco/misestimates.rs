//! Submissions and sizes that differ from their forecast (Fig. 10), with and without replanning.

use std::path::Path;

use shoal_base::seeded::Chance;
use shoal_lab::netco::execution::{Policy, Replanning, Scenario, run as execute};
use shoal_lab::netco::workload::Unit;
use shoal_plan::model::Request;
use shoal_plan::plan;
use shoal_plot::{Line, Lines};

use crate::SOLVER;
use crate::setup::{hour, medium, missed};
use crate::table::{Table, range};

/// The most by which a submission is off, and a size (6.3).
const OFF_S: f64 = 300.0;
const OFF_SIZE: f64 = 0.1;
/// The link, as a share of the least one that serves all jobs without a cache: medium load as in the paper,
/// and a link that only a plan can do with.
const LINKS: [f64; 2] = [1.0, 0.3];
/// How often the plan is renewed, if it is.
const EVERY_S: f64 = 60.0;
const POLICIES: [&str; 4] = ["PACMan-LIFE", "FixedTimePrefetch", "Netco", "Netco, replanned"];

pub fn run(out: &Path, is_quick: bool) {
    let seeds: &[u64] = if is_quick { &[1] } else { &[1, 2, 3] };
    let shares: &[f64] = if is_quick { &[0.5] } else { &[0.0, 0.1, 0.25, 0.5] };
    let unit = if is_quick { Unit::B4 } else { Unit::B1 };
    let mut table = Table::new(&[
        "link",
        "what is off",
        "share of it %",
        "policy",
        "bytes % of LIFE's",
        "peak % of LIFE's",
        "missed %",
    ]);
    let kinds = [
        ("submissions", [true, false]),
        ("sizes", [false, true]),
        ("both", [true, true]),
    ];
    for (links, (name, off)) in LINKS
        .into_iter()
        .flat_map(|links| kinds.map(|kind| (links, kind)))
    {
        let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); POLICIES.len()];
        for &share in shares {
            let outcomes: Vec<[[f64; 3]; 4]> = seeds
                .iter()
                .map(|&seed| outcome(unit, seed, (share, links), off))
                .collect();
            for (number, policy) in POLICIES.iter().enumerate() {
                let of = |value: usize| {
                    outcomes
                        .iter()
                        .map(|seed| seed[number][value])
                        .collect::<Vec<f64>>()
                };
                let of_life = |value: usize| {
                    outcomes
                        .iter()
                        .map(|seed| seed[number][value] / seed[0][value] * 100.0)
                        .collect::<Vec<f64>>()
                };
                table.row(&[
                    links.to_string(),
                    name.to_owned(),
                    format!("{:.0}", share * 100.0),
                    (*policy).to_owned(),
                    range(&of_life(0), 0),
                    range(&of_life(1), 0),
                    range(&of(2), 1),
                ]);
                let mean = of_life(0).iter().sum::<f64>() / seeds.len() as f64;
                lines[number].push((share * 100.0, mean));
            }
        }
        if links < 1.0 {
            continue;
        }
        let plot = Lines {
            title: format!("Data read from the lake, {name} off"),
            x_label: format!(
                "% of the {}",
                if name == "both" {
                    "submissions and sizes"
                } else {
                    name
                }
            ),
            y_label: "% of PACMan-LIFE's".to_owned(),
            lines: POLICIES
                .iter()
                .zip(lines)
                .map(|(name, points)| Line {
                    name: (*name).to_owned(),
                    points,
                })
                .collect(),
        };
        std::fs::write(out.join(format!("{name}.svg")), plot.svg()).expect("the folder can be written");
    }
    table.write(out, "results");
}

/// Bytes, peak, and the percentage of jobs missed, of each policy.
fn outcome(
    unit: Unit,
    seed: u64,
    (share, links): (f64, f64),
    [submissions, sizes]: [bool; 2],
) -> [[f64; 3]; 4] {
    let drawn = hour(unit, seed).draw();
    let forecast = medium(&drawn, links, 0.3);
    let plan = plan(&forecast, &SOLVER).expect("the request is sound");
    let actual = actual(&forecast, seed, share, submissions, sizes);
    let planned = |replanning| Policy::Plan {
        plan: &plan,
        is_metered: true,
        replanning,
    };
    let policies = [
        Policy::Life,
        Policy::FixedTimePrefetch {
            ahead_s: 900.0,
            forecast: &forecast,
        },
        planned(None),
        planned(Some(Replanning {
            forecast: &forecast,
            every_s: EVERY_S,
        })),
    ];
    policies.map(|policy| {
        let report = execute(&Scenario {
            request: &actual,
            policy,
            ad_hoc: &[],
        });
        [
            report.link_bytes,
            report.peak_bytes_per_second(),
            missed(&actual, &report) * 100.0,
        ]
    })
}

/// The actual request: the forecast, with this share of its submissions or sizes changed by chance.
fn actual(forecast: &Request, seed: u64, share: f64, submissions: bool, sizes: bool) -> Request {
    let mut actual = forecast.clone();
    let mut chance = Chance::stream(seed, 5);
    for job in &mut actual.jobs {
        let (is_off, by) = (chance.happens(share), chance.unit() * 2.0 - 1.0);
        if is_off && submissions {
            let by_s = (by * OFF_S).max(forecast.window.start_s - job.submit_s);
            job.submit_s += by_s;
            job.deadline_s += by_s;
        }
    }
    for file in &mut actual.files {
        let (is_off, by) = (chance.happens(share), chance.unit() * 2.0 - 1.0);
        if is_off && sizes {
            #[expect(
                clippy::cast_sign_loss,
                reason = "a tenth more or less leaves a file positive"
            )]
            let bytes = (file.bytes as f64 * (1.0 + by * OFF_SIZE)) as u64;
            file.bytes = bytes.max(1);
        }
    }
    actual
}
