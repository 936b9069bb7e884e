//! How uploads end, and why they do not.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use shoal_policy::admission::Refusal;

use super::{Part, Upload};
use crate::dirty::{AuthorityUnreachable, ReceiveError};

/// An object that was made of parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// In quotes.
    pub etag: Arc<str>,
    /// What is said of its bytes.
    pub checksums: HeaderMap,
    /// Why the lake has it already; empty: it has not.
    pub through: Arc<str>,
}

/// Why there is no object; the upload stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompletionError {
    /// The lake said no.
    #[error("the lake answered {0}")]
    Refused(u16),
    /// A part is gone with the node that held it.
    #[error("part {0} was lost with the node that held it; upload it again")]
    PartLost(u16),
    /// The object has another checksum than was said.
    #[error("the checksum of the object is another one")]
    Checksum,
    /// Something else; it may be tried again.
    #[error("the object could not be put together")]
    Later,
}

/// Why an upload cannot be gone on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadUnavailable {
    /// There is none: it is complete, was aborted, has expired, or its keeper is gone.
    #[error("there is no such upload")]
    NotFound,
    /// It is being completed.
    #[error("the upload is being completed")]
    Completing,
    /// The parts are not those that were listed any more.
    #[error("the parts of the upload have changed")]
    PartsChanged,
    /// Whether there is one is not known now.
    #[error(transparent)]
    Unreachable(#[from] AuthorityUnreachable),
}

/// Why a part was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// Its bytes.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// Its upload.
    #[error(transparent)]
    Upload(#[from] UploadUnavailable),
    /// The object would be larger than an object may be that is dirty.
    #[error("the object is larger than one that is written back may be")]
    TooLarge,
    /// Too much is dirty already.
    #[error("too much is dirty already")]
    TooDirty,
    /// A block has no room.
    #[error("the disk does not take it: {0:?}")]
    Disk(Refusal),
}

/// How far an upload is.
#[derive(Debug)]
pub enum UploadProgress {
    /// It has these parts, in order.
    Open(Vec<Arc<Part>>),
    /// It is an object.
    Complete(Arc<Completed>),
}

/// An upload that is not complete, and its parts.
pub type OpenUpload = (Arc<Upload>, Vec<Arc<Part>>);

/// How an upload that was kept here ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadEnd {
    /// An object was made of it.
    Completed,
    /// Its client gave it up.
    Aborted,
    /// Nothing was done to it for too long.
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
    /// What the lake said, if it did.
    pub fn status(self) -> Option<StatusCode> {
        match self {
            Self::Refused(status) => StatusCode::from_u16(status).ok(),
            _ => None,
        }
    }
}
