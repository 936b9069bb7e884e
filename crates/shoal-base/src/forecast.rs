//! The words of a forecast that a plan repeats.

use serde::{Deserialize, Serialize};

/// The part of a path that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// One object.
    Object,
    /// All objects below a prefix, one after the other in the order of their keys.
    Prefix,
    /// Some objects below a prefix; which ones differs from run to run. They are never fetched ahead.
    PartOfPrefix,
}

/// The origin of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeadlineRule {
    /// The history has deadlines.
    Given,
    /// Another job reads the outputs of this one.
    Consumer,
    /// Past run times.
    RunTimes,
    /// Nothing is known; the deadline is an hour after submission.
    Unknown,
}
