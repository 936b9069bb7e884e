//! The request by which one node asks another for a block.
//!
//! It is the body of a `QUERY` to [`BLOCKS`]: a read that has a body and may be repeated. The body is
//! serialized with `postcard`, which identifies fields only by their order.

use std::sync::Arc;

use http::HeaderMap;
use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;
use shoal_net::clock;
use shoal_policy::eviction::gwf::Worth;
use shoal_policy::{Layer, NodeId};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version, sent};
use shoal_s3::range::ByteRange;
use shoal_s3::target;

use crate::nodes::obtain::{InPack, Obtain};

/// Path at which a node serves blocks.
pub const BLOCKS: &str = "/blocks";

/// The size limit of a request in bytes: room for a long key and all headers that S3 keeps for an object.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// A request to another node for a part of a block. The order of the fields must not change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BlockRequest {
    /// How the receiving node may obtain the block.
    pub obtain: Obtain,
    /// The caller on whose behalf the lake is asked.
    pub caller: CallerName,
    /// The object that the version belongs to; `None` if the lake must not be asked.
    pub name: Option<ObjectName>,
    /// Further headers for the lake.
    #[serde(with = "sent::headers")]
    pub headers: HeaderMap,
    /// The pinned version.
    pub version: Version,
    /// The index of the block in the version.
    pub index: u32,
    /// The requested bytes, relative to the start of the block.
    pub part: ByteRange,
}

/// The caller as nodes identify it to each other: without a secret key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallerName {
    /// An anonymous caller.
    Anonymous,
    /// The identity that signs with this access key.
    AccessKey(Arc<str>),
    /// A caller that the lake has just allowed to read the version, and whose key no node knows: the lake is
    /// asked in the account of the node.
    Unverified,
}

impl From<&Caller> for CallerName {
    fn from(caller: &Caller) -> Self {
        match caller {
            Caller::Anonymous => Self::Anonymous,
            // The other node may have forgotten an expired key.
            Caller::Identity(identity) => Self::AccessKey(identity.access_key_at(clock::utc_now()).into()),
            Caller::Unverified => Self::Unverified,
        }
    }
}

impl BlockRequest {
    /// Offers a block that `giver` holds to a node that takes it over. The request asks for the last byte
    /// back, which arrives once the other node has the whole block.
    pub fn offer(version: &Version, index: u32, giver: NodeId) -> Self {
        let end = version.block_len(index);
        Self {
            version: version.clone(),
            index,
            part: ByteRange { start: end - 1, end },
            obtain: Obtain::Handover(giver),
            caller: CallerName::Anonymous,
            // The block has no reader, so the lake must not be asked for it.
            name: None,
            headers: HeaderMap::new(),
        }
    }

    /// Offers a block that `giver` evicts to a node where it has this worth. The response is that of
    /// [`BlockRequest::offer`].
    pub fn push(version: &Version, index: u32, giver: NodeId, worth: Worth) -> Self {
        Self {
            obtain: Obtain::Push(giver, worth),
            ..Self::offer(version, index, giver)
        }
    }

    /// Serializes the request; returns `None` if it would be too long, or if no other node can obtain the
    /// block in this way.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let bytes = postcard::to_stdvec(self).ok()?;
        (bytes.len() <= REQUEST_BYTES_MAX).then_some(bytes)
    }

    /// Parses a request serialized by [`BlockRequest::to_bytes`].
    ///
    /// # Errors
    ///
    /// Fails if the bytes are malformed, or name a version, block, part or object that cannot exist.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() > REQUEST_BYTES_MAX {
            return Err(Malformed);
        }
        let Ok((mut request, [])) = postcard::take_from_bytes::<Self>(bytes) else {
            return Err(Malformed);
        };
        request.version = request.version.verified()?;
        request.is_consistent().then_some(request).ok_or(Malformed)
    }

    fn is_consistent(&self) -> bool {
        // L1 is the requesting node itself.
        let is_of_layer = self.obtain.layer().is_none_or(|layer| layer > Layer::L1);
        is_of_layer
            && self.obtain.in_pack().is_none_or(|in_pack| self.may_be(in_pack))
            && self.name.as_ref().is_none_or(is_canonical)
            && self.index < self.version.block_count()
            && self.part.start < self.part.end
            && self.part.end <= self.version.block_len(self.index)
    }

    /// Returns true if the lake may be asked for the block, as all of an object that is in a pack.
    fn may_be(&self, in_pack: &InPack) -> bool {
        let ByteRange { start, end } = in_pack.range;
        self.name.is_some()
            && self.version.block_count() == 1
            && start.checked_add(self.version.size_bytes) == Some(end)
            && is_canonical(&in_pack.pack)
    }
}

