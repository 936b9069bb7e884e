//! The evaluation of Netco (Jalaparti et al., SoCC 2018): its workloads, its baselines, and its programs as
//! they are printed.

pub mod execution;
pub mod printed;
pub mod workload;
