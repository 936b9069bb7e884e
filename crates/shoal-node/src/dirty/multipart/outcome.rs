//! How uploads end, and the reasons why they do not.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use shoal_policy::admission::Refusal;

use super::{Part, Upload};
use crate::dirty::{AuthorityUnreachable, ReceiveError};

/// An object that was made of parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// The ETag of the object, in quotes.
    pub etag: Arc<str>,
    /// The checksum headers of the object.
    pub checksums: HeaderMap,
    /// The reason why the lake already has the object; empty if it does not.
    pub through: Arc<str>,
}

/// The reason why no object was made. The upload stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompletionError {
    /// The lake refused the object, with this status.
    #[error("the lake answered {0}")]
    Refused(u16),
    /// A part, by number, is lost with the node that held it.
    #[error("part {0} was lost with the node that held it; upload it again")]
    PartLost(u16),
    /// The object has another checksum than the request names.
    #[error("the checksum of the object is another one")]
    Checksum,
    /// Another reason; the client may try again.
    #[error("the object could not be put together")]
    Later,
}

/// The reason why an upload cannot be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadUnavailable {
    /// There is no such upload: it is complete, was aborted, has expired, or is lost with its node.
    #[error("there is no such upload")]
    NotFound,
    /// The upload is being completed.
    #[error("the upload is being completed")]
    Completing,
    /// The parts are no longer those that the client listed.
    #[error("the parts of the upload have changed")]
    PartsChanged,
    /// The state of the upload is not known now.
    #[error(transparent)]
    Unreachable(#[from] AuthorityUnreachable),
}

/// The reason why a part could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The bytes were not received.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The upload cannot be continued.
    #[error(transparent)]
    Upload(#[from] UploadUnavailable),
    /// The object would be larger than a dirty object may be.
    #[error("the object is larger than one that is written back may be")]
    TooLarge,
    /// Too much is dirty already.
    #[error("too much is dirty already")]
    TooDirty,
    /// The disk has no room for a block.
    #[error("the disk does not take it: {0:?}")]
    Disk(Refusal),
}

/// The progress of an upload.
#[derive(Debug)]
pub enum UploadProgress {
    /// The upload is open and has these parts, in the order of their numbers.
    Open(Vec<Arc<Part>>),
    /// The upload is complete.
    Complete(Arc<Completed>),
}

/// An open upload and its parts.
pub type OpenUpload = (Arc<Upload>, Vec<Arc<Part>>);

/// How an upload that this node kept has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadEnd {
    /// An object was made of it.
    Completed,
    /// The client aborted it.
    Aborted,
    /// No client used it for too long.
    Expired,
}

impl UploadEnd {
    /// Every end, in the order of its declaration.
    pub const ALL: [Self; 3] = [Self::Completed, Self::Aborted, Self::Expired];

    /// The word in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Expired => "expired",
        }
    }
}

impl CompletionError {
    /// The lake's status, if the lake refused the object.
    pub fn status(self) -> Option<StatusCode> {
        match self {
            Self::Refused(status) => StatusCode::from_u16(status).ok(),
            _ => None,
        }
    }
}
