//! The record of a dirty object: all that the lake will be sent, and the location of its bytes until then.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::uri::PathAndQuery;
use http::{HeaderValue, header};
use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;
use shoal_registry::{Content, DirtyVersion};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::range::ByteRange;
use shoal_s3::target;

use super::acknowledged::{Acknowledged, md5_in};
use super::checksums::add_type;
use super::format::{Unreadable, decoded, headers};
use super::part_layout::PartLayout;
use super::writing::is_read;
use crate::headers::those;
use crate::tier::{ByteStore, ChunkDigester, ChunkProof, Damages, Piece, Place, TierBytes};

/// The time from 1970 to the year 10,000.
const YEAR_10000: Duration = Duration::from_hours(70_389_528);

/// One dirty object.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The name of the object, without a `versionId`.
    pub name: ObjectName,
    /// The version that reads return. Its ETag, size and headers are those that the lake will return.
    pub version: Arc<Version>,
    /// The path of the object at the lake.
    pub target: PathAndQuery,
    /// The locations of the bytes in the tier's store; one that is not there if the object is inline.
    pub pieces: Vec<Piece>,
    /// True if the registry has the bytes.
    pub(crate) is_inline: bool,
    /// The bytes of an inline object. Lists do not bring them.
    pub(crate) content: Option<Content>,
    pub(crate) record: Record,
}

/// The part of a manifest that the registry stores as opaque bytes. The registry keeps the name, the size and
/// the keys of the bytes itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The access key of the identity that wrote the object. Only it and the `readers` of its rule may read
    /// it.
    pub(crate) writer: Arc<str>,
    pub(crate) etag: Arc<str>,
    pub(crate) modified: SystemTime,
    /// The headers to send to the lake with the bytes.
    #[serde(with = "headers")]
    pub(crate) headers: HeaderMap,
    /// Headers that a read returns although the writer did not send them.
    #[serde(with = "headers")]
    pub(crate) of_reads: HeaderMap,
    /// The parts in which the object was uploaded.
    pub(crate) part_layout: PartLayout,
    /// The digests of the bytes.
    pub(crate) acknowledged: Acknowledged,
}

/// The lake and the block size of this node, which versions and blocks are named by.
#[derive(Clone, Debug)]
pub(crate) struct Naming {
    pub(crate) lake: Arc<str>,
    pub(crate) block_bytes: u64,
}

impl Manifest {
    /// Builds the manifest of the dirty object `name` from its registry entry.
    ///
    /// # Errors
    ///
    /// The record is inconsistent, or was written by a build that this one cannot read.
    pub(crate) fn new(name: &ObjectName, dirty: &DirtyVersion, naming: &Naming) -> Result<Self, Unreadable> {
        let record: Record = decoded(&dirty.record)?;
        if !record.part_layout.fits(dirty.size_bytes) {
            return Err(Malformed.into());
        }
        let version = version_of(name, &record, dirty.size_bytes, naming).ok_or(Malformed)?;
        let pieces = pieces(&record, dirty)?;
        debug_assert_eq!(
            pieces.iter().map(|piece| piece.size_bytes).sum::<u64>(),
            dirty.size_bytes,
            "the pieces of an object add up to it"
        );
        Ok(Self {
            name: name.clone(),
            version: Arc::new(version),
            target: target::of_object(name).map_err(|_| Malformed)?,
            pieces,
            is_inline: dirty.is_inline(),
            content: dirty.content.clone(),
            record,
        })
    }

    /// Returns a verifier of the bytes of `range`, which must be that of one piece, or empty. It accepts no
    /// byte of any other range.
    pub(crate) fn proof_of(&self, range: ByteRange) -> ChunkProof {
        let mut start = 0;
        let piece = self.pieces.iter().find(|piece| {
            let is_piece = start == range.start && piece.size_bytes == range.len();
            start += piece.size_bytes;
            is_piece
        });
        let digests = piece.map(|piece| piece.digests.clone());
        digests
            .unwrap_or_else(|| ChunkDigester::default().finish())
            .proof(0)
    }

    /// Returns a reader of the object's bytes, which are in the store of its tier or in this manifest.
    pub(crate) fn bytes(&self, store: &Arc<dyn ByteStore>, damages: &Arc<Damages>) -> TierBytes {
        let place = if self.is_inline {
            Place::Entry(self.content.clone())
        } else {
            Place::Store(Arc::clone(store))
        };
        TierBytes::new(self.location(), place, self.pieces.clone(), Arc::clone(damages))
    }

