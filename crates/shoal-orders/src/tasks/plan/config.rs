//! `[plan]`

use std::path::PathBuf;

/// How plans are carried out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanConfig {
    /// The program that plans anew. `None`: `shoal-planner` beside this program, or on the `PATH`.
    pub planner: Option<PathBuf>,
}
