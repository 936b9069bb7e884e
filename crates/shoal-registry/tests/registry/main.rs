//! A registry as its nodes see it: names, uploads and workers over an engine that loses answers.
#![allow(clippy::unwrap_used, reason = "a test ends where something fails")]

mod contents;
mod names;
mod receipts;
mod references;
mod roots;
mod support;
mod takeover;
mod uploads;
mod worker;
