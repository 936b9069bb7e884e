//! Brings blocks to the nodes that are to hold them, and asks nodes which blocks they hold.

use std::future::Future;
use std::sync::Arc;

use http::HeaderMap;
use shoal_cache::obtain::Obtain;
use shoal_cache::peer::{BlockRequest, CallerName};
use shoal_policy::{NodeId, ObjectId, Source};
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::range::ByteRange;

use super::holdings::Holdings;
use super::messages::{Fill, NotFilled, Pin, PlannedFill, Question};
use super::nodes::{Nodes, TRIES, pauses};
use super::targets::Targets;
use super::task_identity::TaskIdentity;

/// A block of an object.
#[derive(Clone, Debug)]
pub struct Block {
    pub name: ObjectName,
    pub version: Arc<Version>,
    pub index: u32,
    /// The pack from whose blocks it is read; `None` if it is read alone.
    pub pack: Option<ObjectId>,
}

/// Brings blocks in the name of one identity.
pub struct Placer {
    nodes: Arc<Nodes>,
    /// The nodes that are to hold the blocks.
    pub targets: Targets,
    identity: TaskIdentity,
}

impl Block {
    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.version.block_len(self.index)
    }
}

impl Placer {
    /// Brings blocks to the nodes at `place`; without one, to the homes of the widest layer.
    pub(in crate::tasks) fn new(nodes: &Arc<Nodes>, place: Option<String>, identity: TaskIdentity) -> Self {
        Self {
            nodes: Arc::clone(nodes),
            targets: Targets::new(&nodes.parts.cache().cooperation, place),
            identity,
        }
    }

    /// Asks nodes which blocks of some versions they hold. A node that does not answer holds none.
    pub async fn holdings(&self, nodes: &[NodeId], versions: &[&Version]) -> Holdings {
        Holdings::ask(&self.nodes, nodes, versions).await
    }

    /// Returns true if the node that is to hold a block does.
    pub fn is_placed(&self, version: &Version, index: u32, holdings: &Holdings) -> bool {
        let target = self.targets.of(version.block(index));
        target.is_some_and(|(node, _)| holdings.has(node, version.id, index))
    }

    /// Returns the blocks of a version that the nodes which are to hold them do not have.
    pub fn missing(&self, version: &Version, holdings: &Holdings) -> Vec<u32> {
        let is_missing = |index: &u32| !self.is_placed(version, *index, holdings);
        (0..version.block_count()).filter(is_missing).collect()
    }

    /// Asks the nodes which blocks of a version they do not have.
    pub async fn missing_now(&self, version: &Version) -> Vec<u32> {
        let holdings = self.holdings(&self.targets.nodes(), &[version]).await;
        self.missing(version, &holdings)
    }

    /// Brings a block to the node that is to hold it, with as many attempts as it takes. Each attempt begins
    /// with `begin`, which fails if the block is no longer wanted, and holds its result. If it cannot be read
    /// from blocks of a pack, it is read alone. Returns the source from which the block came; `None` if it
    /// was there.
    pub async fn bring<P, B: Future<Output = Result<P, NotFilled>>>(
        &self,
        block: &Block,
        pin: Option<Pin>,
        planned: Option<PlannedFill>,
        begin: impl Fn() -> B,
    ) -> Result<Option<Source>, NotFilled> {
        let (mut pauses, mut tries) = (pauses(), 1);
        loop {
            let outcome = {
                let _begun = begin().await?;
                let pack = block.pack.filter(|_| tries == 1);
                self.ask(block, pin, planned, pack).await
            };
            match outcome {
                Err(NotFilled::Busy) => {}
                Err(NotFilled::Failed(_)) if tries < TRIES => tries += 1,
                outcome => return outcome,
            }
            pauses.wait().await;
        }
    }

    /// Asks the node that is to hold a block for it once.
    async fn ask(
        &self,
        block: &Block,
        pin: Option<Pin>,
        planned: Option<PlannedFill>,
        pack: Option<ObjectId>,
    ) -> Result<Option<Source>, NotFilled> {
        let target = self.targets.of(block.version.block(block.index));
        let (node, layer) = target.ok_or_else(|| NotFilled::Failed("no node is there to hold it".into()))?;
        let block = BlockRequest {
            version: Version::clone(&block.version),
            index: block.index,
            part: ByteRange { start: 0, end: 1 },
            obtain: Obtain::Locally,
            caller: CallerName::from(&self.identity.caller().await),
            name: Some(block.name.clone()),
            headers: HeaderMap::new(),
        };
        let fill = Fill {
            layer: layer.0,
            pin,
            planned,
            pack,
            block,
        };
        let answer = self.nodes.ask(node, Question::Fill(Box::new(fill))).await;
        answer.map_err(NotFilled::Failed)?.into_filled()
    }
}
