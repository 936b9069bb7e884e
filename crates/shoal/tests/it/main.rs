//! Stories about a node and the lake behind it. One binary, so that everything here is compiled and linked
//! once.
#![allow(
    clippy::unwrap_used,
    reason = "a test stops where it cannot go on, helpers included"
)]

mod access_log;
mod back;
mod caller;
mod certificate;
mod chunks;
mod client;
mod cluster;
mod commands;
mod console;
mod disk;
mod endpoint;
mod eviction;
mod expectation;
mod fairness;
mod fuzz;
mod gate;
mod hints;
mod job;
mod key_source;
mod lake;
mod lake_faults;
mod lake_itself;
mod link;
mod location;
mod misconfigured;
mod node;
mod openapi;
mod plan;
mod process;
mod quotas;
mod ranges;
mod read;
mod ready;
mod reload;
mod roles;
mod spelling;
mod supervised;
mod tasks;
mod through;
mod tls;
mod traces;
mod understood;
mod unverified;
mod usage;
mod verbs;
mod waiting;
mod whole;
mod write;
