//! The engines of a registry: what all of them promise, and what each survives.
#![allow(clippy::unwrap_used, reason = "a test stops where it cannot go on")]

mod cluster;
mod conformance;
mod embedded;
mod etcd;
mod faults;

use conformance::conforms;

conforms!(embedded_conforms: embedded);
conforms!(etcd_conforms: etcd);
