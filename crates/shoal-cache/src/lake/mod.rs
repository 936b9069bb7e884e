//! The lake as the parts of a node use it, with everything that stands before it.
//!
//! [`Lake`] is the one interface above [`Endpoint`](shoal_net::endpoint::Endpoint). [`PlainLake`] asks the
//! lake itself. Other implementations are decorators: they answer what they know better than the lake, such
//! as `TieredLake` of `shoal-writeback` about objects that the lake does not have yet, and pass the rest on
//! to the lake within.

mod as_sent;
pub mod errors;
mod forward;
pub mod health;
mod plain;
mod request;
mod survey;
mod through;
mod verdict;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{HeaderMap, Response, StatusCode};
use shoal_policy::ObjectId;
use shoal_registry::Lifetime;
use shoal_s3::error::S3Error;
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Uncacheable, Version};
use shoal_s3::operation::Classified;
use shoal_s3::xml::ListedObject;

pub use self::as_sent::AsSent;
pub use self::plain::PlainLake;
pub use self::request::{NoBytes, ReadRequest};
pub use self::survey::{LakeRefusal, PAGE_KEYS, PackPlace, PageRequest, Wanted};
pub use self::verdict::{Verdict, judged, unknown};
use shoal_net::endpoint::{EndpointError, LakeBody};

use crate::exchange::respond::CallerHeaders;
use crate::exchange::{Admitted, ResponseResult};
use crate::fetch::StreamHandle;
use crate::fetch::read_context::ReadContext;
use crate::grants::QuestionStamp;
use crate::grants::freshness::Reuse;
use crate::nodes::obtain::KeptBytes;
use crate::single_flight::FetchError;
use crate::write::WriteMode;

/// The version to read, and what came with it.
pub struct Pinned {
    /// The version.
    pub version: Arc<Version>,
    /// Where its bytes are kept; `None` if the lake has them under the object's name.
    pub kept: Option<Arc<dyn KeptBytes>>,
    /// The headers that the lake sent for this caller.
    pub caller_headers: CallerHeaders,
    /// The response that brings the first bytes.
    pub stream_handle: Option<StreamHandle>,
    /// True if the version and its first bytes came in one response, so none of its blocks was cached.
    pub opened: bool,
}

impl Pinned {
    /// A version that is read without asking the lake.
    pub fn granted(version: Arc<Version>) -> Self {
        Self {
            version,
            kept: None,
            caller_headers: None,
            stream_handle: None,
            opened: false,
        }
    }
}

/// The outcome of pinning a name.
pub enum PinOutcome {
    /// The caller may read this version.
    Version(Pinned),
    /// The lake's response to the read itself.
    Relay(Box<Response<LakeBody>>),
    /// The request must be forwarded, for this reason.
    Bypass(Uncacheable),
}

/// The outcome of asking for a name before a read of it is forwarded.
pub enum Asked {
    /// The read can be answered with this version.
    Known(Arc<Version>),
    /// The read must be forwarded. The response belongs to this question.
    AtLake(LakeQuestion),
}

/// A read that is forwarded to the lake, whose response the node passes on.
pub struct LakeQuestion {
    /// The state when the lake was asked.
    pub stamp: QuestionStamp,
    /// Returns true if the name is as it was when the lake was asked: only then is a response final that
    /// there is no object. `None` if only the lake changes the name.
    pub unchanged: Option<Unchanged>,
}

/// Compares the state of a name with an earlier one.
pub type Unchanged = Box<dyn Fn() -> BoxFuture<'static, Result<bool, ReadError>> + Send + Sync>;

impl LakeQuestion {
    /// Returns true if the lake's response is final. Otherwise the read starts over.
    ///
    /// # Errors
    ///
    /// It is not known if the name has changed.
    pub async fn is_final(&self, status: StatusCode) -> Result<bool, ReadError> {
        match &self.unchanged {
            Some(unchanged) if says_absent(status) => unchanged().await,
            _ => Ok(true),
        }
    }
}

/// Returns true if a response to a read implies that the caller may know what exists, including that nothing
/// does.
pub fn is_known(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::NOT_FOUND
}

/// Returns true if a response may mean that there is no object: a lake hides the absence of an object from
/// some callers behind a 403.
pub const fn says_absent(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::FORBIDDEN)
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The lake cannot be reached.
    #[error(transparent)]
    Lake(#[from] EndpointError),
    /// The lake answered a HEAD of the object with this error status.
    #[error("the lake answered {0}")]
    LakeStatus(StatusCode),
    /// A block could not be fetched.
    #[error(transparent)]
    Fetch(FetchError),
    /// The version changed during every attempt.
    #[error("the object changes faster than it can be read")]
    ChangesTooOften,
    /// A decorator of the lake, such as the tier, answers with this error.
    #[error("{}", .0.message)]
    Refused(S3Error),
}

impl From<S3Error> for ReadError {
    fn from(error: S3Error) -> Self {
        Self::Refused(error)
    }
}

/// A write of an object.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The object.
    pub name: &'a ObjectName,
    /// How it is to be written. Another way is taken where this one is impossible, and the response says why.
    pub mode: WriteMode,
    /// How long the writer expects the object to live; `None` for the rule's lifetime.
    pub lifetime: Option<Lifetime>,
}

