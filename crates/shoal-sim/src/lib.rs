//! The decisions of `shoal-policy` on the requests of a trace: through one cache ([`compare`]), or through a
//! cluster whose blocks arrive at once ([`advise`]).
//!
//! Both are deterministic: randomness comes from a seed, time is the trace's, and no loop depends on an
//! undefined order. `shoal-lab` puts the same nodes on a simulated network.
//! `docs/explanation/simulator.md` describes what is modelled and what is not.

pub mod advise;
pub mod block;
mod cache;
mod clock;
pub mod cluster;
pub mod compare;
mod names;
pub mod policy;
pub mod sources;
pub mod trace;
pub mod units;

pub use block::{Block, Granularity};
pub use cache::{Cache, Tally};
pub use clock::Time;
pub use policy::{AdmissionName, PolicyName};
pub use shoal_base::seeded as chance;
pub use shoal_plot as plot;
