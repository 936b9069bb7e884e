//! One request of a trace, with numbers for its names.

use crate::clock::Time;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The time of the request since the first request of the trace, if the recording has times.
    pub at: Time,
    /// The client, numbered from 0; 0 for all requests if the recording names no clients.
    pub client: u32,
    /// The object, numbered from 0.
    pub object: u32,
    /// Length of the object, if the recording has it.
    pub object_bytes: u64,
    /// First byte of the requested range.
    pub offset_bytes: u64,
    /// Length of the requested range.
    pub bytes: u64,
    /// The operation on the range.
    pub operation: Operation,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Reads bytes of an object.
    Read,
    /// Replaces the object: cached blocks of it are out of date.
    Write,
    /// Removes the object.
    Delete,
}
