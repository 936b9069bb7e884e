//! The directories: one suite for all of them, and servers of Redis that fail.

#![allow(clippy::unwrap_used, reason = "a test stops where it cannot go on")]

mod conformance;
mod extensions;
mod faults;
mod names;
mod servers;
