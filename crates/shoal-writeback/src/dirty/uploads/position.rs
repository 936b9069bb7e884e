//! Positions in a listing of uploads, which define its order.

use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use ulid::Ulid;

use super::id::UploadId;
use super::part::Upload;

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

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use ulid::Ulid;

    use super::super::part::tests::upload;
    use super::{Upload, UploadId, UploadPosition};

    /// Returns an upload that was begun `seconds` after 1970.
    pub(crate) fn begun(key: &str, seconds: u64, chance: u64) -> Arc<Upload> {
        let mut upload = upload();
        upload.name.key = key.as_bytes().into();
        upload.begun = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        upload.id = UploadId(Ulid(chance.into()));
        Arc::new(upload)
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
}
