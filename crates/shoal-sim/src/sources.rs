//! The sources of the bytes that clients receive, and the volume from each.

use serde::Serialize;

use crate::cluster::Route;

/// The source of the bytes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Served {
    /// The node that answered.
    Local,
    /// Another node.
    Peer,
    /// The lake.
    Lake,
    /// The node that answered, from a fetch already under way for another request.
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

/// Requests and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// The number of blocks.
    pub requests: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// Volumes by source. Their sum is everything that clients received.
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

impl Sources {
    /// The sum over all sources.
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
    pub fn count(&mut self, by: Served, bytes: u64) {
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