/// The lake, and what stands before it.
///
/// Futures are boxed, so that implementations can be stacked in any order. The one verb of a hit,
/// [`granted`](Self::granted), has no future.
pub trait Lake: Send + Sync {
    /// Returns how grants of an object may be reused, if its rule says `reuse`.
    fn reuse(&self, name: &ObjectName, reuse: Reuse) -> Reuse;

    /// Returns the version that the caller is known to be permitted to read, and that is known to be current.
    fn granted(&self, request: &ReadRequest) -> Option<Arc<Version>>;

    /// Pins the current version of an object for a caller, with the permission to read it.
    ///
    /// # Errors
    ///
    /// The lake, or what stands before it, does not answer.
    fn pin<'a>(&'a self, request: &'a ReadRequest) -> BoxFuture<'a, Result<PinOutcome, ReadError>>;

    /// Prepares a read that is forwarded: brings to the lake what the read needs there. `is_answerable` is
    /// false if the read must be forwarded even if the version is known.
    ///
    /// # Errors
    ///
    /// A dirty object that the read needs cannot be flushed.
    fn ask<'a>(
        &'a self,
        request: &'a ReadRequest,
        is_answerable: bool,
    ) -> BoxFuture<'a, Result<Asked, ReadError>>;

    /// Remembers what an unconditional HEAD of the lake returned, or a GET of a range. A response without a
    /// usable version is ignored.
    fn learn_from_answer(
        &self,
        request: &ReadRequest,
        status: StatusCode,
        headers: &HeaderMap,
        stamp: QuestionStamp,
    );

    /// Returns the current version of an object that no client reads, if `caller` may read it.
    ///
    /// # Errors
    ///
    /// The lake refuses the caller or does not answer.
    fn version<'a>(
        &'a self,
        caller: &'a Caller,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Arc<Version>, LakeRefusal>>;

    /// Returns where the bytes of a version are kept, for a node that is to hold its blocks and reads them in
    /// `context`; `None` if the lake has them under the object's name, or has another version there. Those of
    /// an object in `pack` are read from blocks of the pack, which other objects of it use, too.
    ///
    /// # Errors
    ///
    /// It is not known, or the lake refuses the caller.
    fn kept<'a>(
        &'a self,
        context: &'a ReadContext,
        version: &'a Version,
        pack: Option<ObjectId>,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn KeptBytes>>, LakeRefusal>>;

    /// Returns true if the lake may have the object of this name in a pack, or if it is a pack itself.
    fn may_be_packed(&self, name: &ObjectName) -> bool;

    /// Returns the places in their packs of those of the wanted versions that are read from blocks of their
    /// packs, because together they are enough of these blocks. The others are read alone.
    fn places<'a>(
        &'a self,
        caller: &'a Caller,
        wanted: &'a [Wanted<'a>],
    ) -> BoxFuture<'a, Vec<Option<PackPlace>>>;

    /// Returns objects in the order of their keys. An empty page means that there are no more: some lakes
    /// call a page the last one although others follow.
    ///
    /// # Errors
    ///
    /// The lake refuses the caller or does not answer.
    fn list<'a>(
        &'a self,
        caller: &'a Caller,
        page: PageRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, LakeRefusal>>;

    /// Returns true if a request names an upload that is not at the lake.
    fn keeps_upload(&self, request: &Classified) -> bool;

    /// Answers a request about an upload that is not at the lake.
    ///
    /// # Errors
    ///
    /// This and the other verbs for requests fail with the error that the client gets.
    fn of_upload<'a>(
        &'a self,
        admitted: Box<Admitted>,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, ResponseResult>;

    /// Writes an object or a part of an upload, or begins or completes an upload.
    fn put<'a>(&'a self, admitted: Box<Admitted>, write: Write<'a>) -> BoxFuture<'a, ResponseResult>;

    /// Removes an object.
    fn delete<'a>(&'a self, admitted: Box<Admitted>, name: &'a ObjectName) -> BoxFuture<'a, ResponseResult>;

    /// Removes many objects of a bucket.
    fn delete_many<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult>;

    /// Lists the objects of a bucket for a client.
    fn list_objects<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult>;

    /// Lists the uploads of a bucket for a client.
    fn list_uploads<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult>;

    /// Passes on any other request with its meaning, and a read after [`ask`](Self::ask). Dirty objects that
    /// the request needs are flushed first.
    fn forward(&self, admitted: Box<Admitted>) -> BoxFuture<'_, ResponseResult>;

    /// Brings to the lake what this node has acknowledged and the lake does not have, once, so that the node
    /// can stop. Returns the number of objects that are left.
    fn drain_round(&self) -> BoxFuture<'_, u64>;
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::is_known;

    #[test]
    fn only_a_clear_yes_counts() {
        let statuses = [200, 206, 404, 301, 304, 400, 401, 403, 412, 500, 503];
        let known = statuses.map(|status| is_known(StatusCode::from_u16(status).unwrap()));
        assert_eq!(known.map(u8::from), [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
