//! Rounding against the exact program (6.3): jobs planned, as a share of what the MILP plans.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use shoal_plan::formulation::Formulation;
use shoal_plan::instance::Instance;
use shoal_plan::lp::{LinearProgram, LpSolver, Solution, SolveError};
use shoal_plan::model::{Objective, Options, Rounding};
use shoal_plan::planner;
use shoal_plan::rounding::{improve, round};
use shoal_plan::workload::{Sharing, Unit, Workload};
use shoal_planner::HighsSolver;

use crate::SOLVER;
use crate::table::Table;

/// The solver without the exact program for small instances, so that rounding is what is measured.
struct RoundingOnly;

impl LpSolver for RoundingOnly {
    fn solve(&self, program: &LinearProgram) -> Result<Solution, SolveError> {
        SOLVER.solve(program)
    }
}

/// Seeds of the randomized rounding; their mean counts.
const DRAWS: u64 = 20;

pub fn run(out: &Path, is_quick: bool) {
    let seeds: &[u64] = if is_quick { &[1] } else { &[1, 2, 3] };
    let sizes: &[f64] = if is_quick { &[0.003] } else { &[0.004, 0.008] };
    let limit = Duration::from_secs(if is_quick { 5 } else { 60 });
    let exact = HighsSolver {
        time_limit: limit,
        threads: NonZeroU32::MIN,
        is_patient: true,
    };
    let head = [
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
    let mut table = Table::new(&head);
    let (mut ours, mut whole, mut all) = (0.0, 0.0, 0.0);
    for &scale in sizes {
        for load in [2.0, 4.0] {
            for &seed in seeds {
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
                let instance = Instance::of(&request);
                let mut formulation = Formulation::new(&instance, Objective::MostDeadlines);
                let solution = SOLVER
                    .solve(&formulation.program)
                    .expect("the program has a solution");
                let fractional = formulation.read(&instance, &solution);
                formulation.make_whole();
                let milp = exact
                    .solve(&formulation.program)
                    .map(|solution| formulation.read(&instance, &solution).value.round());
                let rounded = |rounding, seed, inserts: bool| {
                    let mut schedule = round(&instance, &fractional, rounding, seed);
                    if inserts {
                        improve(&instance, &fractional, &mut schedule);
                    }
                    schedule
                        .check(&instance)
                        .expect("no plan promises more than there is");
                    schedule.planned() as f64
                };
                let mean = |inserts| {
                    (1..=DRAWS)
                        .map(|seed| rounded(Rounding::Randomized, seed, inserts))
                        .sum::<f64>()
                        / DRAWS as f64
                };
                let options = Options {
                    objective: Objective::MostDeadlines,
                    paging: shoal_plan::model::Paging::Off,
                    ..Options::default()
                };
                let decided = |solver: &dyn LpSolver| {
                    let decision =
                        planner::decide(&instance, &options, solver).expect("the program has a solution");
                    decision
                        .schedule
                        .check(&instance)
                        .expect("no plan promises more than there is");
                    decision.schedule.planned() as f64
                };
                let (planned, with_exact) = (decided(&RoundingOnly), decided(&SOLVER));
                if let Ok(milp) = milp {
                    ours += planned;
                    whole += with_exact;
                    all += milp;
                }
                table.row(&[
                    instance.jobs.len().to_string(),
                    load.to_string(),
                    milp.as_ref()
                        .map_or("out of time".to_owned(), |milp| format!("{milp:.0}")),
                    format!("{:.1}", fractional.value),
                    format!("{:.1}", mean(false)),
                    format!("{:.1}", mean(true)),
                    format!("{:.0}", rounded(Rounding::Prefix, 1, false)),
                    format!("{:.0}", rounded(Rounding::Prefix, 1, true)),
                    format!("{planned:.0}"),
                    milp.map_or("-".to_owned(), |milp| format!("{:.1}", planned / milp * 100.0)),
                    format!("{with_exact:.0}"),
                ]);
            }
        }
    }
    let blank = || "".to_owned();
    let sums = [
        format!("{all:.0}"),
        blank(),
        blank(),
        blank(),
        blank(),
        blank(),
        format!("{ours:.0}"),
        format!("{:.1}", ours / f64::max(all, 1.0) * 100.0),
        format!("{whole:.0}"),
    ];
    table.row(&[["solved".to_owned(), blank()].as_slice(), sums.as_slice()].concat());
    table.write(out, "results");
}
