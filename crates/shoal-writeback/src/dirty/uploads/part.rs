//! Uploads and parts.

use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;
use shoal_registry::Lifetime;
use shoal_s3::etag;
use shoal_s3::object::ObjectName;

use super::id::UploadId;
use crate::dirty::record::checksums::{Checksum, ChecksumSpec};
use crate::dirty::record::format::{Unreadable, decoded, headers};
use crate::tier::ChunkDigests;

/// A multipart upload. The registry stores its id and its name beside its record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Upload {
    /// The id of the upload.
    #[serde(skip)]
    pub id: UploadId,
    /// The name of the object.
    #[serde(skip)]
    pub name: ObjectName,
    /// The access key of the identity that began the upload. Only this identity may continue it.
    pub writer: Arc<str>,
    /// The headers to create the object with.
    #[serde(with = "headers")]
    pub headers: HeaderMap,
    /// The lifetime that the writer expects of the object; `None` for the rule's.
    pub lifetime: Option<Lifetime>,
    /// The time when the upload was begun.
    pub begun: SystemTime,
}

/// A part of an upload, in a tier's store. The registry stores its number and its key beside its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The number that the client gave the part.
    #[serde(skip)]
    pub number: u16,
    /// The size of the part.
    pub size_bytes: u64,
    /// The MD5 of the part.
    pub md5: [u8; 16],
    /// The checksum of the part, if the upload has checksums.
    pub checksum: Option<Checksum>,
    /// The time of the upload.
    pub modified: SystemTime,
    /// The digests of the part's chunks.
    pub(in crate::dirty) digests: ChunkDigests,
    /// The key of the part's bytes. An empty part has a key under which nothing is stored.
    #[serde(skip)]
    pub(in crate::dirty) data: Arc<str>,
}

impl Upload {
    /// Returns the checksum that the upload was created with, if any.
    pub fn checksum_spec(&self) -> Option<ChecksumSpec> {
        ChecksumSpec::from_headers(&self.headers).ok().flatten()
    }

    /// Restores an upload from its record, which has all but the id and the name.
    pub(in crate::dirty) fn of_record(name: &ObjectName, id: UploadId, record: Self) -> Self {
        Self {
            id,
            name: name.clone(),
            ..record
        }
    }
}

impl Part {
    /// Returns the ETag of the part, in quotes.
    pub fn etag(&self) -> String {
        etag::of_md5(&self.md5)
    }

    /// Restores a part from its record, which has all but the number and the key.
    pub(in crate::dirty) fn from_bytes(
        number: u16,
        data: Arc<str>,
        bytes: &[u8],
    ) -> Result<Self, Unreadable> {
        let part = Self {
            number,
            data,
            ..decoded(bytes)?
        };
        let is_consistent = part.digests.size_bytes() == part.size_bytes;
        Ok(is_consistent.then_some(part).ok_or(Malformed)?)
    }
}

#[cfg(test)]
pub(in crate::dirty) mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};
    use shoal_registry::Lifetime;
    use shoal_s3::payload::Algorithm;
    use ulid::Ulid;

    use super::super::selection::PART_BYTES_MIN;
    use super::{Part, Upload};
    use crate::dirty::record::format::{decoded, encoded};
    use crate::dirty::record::manifest::tests::manifest;
    use crate::dirty::{Checksum, UploadId};
    use crate::tier::ChunkDigests;

    pub(in crate::dirty) fn upload() -> Upload {
        let of = manifest("k");
        Upload {
            id: UploadId(Ulid(2)),
            name: of.name,
            writer: of.record.writer,
            headers: of.record.headers,
            lifetime: None,
            begun: SystemTime::UNIX_EPOCH,
        }
    }

    /// Returns parts 1, 2 and 4 of an upload; part 2 is one byte too short unless it is the last.
    pub(in crate::dirty) fn uploaded() -> Vec<Arc<Part>> {
        let parts = [
            part(1, 0xaa, PART_BYTES_MIN),
            part(2, 0xbb, PART_BYTES_MIN - 1),
            part(4, 0xcc, 3),
        ];
        parts.into_iter().map(Arc::new).collect()
    }

    /// Returns a part whose MD5 repeats one byte.
    pub(in crate::dirty) fn part(number: u16, byte: u8, size_bytes: u64) -> Part {
        Part {
            number,
            size_bytes,
            md5: [byte; 16],
            checksum: Some(Checksum {
                algorithm: Algorithm::Crc32,
                digest: vec![0, 0, 0, 1],
            }),
            modified: SystemTime::UNIX_EPOCH,
            digests: ChunkDigests::new(size_bytes, 1 << 30, vec![7; size_bytes.min(1) as usize]).unwrap(),
            data: format!("part-{number}").into(),
        }
    }

    #[test]
    fn a_part_and_an_upload_read_back_unchanged() {
        let (upload, plain) = (
            upload(),
            Part {
                checksum: None,
                ..part(8, 1, 0)
            },
        );
        for written in [part(7, 0xaa, 250), plain] {
            let read = Part::from_bytes(written.number, Arc::clone(&written.data), &encoded(&written));
            assert_eq!(read, Ok(written));
        }
        let other_size = Part {
            size_bytes: 251,
            ..part(7, 0xaa, 250)
        };
        assert!(Part::from_bytes(7, "k".into(), &encoded(&other_size)).is_err());
        let other_checksum = Part {
            checksum: Some(Checksum {
                algorithm: Algorithm::Crc32,
                digest: vec![1; 5],
            }),
            ..part(7, 0xaa, 250)
        };
        assert!(Part::from_bytes(7, "k".into(), &encoded(&other_checksum)).is_err());
        for lifetime in [None, Some(Lifetime::Normal), Some(Lifetime::Short)] {
            let upload = Upload {
                lifetime,
                ..upload.clone()
            };
            let read = Upload::of_record(&upload.name, upload.id, decoded(&encoded(&upload)).unwrap());
            assert_eq!(format!("{read:?}"), format!("{upload:?}"));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_part_and_an_upload_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            let _ = Part::from_bytes(1, "k".into(), &bytes);
            let _ = decoded::<Upload>(&bytes);
        }
    }
}
