//! Code that only experiments use: the policies of a node on a simulated network, and plans in simulated
//! time. No program that ships links this crate.
//!
//! [`experiment`] reads an `EXPERIMENT.toml` and runs its grid: [`simulation`] moves the bytes of a
//! [`workload`] over a [`network`] between the nodes of a [`cluster`], whose decisions are those of
//! `shoal-policy`. A run is deterministic: randomness comes from a seed, time is simulated, and no loop
//! depends on an undefined order. `docs/explanation/simulator.md` describes what is modelled and what is not.
//! [`netco`] carries out plans of `shoal-plan` and draws the workloads of the paper's evaluation.

pub mod cluster;
pub mod experiment;
pub mod netco;
pub mod network;
mod report;
pub mod simulation;
pub mod throughput;
pub mod units;
pub mod workload;
