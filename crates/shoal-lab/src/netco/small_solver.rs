//! The solver for small plans: microlp, in this process.

use microlp::{ComparisonOp, Error, OptimizationDirection, Problem, Variable};

use shoal_plan::lp::{LinearProgram, LpSolver, Solution, SolveError};

/// Maximum number of coefficients: some hundred jobs, a few seconds. `shoal-planner` solves larger programs,
/// an order of magnitude faster and in a process that can be stopped.
const MOST_ENTRIES: usize = 60_000;

/// Tolerance of the cost, as a share of one plus the optimum.
const TOLERANCE: f64 = 1e-6;

/// A dual simplex method with branch and bound, pure Rust.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmallSolver;

/// Returns the price of `values` in a program.
pub fn cost(program: &LinearProgram, values: &[f64]) -> f64 {
    let columns = program.columns().iter().zip(values);
    columns.map(|(column, value)| column.cost * value).sum()
}

impl LpSolver for SmallSolver {
    fn solve(&self, program: &LinearProgram) -> Result<Solution, SolveError> {
        let entries = program.entries().len();
        if entries > MOST_ENTRIES {
            let why = format!(
                "the program has {entries} coefficients, and this solver takes {MOST_ENTRIES}: shoal-planner takes more"
            );
            return Err(SolveError::GaveUp(why));
        }
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let variables: Vec<Variable> = program
            .columns()
            .iter()
            .map(|column| {
                let (lower, upper) = (*column.bounds.start(), *column.bounds.end());
                if column.is_whole {
                    problem.add_integer_var(column.cost, (lower.ceil() as i32, upper.floor() as i32))
                } else {
                    problem.add_var(column.cost, (lower, upper))
                }
            })
            .collect();
        let mut terms: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); program.rows().len()];
        for entry in program.entries() {
            terms[entry.row].push((variables[entry.column], entry.factor));
        }
        for (terms, bounds) in terms.iter().zip(program.rows()) {
            let (lower, upper) = (*bounds.start(), *bounds.end());
            if (upper - lower).abs() == 0.0 {
                problem.add_constraint(terms.as_slice(), ComparisonOp::Eq, lower);
                continue;
            }
            if lower.is_finite() {
                problem.add_constraint(terms.as_slice(), ComparisonOp::Ge, lower);
            }
            if upper.is_finite() {
                problem.add_constraint(terms.as_slice(), ComparisonOp::Le, upper);
            }
        }
        let outcome = problem.solve().map_err(|error| match error {
            Error::Infeasible => SolveError::Infeasible,
            error => SolveError::GaveUp(error.to_string()),
        })?;
        let solution = outcome
            .into_solution()
            .map_err(|_| SolveError::GaveUp("no solution before its own limits".to_owned()))?;
        let bound = solution.objective() - TOLERANCE * (1.0 + solution.objective().abs());
        Ok(Solution {
            values: variables
                .iter()
                .map(|&variable| solution.var_value(variable))
                .collect(),
            bound,
        })
    }
}
