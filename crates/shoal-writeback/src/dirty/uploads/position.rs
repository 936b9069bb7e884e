//! Selects the uploads of a listing and defines their order.

use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use ulid::Ulid;

use super::id::UploadId;
use super::part::Upload;

/// Selects the uploads of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadQuery {
    /// The bucket of the objects.
    pub bucket: Arc<str>,
    /// The prefix of the keys.
    pub prefix: Vec<u8>,
    /// The access key of the identity that began the uploads.
    pub writer: Arc<str>,
    /// Uploads up to and including this position are omitted.
    pub behind: Option<UploadPosition>,
}

/// A position in a listing, which orders uploads by key and then by the time they were begun.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UploadPosition {
    /// The key.
    pub key: Arc<[u8]>,
    of_key: PositionOfKey,
}

/// A position among the uploads of one key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum PositionOfKey {
    Upload(SystemTime, UploadId),
    End,
}

impl UploadPosition {
    /// Returns the position after all uploads of a key.
    pub fn behind_all_of(key: &[u8]) -> Self {
        Self {
            key: key.into(),
            of_key: PositionOfKey::End,
        }
    }

    /// Returns the position before all uploads of a key.
    pub fn before_all_of(key: &[u8]) -> Self {
        Self {
            key: key.into(),
            of_key: PositionOfKey::Upload(SystemTime::UNIX_EPOCH, UploadId(Ulid::nil())),
        }
    }

    /// Returns the position of an upload.
    pub fn of(upload: &Upload) -> Self {
        Self {
            key: Arc::clone(&upload.name.key),
            of_key: PositionOfKey::Upload(upload.begun, upload.id),
        }
    }

    /// Returns true if the position sorts before an upload.
    pub fn is_before(&self, upload: &Upload) -> bool {
        *self < Self::of(upload)
    }
}

impl UploadQuery {
    /// Returns true if the query selects an upload.
    pub(in crate::dirty) fn is_about(&self, upload: &Upload) -> bool {
        let is_known = |place: &UploadPosition| !place.is_before(upload);
        upload.writer == self.writer
            && upload.name.bucket == self.bucket
            && upload.name.key.starts_with(&self.prefix)
            && !self.behind.as_ref().is_some_and(is_known)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use ulid::Ulid;

    use super::super::part::tests::upload;
    use super::{Upload, UploadId, UploadPosition, UploadQuery};

    /// Returns an upload that the writer in [`inquiry`] began `seconds` after 1970.
    pub(crate) fn begun(key: &str, seconds: u64, chance: u64) -> Arc<Upload> {
        let mut upload = upload();
        upload.name.key = key.as_bytes().into();
        upload.begun = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        upload.id = UploadId(Ulid(chance.into()));
        Arc::new(upload)
    }

    pub(in crate::dirty) fn inquiry(prefix: &str) -> UploadQuery {
        let Upload { name, writer, .. } = upload();
        UploadQuery {
            bucket: name.bucket,
            prefix: prefix.into(),
            writer,
            behind: None,
        }
    }

    #[test]
    fn uploads_stand_by_their_keys_and_then_by_when_they_were_begun() {
        let uploads = [
            begun("a", 2, 9),
            begun("a", 3, 1),
            begun("a", 3, 2),
            begun("a/b", 1, 1),
        ];
        let mut mixed: Vec<_> = uploads.iter().rev().cloned().collect();
        mixed.sort_by_cached_key(|upload| UploadPosition::of(upload));
        assert!(
            mixed
                .iter()
                .map(|upload| upload.id)
                .eq(uploads.iter().map(|upload| upload.id))
        );
        for (at, upload) in uploads.iter().enumerate() {
            let behind = uploads
                .iter()
                .filter(|other| UploadPosition::of(upload).is_before(other));
            assert_eq!(behind.count(), uploads.len() - at - 1);
        }
        let count = |place: UploadPosition| uploads.iter().filter(|upload| place.is_before(upload)).count();
        assert_eq!(count(UploadPosition::before_all_of(b"a")), 4);
        assert_eq!(count(UploadPosition::behind_all_of(b"a")), 1);
        assert_eq!(count(UploadPosition::behind_all_of(b"a/b")), 0);
    }

    #[test]
    fn an_inquiry_is_about_uploads_of_one_writer_below_a_prefix() {
        let meant = begun("tmp/a", 5, 1);
        assert!(inquiry("tmp/").is_about(&meant));
        let others = [
            UploadQuery {
                bucket: "other".into(),
                ..inquiry("")
            },
            UploadQuery {
                writer: "other".into(),
                ..inquiry("")
            },
            UploadQuery {
                behind: Some(UploadPosition::of(&meant)),
                ..inquiry("")
            },
            inquiry("tmp/b"),
        ];
        assert!(others.iter().all(|other| !other.is_about(&meant)));
    }
}
