//! The planner as its users call it.

mod execution;
mod properties;
mod table1;
mod validation;
mod workload;
