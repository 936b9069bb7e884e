//! Jobs of a trace: read several objects, wait for all, compute, write.

use std::time::Duration;

use super::{Access, Operation};
use crate::clock::Time;

/// One job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The time of submission. The job starts when its predecessors are also done.
    pub at: Time,
    /// The client that runs it, if the recording has one.
    pub client: Option<u32>,
    /// The pieces that it reads and waits for.
    pub reads: Vec<Piece>,
    /// The time that it computes after its reads.
    pub compute: Duration,
    /// The pieces that it writes at the end.
    pub writes: Vec<Piece>,
    /// Jobs that must be done before it starts, by their position in the trace.
    pub after: Vec<u32>,
}

/// A range of bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The object, numbered from 0.
    pub object: u32,
    /// Its length, if the recording has it.
    pub object_bytes: u64,
    /// The first byte of the range.
    pub offset_bytes: u64,
    /// The length of the range.
    pub bytes: u64,
}

impl Piece {
    /// The whole object.
    pub const fn whole(object: u32, object_bytes: u64) -> Self {
        Self {
            object,
            object_bytes,
            offset_bytes: 0,
            bytes: object_bytes,
        }
    }
}

impl From<&Access> for Piece {
    fn from(access: &Access) -> Self {
        Self {
            object: access.object,
            object_bytes: access.object_bytes,
            offset_bytes: access.offset_bytes,
            bytes: access.bytes,
        }
    }
}

impl Job {
    /// The requests of the job, as if they all came at its submission.
    pub fn accesses(&self) -> Vec<Access> {
        let access = |piece: &Piece, operation| Access {
            at: self.at,
            client: self.client.unwrap_or(0),
            object: piece.object,
            object_bytes: piece.object_bytes,
            offset_bytes: piece.offset_bytes,
            bytes: piece.bytes,
            operation,
        };
        let reads = self.reads.iter().map(|piece| access(piece, Operation::Read));
        let writes = self.writes.iter().map(|piece| access(piece, Operation::Write));
        reads.chain(writes).collect()
    }
}
