//! What a run tells: where bytes came from, over which links, how long things took, and how the caches changed.

mod histogram;
mod recorder;

use serde::Serialize;

pub use self::histogram::{Histogram, Percentiles};
pub(crate) use self::recorder::Recorder;
use crate::cluster::{NodeIndex, Room, Route};
use crate::simulation::LinkKind;

/// Where the bytes of a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Served {
    /// The node that answered.
    Local,
    /// Another node.
    Peer,
    /// The lake.
    Lake,
    /// The node that answered, which was about to get them for another request.
    Joined,
}

impl From<Route> for Served {
    fn from(route: Route) -> Self {
        match route {
            Route::Local => Self::Local,
            Route::Peer { .. } => Self::Peer,
            Route::Lake { .. } => Self::Lake,
        }
    }
}

/// Requests, and bytes in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// How many blocks.
    pub requests: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// Volumes by where they came from. Together they are all that clients got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sources {
    /// See [`Served::Local`].
    pub local: Volume,
    /// See [`Served::Peer`].
    pub peer: Volume,
    /// See [`Served::Lake`].
    pub lake: Volume,
    /// See [`Served::Joined`].
    pub joined: Volume,
}

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
    /// What it connects.
    pub link: LinkKind,
    /// Whose it is.
    pub node: Option<NodeIndex>,
    /// How many bytes.
    pub bytes: u64,
}

/// A node at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds since the start.
    pub at_s: f64,
    /// Which.
    pub node: NodeIndex,
    /// How its room is used.
    #[serde(flatten)]
    pub room: Room,
    /// What its clients have been given since the start.
    #[serde(flatten)]
    pub sources: Sources,
}

/// What a run tells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// From the moment counting began to the end of the last job.
    pub run_s: f64,
    /// Where blocks came from.
    pub sources: Sources,
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

impl Sources {
    /// All of them.
    pub const fn total(&self) -> Volume {
        let Self {
            local,
            peer,
            lake,
            joined,
        } = self;
        Volume {
            requests: local.requests + peer.requests + lake.requests + joined.requests,
            bytes: local.bytes + peer.bytes + lake.bytes + joined.bytes,
        }
    }

    /// Counts a block of `bytes`.
    pub(crate) fn count(&mut self, by: Served, bytes: u64) {
        let volume = match by {
            Served::Local => &mut self.local,
            Served::Peer => &mut self.peer,
            Served::Lake => &mut self.lake,
            Served::Joined => &mut self.joined,
        };
        volume.requests += 1;
        volume.bytes += bytes;
    }
}

impl Report {
    /// Bytes over all links of one kind.
    pub fn link_bytes(&self, kind: LinkKind) -> u64 {
        let of_kind = self.links.iter().filter(|link| link.link == kind);
        of_kind.map(|link| link.bytes).sum()
    }
}