/// Returns true if a name parses back from the spelling in which the lake would be asked for it.
fn is_canonical(name: &ObjectName) -> bool {
    target::of_object(name).is_ok_and(|spelling| target::object(&spelling).as_ref() == Some(name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use http::{HeaderMap, HeaderValue};
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};
    use shoal_policy::eviction::gwf::{Weight, Worth};
    use shoal_policy::{Layer, NodeId, ObjectId, VersionId};
    use shoal_s3::object::{ObjectName, Version};
    use shoal_s3::range::ByteRange;

    use super::{BlockRequest, CallerName, InPack, Obtain, REQUEST_BYTES_MAX};

    fn request() -> BlockRequest {
        let object = ObjectId([7; 16]);
        let mut of_version = HeaderMap::new();
        of_version.append("x-amz-meta-raw", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        let mut headers = of_version.clone();
        headers.append("x-amz-request-payer", HeaderValue::from_static("requester"));
        BlockRequest {
            version: Version {
                id: Version::id_of(object, "\"etag\"", 250),
                object,
                etag: "\"etag\"".into(),
                size_bytes: 250,
                block_bytes: 100,
                last_modified: None,
                headers: of_version,
            },
            index: 2,
            part: ByteRange { start: 10, end: 50 },
            obtain: Obtain::FromHomes(Layer::L2),
            caller: CallerName::AccessKey("AK".into()),
            name: Some(ObjectName {
                bucket: "b".into(),
                key: b"k/\xff?".as_slice().into(),
                version: Some("3".into()),
            }),
            headers,
        }
    }

    /// A request for all bytes of an object.
    fn of_one_block() -> BlockRequest {
        let mut request = request();
        request.version.block_bytes = 250;
        request.index = 0;
        request
    }

    fn in_pack() -> Arc<InPack> {
        Arc::new(InPack {
            pack: ObjectName {
                version: None,
                ..request().name.unwrap()
            },
            range: ByteRange::new(1000, 1250),
            crc32: u32::MAX,
        })
    }

    /// Other bytes need another `PROTOCOL` in `shoal_net::channel` (decision 0061).
    #[test]
    fn a_request_has_the_same_bytes_in_every_release() {
        let bytes = request().to_bytes().unwrap();
        assert_eq!(
            bytes.escape_ascii().to_string(),
            "\\x00\\x02\\x01\\x02AK\\x01\\x01b\\x04k/\\xff?\\x01\\x013\\x02\\x0ex-amz-meta-raw\
             \\x04caf\\xe9\\x13x-amz-request-payer\\trequester\\x07\\x07\\x07\\x07\\x07\\x07\
             \\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07\\x07wN\
             \\xa05\\xfd\\x1e\\xa1\\xee\\x0e\\xa9\\xfa\\x01d\\x00\\x06\\\"etag\\\"\\x01\\x0ex-am\
             z-meta-raw\\x04caf\\xe9\\x02\\n2"
        );
        let worth = Worth {
            weight: Weight::from(3),
            since: Weight::from(u64::MAX),
        };
        for (obtain, bytes) in [
            (Obtain::FromHomes(Layer(3)), &b"\x00\x03"[..]),
            (Obtain::Locally, b"\x01"),
            (Obtain::Handover(NodeId(7)), b"\x02\x07"),
            (Obtain::Join, b"\x03"),
            (
                Obtain::Push(NodeId(7), worth),
                b"\x04\x07\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            ),
            (
                Obtain::FromPack(Layer::L2, in_pack()),
                b"\x05\x02\x01b\x04k/\xff?\x00\xe8\x07\xe2\x09\xff\xff\xff\xff\x0f",
            ),
        ] {
            assert_eq!(postcard::to_stdvec(&obtain).unwrap(), bytes, "{obtain:?}");
        }
        for (caller, bytes) in [
            (CallerName::Anonymous, &b"\x00"[..]),
            (CallerName::AccessKey("AK".into()), b"\x01\x02AK"),
            (CallerName::Unverified, b"\x02"),
        ] {
            assert_eq!(postcard::to_stdvec(&caller).unwrap(), bytes, "{caller:?}");
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        for (obtain, caller, name) in [
            (Obtain::FromHomes(Layer(3)), CallerName::Anonymous, None),
            (
                Obtain::Locally,
                CallerName::AccessKey("AK".into()),
                request().name,
            ),
            (Obtain::Handover(NodeId(u64::MAX)), CallerName::Anonymous, None),
            (Obtain::Join, CallerName::Anonymous, None),
            (
                Obtain::FromPack(Layer::L2, in_pack()),
                CallerName::Anonymous,
                request().name,
            ),
            (
                Obtain::Push(
                    NodeId(7),
                    Worth {
                        weight: Weight::from(3),
                        since: Weight::from(u64::MAX),
                    },
                ),
                CallerName::Anonymous,
                None,
            ),
        ] {
            let sent = BlockRequest {
                obtain,
                caller,
                name,
                ..of_one_block()
            };
            let received = BlockRequest::of_bytes(&sent.to_bytes().unwrap()).unwrap();
            assert_eq!(format!("{received:?}"), format!("{sent:?}"));
        }
    }

    #[test]
    fn times_before_the_epoch_survive() {
        for distance_s in [0, 1, 1_700_000_000] {
            let distance = Duration::from_secs(distance_s);
            for time in [
                SystemTime::UNIX_EPOCH + distance,
                SystemTime::UNIX_EPOCH - distance,
            ] {
                let mut sent = request();
                sent.version.last_modified = Some(time);
                let received = BlockRequest::of_bytes(&sent.to_bytes().unwrap()).unwrap();
                assert_eq!(received.version.last_modified, Some(time));
            }
        }
    }

    #[test]
    fn a_request_that_contradicts_itself_is_refused() {
        let lies: [fn(&mut BlockRequest); 9] = [
            |request| request.index = 3,
            |request| request.part = ByteRange { start: 0, end: 51 },
            |request| request.part = ByteRange { start: 10, end: 10 },
            |request| request.obtain = Obtain::FromHomes(Layer::L1),
            |request| request.obtain = Obtain::FromHomes(Layer(0)),
            |request| request.version.size_bytes = 251,
            |request| request.version.block_bytes = 0,
            |request| request.version.etag = "\"a\nb\"".into(),
            |request| request.version.id = VersionId([0; 16]),
        ];
        for (number, lie) in lies.iter().enumerate() {
            let mut lying = request();
            lie(&mut lying);
            let bytes = lying.to_bytes().unwrap();
            assert!(BlockRequest::of_bytes(&bytes).is_err(), "lie {number}");
        }
    }

    #[test]
    fn a_part_of_a_pack_that_cannot_be_the_block_is_refused() {
        let lies: [fn(&mut BlockRequest, &mut Layer, &mut InPack); 7] = [
            |request, _, _| request.name = None,
            |_, layer, _| *layer = Layer::L1,
            |_, _, in_pack| in_pack.range.end += 1,
            |_, _, in_pack| in_pack.range = ByteRange::new(1250, 1000),
            |_, _, in_pack| in_pack.range = ByteRange::new(u64::MAX, 249),
            |_, _, in_pack| in_pack.pack.key = vec![0xff; 30_000].into(),
            |request, _, _| *request = super::tests::request(),
        ];
        for (number, lie) in lies.iter().enumerate() {
            let (mut lying, mut layer) = (of_one_block(), Layer::L2);
            let mut place = InPack::clone(&in_pack());
            lie(&mut lying, &mut layer, &mut place);
            lying.obtain = Obtain::FromPack(layer, Arc::new(place));
            let bytes = lying.to_bytes().unwrap();
            assert!(BlockRequest::of_bytes(&bytes).is_err(), "lie {number}");
        }
    }

    #[test]
    fn bytes_that_are_not_exactly_one_request_are_refused() {
        let whole = request().to_bytes().unwrap();
        for end in 0..whole.len() {
            assert!(
                BlockRequest::of_bytes(&whole[..end]).is_err(),
                "the first {end} bytes"
            );
        }
        let more = [&whole[..], b"x"].concat();
        assert!(BlockRequest::of_bytes(&more).is_err());
    }

    #[test]
    fn a_request_that_is_too_long_is_neither_sent_nor_read() {
        let mut long = request();
        let value = HeaderValue::try_from("x".repeat(REQUEST_BYTES_MAX)).unwrap();
        long.headers.insert("x-amz-meta-long", value);
        assert!(long.to_bytes().is_none());
        let bytes = postcard::to_stdvec(&long).unwrap();
        assert!(BlockRequest::of_bytes(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_refused(bytes in vec(any::<u8>(), 0..300)) {
            let _ = BlockRequest::of_bytes(&bytes);
        }

        #[test]
        fn a_request_with_flipped_bits_is_another_one_or_refused(at in any::<proptest::sample::Index>(), bit in 0..8_u8) {
            let mut bytes = request().to_bytes().unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            if let Ok(read) = BlockRequest::of_bytes(&bytes) {
                let again = BlockRequest::of_bytes(&read.to_bytes().unwrap()).unwrap();
                assert_eq!(format!("{again:?}"), format!("{read:?}"));
            }
        }
    }
}
