//! The answers to questions.

use std::sync::Arc;

use http::StatusCode;
use shoal_net::endpoint::EndpointError;
use shoal_s3::error::S3Error;

/// The lake's answer.
#[derive(Clone, Debug)]
pub enum Permission {
    /// The lake would carry the action out.
    Granted,
    /// The lake would accept the object, under an ETag that the node cannot predict.
    OtherEtag,
    /// The lake would refuse the action, with this error.
    Denied(S3Error),
    /// The lake does not support the question; its response to the request itself decides.
    Undecided,
}

/// The reason why the permission is unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PermissionError {
    /// The lake did not answer.
    #[error(transparent)]
    Lake(#[from] Arc<EndpointError>),
    /// The lake cannot answer at present.
    #[error("the lake answered {0}")]
    Status(StatusCode),
    /// The question was abandoned.
    #[error("the question to the lake was given up")]
    GivenUp,
}
