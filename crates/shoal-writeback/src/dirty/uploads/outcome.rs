//! Outcomes of uploads, and the errors of their requests.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use shoal_base::encoding::{Malformed, Reader, write_bytes, write_headers};
use shoal_registry::uploads::FoundUpload;
use shoal_s3::object::ObjectName;

use super::id::UploadId;
use super::part::Upload;
use crate::dirty::record::writing::WriteError;
use crate::tier::TierUnavailable;

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
    pub(in crate::dirty) fn from_record(
        name: &ObjectName,
        id: UploadId,
        bytes: &[u8],
    ) -> Result<(Upload, Self), Malformed> {
        let mut reader = Reader::new(bytes);
        let upload = Upload::from_bytes(name, id, reader.bytes()?)?;
        let completed = Self {
            etag: reader.text()?.into(),
            checksums: reader.headers()?,
            through: reader.text()?.into(),
        };
        let is_whole = reader.rest().is_empty();
        is_whole.then_some((upload, completed)).ok_or(Malformed)
    }
}

/// An upload and its state in the registry.
#[derive(Clone, Debug)]
pub struct KeptUpload {
    /// The upload.
    pub upload: Upload,
    /// The response to its completion, if it is complete.
    pub completed: Option<Arc<Completed>>,
    pub(in crate::dirty) found: FoundUpload,
}

/// The reason why a request about an upload failed. The upload stays as it was. Clients get most of the
/// messages.
#[derive(Debug, thiserror::Error)]
pub enum UploadFailed {
    /// No such upload: it was completed or aborted, or has expired.
    #[error(
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."
    )]
    NotFound,
    /// A part was uploaded again concurrently.
    #[error("The parts of the upload have changed while it was to be completed.")]
    PartsChanged,
    /// The state of the upload is unknown at present.
    #[error(transparent)]
    Unavailable(#[from] TierUnavailable),
    /// The bytes of a part were not received.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The part exceeds the size limit.
    #[error(
        "The part is larger than one that is written back may be; begin the upload with x-shoal-write: around."
    )]
    TooLarge,
    /// The checksum in a completion is not the object's.
    #[error("The checksum of the object is not the one that the request names.")]
    Checksum,
    /// The lake refused the object with this status.
    #[error("the lake answered {0}")]
    Refused(StatusCode),
    /// Any other reason; the client may retry.
    #[error("the object could not be put together")]
    Later,
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::Completed;
    use crate::dirty::uploads::part::tests::upload;

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
        let read = Completed::from_record(&upload.name, upload.id, &completed.to_record(&upload));
        let (read_upload, read) = read.unwrap();
        assert_eq!((read, read_upload.writer), (completed, upload.writer));
        assert!(Completed::from_record(&upload.name, upload.id, &[9]).is_err());
    }
}
