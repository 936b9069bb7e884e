//! The answers to a GET and a HEAD of an object.

use std::sync::Arc;

use http::{HeaderMap, Response};
use shoal_policy::BlockId;
use shoal_s3::object::{Uncacheable, Version};
use shoal_s3::range::ByteRange;

use super::ReadRequest;
use crate::blocks::BlockStream;
use crate::endpoint::LakeBody;

/// `X-Cache` considers only the first blocks of a range; 1 GiB at the default block size.
const RESIDENCY_BLOCKS_MAX: u32 = 256;

/// The headers that the lake gave to this caller alone, if the lake was asked for this read.
pub type CallerHeaders = Option<Box<HeaderMap>>;

/// The reason why the answer to a read has no bytes of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBytes {
    /// `304`
    NotModified,
    /// `412`, and the header whose condition does not hold.
    PreconditionFailed(&'static str),
    /// `416`
    Unsatisfiable,
    /// A range of an empty object. Stores answer it differently, so the lake does.
    Dialect,
}

/// The outcome of a GET.
pub enum GetAnswer {
    /// An answer that this node knows.
    Known(KnownAnswer, CallerHeaders),
    /// The lake's response, unchanged.
    Relay(Box<Response<LakeBody>>),
    /// The request must be forwarded to the lake, for this reason.
    Bypass(Uncacheable),
}

/// A known answer to a GET.
pub enum KnownAnswer {
    /// Bytes of a version.
    Object(Reading),
    /// `304`
    NotModified(Arc<Version>),
    /// `412`, and the header whose condition does not hold.
    PreconditionFailed(&'static str),
    /// `416`, with the size.
    Unsatisfiable(u64),
    /// `504`: the client sent `only-if-cached`, and some of the range is not cached.
    NotCached,
}

impl From<KnownAnswer> for GetAnswer {
    fn from(known: KnownAnswer) -> Self {
        Self::Known(known, None)
    }
}

impl GetAnswer {
    /// The answer to a GET that gets no bytes of `version` for this reason.
    pub(super) fn without_bytes(why: NoBytes, version: &Arc<Version>) -> Self {
        let known = match why {
            NoBytes::NotModified => KnownAnswer::NotModified(Arc::clone(version)),
            NoBytes::PreconditionFailed(condition) => KnownAnswer::PreconditionFailed(condition),
            NoBytes::Unsatisfiable => KnownAnswer::Unsatisfiable(version.size_bytes),
            NoBytes::Dialect => return Self::Bypass(Uncacheable::Dialect),
        };
        known.into()
    }

    /// The same answer, with the headers that the lake gave this caller.
    pub(super) fn with_caller_headers(self, caller_headers: CallerHeaders) -> Self {
        match self {
            Self::Known(known, _) => Self::Known(known, caller_headers),
            other => other,
        }
    }
}

/// A known answer to a HEAD.
#[derive(Debug)]
pub enum HeadAnswer {
    /// `200`, or `206` if the request names a range: the version, and the bytes that a GET would get.
    Object(Arc<Version>, ByteRange),
    /// `304`
    NotModified(Arc<Version>),
    /// `412`
    PreconditionFailed,
    /// `416`, with the size.
    Unsatisfiable(u64),
}

impl HeadAnswer {
    /// The answer to a HEAD of `version`: the head of the answer to a GET.
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

/// The bytes to send, and what is known about them.
pub struct Reading {
    /// The pinned version.
    pub version: Arc<Version>,
    /// The range of bytes to send.
    pub range: ByteRange,
    /// Those bytes.
    pub blocks: Box<BlockStream>,
    /// How much of the range was on this node at the start.
    pub residency: Residency,
}

/// How much of a range was here, on disk or waiting for it, when the request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// Every block.
    All,
    /// Some blocks.
    Some,
    /// No block.
    None,
}

impl Residency {
    /// How much of `range` is held. Considers only the first blocks of a long range.
    pub fn of(version: &Version, range: ByteRange, holds: impl Fn(BlockId) -> bool) -> Self {
        let first = (range.start / version.block_bytes) as u32;
        let end = range.end.div_ceil(version.block_bytes) as u32;
        let considered = first..end.min(first.saturating_add(RESIDENCY_BLOCKS_MAX));
        let total = considered.len();
        let held = considered.filter(|index| holds(version.block(*index)));
        match held.count() {
            held if held == total => Self::All,
            0 => Self::None,
            _ => Self::Some,
        }
    }
}
