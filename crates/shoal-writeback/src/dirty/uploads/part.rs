//! Uploads and parts.

use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use shoal_base::encoding::{Malformed, Reader, write_bytes, write_headers, write_time};
use shoal_registry::Lifetime;
use shoal_s3::etag;
use shoal_s3::object::ObjectName;
use shoal_s3::payload::Algorithm;

use super::id::UploadId;
use crate::dirty::record::acknowledged::{read_piece, write_piece};
use crate::dirty::record::checksums::{Checksum, ChecksumSpec};
use crate::tier::ChunkDigests;

/// The encodings of lifetimes.
const NORMAL: u8 = 0;
const SHORT: u8 = 1;

/// A multipart upload.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The id of the upload.
    pub id: UploadId,
    /// The name of the object.
    pub name: ObjectName,
    /// The access key of the identity that began the upload. Only this identity may continue it.
    pub writer: Arc<str>,
    /// The headers to create the object with.
    pub headers: HeaderMap,
    /// The lifetime that the writer expects of the object; `None` for the rule's.
    pub lifetime: Option<Lifetime>,
    /// The time when the upload was begun.
    pub begun: SystemTime,
}

/// A part of an upload, in a tier's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The number that the client gave the part.
    pub number: u16,
    /// The size of the part.
    pub size_bytes: u64,
    /// The MD5 of the part.
    pub md5: [u8; 16],
    /// The checksum of the part, if the upload has checksums.
    pub checksum: Option<Checksum>,
    /// The time of the upload.
    pub modified: SystemTime,
    /// The digests of the part's chunks; `None` if an earlier build received it.
    pub(in crate::dirty) digests: Option<ChunkDigests>,
    /// The key of the part's bytes. An empty part has a key under which nothing is stored.
    pub(in crate::dirty) data: Arc<str>,
}

impl Upload {
    /// Returns the checksum that the upload was created with, if any.
    pub fn checksum_spec(&self) -> Option<ChecksumSpec> {
        ChecksumSpec::from_headers(&self.headers).ok().flatten()
    }

    /// Encodes all but the id and the name, which the registry stores itself.
    pub(in crate::dirty) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        write_bytes(&mut out, self.writer.as_bytes());
        write_headers(&mut out, &self.headers);
        write_time(&mut out, Some(self.begun));
        out.extend(self.lifetime.map(|lifetime| match lifetime {
            Lifetime::Normal => NORMAL,
            Lifetime::Short => SHORT,
        }));
        out
    }

    /// Inverse of [`Upload::to_bytes`].
    pub(in crate::dirty) fn from_bytes(
        name: &ObjectName,
        id: UploadId,
        bytes: &[u8],
    ) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let mut upload = Self {
            id,
            name: name.clone(),
            writer: reader.text()?.into(),
            headers: reader.headers()?,
            begun: reader.time()?.ok_or(Malformed)?,
            lifetime: None,
        };
        if !reader.rest().is_empty() {
            upload.lifetime = match reader.array()? {
                [NORMAL] => Some(Lifetime::Normal),
                [SHORT] => Some(Lifetime::Short),
                _ => return Err(Malformed),
            };
        }
        reader.rest().is_empty().then_some(upload).ok_or(Malformed)
    }
}

impl Part {
    /// Returns the ETag of the part, in quotes.
    pub fn etag(&self) -> String {
        etag::of_md5(&self.md5)
    }

    /// Encodes all but the number and the key, which the registry stores itself.
    pub(in crate::dirty) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(&self.size_bytes.to_le_bytes());
        out.extend_from_slice(&self.md5);
        write_time(&mut out, Some(self.modified));
        let checksum = self.checksum.as_ref();
        let checksum = checksum.map(|checksum| (checksum.algorithm.as_str(), &checksum.digest[..]));
        let (algorithm, digest) = checksum.unwrap_or_default();
        write_bytes(&mut out, algorithm.as_bytes());
        write_bytes(&mut out, digest);
        write_piece(self.digests.as_ref(), &mut out);
        out
    }

    /// Inverse of [`Part::to_bytes`].
    pub(in crate::dirty) fn from_bytes(number: u16, data: Arc<str>, bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let mut part = Self {
            number,
            size_bytes: reader.u64()?,
            md5: reader.array()?,
            checksum: None,
            modified: reader.time()?.ok_or(Malformed)?,
            digests: None,
            data,
        };
        // Earlier builds wrote no digests, and nothing at all for a part without a checksum.
        let is_earlier = reader.rest().is_empty();
        let (name, digest) = if is_earlier {
            Default::default()
        } else {
            (reader.text()?, reader.bytes()?)
        };
        if !name.is_empty() {
            let mut known = Algorithm::CHECKSUMS.into_iter();
            let algorithm = known.find(|algorithm| algorithm.as_str() == name);
            let algorithm = algorithm.filter(|algorithm| algorithm.len_bytes() == digest.len());
            part.checksum = Some(Checksum {
                algorithm: algorithm.ok_or(Malformed)?,
                digest: digest.into(),
            });
        }
        if !reader.rest().is_empty() {
            part.digests = read_piece(&mut reader, part.size_bytes)?;
        }
        reader.rest().is_empty().then_some(part).ok_or(Malformed)
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
    use crate::dirty::record::manifest::tests::manifest;
    use crate::dirty::{Checksum, UploadId};
    use crate::tier::ChunkDigester;

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
            digests: None,
            data: format!("part-{number}").into(),
        }
    }

    #[test]
    fn a_part_of_an_earlier_build_has_no_digests() {
        let mut digests = Vec::new();
        super::write_piece(None, &mut digests);
        for written in [
            part(7, 0xaa, 250),
            Part {
                checksum: None,
                ..part(8, 1, 0)
            },
        ] {
            let bytes = written.to_bytes();
            let mut earlier = bytes.strip_suffix(&digests[..]).unwrap();
            if written.checksum.is_none() {
                earlier = earlier.strip_suffix(&[0; 8]).unwrap();
            }
            let read = Part::from_bytes(written.number, Arc::clone(&written.data), earlier);
            assert_eq!(read, Ok(written));
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
        let mut digester = ChunkDigester::default();
        digester.update(&[7; 250]);
        let digested = Part {
            digests: Some(digester.finish()),
            ..part(7, 0xaa, 250)
        };
        let bare = Part {
            checksum: None,
            ..digested.clone()
        };
        for written in [part(7, 0xaa, 250), plain, digested, bare] {
            let read = Part::from_bytes(written.number, Arc::clone(&written.data), &written.to_bytes());
            assert_eq!(read, Ok(written));
        }
        for lifetime in [None, Some(Lifetime::Normal), Some(Lifetime::Short)] {
            let upload = Upload {
                lifetime,
                ..upload.clone()
            };
            let read = Upload::from_bytes(&upload.name, upload.id, &upload.to_bytes()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{upload:?}"));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_part_and_an_upload_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            let _ = Part::from_bytes(1, "k".into(), &bytes);
            let _ = Upload::from_bytes(&upload().name, upload().id, &bytes);
        }
    }
}
