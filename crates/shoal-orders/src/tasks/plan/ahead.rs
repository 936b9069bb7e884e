//! Plans that nodes make by themselves: what the cache holds at their start, and the plan that they follow.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_plan::Document;
use shoal_plan::document::ExpectedFile;
use shoal_plan::execution::Verdicts;
use shoal_policy::{NodeId, ObjectId};

use super::objects::{self, Part};
use crate::tasks::parts::TaskParts;
use crate::tasks::parts::lake_view::LakeView;
use crate::tasks::parts::messages::{Answer, BlockBits, NAMES_MAX, Question};
use crate::tasks::parts::nodes::Nodes;
use crate::tasks::parts::task_identity::TaskIdentity;

/// The plan in force, for the next plan to go on with.
#[derive(Clone, Debug)]
pub struct PlanInForce {
    /// Its document.
    pub document: Document,
    /// The jobs with a final status.
    pub verdicts: Verdicts,
}

/// Returns the bytes that the nodes hold of each of these files, in their order, as an identity sees the
/// lake. A file that the lake does not have yet, or does not show to the identity, has none.
pub(in crate::tasks) async fn held(
    nodes: &Nodes,
    identity: Option<&str>,
    files: &[ExpectedFile],
) -> Vec<u64> {
    let parts: &Arc<TaskParts> = &nodes.parts;
    let lake = LakeView::new(
        parts,
        TaskIdentity::named(identity, parts, &Arc::new(Mutex::default())),
    );
    let mut held = Vec::with_capacity(files.len());
    for file in files {
        let of_file = objects::parts(&lake, file).await.unwrap_or_default();
        let url = parts.cache().lake.url();
        let sizes = of_file.iter().map(|part| (part.name.id(url), part.bytes));
        held.push(held_of(nodes, &sizes.collect()).await);
    }
    held
}

/// Returns the bytes from the beginning of a file on that the nodes hold without a gap.
pub(in crate::tasks) async fn leading_bytes(nodes: &Nodes, parts: &[Part]) -> u64 {
    let cache = nodes.parts.cache();
    let (url, block_bytes, all) = (cache.lake.url(), cache.block_bytes, nodes.all());
    let mut bytes = 0;
    for parts in parts.chunks(NAMES_MAX) {
        let ids: Vec<ObjectId> = parts.iter().map(|part| part.name.id(url)).collect();
        let blocks = blocks_of(nodes, &all, &ids).await;
        for (part, blocks) in parts.iter().zip(blocks) {
            let (mut index, mut of_part) = (0, 0);
            while of_part < part.bytes && blocks.has(index) {
                of_part = (of_part + block_bytes).min(part.bytes);
                index += 1;
            }
            bytes += of_part;
            if of_part < part.bytes {
                return bytes;
            }
        }
    }
    bytes
}

/// Asks nodes which blocks they hold of each of these objects.
async fn blocks_of(nodes: &Nodes, all: &[NodeId], asked: &[ObjectId]) -> Vec<BlockBits> {
    let mut blocks = vec![BlockBits::default(); asked.len()];
    for answer in nodes.ask_each(all, || Question::Blocks(asked.to_vec())).await {
        let Ok(Answer::Bits(answer)) = answer else {
            continue;
        };
        for (known, more) in blocks.iter_mut().zip(&answer) {
            known.add(more);
        }
    }
    blocks
}

/// Returns the bytes that the nodes hold of objects of these sizes.
async fn held_of(nodes: &Nodes, sizes: &HashMap<ObjectId, u64>) -> u64 {
    let ids: Vec<ObjectId> = sizes.keys().copied().collect();
    let (all, mut bytes) = (nodes.all(), 0);
    for asked in ids.chunks(NAMES_MAX) {
        let blocks = blocks_of(nodes, &all, asked).await;
        let block_bytes = nodes.parts.cache().block_bytes;
        let of_objects = asked.iter().zip(&blocks);
        bytes += of_objects
            .map(|(object, blocks)| blocks.bytes(sizes[object], block_bytes))
            .sum::<u64>();
    }
    bytes
}
