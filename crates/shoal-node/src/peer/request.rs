//! The request by which one node asks another for a block.
//!
//! ```text
//! GET /blocks/<version>/<index>?ask=<base64 of the rest>&part=<first>-<end>
//! ```
//!
//! The rest is encoded as in [`shoal_base::encoding`]: the role of the node that is asked, the caller, the
//! object's target at the lake, headers for the lake, the version. Everything is in the path and the query.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::uri::PathAndQuery;
use shoal_base::encoding::{Malformed, Reader, write_bytes, write_headers};
use shoal_policy::{Layer, NodeId};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::range::ByteRange;
use shoal_s3::target;

/// The size limit of a target, so that it fits in a request head.
const TARGET_BYTES_MAX: usize = 60 << 10;

const PREFIX: &str = "/blocks/";

/// A request to another node for a part of a block.
#[derive(Clone, Debug)]
pub struct BlockRequest {
    /// The pinned version.
    pub version: Version,
    /// The index of the block in the version.
    pub index: u32,
    /// The wanted bytes, counted from the start of the block.
    pub part: ByteRange,
    /// The role in which the other node is asked.
    pub role: PeerRole,
    /// The caller in whose name the lake is asked.
    pub caller: CallerName,
    /// The object that the version belongs to, if the lake may be asked for it.
    pub name: Option<ObjectName>,
    /// Further headers for the lake.
    pub headers: HeaderMap,
}

/// The role in which a node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerRole {
    /// As the block's home in this layer: it brings the block from wherever it is.
    Home(Layer),
    /// As a node that may still hold the block: it gives what it has, and asks no other node.
    Holder,
    /// As a node that is to take the block over from this node, which leaves or has had the block written: it
    /// asks that node for the block, and no other.
    Successor(NodeId),
}

/// The first byte of an encoded request gives the role: one of these, or the number of a layer.
const HOLDER: u8 = 0;
const SUCCESSOR: u8 = u8::MAX;

/// The caller, as nodes name it to each other: without any key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerName {
    /// An anonymous caller.
    Anonymous,
    /// The identity that signs with this access key.
    AccessKey(Arc<str>),
}

impl From<&Caller> for CallerName {
    fn from(caller: &Caller) -> Self {
        match caller {
            Caller::Anonymous => Self::Anonymous,
            Caller::Identity(identity) => Self::AccessKey(identity.access_key.as_str().into()),
        }
    }
}

impl BlockRequest {
    /// Offers a block that `giver` holds to a node that is to take it over. The request asks for the last
    /// byte back: it comes when the other node has all of them.
    pub fn offer(version: &Version, index: u32, giver: NodeId) -> Self {
        let end = version.block_len(index);
        Self {
            version: version.clone(),
            index,
            part: ByteRange { start: end - 1, end },
            role: PeerRole::Successor(giver),
            caller: CallerName::Anonymous,
            // The block has no reader, so the lake is not asked for it.
            name: None,
            headers: HeaderMap::new(),
        }
    }

    /// The target of the request; `None` if it would be too long.
    pub fn target(&self) -> Option<PathAndQuery> {
        let mut rest = Vec::with_capacity(512);
        match self.role {
            PeerRole::Holder => rest.push(HOLDER),
            PeerRole::Home(layer) => rest.push(layer.0),
            PeerRole::Successor(giver) => {
                rest.push(SUCCESSOR);
                rest.extend_from_slice(&giver.0.to_le_bytes());
            }
        }
        match &self.caller {
            CallerName::Anonymous => write_bytes(&mut rest, b""),
            CallerName::AccessKey(key) => write_bytes(&mut rest, key.as_bytes()),
        }
        match &self.name {
            Some(name) => write_bytes(&mut rest, target::of_object(name).ok()?.as_str().as_bytes()),
            None => write_bytes(&mut rest, b""),
        }
        write_headers(&mut rest, &self.headers);
        self.version.write(&mut rest);
        let (version, index, part) = (self.version.id, self.index, self.part);
        let rest = URL_SAFE_NO_PAD.encode(rest);
        let target = format!(
            "{PREFIX}{version}/{index}?ask={rest}&part={}-{}",
            part.start, part.end
        );
        if target.len() > TARGET_BYTES_MAX {
            return None;
        }
        PathAndQuery::try_from(target).ok()
    }

