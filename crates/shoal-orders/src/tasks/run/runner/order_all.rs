//! Ends pins and removes blocks on all nodes.

use std::collections::HashSet;

use shoal_policy::ObjectId;

use super::{Candidate, ObjectFailure, Runner};
use crate::tasks::parts::messages::{Answer, Evicted, Question};

impl Runner<'_> {
    /// Asks all nodes to end the pins of some objects, or to remove their blocks, and counts the objects.
    /// Objects that stay because they are pinned failed, and there was nothing to do for those that no node
    /// has changed.
    pub(super) async fn order_part(
        &self,
        part: &[Candidate],
        order: impl Fn(Vec<ObjectId>) -> Question,
    ) -> Result<(), String> {
        let objects: Vec<_> = part.iter().map(|candidate| candidate.version.object).collect();
        let (mut changed, mut pinned) = (HashSet::new(), HashSet::new());
        self.nodes
            .ask_all(order, &objects, |node, answer| {
                let (is_removal, changes) = match answer {
                    Answer::Evicted(evicted) => (true, evicted),
                    Answer::Kept(freed) => {
                        let freed = freed.iter().map(|freed| Evicted {
                            blocks: freed.blocks,
                            bytes: freed.bytes,
                            is_pinned: false,
                        });
                        (false, freed.collect())
                    }
                    _ => return,
                };
                let tally = &mut self.progress.lock().tally;
                for (object, change) in objects.iter().zip(changes) {
                    if change.is_pinned {
                        pinned.insert(*object);
                    }
                    if change.blocks > 0 {
                        changed.insert(*object);
                        tally.at(node, change.blocks, change.bytes);
                        tally.bytes.removed += if is_removal { change.bytes } else { 0 };
                    }
                }
            })
            .await?;
        let (changed, pinned) = (&changed, &pinned);
        self.each(part.to_vec(), |candidate| async move {
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
