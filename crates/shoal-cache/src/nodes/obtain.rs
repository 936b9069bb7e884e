//! How a block may be obtained: one answer for readers on this node, for fetches, and for requests between
//! nodes.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use shoal_policy::eviction::gwf::Worth;
use shoal_policy::{Layer, NodeId, Source};
use shoal_s3::object::ObjectName;
use shoal_s3::range::ByteRange;

/// How a node may obtain a block that it does not hold. Messages between nodes identify the ways by their
/// order, which must not change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Obtain {
    /// From any stop of the route, or from the lake. The node serves the block as a member of this layer.
    FromHomes(Layer),
    /// Not at all: it sends what it has, and asks no other node.
    Locally,
    /// Only from this node, which hands the block over: it is leaving, or has written the block.
    Handover(NodeId),
    /// From a fetch that runs on the node already, such as one under a claim in the directory: it streams the
    /// bytes as they arrive, and asks no other node.
    Join,
    /// Only from this node, which evicts the block. The block has this worth at the node that takes it.
    Push(NodeId, #[serde(with = "worth")] Worth),
    /// As [`FromHomes`](Self::FromHomes), but the lake has the object, which is this block, in a pack.
    FromPack(Layer, Arc<InPack>),
    /// From where its bytes are kept: the lake does not have them under the object's name. Other nodes are
    /// asked only if the bytes are [in a pack](KeptBytes::in_pack). The last way: serde does not count a
    /// skipped one when it reads.
    #[serde(skip)]
    Kept(Arc<dyn KeptBytes>),
}

/// A worth as two integers. The greatest integer stands for all weights beyond it.
mod worth {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use shoal_policy::eviction::gwf::{Weight, Worth};

    pub fn serialize<S: Serializer>(worth: &Worth, serializer: S) -> Result<S::Ok, S::Error> {
        let Worth { weight, since } = worth;
        [weight, since]
            .map(|part| part.to_u64_saturating())
            .serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Worth, D::Error> {
        let [weight, since] = <[u64; 2]>::deserialize(deserializer)?.map(Weight::from);
        Ok(Worth { weight, since })
    }
}

impl Obtain {
    /// Returns true if the node only sends what it holds or is fetching.
    pub const fn is_passive(&self) -> bool {
        matches!(self, Self::Locally | Self::Join)
    }

    /// Returns the layer as whose member the node asks the further stops of the block's route; `None` if it
    /// asks none of them.
    pub fn layer(&self) -> Option<Layer> {
        match self {
            Self::FromHomes(layer) | Self::FromPack(layer, _) => Some(*layer),
            Self::Kept(bytes) => bytes.in_pack().map(|_| Layer::L1),
            Self::Locally | Self::Handover(_) | Self::Join | Self::Push(..) => None,
        }
    }

    /// Returns where the lake has the block, if it has it in a pack.
    pub fn in_pack(&self) -> Option<&Arc<InPack>> {
        match self {
            Self::FromPack(_, in_pack) => Some(in_pack),
            Self::Kept(bytes) => bytes.in_pack(),
            Self::FromHomes(_) | Self::Locally | Self::Handover(_) | Self::Join | Self::Push(..) => None,
        }
    }

    /// Returns how the block's home in `layer` may obtain the block for this node.
    #[must_use]
    pub fn of_home(&self, layer: Layer) -> Self {
        match self.in_pack() {
            Some(in_pack) => Self::FromPack(layer, Arc::clone(in_pack)),
            None => Self::FromHomes(layer),
        }
    }
}

/// Where the lake has the bytes of a small object: they are a part of a pack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InPack {
    /// The name of the pack.
    pub pack: ObjectName,
    /// The bytes of the pack that are all bytes of the object.
    pub range: ByteRange,
    /// The CRC-32 of these bytes, as ZIP defines it.
    pub crc32: u32,
}

/// The bytes of one version that are not at the lake under the object's name.
pub trait KeptBytes: fmt::Debug + Send + Sync {
    /// Identifies the bytes: those of another write have another id.
    fn id(&self) -> &str;

    /// Streams a range of the version. The stream ends with an error unless it yields exactly these bytes.
    fn read(&self, range: ByteRange) -> BoxStream<'static, Result<Bytes, Box<dyn Error + Send + Sync>>>;

    /// Returns the origin of the bytes.
    fn source(&self) -> Source;

    /// Returns where any node can read the bytes, if they are one block and in a pack; `None` if only this
    /// node is to read them.
    fn in_pack(&self) -> Option<&Arc<InPack>> {
        None
    }
}