    /// Returns the name of the object, for messages to operators.
    pub(crate) fn location(&self) -> String {
        location(&self.name)
    }
}

/// Returns the name of an object, for messages to operators.
pub(crate) fn location(name: &ObjectName) -> String {
    format!("s3://{}/{}", name.bucket, name.key.escape_ascii())
}

/// Returns true if the caller is the identity with the name `writer`.
pub fn is_writer(caller: &Caller, writer: &str) -> bool {
    matches!(caller, Caller::Identity(identity) if identity.name() == writer)
}

/// Returns the version that reads of the object find, or `None` if the record describes an invalid one.
pub(crate) fn version_of(
    name: &ObjectName,
    record: &Record,
    size_bytes: u64,
    naming: &Naming,
) -> Option<Version> {
    // HTTP cannot express a later date.
    if record.modified >= SystemTime::UNIX_EPOCH + YEAR_10000 {
        return None;
    }
    let mut read = those(&record.headers, is_read);
    for (name, value) in &record.of_reads {
        read.insert(name, value.clone());
    }
    if record.part_layout.is_whole() {
        add_type(&mut read);
    }
    read.insert(header::ETAG, HeaderValue::from_str(&record.etag).ok()?);
    let modified = HeaderValue::try_from(httpdate::fmt_http_date(record.modified)).ok()?;
    read.insert(header::LAST_MODIFIED, modified);
    read.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let version =
        Version::from_response(name.id(&naming.lake), &read, size_bytes, naming.block_bytes).ok()?;
    Some(Version {
        // Listings need a finer resolution than the header has.
        last_modified: Some(record.modified),
        ..version
    })
}

