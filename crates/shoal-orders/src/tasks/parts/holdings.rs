//! Which blocks of some versions nodes hold.

use std::collections::HashMap;

use shoal_policy::{NodeId, VersionId};
use shoal_s3::object::Version;

use super::messages::{Answer, BLOCKS_MAX, BlockBits, NAMES_MAX, Question};
use super::nodes::Nodes;

/// Blocks of some versions that nodes hold.
#[derive(Debug, Default)]
pub struct Holdings(HashMap<NodeId, HashMap<VersionId, BlockBits>>);

impl Holdings {
    /// Asks nodes which blocks of some versions they hold. A node that does not answer holds none.
    pub async fn ask(nodes: &Nodes, asked: &[NodeId], versions: &[&Version]) -> Self {
        let mut holdings = Self::default();
        for part in questions(versions, |version| version.block_count()) {
            let count = |version: &Version| version.block_count().min(BLOCKS_MAX as u32);
            let question = || {
                Question::Held(
                    part.iter()
                        .map(|version| (version.id.0, count(version)))
                        .collect(),
                )
            };
            for (node, answer) in asked.iter().zip(nodes.ask_each(asked, question).await) {
                match answer {
                    Ok(Answer::Bits(bits)) => {
                        let ids = part.iter().map(|version| version.id);
                        holdings.0.entry(*node).or_default().extend(ids.zip(bits));
                    }
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, "a node does not say what it holds"),
                }
            }
        }
        holdings
    }

    /// Returns the blocks of a version that a node holds; `None` if it has not answered about the version.
    pub fn of(&self, node: NodeId, version: VersionId) -> Option<&BlockBits> {
        self.0.get(&node)?.get(&version)
    }

    /// Returns true if a node holds a block of a version about which it was asked.
    pub fn has(&self, node: NodeId, version: VersionId, index: u32) -> bool {
        self.of(node, version).is_some_and(|bits| bits.has(index))
    }

    /// Returns true if a node has answered.
    pub fn include(&self, node: NodeId) -> bool {
        self.0.contains_key(&node)
    }
}

/// Splits items, each of which stands for a number of blocks, into parts about which a node can be asked with
/// one question.
pub fn questions<T>(items: &[T], blocks_of: impl Fn(&T) -> u32) -> Vec<&[T]> {
    let (mut rest, mut parts) = (items, Vec::new());
    while !rest.is_empty() {
        let mut blocks = 0;
        let fitting = rest.iter().take(NAMES_MAX).take_while(|item| {
            blocks += u64::from(blocks_of(item));
            blocks <= BLOCKS_MAX
        });
        let (part, later) = rest.split_at(fitting.count().max(1));
        parts.push(part);
        rest = later;
    }
    let asked: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert_eq!(asked, items.len(), "each item is asked about once");
    parts
}
