//! From a request to a plan: the linear program, whole jobs, demand paging.

pub mod admit;
pub mod decision;
pub mod replan;
pub mod rounding;
pub mod translate;
mod write;

use thiserror::Error;

use crate::instance::Instance;
use crate::lp::formulation::{DEADLINE_SHARE, Formulation, Fractional};
use crate::lp::{LpSolver, Solution, SolveError};
use crate::model::{Objective, Options, Paging, Request, RequestError, Rounding};
use crate::plan::Plan;
use crate::planner::decision::Decision;
use crate::planner::rounding::{WHOLE, exchange, improve, order, round};
use crate::planner::write::write;
use crate::schedule::Schedule;
use crate::schedule::reuse::augment_and_reuse;

/// Maximum coefficients of a program that is solved again to plan more jobs, and finally for the least peak
/// of the chosen ones: each takes a second at most.
const SMALL_ENTRIES: usize = 100_000;
/// Maximum number of rounds, each of which decides some jobs and solves the program again for the others.
const ROUNDS: usize = 24;
/// Maximum total coefficients of all these programs.
const ENTRIES_IN_ALL: usize = 600_000;
/// The gap to the bound, as a share of the jobs, at which rounds stop.
const GOOD_ENOUGH: f64 = 0.002;
/// Maximum number of jobs for which single ones are exchanged for two others.
const EXCHANGE_JOBS: usize = 300;
/// A round decides the number of open jobs divided by this.
const STEP: usize = 8;
/// A peak above the link by less than this is the solver's rounding.
const PEAK_ROUNDING: f64 = 1e-5;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanError {
    /// The request is invalid.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The solver failed.
    #[error(transparent)]
    Solve(#[from] SolveError),
}

/// Plans a request.
///
/// # Errors
/// Fails if the request is invalid or the solver fails.
pub fn plan(request: &Request, solver: &dyn LpSolver) -> Result<Plan, PlanError> {
    request.check()?;
    let instance = Instance::new(request);
    let decision = decide(&instance, &request.options, solver)?;
    Ok(write(request, &instance, &decision))
}

/// Decides about an instance.
///
/// # Errors
/// Fails if the solver fails.
pub fn decide(instance: &Instance, options: &Options, solver: &dyn LpSolver) -> Result<Decision, SolveError> {
    let least_peak = match options.objective {
        Objective::LeastPeak => least_peak(instance, solver)?,
        Objective::MostDeadlines => None,
    };
    let mut decision = match least_peak {
        Some(decision) => decision,
        None => most_deadlines(instance, options, solver)?,
    };
    page(instance, &mut decision, options.paging);
    Ok(decision)
}

/// Plans all jobs with the least peak; `None` if the link cannot serve them all.
fn least_peak(instance: &Instance, solver: &dyn LpSolver) -> Result<Option<Decision>, SolveError> {
    let formulation = Formulation::new(instance, Objective::LeastPeak);
    let fractional = match solver.solve(&formulation.program) {
        Ok(solution) => formulation.read(instance, &solution),
        Err(SolveError::Infeasible) => return Ok(None),
        Err(error) => return Err(error),
    };
    if fractional.value > 1.0 + PEAK_ROUNDING {
        return Ok(None);
    }
    let mut schedule = Schedule::from_fractional(instance, &fractional);
    // All of them fit, except for rounding; the few that it left out are inserted elsewhere.
    let refused: Vec<usize> = (0..instance.jobs.len())
        .filter(|&job| !schedule.admit(instance, job))
        .collect();
    for job in refused {
        schedule.insert(instance, job);
    }
    schedule.trim(instance);
    Ok(Some(Decision {
        objective: Objective::LeastPeak,
        schedule,
        pages: Vec::new(),
        planned_at_most: instance.jobs.len() as f64,
        peak_share_at_least: Some(fractional.bound.max(0.0)),
    }))
}

fn most_deadlines(
    instance: &Instance,
    options: &Options,
    solver: &dyn LpSolver,
) -> Result<Decision, SolveError> {
    let mut formulation = Formulation::new(instance, Objective::MostDeadlines);
    let solution = solver.solve(&formulation.program)?;
    let fractional = formulation.read(instance, &solution);
    let planned_at_most = fractional.bound.min(instance.jobs.len() as f64);
    let mut best = whole(instance, options, &fractional);
    if formulation.program.entries().len() <= SMALL_ENTRIES {
        best = dive(
            instance,
            options,
            solver,
            &mut formulation,
            fractional,
            best,
            planned_at_most,
        );
    }
    if instance.jobs.len() <= EXCHANGE_JOBS {
        exchange(instance, &mut best);
    }
    if best.planned() as f64 + 1.0 <= planned_at_most && instance.jobs.len() <= solver.most_whole() {
        best = exact(instance, solver, best);
    }
    Ok(Decision {
        objective: Objective::MostDeadlines,
        schedule: best,
        pages: Vec::new(),
        planned_at_most,
        peak_share_at_least: None,
    })
}

/// Decides a few jobs at a time and solves the program again for the others, while that can plan more.
fn dive(
    instance: &Instance,
    options: &Options,
    solver: &dyn LpSolver,
    formulation: &mut Formulation,
    mut fractional: Fractional,
    mut best: Schedule,
    planned_at_most: f64,
) -> Schedule {
    let mut decided = vec![false; instance.jobs.len()];
    let rounds = (ENTRIES_IN_ALL / formulation.program.entries().len().max(1)).clamp(2, ROUNDS);
    for _ in 0..rounds {
        let most = planned_at_most.min(fractional.value + DEADLINE_SHARE * decided.len() as f64);
        if most - (best.planned() as f64) < f64::max(1.0, GOOD_ENOUGH * decided.len() as f64) {
            break;
        }
        for (job, fraction) in fractional.fractions.iter().enumerate() {
            if *fraction >= WHOLE && !decided[job] {
                decided[job] = true;
                formulation.fix(job, 1.0);
            }
        }
        let open = order(
            instance,
            &fractional,
            &Schedule::from_fractional(instance, &fractional),
        );
        let open: Vec<usize> = open
            .into_iter()
            .filter(|&job| !decided[job] && fractional.fractions[job] > 1.0 - WHOLE)
            .collect();
        let Some(next) = step(solver, formulation, &open, &mut decided) else {
            break;
        };
        fractional = formulation.read(instance, &next);
        let schedule = whole(instance, options, &fractional);
        if schedule.planned() > best.planned() {
            best = schedule;
        }
    }
    best
}

/// Accepts the first open jobs if the program then has a solution. Otherwise tries half as many; a single one
/// without a solution is rejected.
fn step(
    solver: &dyn LpSolver,
    formulation: &mut Formulation,
    open: &[usize],
    decided: &mut [bool],
) -> Option<Solution> {
    let mut count = open.len().div_ceil(STEP);
    while count > 0 {
        open[..count].iter().for_each(|&job| formulation.fix(job, 1.0));
        if let Ok(solution) = solver.solve(&formulation.program) {
            open[..count].iter().for_each(|&job| decided[job] = true);
            return Some(solution);
        }
        open[..count].iter().for_each(|&job| formulation.free(job));
        if count == 1 {
            formulation.fix(open[0], 0.0);
            decided[open[0]] = true;
            return solver.solve(&formulation.program).ok();
        }
        count /= 2;
    }
    None
}

/// Solves the mixed integer program, for small instances, in which single jobs matter.
fn exact(instance: &Instance, solver: &dyn LpSolver, best: Schedule) -> Schedule {
    let mut formulation = Formulation::new(instance, Objective::MostDeadlines);
    formulation.make_whole();
    let Ok(solution) = solver.solve(&formulation.program) else {
        return best;
    };
    let fractional = formulation.read(instance, &solution);
    let mut schedule = round(instance, &fractional, Rounding::Prefix, 0);
    improve(instance, &fractional, &mut schedule);
    if schedule.planned() > best.planned() {
        schedule
    } else {
        best
    }
}

fn whole(instance: &Instance, options: &Options, fractional: &Fractional) -> Schedule {
    let mut schedule = round(instance, fractional, options.rounding, options.seed);
    improve(instance, fractional, &mut schedule);
    schedule
}

/// Adds demand paging, and the jobs that fit into the part of the link that it frees.
fn page(instance: &Instance, decision: &mut Decision, paging: Paging) {
    decision.pages = augment_and_reuse(instance, &mut decision.schedule, paging);
    if !decision.pages.is_empty() {
        decision.schedule.admit_others(instance);
    }
}
