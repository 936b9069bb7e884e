//! Histories from end to end: read, learned, forecast and tested against their own end.

mod generated;
mod golden;
mod inputs;
mod readers;
mod requests;
mod workload;
