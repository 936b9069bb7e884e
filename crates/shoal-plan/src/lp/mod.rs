//! A linear program, and the solvers that can solve it.

pub mod formulation;

use std::ops::RangeInclusive;
use std::time::Duration;

use thiserror::Error;

/// Minimizes `Σ cost · value` over columns within their bounds, with each row's sum within the row's bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinearProgram {
    columns: Vec<Column>,
    rows: Vec<RangeInclusive<f64>>,
    entries: Vec<Entry>,
}

/// A column: the position of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub usize);

/// A variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its price.
    pub cost: f64,
    /// Its bounds, infinite at an end without one.
    pub bounds: RangeInclusive<f64>,
    /// True if its value is a whole number.
    pub is_whole: bool,
}

/// A coefficient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The row.
    pub row: usize,
    /// The column.
    pub column: usize,
    /// The factor of the column in the row.
    pub factor: f64,
}

impl LinearProgram {
    /// Adds a variable.
    pub fn column(&mut self, cost: f64, bounds: RangeInclusive<f64>) -> ColumnId {
        self.columns.push(Column {
            cost,
            bounds,
            is_whole: false,
        });
        ColumnId(self.columns.len() - 1)
    }

    /// Lets a variable take whole numbers only.
    pub fn make_whole(&mut self, ColumnId(column): ColumnId) {
        self.columns[column].is_whole = true;
    }

    /// Changes the bounds of a variable.
    pub fn bound_column(&mut self, ColumnId(column): ColumnId, bounds: RangeInclusive<f64>) {
        self.columns[column].bounds = bounds;
    }

    /// Returns true if a variable takes whole numbers only.
    pub fn has_whole(&self) -> bool {
        self.columns.iter().any(|column| column.is_whole)
    }

    /// Adds a row, whose bounds are infinite at an end without one. The factors of a column that appears
    /// twice are added.
    pub fn row(&mut self, bounds: RangeInclusive<f64>, terms: impl IntoIterator<Item = (ColumnId, f64)>) {
        let row = self.rows.len();
        self.rows.push(bounds);
        let first = self.entries.len();
        self.entries
            .extend(
                terms
                    .into_iter()
                    .map(|(ColumnId(column), factor)| Entry { row, column, factor }),
            );
        let columns = self.columns.len();
        debug_assert!(
            self.entries[first..].iter().all(|entry| entry.column < columns),
            "columns come first"
        );
        self.entries[first..].sort_unstable_by_key(|entry| entry.column);
        let mut last = first;
        for next in first + 1..self.entries.len() {
            if self.entries[last].column == self.entries[next].column {
                self.entries[last].factor += self.entries[next].factor;
            } else {
                last += 1;
                self.entries[last] = self.entries[next];
            }
        }
        self.entries.truncate((last + 1).min(self.entries.len()));
    }

    /// Returns the variables.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the bounds of the rows.
    pub fn rows(&self) -> &[RangeInclusive<f64>] {
        &self.rows
    }

    /// Returns the coefficients, row by row, each row and column once.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns a lower bound for the cost of every solution, by Lagrange duality, for any prices of the rows.
    /// Better prices give a bound nearer to the optimum; wrong prices give a low bound, never a false one.
    /// Minus infinity if the relaxed problem is unbounded.
    pub fn bound(&self, prices: &[f64]) -> f64 {
        let mut reduced: Vec<f64> = self.columns.iter().map(|column| column.cost).collect();
        let mut sum = 0.0;
        let mut usable = vec![0.0; self.rows.len()];
        for ((usable, bounds), &price) in usable.iter_mut().zip(&self.rows).zip(prices) {
            let side = if price > 0.0 { bounds.start() } else { bounds.end() };
            // A price for an infinite bound is the solver's rounding.
            if side.is_finite() && price != 0.0 {
                *usable = price;
                sum += price * side;
            }
        }
        for entry in &self.entries {
            reduced[entry.column] -= entry.factor * usable[entry.row];
        }
        let columns = self
            .columns
            .iter()
            .zip(&reduced)
            .filter(|(_, reduced)| **reduced != 0.0);
        sum + columns
            .map(|(column, &reduced)| (reduced * column.bounds.start()).min(reduced * column.bounds.end()))
            .sum::<f64>()
    }

    /// Returns the greatest violation of any bound by `values`.
    pub fn violation(&self, values: &[f64]) -> f64 {
        let mut sums = vec![0.0; self.rows.len()];
        for entry in &self.entries {
            sums[entry.row] += entry.factor * values[entry.column];
        }
        let beyond = |bounds: &RangeInclusive<f64>, value: f64| {
            (bounds.start() - value).max(value - bounds.end()).max(0.0)
        };
        let columns = self
            .columns
            .iter()
            .zip(values)
            .map(|(column, value)| beyond(&column.bounds, *value));
        let rows = self
            .rows
            .iter()
            .zip(&sums)
            .map(|(bounds, sum)| beyond(bounds, *sum));
        columns.chain(rows).fold(0.0, f64::max)
    }
}

/// A solution that is optimal within the solver's tolerance.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The value of each column.
    pub values: Vec<f64>,
    /// A lower bound for the cost of every solution.
    pub bound: f64,
}

/// Why there is no solution.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SolveError {
    /// No values satisfy every row.
    #[error("the linear program has no solution")]
    Infeasible,
    /// The solver did not end within its time.
    #[error("the solver did not end within {} s\nhint: allow more time, plan fewer jobs, or choose longer slots", .0.as_secs())]
    OutOfTime(Duration),
    /// The solver gave up.
    #[error("the solver gave up: {0}\nhint: choose longer slots; if it lasts, report the request as a bug")]
    GaveUp(String),
}

/// Solves linear programs.
pub trait LpSolver {
    /// Finds an optimal solution.
    ///
    /// # Errors
    /// [`SolveError::Infeasible`] if there is none; else the solver failed.
    fn solve(&self, program: &LinearProgram) -> Result<Solution, SolveError>;

    /// Returns the maximum number of integer variables of a mixed integer program. If one takes too long,
    /// the solution may be the best one found so far.
    fn most_whole(&self) -> usize {
        0
    }
}
