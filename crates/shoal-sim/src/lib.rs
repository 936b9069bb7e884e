//! The decisions of `shoal-policy` on simulated nodes, links and clients.
//!
//! Two modes share traces, policies and reports: *cache mode* sends a trace through one cache ([`compare`],
//! [`advise`]), *cluster mode* is a discrete-event simulation of a whole cluster ([`experiment`]). Both are
//! deterministic: randomness comes from a seed, time is simulated, and no loop depends on an undefined order.
//! `docs/explanation/simulator.md` describes what is modelled and what is not.

mod access;
mod admission;
pub mod advise;
pub mod block;
mod cache;
mod clock;
pub mod cluster;
pub mod compare;
mod events;
pub mod experiment;
mod hash;
mod links;
mod names;
pub mod network;
pub mod policy;
mod report;
pub mod simulation;
pub mod trace;
pub mod units;
pub mod workload;

pub use admission::AdmissionName;
pub use block::{Block, Granularity};
pub use cache::{Cache, Tally};
pub use clock::Time;
pub use policy::PolicyName;
pub use shoal_base::seeded as chance;
pub use shoal_plot as plot;
