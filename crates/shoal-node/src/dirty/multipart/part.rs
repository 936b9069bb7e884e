//! Uploads and parts.

use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use http::uri::PathAndQuery;
use shoal_base::encoding::{Malformed, Reader, write_bytes, write_headers, write_time};
use shoal_policy::NodeId;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::payload::Algorithm;

use super::UploadId;
use crate::dirty::Checksum;
use crate::dirty::manifest::{read_name, write_name};

/// A multipart upload.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The id of the upload.
    pub id: UploadId,
    /// The name of the object.
    pub name: ObjectName,
    /// The access key of the identity that began the upload. Only this identity may continue it.
    pub writer: Arc<str>,
    /// The path of the object at the lake.
    pub target: PathAndQuery,
    /// The headers of the object.
    pub headers: HeaderMap,
    /// When the upload was begun.
    pub begun: SystemTime,
}

/// A part of an upload, on the disk of one node.
#[derive(Clone, Debug)]
pub struct Part {
    /// The number that the client gave it.
    pub number: u16,
    /// The version that names the blocks of the part. Its headers hold the checksum, if the upload has one.
    pub version: Arc<Version>,
    /// The node that holds the blocks.
    pub holder: NodeId,
}

impl Upload {
    pub(in crate::dirty) fn write(&self, out: &mut Vec<u8>) {
        self.id.write(out);
        write_name(out, &self.name);
        write_bytes(out, self.writer.as_bytes());
        write_bytes(out, self.target.as_str().as_bytes());
        write_headers(out, &self.headers);
        write_time(out, Some(self.begun));
    }

    /// Inverse of [`Upload::write`].
    pub(in crate::dirty) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            id: UploadId::read(reader)?,
            name: read_name(reader)?,
            writer: reader.text()?.into(),
            target: PathAndQuery::try_from(reader.text()?).map_err(|_| Malformed)?,
            headers: reader.headers()?,
            begun: reader.time()?.ok_or(Malformed)?,
        })
    }
}

impl Part {
    /// The size of the part.
    pub fn size_bytes(&self) -> u64 {
        self.version.size_bytes
    }

    /// The checksum of the part, if the upload has one.
    pub fn checksum(&self) -> Option<Checksum> {
        self.version.headers.iter().find_map(|(name, value)| {
            let algorithm = Algorithm::of_header(name.as_str())?;
            let digest = algorithm.parse(value.as_bytes())?;
            Some(Checksum { algorithm, digest })
        })
    }

    /// The MD5 of the part, from its ETag.
    pub(in crate::dirty) fn md5(&self) -> Option<[u8; 16]> {
        let digits = self.version.etag.trim_matches('"');
        let mut md5 = [0; 16];
        if digits.len() != 2 * md5.len() || !digits.is_ascii() {
            return None;
        }
        for (at, byte) in md5.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(md5)
    }

    pub(in crate::dirty) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.holder.0.to_le_bytes());
        self.version.write(out);
    }

    /// Inverse of [`Part::write`]. The ETag must be an MD5.
    pub(in crate::dirty) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let part = Self {
            number: u16::from_le_bytes(reader.array()?),
            holder: NodeId(reader.u64()?),
            version: Arc::new(Version::read(reader)?),
        };
        part.md5().map(|_| part.clone()).ok_or(Malformed)
    }
}

#[cfg(test)]
pub(in crate::dirty) mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use http::HeaderMap;
    use shoal_policy::NodeId;
    use shoal_s3::object::{ObjectName, Version};

    use super::{Part, Upload};
    use crate::dirty::manifest::tests::manifest;
    use crate::dirty::{PART_BYTES_MIN, UploadId};

    pub(in crate::dirty) fn upload() -> Upload {
        let of = manifest("k", 0);
        Upload {
            id: UploadId::new(NodeId(1), [2, 3]),
            name: of.name,
            writer: of.writer,
            target: of.target,
            headers: of.headers,
            begun: SystemTime::UNIX_EPOCH,
        }
    }

    /// Parts 1, 2 and 4 of an upload; the second is one byte too short for any but the last.
    pub(in crate::dirty) fn uploaded() -> Vec<Arc<Part>> {
        let parts = [
            part(1, 'a', PART_BYTES_MIN),
            part(2, 'b', PART_BYTES_MIN - 1),
            part(4, 'c', 3),
        ];
        parts.into_iter().map(Arc::new).collect()
    }

    /// A part whose bytes are `size_bytes` times the last digit of its ETag.
    pub(in crate::dirty) fn part(number: u16, digit: char, size_bytes: u64) -> Part {
        let etag = format!("\"{}\"", digit.to_string().repeat(32));
        let name = ObjectName {
            bucket: "part".into(),
            key: Arc::from(number.to_le_bytes()),
            version: None,
        };
        let object = name.id("lake");
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-checksum-crc32", "AAAAAQ==".parse().unwrap());
        let version = Version {
            id: Version::id_of(object, &etag, size_bytes),
            object,
            etag: etag.into(),
            size_bytes,
            block_bytes: 100,
            last_modified: Some(SystemTime::UNIX_EPOCH),
            headers,
        };
        Part {
            number,
            version: Arc::new(version),
            holder: NodeId(1),
        }
    }

    #[test]
    fn a_part_tells_its_digests() {
        let part = part(7, 'a', 250);
        assert_eq!(part.md5(), Some([0xaa; 16]));
        assert_eq!(part.checksum().unwrap().digest, [0, 0, 0, 1]);
    }
}
