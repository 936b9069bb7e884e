//! The planner as its users call it.

mod table1;
