//! How a block may be obtained: one answer for readers on this node, for fetches, and for requests between
//! nodes.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use shoal_policy::eviction::gwf::Worth;
use shoal_policy::{Layer, NodeId};
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
    /// Only from where its bytes are kept: the lake does not have them under the object's name, and no other
    /// node can obtain them. The last way: serde does not count a skipped one when it reads.
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
}

/// The bytes of one version that are not at the lake under the object's name.
pub trait KeptBytes: fmt::Debug + Send + Sync {
    /// Identifies the bytes: those of another write have another id.
    fn id(&self) -> &str;

    /// Streams a range of the version. The stream ends with an error unless it yields exactly these bytes.
    fn read(&self, range: ByteRange) -> BoxStream<'static, Result<Bytes, Box<dyn Error + Send + Sync>>>;
}
