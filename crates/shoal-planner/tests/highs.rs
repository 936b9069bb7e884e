//! HiGHS and the small solver agree, and the compact program has the optimum of the printed one.
#![allow(clippy::unwrap_used, reason = "a test stops where it cannot go on")]

use std::num::NonZeroU32;
use std::time::Duration;

use shoal_lab::netco::printed;
use shoal_lab::netco::workload::{Sharing, Workload};
use shoal_lab::netco::{SmallSolver, check, cost, table1};
use shoal_plan::instance::Instance;
use shoal_plan::lp::LpSolver;
use shoal_plan::lp::formulation::Formulation;
use shoal_plan::model::Objective;
use shoal_plan::planner;
use shoal_planner::HighsSolver;

const HIGHS: HighsSolver = HighsSolver {
    time_limit: Duration::from_mins(1),
    threads: NonZeroU32::MIN,
    is_patient: true,
};

/// Some dozen jobs over an hour, on a link of this share of the bytes that they read, and a cache of this
/// share of the files.
fn instance(seed: u64, link: f64, cache: f64) -> Instance {
    let workload = Workload {
        scale: 0.003,
        hours: 1.0,
        sharing: Sharing::Week,
        seed,
        ..Workload::default()
    };
    let drawn = workload.draw();
    #[expect(clippy::cast_sign_loss, reason = "files have bytes")]
    let request = drawn.request(
        drawn.read_bytes() / 3600.0 * link,
        (drawn.file_bytes() * cache) as u64,
        240.0,
    );
    request.check().unwrap();
    Instance::new(&request)
}

#[test]
fn the_compact_program_has_the_optimum_of_the_printed_one() {
    for (seed, link, cache) in [(1, 1.0, 0.3), (2, 0.5, 0.1), (3, 0.3, 0.6), (4, 0.2, 0.05)] {
        let instance = instance(seed, link, cache);
        for objective in [Objective::LeastPeak, Objective::MostDeadlines] {
            let printed = printed::program(&instance, objective);
            let printed = cost(&printed, &HIGHS.solve(&printed).unwrap().values);
            let formulation = Formulation::new(&instance, objective);
            let compact = formulation.read(&instance, &HIGHS.solve(&formulation.program).unwrap());
            let (optimum, sign) = match objective {
                Objective::LeastPeak => (printed, 1.0),
                Objective::MostDeadlines => (-printed, -1.0),
            };
            // The price of bytes costs a little; the bound holds all the same.
            let worse = sign * (compact.value - optimum) / optimum;
            assert!(
                (-1e-5..0.003).contains(&worse),
                "{objective:?} {seed}: {} for {optimum}",
                compact.value
            );
            let bound = sign * (optimum - compact.bound) / optimum;
            assert!(
                (-1e-5..0.006).contains(&bound),
                "{objective:?} {seed}: {} bounds {optimum}",
                compact.bound
            );
        }
    }
}

#[test]
fn both_solvers_find_the_same_optimum() {
    for objective in [Objective::LeastPeak, Objective::MostDeadlines] {
        let program = Formulation::new(&instance(5, 0.4, 0.2), objective).program;
        let [highs, small] = [
            HIGHS.solve(&program).unwrap(),
            SmallSolver.solve(&program).unwrap(),
        ];
        let [one, other] = [&highs, &small].map(|solution| cost(&program, &solution.values));
        assert!((one - other).abs() < 1e-5 * one.abs(), "{one} and {other}");
        for solution in [highs, small] {
            assert!(program.violation(&solution.values) < 1e-5);
            assert!(
                solution.bound <= one + 1e-9 && solution.bound > one - 1e-4 * one.abs(),
                "{}",
                solution.bound
            );
        }
    }
}

#[test]
fn whole_jobs_are_within_three_percent_of_the_exact_program_as_printed() {
    let (mut exact, mut ours) = (0.0, 0.0);
    for seed in 1..=3 {
        let instance = instance(seed, 0.35, 0.15);
        let mut formulation = Formulation::new(&instance, Objective::MostDeadlines);
        formulation.make_whole();
        let best = formulation.read(&instance, &HIGHS.solve(&formulation.program).unwrap());
        let mut options = table1::request().options;
        options.objective = Objective::MostDeadlines;
        let decision = planner::decide(&instance, &options, &HIGHS).unwrap();
        check(&decision.schedule, &instance).unwrap();
        exact += best.value.round();
        ours += decision.schedule.planned() as f64;
    }
    assert!(ours >= 0.97 * exact, "{ours} of {exact}");
}
