//! The reasons why the lake has not confirmed an object.

use std::sync::Arc;

use http::StatusCode;
use shoal_cache::single_flight::FetchError;
use shoal_net::endpoint::s3::{CallError, Refusal};
use shoal_net::endpoint::{EndpointError, Failure, is_undecided};
use shoal_s3::error::ErrorCode;

use crate::tier::WrongBytes;

/// The lake has not confirmed the object.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct NotWritten {
    #[source]
    pub(crate) error: LakeWriteError,
    /// True if the lake may have the object, or may still get it.
    pub(crate) may_exist: bool,
}

/// The reason why the lake has not confirmed an object.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LakeWriteError {
    /// This node's session has ended, so another node may already be flushing the object.
    #[error("the session of this node with the registry ended")]
    SessionOver,
    /// The flushing node does not have the writer's identity.
    #[error("no identity here signs with {0}")]
    UnknownWriter(Arc<str>),
    /// The lake refused the write.
    #[error("the lake answered {0}")]
    Refused(StatusCode),
    /// The lake's response lacks a required field.
    #[error("the lake's answer is not that of an upload")]
    Misunderstood,
    /// A block could not be read from the tier.
    #[error("the object cannot be read: {0}")]
    Unread(FetchError),
    /// This node read bytes that differ from the acknowledged ones.
    #[error("a block on this node's disk is wrong: {0}")]
    WrongBytes(WrongBytes),
    /// The acknowledged ETag is not that of the parts in the entry.
    #[error("the entry of the object contradicts itself: the MD5s of its parts do not give its ETag")]
    OtherParts,
    /// The lake reports other bytes: it rejected a digest, or its ETag is another MD5.
    #[error("the lake says that it got other bytes than were acknowledged: it answered {0}")]
    Contradicted(String),
    /// The lake did not answer.
    #[error(transparent)]
    Lake(#[from] EndpointError),
}

impl LakeWriteError {
    /// Returns true if the lake is overloaded or does not answer.
    pub(in crate::dirty) fn is_overload(&self) -> bool {
        match self {
            Self::Refused(status) => {
                [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(status)
            }
            Self::Lake(error) => {
                let failure = error.kind();
                failure.is_silence()
                    || matches!(failure, Failure::Stalled | Failure::Reset | Failure::Crowded)
            }
            _ => false,
        }
    }

    /// Returns advice for operators if the lake has other bytes than were acknowledged.
    pub(in crate::dirty) fn hint_about_bytes(&self) -> Option<&'static str> {
        match self {
            Self::Contradicted(_) => Some(
                "look for a fault of the lake, or of a proxy or a network before it; the object is written to the lake once more",
            ),
            _ => None,
        }
    }

    /// Returns the remedy to show to operators, or `None` if a retry may succeed.
    pub(in crate::dirty) fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::UnknownWriter(_) => Some(
                "add its writer's identity to the configuration again, let a client get a key of its role, or write \
                 flush_as into the rule",
            ),
            Self::Refused(StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) => {
                Some("let its writer write there at the lake, or remove the object")
            }
            Self::OtherParts => Some("write the object once more, or remove it"),
            Self::Refused(StatusCode::NOT_FOUND) => Some("create its bucket again, or remove the object"),
            Self::Refused(StatusCode::INSUFFICIENT_STORAGE) => Some("make room at the lake"),
            Self::Refused(status) if is_lasting(*status) => Some(
                "copy it to another name through Shoal and remove it: a lake on a file system, for example, has no \
                 object `t` beside `t/x`",
            ),
            _ => None,
        }
    }

    /// Returns the remedy to show to operators if the lake has not carried out a removal, or `None` if a
    /// retry may succeed.
    pub(in crate::dirty) fn remedy_of_removal(&self) -> Option<&'static str> {
        match self {
            Self::UnknownWriter(_) => Some(
                "add the identity that removed it to the configuration again, let a client get a key of its role, or write \
                 flush_as into the rule",
            ),
            Self::Refused(StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) => {
                Some("let the identity that removed it do so at the lake, or remove it as another one")
            }
            Self::Refused(status) if is_lasting(*status) => {
                Some("see why the lake does not remove it, or write it once more")
            }
            _ => None,
        }
    }

    /// Returns true if the lake may have carried out a request that failed with this error.
    fn may_be_carried_out(&self) -> bool {
        match self {
            // Whatever the lake did is finished, and a retry overwrites it.
            Self::SessionOver
            | Self::UnknownWriter(_)
            | Self::Unread(_)
            | Self::WrongBytes(_)
            | Self::OtherParts
            | Self::Contradicted(_) => false,
            Self::Refused(status) => is_undecided(*status),
            Self::Misunderstood => true,
            Self::Lake(error) => error.kind().may_be_carried_out(),
        }
    }
}

impl From<LakeWriteError> for NotWritten {
    fn from(error: LakeWriteError) -> Self {
        Self {
            may_exist: error.may_be_carried_out(),
            error,
        }
    }
}

/// Returns true if the status suggests that every retry will be refused, too.
fn is_lasting(status: StatusCode) -> bool {
    match status.as_u16() {
        408 | 425 | 429 | 499 => false,
        501 | 505 => true,
        _ => status.is_client_error(),
    }
}

impl From<CallError> for LakeWriteError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unanswered(error) => Self::Lake(error),
            CallError::Refused(refusal) => refusal.into(),
            CallError::TooLong(_) | CallError::BrokenOff(_) | CallError::Misunderstood(_) => {
                Self::Misunderstood
            }
        }
    }
}

impl From<Refusal> for LakeWriteError {
    fn from(refusal: Refusal) -> Self {
        match (refusal.status, refusal.code()) {
            // The lake refused the bytes because their digest is not the one in the request.
            (StatusCode::BAD_REQUEST, code @ ("BadDigest" | "XAmzContentChecksumMismatch")) => {
                Self::Contradicted(code.into())
            }
            // An error after an early 200 is the one that its status would have been.
            (StatusCode::OK, code) => {
                let code = ErrorCode::named(code);
                code.map_or(Self::Misunderstood, |code| Self::Refused(code.status()))
            }
            (status, _) => Self::Refused(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use shoal_s3::xml::ErrorDocument;

    use super::{LakeWriteError, Refusal};

    fn refused(status: u16, code: &str) -> LakeWriteError {
        let error = ErrorDocument {
            code: code.into(),
            message: String::new(),
        };
        LakeWriteError::from(Refusal {
            status: StatusCode::from_u16(status).unwrap(),
            error: Some(error),
        })
    }

    #[test]
    fn an_error_behind_a_yes_is_the_no_that_it_stands_for() {
        let status = |code: &str| match refused(200, code) {
            LakeWriteError::Refused(status) => status.as_u16(),
            _ => 0,
        };
        assert_eq!(
            ["PreconditionFailed", "NoSuchKey", "InternalError", "?"].map(status),
            [412, 404, 500, 0]
        );
    }

    #[test]
    fn a_refused_digest_means_that_the_lake_got_other_bytes() {
        let is_of_bytes = |status, code| matches!(refused(status, code), LakeWriteError::Contradicted(_));
        assert!(is_of_bytes(400, "BadDigest") && is_of_bytes(400, "XAmzContentChecksumMismatch"));
        assert!(!is_of_bytes(400, "InvalidRequest") && !is_of_bytes(403, "BadDigest"));
    }
}
