//! Plans the fetches and the contents of the cache so that jobs meet their deadlines with a fraction of the
//! link: Netco (Jalaparti et al., SoCC 2018).
//!
//! ```text
//! model::Request ──▶ instance ──▶ formulation ──▶ lp::LpSolver ──▶ rounding ──▶ augment ──▶ write ──▶ Plan
//! ```
//!
//! Each step is a module; `lp`, `planner` and `schedule` have several.
//!
//! The crate is pure: no I/O, no clock, and no randomness but from a seed. Programs are solved by
//! `shoal-planner`, a program of its own.

pub mod document;
pub mod execution;
pub mod instance;
pub mod lp;
pub mod model;
pub mod plan;
pub mod planner;
pub mod schedule;
pub mod show;

#[cfg(test)]
mod tests;

pub use document::Document;
pub use model::Request;
pub use plan::Plan;
pub use planner::{PlanError, plan};