/// Returns the pieces of an object: one, or one for each part that is not empty. An inline object is one.
fn pieces(record: &Record, dirty: &DirtyVersion) -> Result<Vec<Piece>, Malformed> {
    let (part_layout, md5s) = (&record.part_layout, record.acknowledged.parts());
    if md5s.len() != part_layout.count() {
        return Err(Malformed);
    }
    let mut sums = if part_layout.is_whole() {
        vec![(dirty.size_bytes, md5_in(&record.etag))]
    } else {
        let sizes = part_layout.parts().map(|part| part.range.len());
        sizes.zip(md5s.iter().copied().map(Some)).collect()
    };
    sums.retain(|(size_bytes, _)| *size_bytes > 0);
    let keys = if dirty.is_inline() {
        vec![format!("inline-{}", dirty.id).into()]
    } else {
        dirty.data.clone()
    };
    if sums.len() != keys.len() {
        return Err(Malformed);
    }
    let sizes: Vec<u64> = sums.iter().map(|(size_bytes, _)| *size_bytes).collect();
    let digests = record.acknowledged.of_pieces(&sizes)?;
    let pieces = keys.into_iter().zip(sums).zip(digests);
    let pieces = pieces.map(|((key, (size_bytes, md5)), digests)| Piece {
        key,
        size_bytes,
        md5,
        digests,
    });
    Ok(pieces.collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::time::SystemTime;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue};
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};
    use shoal_registry::{DirtyVersion, Lifetime};
    use shoal_s3::object::ObjectName;
    use shoal_s3::range::ByteRange;
    use ulid::Ulid;

    use super::{Acknowledged, Manifest, Naming, PartLayout, Record, Unreadable};
    use crate::dirty::record::format::{decoded, encoded};
    use crate::tier::ChunkDigester;

    pub(in crate::dirty) fn naming() -> Naming {
        Naming {
            lake: "lake".into(),
            block_bytes: 100,
        }
    }

    fn record() -> Record {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-raw", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        Record {
            writer: "AK".into(),
            etag: "\"etag\"".into(),
            modified: SystemTime::UNIX_EPOCH,
            headers,
            of_reads: HeaderMap::new(),
            part_layout: PartLayout::from_parts([(1, 200), (2, 0), (3, 50)]),
            acknowledged: acknowledged(&[200, 50]),
        }
    }

    /// The digests of pieces of zeros, in three parts.
    fn acknowledged(sizes: &[usize]) -> Acknowledged {
        let pieces = sizes.iter().map(|size| {
            let mut digester = ChunkDigester::default();
            digester.update(&vec![0; *size]);
            digester.finish()
        });
        Acknowledged::new(pieces.collect(), &[([7; 16], &[][..]); 3])
    }

    fn dirty(record: &Record, keys: &[&str]) -> DirtyVersion {
        DirtyVersion {
            id: Ulid(7),
            node: 1,
            size_bytes: 250,
            lifetime: Lifetime::Normal,
            is_tombstone: false,
            data: keys.iter().map(|key| Arc::from(*key)).collect(),
            record: encoded(record),
            content: None,
        }
    }

    fn name(key: &str) -> ObjectName {
        ObjectName {
            bucket: "b".into(),
            key: key.as_bytes().into(),
            version: None,
        }
    }

    /// An object of three blocks of 100 bytes, the last one short, in three parts, one of them empty.
    pub(crate) fn manifest(key: &str) -> Manifest {
        Manifest::new(&name(key), &dirty(&record(), &["p1", "p3"]), &naming()).unwrap()
    }

    #[test]
    fn a_record_reads_back_unchanged() {
        assert_eq!(decoded(&encoded(&record())), Ok(record()));
    }

    /// Other bytes need another `FORMAT` of records (decision 0061).
    #[test]
    fn a_record_has_the_same_bytes_in_every_release() {
        let digests = "\\x07".repeat(48);
        assert_eq!(
            encoded(&record()).escape_ascii().to_string(),
            format!(
                "\\xd2\\x02AK\\x06\\\"etag\\\"\\x00\\x00\\x01\\x0ex-amz-meta-raw\\x04caf\\xe9\\x00\\x03\\x01\\x01\\xc8\\x01\\x02\
                 \\x01\\x00\\x03\\x012\\x80\\x80\\x10\\x02\\xca\\xc6\\xc2\\xf2\\xe3\\x8e\\x93\\xd6\\xba\\x01\\xf5\\xb8\\xd0\\xc4\\x92\\xf5\\xf6\\xf7/\
                 \\x03{digests}\\x00"
            )
        );
    }

    #[test]
    fn a_record_of_another_build_is_named_as_such() {
        let mut version = dirty(&record(), &["p1", "p3"]);
        // An earlier build wrote the length of the writer's access key first.
        version.record = b"\x02\0\0\0AK".as_slice().into();
        let refused = Manifest::new(&name("k"), &version, &naming()).unwrap_err();
        assert_eq!(refused, Unreadable::OtherFormat(2));
    }

    #[test]
    fn a_proof_accepts_the_bytes_of_a_piece_and_none_of_another_range() {
        let manifest = manifest("k");
        let is_proven = |start, end, bytes| {
            let mut proof = manifest.proof_of(ByteRange::new(start, end));
            proof
                .take(Bytes::from(vec![0; bytes]), &mut VecDeque::new())
                .is_ok()
        };
        assert!(is_proven(0, 200, 200) && is_proven(200, 250, 50) && is_proven(200, 200, 0));
        assert!(!is_proven(0, 250, 250) && !is_proven(1, 201, 200) && !is_proven(200, 200, 1));
    }

    #[test]
    fn a_manifest_knows_what_a_read_returns_and_where_the_bytes_are() {
        let manifest = manifest("a b");
        assert_eq!(manifest.target.as_str(), "/b/a%20b");
        assert_eq!(
            (&*manifest.version.etag, manifest.version.size_bytes),
            ("\"etag\"", 250)
        );
        assert!(manifest.version.headers.contains_key("x-amz-meta-raw"));
        let pieces = manifest
            .pieces
            .iter()
            .map(|piece| (&*piece.key, piece.size_bytes));
        assert_eq!(pieces.collect::<Vec<_>>(), [("p1", 200), ("p3", 50)]);
    }

    #[test]
    fn an_object_whose_parts_or_pieces_do_not_add_up_is_refused() {
        let of = |record: &Record, keys: &[&str]| Manifest::new(&name("k"), &dirty(record, keys), &naming());
        assert!(of(&record(), &["p1"]).is_err());
        assert!(of(&record(), &["p1", "p3", "p4"]).is_err());
        let longer = Record {
            part_layout: PartLayout::from_parts([(1, 200), (2, 51)]),
            ..record()
        };
        assert!(of(&longer, &["p1", "p2"]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_refused(bytes in vec(any::<u8>(), 0..300)) {
            let _ = decoded::<Record>(&bytes);
        }

        #[test]
        fn a_record_with_flipped_bits_is_another_one_or_refused(at in any::<proptest::sample::Index>(), bit in 0..8_u8) {
            let mut bytes = encoded(&record()).to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let mut version = dirty(&record(), &["p1", "p3"]);
            version.record = bytes.into();
            let _ = Manifest::new(&name("k"), &version, &naming());
        }
    }
}
