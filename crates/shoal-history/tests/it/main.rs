//! Histories from end to end: read, learned from, forecast, and compared with their own last part.

mod generated;
mod golden;
mod inputs;
mod readers;
mod requests;
mod workload;
