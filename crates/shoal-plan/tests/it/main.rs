//! The planner as its users call it.

mod properties;
mod table1;
mod validation;
