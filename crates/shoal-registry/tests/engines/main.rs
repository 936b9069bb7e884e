//! The engines of a registry: the promises of all of them, and the faults that each survives.
#![allow(clippy::unwrap_used, reason = "a test stops where it cannot go on")]

mod cluster;
mod conformance;
mod embedded;
mod etcd;
mod faults;
mod transactions;

use conformance::conforms;

conforms!(embedded_conforms: embedded);
conforms!(etcd_conforms: etcd);
