//! The solver for plans of any size: HiGHS, which is C++ and therefore in a crate, and a process, of its own.

mod highs_solver;

pub use highs_solver::HighsSolver;
