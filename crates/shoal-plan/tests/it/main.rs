//! The planner as its users call it.
#![allow(
    clippy::unwrap_used,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    clippy::too_many_lines,
    clippy::semicolon_if_nothing_returned,
    reason = "a test stops where it cannot go on; bytes are positive; tables are long; changes are short"
)]

mod arrivals;
mod changes;
mod document;
mod execution;
mod properties;
mod table1;
mod transfers;
mod validation;
