//! The report of a run: the sources of bytes, the use of links, times, and the state of the caches.

mod histogram;
mod recorder;

use serde::Serialize;
use shoal_sim::cluster::NodeIndex;
use shoal_sim::sources::{Sources, Volume};

pub use self::histogram::{Histogram, Percentiles};
pub(crate) use self::recorder::{ReadDone, Recorder};
use crate::cluster::Room;
use crate::network::links::LinkKind;

/// Reads of whole or partial objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reads {
    /// Every block was held by a node.
    pub hits: u64,
    /// Some blocks were.
    pub partial_misses: u64,
    /// None was.
    pub complete_misses: u64,
    /// From the first request to the last byte, in seconds.
    pub seconds: Percentiles,
}

/// Bytes over a link while counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LinkVolume {
    /// The ends of the link.
    pub link: LinkKind,
    /// The node that the link belongs to.
    pub node: Option<NodeIndex>,
    /// The number of bytes.
    pub bytes: u64,
}

/// The state of a node at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds since the start.
    pub at_s: f64,
    /// The node.
    pub node: NodeIndex,
    /// How its room is used.
    #[serde(flatten)]
    pub room: Room,
    /// Volumes that its clients have received since the start.
    #[serde(flatten)]
    pub sources: Sources,
}

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// From the start of counting to the end of the last job.
    pub run_s: f64,
    /// Volumes by source.
    pub sources: Sources,
    /// Blocks that nodes sent to each other: those of a peer's cache, those that a home forwarded from the
    /// lake, and pushes.
    pub between_nodes: Volume,
    /// Bytes of the distinct blocks that the workload reads, warm-up included: the lake sends at least these.
    pub distinct_bytes: u64,
    /// From the request of a block to its last byte, in seconds.
    pub request_seconds: Percentiles,
    /// Reads of objects.
    pub reads: Reads,
    /// From the submission of a job to its end, in seconds.
    pub job_seconds: Percentiles,
    /// Bytes by link.
    pub links: Vec<LinkVolume>,
    /// Nodes over time.
    pub samples: Vec<Sample>,
}

impl Report {
    /// Bytes over all links of one kind.
    pub fn link_bytes(&self, kind: LinkKind) -> u64 {
        let of_kind = self.links.iter().filter(|link| link.link == kind);
        of_kind.map(|link| link.bytes).sum()
    }
}
