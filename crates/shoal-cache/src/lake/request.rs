//! A parsed read of an object.

use std::sync::Arc;

use http::request::Parts;
use shoal_policy::ObjectId;
use shoal_s3::conditions::{Conditions, Evaluation};
use shoal_s3::identity::CallerId;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::range::{ByteRange, RangeRequest};
use shoal_s3::read_head::Question;

use crate::fetch::read_context::ReadContext;
use crate::grants::freshness::Reuse;

/// A parsed GET.
#[derive(Debug)]
pub struct ReadRequest {
    /// The authenticated caller.
    pub caller: CallerId,
    /// Digest of the requested object's name.
    pub object: ObjectId,
    /// The requested range, not yet resolved against a size.
    pub range: RangeRequest,
    /// The preconditions (`If-Match` and the like).
    pub conditions: Conditions,
    /// Builds requests to the lake on behalf of the client, about the requested object.
    pub context: Arc<ReadContext>,
    /// Which grants may be reused; none if the client or the configuration requires a check at the lake.
    pub reuse: Reuse,
    /// `Cache-Control: only-if-cached`
    pub only_if_cached: bool,
    /// `x-amz-checksum-mode: ENABLED`
    pub checksum_mode: bool,
    /// How far an answer of the lake also applies to another read. If it is plain, no header affects the
    /// permission to read, and other requests may reuse the grant.
    pub question: Question,
    /// The head of the client's request, if the lake judges it as it came. The [context](Self::context) is
    /// then that of this node.
    pub as_sent: Option<Arc<Parts>>,
}

impl ReadRequest {
    /// Returns the requested object.
    pub fn name(&self) -> &ObjectName {
        let name = self.context.name.as_ref();
        name.expect("only reads for other nodes may have no name")
    }

    /// Returns the bytes of `version` that the request selects. GET and HEAD select the same bytes.
    ///
    /// # Errors
    ///
    /// Returns the reason if the response carries no bytes of the version.
    pub fn locate(&self, version: &Version) -> Result<ByteRange, NoBytes> {
        match self.conditions.evaluate(&version.etag, version.last_modified) {
            Evaluation::Proceed => {}
            Evaluation::NotModified => return Err(NoBytes::NotModified),
            Evaluation::Failed(condition) => return Err(NoBytes::PreconditionFailed(condition)),
        }
        if version.size_bytes == 0 && self.range != RangeRequest::Whole {
            return Err(NoBytes::Dialect);
        }
        let range = self.range.resolve(version.size_bytes);
        range.map_err(|_| NoBytes::Unsatisfiable)
    }

    /// Returns true if the client asked for checksums of the whole object.
    pub fn wants_checksums(&self) -> bool {
        self.checksum_mode && self.range == RangeRequest::Whole
    }

    /// Returns true if a node can honour all headers of the request without the lake.
    pub fn is_understood(&self) -> bool {
        self.question < Question::Foreign
    }

    /// Returns true if the response to the request follows from `version` alone. Otherwise stores disagree,
    /// and only the lake can answer.
    pub fn follows_from(&self, version: &Version) -> bool {
        self.locate(version) != Err(NoBytes::Dialect)
    }
}

/// Why a response carries no bytes of the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBytes {
    /// `304`
    NotModified,
    /// `412`, with the name of the header whose condition failed.
    PreconditionFailed(&'static str),
    /// `416`
    Unsatisfiable,
    /// `504`: the client sent `only-if-cached`, and part of the range is not cached.
    NotCached,
    /// A range of an empty object. Stores disagree on the response, so the request is forwarded to the lake.
    Dialect,
}
