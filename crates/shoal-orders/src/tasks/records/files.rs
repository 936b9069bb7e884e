//! The facts about the file that came with an order.

use serde::{Deserialize, Serialize};

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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
