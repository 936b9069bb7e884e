//! Medium load (Figs. 5 and 6): peak and bytes in relation to `RemoteRead`, and deadlines missed while the
//! link varies.

use std::path::Path;

use shoal_lab::netco::execution::{Policy, Report, Scenario, run as execute};
use shoal_lab::netco::workload::Unit;
use shoal_plan::model::Request;
use shoal_plan::plan;
use shoal_plot::{Bars, Spread};

use crate::SOLVER;
use crate::setup::{hour, medium, missed, vary};
use crate::table::{Table, median, range};

const POLICIES: [&str; 5] = ["RemoteRead", "LRU", "PACMan-LIFE", "FixedTimePrefetch", "Netco"];
const VARIATIONS: [f64; 3] = [0.15, 0.3, 0.5];

/// The result of a policy: peak and bytes in relation to `RemoteRead`, and the share of missed jobs for each
/// of [`VARIATIONS`].
#[derive(Clone, Debug, Default)]
struct Outcome {
    peak: f64,
    bytes: f64,
    missed: [f64; 3],
}

pub fn run(out: &Path, is_quick: bool) {
    let units: &[(Unit, &str)] = if is_quick {
        &[(Unit::B4, "B4")]
    } else {
        &[
            (Unit::B1, "B1"),
            (Unit::B2, "B2"),
            (Unit::B3, "B3"),
            (Unit::B4, "B4"),
        ]
    };
    let seeds: &[u64] = if is_quick { &[1] } else { &[1, 2, 3] };
    let caches: &[f64] = if is_quick { &[0.3] } else { &[0.1, 0.3, 1.0] };
    let head = [
        "cache",
        "unit",
        "policy",
        "peak %",
        "bytes %",
        "missed %, link ±15%",
        "missed %, ±30%",
        "missed %, ±50%",
        "bytes for a deadline met, of Netco's",
    ];
    let mut table = Table::new(&head);
    for &cache in caches {
        let mut drawn: Vec<(String, Vec<Vec<Outcome>>)> = Vec::new();
        for &(unit, name) in units {
            let outcomes: Vec<Vec<Outcome>> = seeds.iter().map(|&seed| outcomes(unit, seed, cache)).collect();
            for (number, policy) in POLICIES.iter().enumerate() {
                let of = |value: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
                    outcomes.iter().map(|seed| value(&seed[number])).collect()
                };
                let percent = |values: Vec<f64>| range(&values, 0);
                let cost = |seed: &Vec<Outcome>| {
                    let of = |outcome: &Outcome| outcome.bytes / (1.0 - outcome.missed[1]);
                    of(&seed[number]) / of(&seed[4])
                };
                let costs: Vec<f64> = outcomes.iter().map(cost).collect();
                table.row(&[
                    format!("{:.0}%", cache * 100.0),
                    name.to_owned(),
                    (*policy).to_owned(),
                    percent(of(&|o| (o.peak - 1.0) * 100.0)),
                    percent(of(&|o| (o.bytes - 1.0) * 100.0)),
                    percent(of(&|o| o.missed[0] * 100.0)),
                    percent(of(&|o| o.missed[1] * 100.0)),
                    percent(of(&|o| o.missed[2] * 100.0)),
                    format!("{:.1}", median(&costs)),
                ]);
            }
            drawn.push((name.to_owned(), outcomes));
        }
        plots(out, cache, &drawn);
    }
    table.write(out, "results");
}

fn outcomes(unit: Unit, seed: u64, cache: f64) -> Vec<Outcome> {
    let drawn = hour(unit, seed).draw();
    let request = medium(&drawn, 1.0, cache);
    let plan = plan(&request, &SOLVER).expect("the request is sound");
    let policies = [
        Policy::RemoteRead,
        Policy::Lru,
        Policy::Life,
        Policy::FixedTimePrefetch {
            ahead_s: 900.0,
            forecast: &request,
        },
        Policy::Plan {
            plan: &plan,
            is_metered: true,
            replanning: None,
        },
    ];
    let run = |request: &Request, policy| {
        execute(&Scenario {
            request,
            policy,
            ad_hoc: &[],
        })
    };
    let steady: Vec<Report> = policies.iter().map(|&policy| run(&request, policy)).collect();
    let varied = VARIATIONS.map(|variation| vary(&request, variation, seed));
    policies
        .iter()
        .zip(&steady)
        .map(|(&policy, report)| Outcome {
            peak: report.peak_bytes_per_second() / steady[0].peak_bytes_per_second(),
            bytes: report.link_bytes / steady[0].link_bytes,
            missed: std::array::from_fn(|number| missed(&varied[number], &run(&varied[number], policy))),
        })
        .collect()
}

/// The paper's Figs. 5a to 5c.
fn plots(out: &Path, cache: f64, drawn: &[(String, Vec<Vec<Outcome>>)]) {
    let bars = |title: &str, y_label: &str, value: &dyn Fn(&Outcome) -> f64| Bars {
        title: title.to_owned(),
        y_label: y_label.to_owned(),
        groups: drawn.iter().map(|(name, _)| name.clone()).collect(),
        series: POLICIES
            .iter()
            .enumerate()
            .map(|(number, policy)| {
                let spread = |(_, seeds): &(String, Vec<Vec<Outcome>>)| {
                    Spread::from_values(seeds.iter().map(|seed| value(&seed[number])))
                };
                ((*policy).to_owned(), drawn.iter().map(spread).collect())
            })
            .collect(),
    };
    let percent = (cache * 100.0).round();
    let plots = [
        (
            "missed",
            bars("Deadlines missed, link varies by 30%", "% of the jobs", &|o| {
                o.missed[1] * 100.0
            }),
        ),
        (
            "peak",
            bars("Peak of the link", "% of RemoteRead's", &|o| o.peak * 100.0),
        ),
        (
            "bytes",
            bars("Data read from the lake", "% of RemoteRead's", &|o| {
                o.bytes * 100.0
            }),
        ),
    ];
    for (name, plot) in plots {
        std::fs::write(out.join(format!("{name}-cache-{percent}.svg")), plot.svg())
            .expect("the folder can be written");
    }
}
