//! Answers to a GET of an object.

use std::sync::Arc;

use http::Response;
use shoal_net::endpoint::LakeBody;
use shoal_s3::object::{Uncacheable, Version};

use crate::blocks::Reading;
use crate::exchange::respond::CallerHeaders;
use crate::lake::NoBytes;

/// The outcome of a GET. The first two are answers that this node gives itself, with the headers that the
/// lake sent for this caller.
pub enum GetAnswer {
    /// Bytes of a version.
    Object(Reading, CallerHeaders),
    /// No bytes of this version.
    NoBytes(NoBytes, Arc<Version>, CallerHeaders),
    /// The lake's response, unchanged.
    Relay(Box<Response<LakeBody>>),
    /// The request must be forwarded to the lake, for this reason.
    Bypass(Uncacheable),
}
