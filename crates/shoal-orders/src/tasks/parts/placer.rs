//! Has blocks brought to the nodes that are to hold them, and asks nodes which blocks they hold.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use shoal_cache::peer::CallerName;
use shoal_policy::{NodeId, Source, VersionId};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};

use super::TaskParts;
use super::fill::NotFilled;
use super::messages::{Answer, BLOCKS_MAX, BlockBits, Fill, NAMES_MAX, Pin, PlannedFill, Question};
use super::nodes::{TRIES, pauses};
use super::targets::Targets;

/// A block of an object.
#[derive(Clone, Debug)]
pub struct Block {
    pub name: ObjectName,
    pub version: Arc<Version>,
    pub index: u32,
}

/// Has blocks brought in the name of one caller.
pub struct Placer {
    parts: Arc<TaskParts>,
    /// The nodes that are to hold the blocks.
    pub targets: Targets,
    caller: CallerName,
}

/// Blocks of some versions that nodes hold.
#[derive(Debug, Default)]
pub struct Holdings(HashMap<NodeId, HashMap<VersionId, BlockBits>>);

impl Block {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.version.block_len(self.index)
    }
}

impl Holdings {
    /// Whether a node holds a block of a version about which it was asked.
    pub fn has(&self, node: NodeId, version: VersionId, index: u32) -> bool {
        let bits = self.0.get(&node).and_then(|versions| versions.get(&version));
        bits.is_some_and(|bits| bits.has(index))
    }

    /// The nodes that have answered.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.0.keys().copied()
    }
}

impl Placer {
    /// Brings blocks to the nodes at `place`; without one, to the homes of the widest layer.
    pub fn new(parts: &Arc<TaskParts>, place: Option<String>, caller: &Caller) -> Self {
        Self {
            parts: Arc::clone(parts),
            targets: Targets::new(&parts.cooperation, place),
            caller: CallerName::from(caller),
        }
    }

    /// Asks nodes which blocks of some versions they hold. A node that does not answer holds none.
    pub async fn holdings(&self, nodes: &[NodeId], versions: &[&Version]) -> Holdings {
        let (mut holdings, mut rest) = (Holdings::default(), versions);
        while !rest.is_empty() {
            let mut blocks = 0;
            let fits = rest.iter().take(NAMES_MAX).take_while(|version| {
                let is_first = blocks == 0;
                blocks += u64::from(version.block_count());
                is_first || blocks <= BLOCKS_MAX
            });
            let (asked, later) = rest.split_at(fits.count());
            rest = later;
            let count = |version: &Version| u64::from(version.block_count()).min(BLOCKS_MAX) as u32;
            let question: Vec<_> = asked.iter().map(|version| (version.id, count(version))).collect();
            let question = || Question::Held(question.clone());
            for (node, answer) in self.parts.nodes.ask_each(nodes.iter().copied(), question).await {
                match answer {
                    Ok(Answer::Held(bits)) => {
                        let ids = asked.iter().map(|version| version.id);
                        holdings.0.entry(node).or_default().extend(ids.zip(bits));
                    }
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, "a node does not say what it holds"),
                }
            }
        }
        holdings
    }

    /// Whether the node that is to hold a block does.
    pub fn is_placed(&self, version: &Version, index: u32, holdings: &Holdings) -> bool {
        let target = self.targets.of(version.block(index));
        target.is_some_and(|(node, _)| holdings.has(node, version.id, index))
    }

    /// Has a block brought to the node that is to hold it, with as many attempts as it takes. Each attempt
    /// begins with `begin`, which fails if the block is no longer wanted, and holds its result. Returns where
    /// the block came from; `None`: it was there.
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
                self.ask(block, pin, planned).await
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
    ) -> Result<Option<Source>, NotFilled> {
        let target = self.targets.of(block.version.block(block.index));
        let (node, layer) = target.ok_or_else(|| NotFilled::Failed("no node is there to hold it".into()))?;
        let fill = Fill {
            version: Arc::clone(&block.version),
            index: block.index,
            layer,
            pin,
            planned,
            caller: self.caller.clone(),
            name: block.name.clone(),
        };
        match self.parts.nodes.ask(node, Question::Fill(Box::new(fill))).await {
            Ok(Answer::Filled(outcome)) => outcome,
            Ok(_) => Err(NotFilled::Failed("a node answered something else".into())),
            Err(error) => Err(NotFilled::Failed(error.to_string())),
        }
    }
}