    /// Parses a target that another node wrote; the inverse of [`BlockRequest::target`].
    ///
    /// # Errors
    ///
    /// Fails if path and query name different blocks, or the part does not lie in the block.
    pub fn parse(target: &PathAndQuery) -> Result<Self, Malformed> {
        let (id, index) = target
            .path()
            .strip_prefix(PREFIX)
            .and_then(|path| path.split_once('/'))
            .ok_or(Malformed)?;
        let query = target.query().ok_or(Malformed)?;
        let (rest, part) = query
            .strip_prefix("ask=")
            .and_then(|query| query.split_once("&part="))
            .ok_or(Malformed)?;
        let (start, end) = part.split_once('-').ok_or(Malformed)?;
        let rest = URL_SAFE_NO_PAD.decode(rest).map_err(|_| Malformed)?;
        let mut reader = Reader::new(&rest);
        let [role] = reader.array()?;
        let role = match role {
            HOLDER => PeerRole::Holder,
            SUCCESSOR => PeerRole::Successor(NodeId(reader.u64()?)),
            1 => return Err(Malformed),
            layer => PeerRole::Home(Layer(layer)),
        };
        let caller = match reader.text()? {
            "" => CallerName::Anonymous,
            key => CallerName::AccessKey(key.into()),
        };
        let request = Self {
            role,
            caller,
            name: match reader.text()? {
                "" => None,
                target => Some(object_of(target)?),
            },
            headers: reader.headers()?,
            version: Version::read(&mut reader)?,
            index: number(index)?,
            part: ByteRange {
                start: number(start)?,
                end: number(end)?,
            },
        };
        let is_consistent = reader.rest().is_empty()
            && request.version.id.to_string() == id
            && request.index < request.version.block_count()
            && request.part.start < request.part.end
            && request.part.end <= request.version.block_len(request.index);
        is_consistent.then_some(request).ok_or(Malformed)
    }
}

fn object_of(target: &str) -> Result<ObjectName, Malformed> {
    let target = PathAndQuery::try_from(target).map_err(|_| Malformed)?;
    target::object(&target).ok_or(Malformed)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Malformed> {
    text.parse().map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use http::uri::PathAndQuery;
    use http::{HeaderMap, HeaderValue};
    use proptest::prelude::{any, proptest};
    use shoal_policy::{Layer, NodeId, ObjectId};
    use shoal_s3::object::{ObjectName, Version};
    use shoal_s3::range::ByteRange;

    use super::{BlockRequest, CallerName, PeerRole};

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
            role: PeerRole::Home(Layer::L2),
            caller: CallerName::AccessKey("AK".into()),
            name: Some(ObjectName {
                bucket: "b".into(),
                key: b"k/\xff?".as_slice().into(),
                version: Some("3".into()),
            }),
            headers,
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        for (role, caller) in [
            (PeerRole::Home(Layer(3)), CallerName::Anonymous),
            (PeerRole::Holder, CallerName::AccessKey("AK".into())),
            (PeerRole::Successor(NodeId(u64::MAX - 1)), CallerName::Anonymous),
        ] {
            let sent = BlockRequest {
                role,
                caller,
                ..request()
            };
            let received = BlockRequest::parse(&sent.target().unwrap()).unwrap();
            assert_eq!(format!("{received:?}"), format!("{sent:?}"));
        }
    }

    #[test]
    fn a_request_that_contradicts_itself_is_refused() {
        let lies: [fn(&mut BlockRequest); 7] = [
            |request| request.index = 3,
            |request| request.part = ByteRange { start: 0, end: 51 },
            |request| request.part = ByteRange { start: 10, end: 10 },
            |request| request.role = PeerRole::Home(Layer::L1),
            |request| request.version.size_bytes = 251,
            |request| request.version.block_bytes = 0,
            |request| request.version.etag = "\"a\nb\"".into(),
        ];
        for (number, lie) in lies.iter().enumerate() {
            let mut lying = request();
            lie(&mut lying);
            let target = lying.target().unwrap();
            assert!(BlockRequest::parse(&target).is_err(), "lie {number}");
        }
        let target = request().target().unwrap();
        let other = target
            .as_str()
            .replace(&request().version.id.to_string(), &"0".repeat(32));
        assert!(
            BlockRequest::parse(&other.parse().unwrap()).is_err(),
            "another version"
        );
    }

    #[test]
    fn a_request_that_is_too_long_is_not_sent() {
        let mut long = request();
        let value = HeaderValue::try_from("x".repeat(50_000)).unwrap();
        long.headers.insert("x-amz-meta-long", value);
        assert!(long.target().is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_a_request_or_refused(text in "/blocks/[0-9a-f]{0,40}/[0-9]{0,11}(\\?ask=[A-Za-z0-9_-]{0,200}&part=[0-9-]{0,30})?") {
            if let Ok(target) = text.parse::<PathAndQuery>() {
                let _ = BlockRequest::parse(&target);
            }
        }

        #[test]
        fn a_request_with_flipped_bits_is_another_one_or_refused(at in any::<proptest::sample::Index>(), bit in 0..8_u8) {
            let mut target = request().target().unwrap().as_str().to_owned().into_bytes();
            let at = at.index(target.len());
            target[at] ^= 1 << bit;
            if let Ok(target) = PathAndQuery::try_from(target) {
                let _ = BlockRequest::parse(&target);
            }
        }
    }
}
