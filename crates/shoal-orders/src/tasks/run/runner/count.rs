//! Counts which blocks of some objects are cached, and where.

use shoal_policy::NodeId;
use shoal_s3::object::Version;

use super::{Candidate, Runner};
use crate::tasks::parts::holdings::Holdings;

impl Runner<'_> {
    /// Counts the blocks that are where a task would bring them.
    pub(super) async fn count_wanted(&self, part: &[Candidate]) {
        let nodes = self.placer.targets.nodes();
        let is_cached = |version: &Version, index: u32, holdings: &Holdings| {
            self.placer.is_placed(version, index, holdings)
        };
        self.count(part, &nodes, is_cached).await;
    }

    /// Counts the blocks that are on any node.
    pub(super) async fn count_cached(&self, part: &[Candidate]) {
        let nodes = self.nodes.all();
        let is_cached = |version: &Version, index: u32, holdings: &Holdings| {
            let mut is_cached = false;
            for holder in nodes
                .iter()
                .filter(|node| holdings.has(**node, version.id, index))
            {
                is_cached = true;
                let (name, bytes) = (self.nodes.name_of(*holder), version.block_len(index));
                self.outcomes.count(|tally| tally.at(&name, 1, bytes));
            }
            is_cached
        };
        self.count(part, &nodes, is_cached).await;
    }

    /// Counts objects, and the blocks of them that count as cached.
    async fn count(
        &self,
        part: &[Candidate],
        nodes: &[NodeId],
        is_cached: impl Fn(&Version, u32, &Holdings) -> bool,
    ) {
        let versions: Vec<&Version> = part.iter().map(|candidate| &*candidate.version).collect();
        let holdings = self.placer.holdings(nodes, &versions).await;
        if let Some(silent) = nodes.iter().find(|node| !holdings.include(**node)) {
            let name = self.nodes.name_of(*silent);
            self.outcomes
                .wait_for(Some(format!("{name} did not say what it holds")));
        }
        for version in versions {
            let indexes = 0..version.block_count();
            let held: Vec<u32> = indexes
                .filter(|index| is_cached(version, *index, &holdings))
                .collect();
            let bytes: u64 = held.iter().map(|index| version.block_len(*index)).sum();
            self.outcomes.count(|tally| {
                tally.objects.done += 1;
                tally.objects.unchanged += u64::from(held.len() == version.block_count() as usize);
                tally.bytes.done += version.size_bytes;
                tally.bytes.cached += bytes;
            });
        }
    }
}
