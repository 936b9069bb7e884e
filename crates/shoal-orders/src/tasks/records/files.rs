//! The facts about what came with an order: a list, the document of a plan, a hint.

use serde::{Deserialize, Serialize};
use shoal_hints::JobName;

use super::moment::Moment;

/// A list of objects that came with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFacts {
    /// The number of objects.
    pub objects: u64,
    /// The size of the list in bytes, as nodes keep it.
    pub bytes: u64,
}

/// The document that came with an order to carry a plan out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentFacts {
    /// Its size in bytes.
    pub bytes: u64,
    /// The start of its window.
    pub starts: Moment,
    /// The deadline of its last job.
    pub ends: Moment,
    /// The number of its jobs.
    pub jobs: u64,
    /// The number of its jobs to which it promises something.
    pub planned_jobs: u64,
    /// The number of its transfers.
    pub transfers: u64,
    /// The plan that was in force before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// The number of plans that were in force before. The plan with the greatest is in force, whatever the
    /// clocks of nodes say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub succession: u64,
}

/// The inputs of a running job, and of the jobs that follow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintFacts {
    /// The run whose event was the hint: a UUID.
    pub run: String,
    /// The runs of which it is a part, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
    /// The job that reads.
    pub reader: JobName,
    /// The number of jobs or stages that end before it begins: 0 for the run itself.
    pub stage: u8,
    /// True if it is another job, which comes after the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_behind: bool,
    /// The paths that it reads, each an object or all objects below it.
    pub inputs: Vec<String>,
    /// The paths that it reads of what is written on the way to it: their objects stay in their tier until it
    /// has read them, for an hour at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<String>,
    /// The paths that the run says to be of no use after it: their objects stay in their tier until then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub short_lived: Vec<String>,
    /// Of the hints of a namespace, those with the highest go first.
    #[serde(default)]
    pub priority: u8,
    /// The size of some inputs or of all, as far as it is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// When it begins to read, if that is later than its event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submit: Option<Moment>,
}

impl HintFacts {
    /// Returns the bytes of all paths.
    pub(crate) fn path_bytes(&self) -> usize {
        let paths = [&self.inputs, &self.awaited, &self.short_lived];
        paths.into_iter().flatten().map(String::len).sum()
    }

    /// Returns true if another hint of the same namespace goes before this one: it has a higher priority, or
    /// its reader is an earlier stage of the same run.
    pub(crate) fn goes_behind(&self, other: &Self) -> bool {
        let is_earlier = other.run == self.run && other.stage < self.stage;
        let is_preferred = other.reader.namespace == self.reader.namespace && other.priority > self.priority;
        is_preferred || is_earlier && other.priority == self.priority
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
