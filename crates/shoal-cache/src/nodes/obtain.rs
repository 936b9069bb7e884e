//! How a block may be obtained: one answer for readers on this node, for fetches, and for requests between
//! nodes.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use shoal_policy::eviction::gwf::Worth;
use shoal_policy::{Layer, NodeId};
use shoal_s3::range::ByteRange;

/// How a node may obtain a block that it does not hold.
#[derive(Clone, Debug)]
pub enum Obtain {
    /// Not at all: it sends what it has, and asks no other node.
    Locally,
    /// From a fetch that runs on the node already, such as one under a claim in the directory: it streams the
    /// bytes as they arrive, and asks no other node.
    Join,
    /// From any stop of the route, or from the lake. The node serves the block as a member of this layer.
    FromHomes(Layer),
    /// Only from this node, which hands the block over: it is leaving, or has written the block.
    Handover(NodeId),
    /// Only from this node, which evicts the block. The block has this worth at the node that takes it.
    Push(NodeId, Worth),
    /// Only from where its bytes are kept: the lake does not have them under the object's name.
    Kept(Arc<dyn KeptBytes>),
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
