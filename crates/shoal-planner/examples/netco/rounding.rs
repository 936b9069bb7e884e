//! Rounding against the exact program (6.3): jobs planned, as a share of those that the MILP plans.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use shoal_lab::netco::check;
use shoal_lab::netco::workload::{Sharing, Unit, Workload};
use shoal_plan::instance::Instance;
use shoal_plan::lp::formulation::{Formulation, Fractional};
use shoal_plan::lp::{LinearProgram, LpSolver, Solution, SolveError};
use shoal_plan::model::{Objective, Options, Paging, Rounding};
use shoal_plan::planner;
use shoal_plan::planner::rounding::{improve, round};
use shoal_planner::HighsSolver;

use crate::SOLVER;
use crate::table::Table;

/// The solver without the exact program for small instances, so that rounding is measured.
struct RoundingOnly;

impl LpSolver for RoundingOnly {
    fn solve(&self, program: &LinearProgram) -> Result<Solution, SolveError> {
        SOLVER.solve(program)
    }
}

/// Seeds of the randomized rounding; their mean counts.
const DRAWS: u64 = 20;

/// The columns of the table.
const HEAD: [&str; 11] = [
    "jobs",
    "load",
    "exact",
    "fractional",
    "randomized, as printed",
    "randomized, then inserted",
    "prefix",
    "prefix, then inserted",
    "prefix, program by program, and exchanges",
    "of the exact %",
    "the planner's",
];

/// The numbers of jobs that the programs and roundings of an instance plan.
struct Planned {
    exact: Option<f64>,
    fractional: f64,
    /// Without and with insertion.
    randomized: [f64; 2],
    prefix: [f64; 2],
    stepwise: f64,
    planner: f64,
}

pub fn run(out: &Path, is_quick: bool) {
    let seeds: &[u64] = if is_quick { &[1] } else { &[1, 2, 3] };
    let sizes: &[f64] = if is_quick { &[0.003] } else { &[0.004, 0.008] };
    let time_limit = Duration::from_secs(if is_quick { 5 } else { 60 });
    let exact = HighsSolver {
        time_limit,
        threads: NonZeroU32::MIN,
        is_patient: true,
    };
    let mut table = Table::new(&HEAD);
    let [mut all, mut stepwise, mut planner] = [0.0; 3];
    for &scale in sizes {
        for load in [2.0, 4.0] {
            for &seed in seeds {
                let instance = instance(scale, load, seed);
                let planned = planned(&instance, &exact);
                if let Some(exact) = planned.exact {
                    all += exact;
                    stepwise += planned.stepwise;
                    planner += planned.planner;
                }
                table.row(&row(&instance, load, &planned));
            }
        }
    }
    let mut sums = vec!["solved".to_owned(), String::new(), format!("{all:.0}")];
    sums.resize(8, String::new());
    sums.extend([
        format!("{stepwise:.0}"),
        format!("{:.1}", stepwise / f64::max(all, 1.0) * 100.0),
        format!("{planner:.0}"),
    ]);
    table.row(&sums);
    table.write(out, "results");
}

fn instance(scale: f64, load: f64, seed: u64) -> Instance {
    let sharing = Sharing::Week;
    let drawn = Workload {
        unit: Unit::B1,
        scale,
        hours: 1.0,
        sharing,
        seed,
        ..Workload::default()
    }
    .draw();
    let link = drawn.read_bytes() / 3600.0 / load;
    #[expect(clippy::cast_sign_loss, reason = "files have bytes")]
    let request = drawn.request(link, (drawn.file_bytes() * 0.15) as u64, 240.0);
    Instance::new(&request)
}

fn planned(instance: &Instance, exact: &HighsSolver) -> Planned {
    let mut formulation = Formulation::new(instance, Objective::MostDeadlines);
    let solution = SOLVER
        .solve(&formulation.program)
        .expect("the program has a solution");
    let fractional = formulation.read(instance, &solution);
    formulation.make_whole();
    let exact = exact.solve(&formulation.program).ok();
    let exact = exact.map(|solution| formulation.read(instance, &solution).value.round());
    let mean = |inserts| {
        let draws =
            (1..=DRAWS).map(|seed| rounded(instance, &fractional, (Rounding::Randomized, seed), inserts));
        draws.sum::<f64>() / DRAWS as f64
    };
    let decided = |solver: &dyn LpSolver| {
        let options = Options {
            objective: Objective::MostDeadlines,
            paging: Paging::Off,
            ..Options::default()
        };
        let decision = planner::decide(instance, &options, solver).expect("the program has a solution");
        check(&decision.schedule, instance).expect("no plan promises more than there is");
        decision.schedule.planned() as f64
    };
    Planned {
        exact,
        fractional: fractional.value,
        randomized: [mean(false), mean(true)],
        prefix: [false, true].map(|inserts| rounded(instance, &fractional, (Rounding::Prefix, 1), inserts)),
        stepwise: decided(&RoundingOnly),
        planner: decided(&SOLVER),
    }
}

/// The jobs of one rounding.
fn rounded(
    instance: &Instance,
    fractional: &Fractional,
    (rounding, seed): (Rounding, u64),
    inserts: bool,
) -> f64 {
    let mut schedule = round(instance, fractional, rounding, seed);
    if inserts {
        improve(instance, fractional, &mut schedule);
    }
    check(&schedule, instance).expect("no plan promises more than there is");
    schedule.planned() as f64
}

fn row(instance: &Instance, load: f64, planned: &Planned) -> Vec<String> {
    let exact = |of: &dyn Fn(f64) -> String, none: &str| planned.exact.map_or(none.to_owned(), of);
    vec![
        instance.jobs.len().to_string(),
        load.to_string(),
        exact(&|exact| format!("{exact:.0}"), "out of time"),
        format!("{:.1}", planned.fractional),
        format!("{:.1}", planned.randomized[0]),
        format!("{:.1}", planned.randomized[1]),
        format!("{:.0}", planned.prefix[0]),
        format!("{:.0}", planned.prefix[1]),
        format!("{:.0}", planned.stepwise),
        exact(&|exact| format!("{:.1}", planned.stepwise / exact * 100.0), "-"),
        format!("{:.0}", planned.planner),
    ]
}
