//! Shows a plan to people: in words, as pictures, and beside other plans.

pub mod explain;
pub mod plot;
pub mod timeline;
pub mod what_if;
