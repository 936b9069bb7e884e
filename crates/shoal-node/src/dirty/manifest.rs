//! The record of a dirty object: everything that the lake will know of it, and where its bytes are until
//! then.

use std::sync::Arc;

use http::HeaderMap;
use http::uri::PathAndQuery;
use shoal_base::encoding::{Malformed, Reader, write_bytes, write_headers};
use shoal_s3::object::{ObjectName, Version};

use super::part_layout::PartLayout;
use crate::blocks::placement::Placement;

/// One dirty object.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The name of the object, never with a `versionId`.
    pub name: ObjectName,
    /// Orders the writes of one name. Zero until the write is committed.
    pub sequence: u64,
    /// The access key of the identity that wrote the object. Only this identity may read it.
    pub writer: Arc<str>,
    /// The version that a read finds: its ETag, size and headers are those that the lake will give.
    pub version: Arc<Version>,
    /// The path of the object at the lake.
    pub target: PathAndQuery,
    /// The headers that the lake gets with the bytes.
    pub headers: HeaderMap,
    /// The parts in which the object was uploaded.
    pub part_layout: Arc<PartLayout>,
    /// The nodes that hold the blocks.
    pub placement: Arc<Placement>,
}

impl Manifest {
    /// Encodes the manifest, for a record or another node.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_name(out, &self.name);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        write_bytes(out, self.writer.as_bytes());
        self.version.write(out);
        write_bytes(out, self.target.as_str().as_bytes());
        write_headers(out, &self.headers);
        self.part_layout.write(out);
        self.placement.write(out);
    }

    /// The encoded manifest.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        self.write(&mut out);
        out
    }

    /// Inverse of [`Manifest::write`]. Every block must have a holder, and the parts must add up to the
    /// object.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the bytes end too early or the manifest contradicts itself.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let manifest = Self {
            name: read_name(reader)?,
            sequence: reader.u64()?,
            writer: reader.text()?.into(),
            version: Arc::new(Version::read(reader)?),
            target: PathAndQuery::try_from(reader.text()?).map_err(|_| Malformed)?,
            headers: reader.headers()?,
            part_layout: Arc::new(PartLayout::read(reader)?),
            placement: Arc::new(Placement::read(reader)?),
        };
        let is_placed = manifest.placement.len() == manifest.version.block_count() as usize;
        let is_parted = manifest.part_layout.fits(manifest.version.size_bytes);
        (is_placed && is_parted).then_some(manifest).ok_or(Malformed)
    }

    /// Inverse of [`Manifest::to_bytes`].
    ///
    /// # Errors
    ///
    /// Fails as [`read`](Self::read) does, and if bytes are left.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let manifest = Self::read(&mut reader)?;
        reader.rest().is_empty().then_some(manifest).ok_or(Malformed)
    }

    /// The bytes of the object that `node` holds.
    pub fn bytes_at(&self, node: shoal_policy::NodeId) -> u64 {
        let blocks = self.placement.held_by(node);
        blocks.map(|index| self.version.block_len(index)).sum()
    }
}

/// Encodes the name of an object.
pub(super) fn write_name(out: &mut Vec<u8>, name: &ObjectName) {
    write_bytes(out, name.bucket.as_bytes());
    write_bytes(out, &name.key);
}

/// Inverse of [`write_name`].
pub(super) fn read_name(reader: &mut Reader<'_>) -> Result<ObjectName, Malformed> {
    Ok(ObjectName {
        bucket: reader.text()?.into(),
        key: reader.bytes()?.into(),
        version: None,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use http::uri::PathAndQuery;
    use http::{HeaderMap, HeaderValue};
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};
    use shoal_policy::NodeId;
    use shoal_s3::object::{ObjectName, Version};

    use super::{Manifest, PartLayout, Placement};

    /// An object of three blocks of 100 bytes, the last one short, on nodes 1 and 2.
    pub(in crate::dirty) fn manifest(key: &str, sequence: u64) -> Manifest {
        let name = ObjectName {
            bucket: "b".into(),
            key: key.as_bytes().into(),
            version: None,
        };
        let object = name.id("lake");
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-raw", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        Manifest {
            target: PathAndQuery::try_from(format!("/b/{key}")).unwrap(),
            sequence,
            writer: "AK".into(),
            version: Arc::new(Version {
                id: Version::id_of(object, "\"etag\"", 250),
                object,
                etag: "\"etag\"".into(),
                size_bytes: 250,
                block_bytes: 100,
                last_modified: None,
                headers: headers.clone(),
            }),
            headers,
            part_layout: Arc::new(PartLayout::of([(1, 200), (2, 50)])),
            placement: Arc::new(Placement::new([1, 2, 1].map(NodeId)).unwrap()),
            name,
        }
    }

    #[test]
    fn a_written_manifest_reads_back_unchanged() {
        let written = manifest("k", 7);
        let read = Manifest::of_bytes(&written.to_bytes()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{written:?}"));
        assert_eq!((read.bytes_at(NodeId(1)), read.bytes_at(NodeId(2))), (150, 100));
    }

    #[test]
    fn a_manifest_without_a_place_for_each_block_is_refused() {
        let mut lying = manifest("k", 7);
        lying.placement = Arc::new(Placement::new([1, 2].map(NodeId)).unwrap());
        assert!(Manifest::of_bytes(&lying.to_bytes()).is_err());
    }

    #[test]
    fn a_manifest_whose_parts_are_not_the_object_is_refused() {
        let mut lying = manifest("k", 7);
        lying.part_layout = Arc::new(PartLayout::of([(1, 200), (2, 51)]));
        assert!(Manifest::of_bytes(&lying.to_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_manifest_or_refused(bytes in vec(any::<u8>(), 0..300)) {
            let _ = Manifest::of_bytes(&bytes);
        }

        #[test]
        fn a_manifest_with_flipped_bits_is_another_one_or_refused(at in any::<proptest::sample::Index>(), bit in 0..8_u8) {
            let mut bytes = manifest("k", 7).to_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let _ = Manifest::of_bytes(&bytes);
        }
    }
}
