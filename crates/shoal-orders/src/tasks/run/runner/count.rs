//! Counts what of some objects is cached, and where.

use shoal_policy::NodeId;
use shoal_s3::object::Version;

use super::{Candidate, Ended, Runner};

impl Runner<'_> {
    /// Counts the blocks that are where a task would bring them.
    pub(super) async fn count_wanted(&self, part: Vec<Candidate>) -> Result<(), Ended> {
        let nodes = self.placer.targets.nodes();
        self.count(part, &nodes, |runner, version, index, has| {
            let target = runner.placer.targets.of(version.block(index));
            target.map(|(node, _)| node).filter(|node| has(*node))
        })
        .await
    }

    /// Counts the blocks that are on any node.
    pub(super) async fn count_cached(&self, part: Vec<Candidate>) -> Result<(), Ended> {
        let nodes: Vec<NodeId> = self.parts.nodes.all().into_iter().map(|(node, _)| node).collect();
        self.count(part, &nodes, |runner, version, index, has| {
            let holders = nodes.iter().copied().filter(|node| has(*node));
            let holders: Vec<NodeId> = holders.collect();
            let mut progress = runner.progress.lock();
            for holder in &holders {
                let name = runner.parts.nodes.name_of(*holder);
                progress.tally.at(&name, 1, version.block_len(index));
            }
            holders.first().copied()
        })
        .await
    }

    /// Counts objects. `cached` says which node counts for a block, of those that `has` it.
    async fn count(
        &self,
        part: Vec<Candidate>,
        nodes: &[NodeId],
        cached: impl Fn(&Self, &Version, u32, &dyn Fn(NodeId) -> bool) -> Option<NodeId>,
    ) -> Result<(), Ended> {
        let versions: Vec<&Version> = part.iter().map(|candidate| &*candidate.version).collect();
        let holdings = self.placer.holdings(nodes, &versions).await;
        let answered: Vec<NodeId> = holdings.nodes().collect();
        let silent = nodes.iter().find(|node| !answered.contains(node));
        if let Some(silent) = silent {
            let name = self.parts.nodes.name_of(*silent);
            self.progress.lock().detail = Some(format!("{name} did not say what it holds"));
        }
        for version in versions {
            let is_cached = |index: &u32| {
                let has = |node| holdings.has(node, version.id, *index);
                cached(self, version, *index, &has).is_some()
            };
            let held: Vec<u32> = (0..version.block_count()).filter(is_cached).collect();
            let bytes: u64 = held.iter().map(|index| version.block_len(*index)).sum();
            let mut progress = self.progress.lock();
            let tally = &mut progress.tally;
            tally.objects.done += 1;
            tally.objects.unchanged += u64::from(held.len() == version.block_count() as usize);
            tally.bytes.done += version.size_bytes;
            tally.bytes.cached += bytes;
        }
        Ok(())
    }
}
