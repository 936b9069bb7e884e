//! Answers to a GET or HEAD of an object.

use std::sync::Arc;

use http::Response;
use shoal_net::endpoint::LakeBody;
use shoal_s3::object::{Uncacheable, Version};
use shoal_s3::range::ByteRange;

use crate::blocks::Reading;
use crate::exchange::respond::CallerHeaders;
use crate::lake::{NoBytes, ReadRequest};

/// The outcome of a GET.
pub enum GetAnswer {
    /// An answer that this node gives itself.
    Known(KnownAnswer, CallerHeaders),
    /// The lake's response, unchanged.
    Relay(Box<Response<LakeBody>>),
    /// The request must be forwarded to the lake, for this reason.
    Bypass(Uncacheable),
}

/// An answer to a GET that this node gives itself.
pub enum KnownAnswer {
    /// Bytes of a version.
    Object(Reading),
    /// `304`
    NotModified(Arc<Version>),
    /// `412`, with the name of the header whose condition failed.
    PreconditionFailed(&'static str),
    /// `416`, with the size.
    Unsatisfiable(u64),
    /// `504`: the client sent `only-if-cached`, and part of the range is not cached.
    NotCached,
}

impl From<KnownAnswer> for GetAnswer {
    fn from(known: KnownAnswer) -> Self {
        Self::Known(known, None)
    }
}

impl GetAnswer {
    /// The answer to a GET that returns no bytes of `version`.
    pub(super) fn without_bytes(why: NoBytes, version: &Arc<Version>) -> Self {
        let known = match why {
            NoBytes::NotModified => KnownAnswer::NotModified(Arc::clone(version)),
            NoBytes::PreconditionFailed(condition) => KnownAnswer::PreconditionFailed(condition),
            NoBytes::Unsatisfiable => KnownAnswer::Unsatisfiable(version.size_bytes),
            NoBytes::Dialect => return Self::Bypass(Uncacheable::Dialect),
        };
        known.into()
    }

    /// Returns the same answer with the headers that the lake sent for this caller.
    pub(super) fn with_caller_headers(self, caller_headers: CallerHeaders) -> Self {
        match self {
            Self::Known(known, _) => Self::Known(known, caller_headers),
            other => other,
        }
    }
}

/// An answer to a HEAD that this node gives itself.
#[derive(Debug)]
pub enum HeadAnswer {
    /// `200`, or `206` if the request has a range: the version, and the bytes that a GET would return.
    Object(Arc<Version>, ByteRange),
    /// `304`
    NotModified(Arc<Version>),
    /// `412`
    PreconditionFailed,
    /// `416`, with the size.
    Unsatisfiable(u64),
}

impl HeadAnswer {
    /// Returns the answer to a HEAD of `version`: the head of the response to a GET.
    ///
    /// # Errors
    ///
    /// Returns the reason if only the lake can answer.
    pub fn of(request: &ReadRequest, version: Arc<Version>) -> Result<Self, Uncacheable> {
        Ok(match request.locate(&version) {
            Ok(range) => Self::Object(version, range),
            Err(NoBytes::NotModified) => Self::NotModified(version),
            Err(NoBytes::PreconditionFailed(_)) => Self::PreconditionFailed,
            Err(NoBytes::Unsatisfiable) => Self::Unsatisfiable(version.size_bytes),
            Err(NoBytes::Dialect) => return Err(Uncacheable::Dialect),
        })
    }
}
