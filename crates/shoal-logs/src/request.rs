//! One request of an S3 access log, in any of the formats.

use std::borrow::Cow;

use time::OffsetDateTime;

/// The effect of a request on bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// It reads bytes of the object.
    Read,
    /// It replaces the object.
    Write,
    /// It removes the object.
    Delete,
    /// Heads, lists, failures, answers without a body: it moves no bytes of an object.
    Other,
}

/// One request of an S3 access log. Texts are decoded; what a format does not record is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Request<'line> {
    /// When the request arrived.
    pub at: OffsetDateTime,
    /// Its effect. Failed requests are [`RequestKind::Other`].
    pub kind: RequestKind,
    /// Bucket of the request.
    pub bucket: Option<Cow<'line, str>>,
    /// Key of the object.
    pub key: Option<Cow<'line, str>>,
    /// Bytes of the body: sent for a read, and for a write those that came, where the format has them.
    pub bytes: u64,
    /// First byte of a partial answer; 0 for a whole one.
    pub offset_bytes: Option<u64>,
    /// Length of the object.
    pub object_bytes: Option<u64>,
    /// From the head of the request to the last byte of its answer.
    pub duration_ms: Option<f64>,
    /// Address of the client, without its port.
    pub client: Cow<'line, str>,
    /// The identity that signed it.
    pub identity: Option<Cow<'line, str>>,
    /// The name of the job, from the header `x-shoal-job`.
    pub job: Option<Cow<'line, str>>,
    /// The header `User-Agent`.
    pub user_agent: Option<Cow<'line, str>>,
}
