//! The evaluation of Netco (Jalaparti et al., SoCC 2018): its workloads, its baselines, and its programs as
//! they are printed.

pub mod execution;
pub mod printed;
mod small_solver;
mod sound;
pub mod table1;
pub mod workload;

pub use self::small_solver::{SmallSolver, cost};
pub use self::sound::check;
