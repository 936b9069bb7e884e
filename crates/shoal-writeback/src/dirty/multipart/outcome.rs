//! Outcomes of uploads, and the errors of their requests.

use std::sync::Arc;

use crate::tier::TierUnavailable;
use http::{HeaderMap, StatusCode};
use shoal_base::encoding::{Malformed, Reader, write_bytes, write_headers};
use shoal_s3::object::ObjectName;

use super::{Upload, UploadId};
use crate::dirty::ReceiveError;

/// An object that was assembled from parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// The ETag of the object, in quotes.
    pub etag: Arc<str>,
    /// The checksum headers of the object.
    pub checksums: HeaderMap,
    /// The reason why the object is already at the lake; empty if it is dirty.
    pub through: Arc<str>,
}

impl Completed {
    /// Encodes a completion together with its upload.
    pub(in crate::dirty) fn to_record(&self, upload: &Upload) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        write_bytes(&mut out, &upload.to_bytes());
        write_bytes(&mut out, self.etag.as_bytes());
        write_headers(&mut out, &self.checksums);
        write_bytes(&mut out, self.through.as_bytes());
        out
    }

    /// Inverse of [`Completed::to_record`].
    pub(in crate::dirty) fn of_record(
        name: &ObjectName,
        id: UploadId,
        bytes: &[u8],
    ) -> Result<(Upload, Self), Malformed> {
        let mut reader = Reader::new(bytes);
        let upload = Upload::of_bytes(name, id, reader.bytes()?)?;
        let completed = Self {
            etag: reader.text()?.into(),
            checksums: reader.headers()?,
            through: reader.text()?.into(),
        };
        let is_whole = reader.rest().is_empty();
        is_whole.then_some((upload, completed)).ok_or(Malformed)
    }
}

/// The reason why a completion made no object. The upload stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompletionError {
    /// The lake refused the object with this status.
    #[error("the lake answered {0}")]
    Refused(StatusCode),
    /// The checksum in the request is not the object's.
    #[error("the checksum of the object is another one")]
    Checksum,
    /// The upload has ended or changed, or the tier does not answer.
    #[error(transparent)]
    Upload(#[from] UploadUnavailable),
    /// Any other reason; the client may retry.
    #[error("the object could not be put together")]
    Later,
}

impl From<TierUnavailable> for CompletionError {
    fn from(error: TierUnavailable) -> Self {
        Self::Upload(error.into())
    }
}

impl CompletionError {
    /// Returns the lake's status if the lake refused the object.
    pub const fn status(self) -> Option<StatusCode> {
        match self {
            Self::Refused(status) => Some(status),
            _ => None,
        }
    }
}

/// The reason why an upload cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UploadUnavailable {
    /// No such upload: it was completed or aborted, or has expired.
    #[error("there is no such upload")]
    NotFound,
    /// A part was uploaded again concurrently.
    #[error("the parts of the upload have changed")]
    PartsChanged,
    /// The state of the upload is unknown at present.
    #[error(transparent)]
    Unavailable(#[from] TierUnavailable),
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
    /// The part exceeds the size limit.
    #[error("the part is larger than one that is written back may be")]
    TooLarge,
}

/// The end of an upload at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadEnd {
    /// It was completed.
    Completed,
    /// The client aborted it.
    Aborted,
}

impl UploadEnd {
    /// All variants, in order of declaration.
    pub const ALL: [Self; 2] = [Self::Completed, Self::Aborted];

    /// Returns the label in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::Completed;
    use crate::dirty::multipart::tests::upload;

    #[test]
    fn what_a_completion_tells_reads_back_unchanged() {
        let mut checksums = HeaderMap::new();
        checksums.insert("x-amz-checksum-crc32", HeaderValue::from_static("AAAAAA==-2"));
        let completed = Completed {
            etag: "\"e-2\"".into(),
            checksums,
            through: "condition".into(),
        };
        let upload = upload();
        let read = Completed::of_record(&upload.name, upload.id, &completed.to_record(&upload));
        let (read_upload, read) = read.unwrap();
        assert_eq!((read, read_upload.writer), (completed, upload.writer));
        assert!(Completed::of_record(&upload.name, upload.id, &[9]).is_err());
    }
}
