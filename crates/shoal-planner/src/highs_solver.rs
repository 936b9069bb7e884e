//! HiGHS as an `LpSolver`: its dual simplex method for small programs, its interior point method for large
//! ones.

use std::num::NonZeroU32;
use std::time::Duration;

use highs::{HighsModelStatus, HighsSolutionStatus, RowProblem, Sense, SolvedModel};
use shoal_plan::lp::{LinearProgram, LpSolver, Solution, SolveError};

/// Coefficients above which the interior point method is faster than the simplex method: measured in
/// `experiments/netco-scale`.
const LARGE_ENTRIES: usize = 150_000;
/// The relative gap between the optimum and its bound at which the interior point method stops. The plan's
/// own bounds add up to 0.5%.
const INTERIOR_GAP: f64 = 2e-4;
/// The optimum of a program as the interior point method sees it: its gap is relative to one more than the
/// optimum.
const INTERIOR_SCALE: f64 = 1000.0;
/// Whole jobs count one each, and the price of all bytes is less than the rest of this: a gap below it proves
/// the number of jobs.
const WHOLE_GAP: f64 = 0.9;
/// Whole jobs that are worth a try: more are within a percent of the optimum by rounding.
const MOST_WHOLE: usize = 120;
/// The longest that such a try may take.
const WHOLE_TIME_S: f64 = 15.0;
/// A violation of a bound above which a solution is no solution.
const VIOLATION_MAX: f64 = 1e-4;

/// HiGHS, with a bound on its time.
#[derive(Clone, Copy, Debug)]
pub struct HighsSolver {
    /// The longest that one program may take.
    pub time_limit: Duration,
    /// Processors that it may use.
    pub threads: NonZeroU32,
    /// True if a mixed integer program may take all of the time, and fails if that is not enough. Else the
    /// best solution of some seconds will do.
    pub is_patient: bool,
}

impl LpSolver for HighsSolver {
    fn most_whole(&self) -> usize {
        MOST_WHOLE
    }

    fn solve(&self, program: &LinearProgram) -> Result<Solution, SolveError> {
        let is_large = program.entries().len() > LARGE_ENTRIES && !program.has_whole();
        let scale = if is_large {
            INTERIOR_SCALE
                / program
                    .columns()
                    .iter()
                    .map(|c| c.cost.abs())
                    .sum::<f64>()
                    .max(1.0)
        } else {
            1.0
        };
        let mut model = rows(program, scale)
            .try_optimise(Sense::Minimise)
            .map_err(gave_up)?;
        model.make_quiet();
        model.set_threads(self.threads);
        let failed = |status| SolveError::GaveUp(format!("an option was refused: {status:?}"));
        let limit_s = self.time_limit.as_secs_f64();
        let limit_s = if program.has_whole() && !self.is_patient {
            limit_s.min(WHOLE_TIME_S)
        } else {
            limit_s
        };
        model.try_set_option("time_limit", limit_s).map_err(failed)?;
        model.try_set_option("random_seed", 1).map_err(failed)?;
        if is_large {
            model.try_set_option("solver", "ipm").map_err(failed)?;
            model.try_set_option("run_crossover", "off").map_err(failed)?;
            model
                .try_set_option("ipm_optimality_tolerance", INTERIOR_GAP)
                .map_err(failed)?;
        }
        if program.has_whole() {
            model.try_set_option("mip_rel_gap", 0.0).map_err(failed)?;
            model.try_set_option("mip_abs_gap", WHOLE_GAP).map_err(failed)?;
        }
        let solved = model.try_solve().map_err(gave_up)?;
        self.judge(program, &solved, scale)
    }
}

impl HighsSolver {
    /// Returns the solution, if there is one that satisfies every row. The interior point method returns
    /// "unknown" for one that is optimal within our tolerance only; the bound says how good it is.
    fn judge(
        &self,
        program: &LinearProgram,
        solved: &SolvedModel,
        scale: f64,
    ) -> Result<Solution, SolveError> {
        match solved.status() {
            HighsModelStatus::Infeasible | HighsModelStatus::UnboundedOrInfeasible => {
                return Err(SolveError::Infeasible);
            }
            HighsModelStatus::ReachedTimeLimit if !program.has_whole() || self.is_patient => {
                return Err(SolveError::OutOfTime(self.time_limit));
            }
            _ if solved.primal_solution_status() == HighsSolutionStatus::Feasible => {}
            status => return Err(SolveError::GaveUp(format!("{status:?}"))),
        }
        let solution = solved.get_solution();
        let values = solution.columns().to_vec();
        let violation = program.violation(&values);
        if violation > VIOLATION_MAX {
            return Err(SolveError::GaveUp(format!(
                "its solution violates a bound by {violation:.1e}"
            )));
        }
        let bound = if program.has_whole() {
            solved.double_info_value(c"mip_dual_bound").map_err(gave_up)? / scale
        } else {
            let prices: Vec<f64> = solution.dual_rows().iter().map(|price| price / scale).collect();
            program.bound(&prices)
        };
        Ok(Solution { values, bound })
    }
}

fn gave_up(status: highs::HighsStatus) -> SolveError {
    SolveError::GaveUp(format!("{status:?}"))
}

fn rows(program: &LinearProgram, scale: f64) -> RowProblem {
    let mut problem = RowProblem::new();
    let columns: Vec<_> = program
        .columns()
        .iter()
        .map(|column| {
            let range = column.bounds.clone();
            if column.is_whole {
                problem.add_integer_column(column.cost * scale, range)
            } else {
                problem.add_column(column.cost * scale, range)
            }
        })
        .collect();
    let mut entries = program.entries();
    for (row, bounds) in program.rows().iter().enumerate() {
        let (of_row, rest) = entries.split_at(entries.partition_point(|entry| entry.row <= row));
        entries = rest;
        let terms: Vec<_> = of_row
            .iter()
            .map(|entry| (columns[entry.column], entry.factor))
            .collect();
        problem.add_row(bounds.clone(), &terms);
    }
    problem
}
