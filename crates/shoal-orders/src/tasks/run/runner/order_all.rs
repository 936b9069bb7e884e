//! Ends pins and removes blocks on all nodes.

use std::collections::HashSet;

use shoal_policy::ObjectId;

use super::{Candidate, ObjectFailure, Runner};
use crate::tasks::parts::messages::{Answer, Question};

impl Runner<'_> {
    /// Ends the pins of some objects.
    pub(super) async fn unpin_part(&self, part: &[Candidate]) -> Result<(), String> {
        let objects = objects_of(part);
        let mut pinned = HashSet::new();
        let unpin = |objects| Question::Unpin(self.id, objects);
        self.nodes
            .ask_all(unpin, &objects, |node, answer| {
                let Answer::Kept(freed) = answer else { return };
                let mut progress = self.progress.lock();
                for (object, freed) in objects.iter().zip(freed) {
                    if freed.blocks > 0 {
                        pinned.insert(*object);
                        progress.tally.at(node, freed.blocks, freed.bytes);
                    }
                }
            })
            .await?;
        self.count_changed(part, &pinned, &HashSet::new()).await
    }

    /// Removes the blocks of some objects.
    pub(super) async fn evict_part(&self, part: &[Candidate]) -> Result<(), String> {
        let objects = objects_of(part);
        let (mut removed, mut pinned) = (HashSet::new(), HashSet::new());
        self.nodes
            .ask_all(Question::Evict, &objects, |node, answer| {
                let Answer::Evicted(evicted) = answer else { return };
                let mut progress = self.progress.lock();
                for (object, evicted) in objects.iter().zip(evicted) {
                    if evicted.is_pinned {
                        pinned.insert(*object);
                    }
                    if evicted.blocks > 0 {
                        removed.insert(*object);
                        progress.tally.bytes.removed += evicted.bytes;
                        progress.tally.at(node, evicted.blocks, evicted.bytes);
                    }
                }
            })
            .await?;
        self.count_changed(part, &removed, &pinned).await
    }

    /// Counts objects. Those that are `pinned` failed, and there was nothing to do for those that are not
    /// among the `changed` ones.
    async fn count_changed(
        &self,
        part: &[Candidate],
        changed: &HashSet<ObjectId>,
        pinned: &HashSet<ObjectId>,
    ) -> Result<(), String> {
        self.each(part, |candidate| async move {
            let object = candidate.version.object;
            if pinned.contains(&object) {
                return Err(ObjectFailure::Failed("pinned: end its pins first".into()));
            }
            self.outcomes.count(|tally| {
                tally.bytes.done += candidate.version.size_bytes;
                tally.objects.unchanged += u64::from(!changed.contains(&object));
            });
            Ok(())
        })
        .await
    }
}

fn objects_of(part: &[Candidate]) -> Vec<ObjectId> {
    part.iter().map(|candidate| candidate.version.object).collect()
}
