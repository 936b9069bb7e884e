//! Brings the objects of a task to the nodes that are to hold them, and pins them there.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, OnceLock};

use futures_util::stream::{self, StreamExt};
use shoal_policy::NodeId;
use shoal_s3::object::Version;

use super::{BLOCKS_AT_ONCE, Candidate, ObjectFailure, Runner, TRIES};
use crate::tasks::parts::messages::{Answer, NotFilled, Question};
use crate::tasks::parts::placer::{Block, Holdings};

impl Runner<'_> {
    /// Brings some objects to their nodes.
    pub(super) async fn fetch_part(&self, part: &[Candidate]) -> Result<(), String> {
        let versions: Vec<&Version> = part.iter().map(|candidate| &*candidate.version).collect();
        let nodes = self.placer.targets.nodes();
        let holdings = &self.placer.holdings(&nodes, &versions).await;
        self.each(part, |candidate| async move {
            let missing = self.missing(&candidate.version, holdings);
            self.fetch(candidate, missing).await
        })
        .await
    }

    /// Brings an object to its nodes, which lack these blocks of it, unless this task pins and a later order
    /// unpins the object: it may come meanwhile.
    async fn fetch(&self, candidate: Candidate, missing: Vec<u32>) -> Result<(), ObjectFailure> {
        let unpinned = || ObjectFailure::Skipped("a later order unpins it".into());
        let (name, object) = (candidate.name.clone(), candidate.version.object);
        if self.unpinned_by(&name).await.is_some() {
            return Err(unpinned());
        }
        let fetched = self.fetch_now(candidate, missing).await;
        let Some(unpin) = self.unpinned_by(&name).await else {
            return fetched;
        };
        // That order may have been carried out before the object was pinned here.
        let unpin = |objects| Question::Unpin(unpin, objects);
        match self.nodes.ask_all(unpin, &[object], |_, _| ()).await {
            Ok(()) => Err(unpinned()),
            Err(why) => Err(ObjectFailure::Failed(why)),
        }
    }

    /// Brings an object to its nodes, and pins it there if the task pins.
    async fn fetch_now(&self, mut candidate: Candidate, mut missing: Vec<u32>) -> Result<(), ObjectFailure> {
        for _ in 0..TRIES {
            if candidate.is_listed && !missing.is_empty() {
                let listed = candidate.version.id;
                candidate.version = self.lake.version(&candidate.name, TRIES).await?;
                candidate.is_listed = false;
                if candidate.version.id != listed {
                    missing = self.missing_now(&candidate.version).await;
                }
            }
            match self.bring_all(&candidate, &missing).await {
                Ok(()) => {
                    self.count_held(&candidate.version, &missing);
                    return self.keep(&candidate.version).await;
                }
                Err(NotFilled::Changed) => {
                    candidate.version = self.lake.version(&candidate.name, TRIES).await?;
                    candidate.is_listed = false;
                    missing = self.missing_now(&candidate.version).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(ObjectFailure::Failed(
            "it changes faster than it can be fetched".into(),
        ))
    }

    /// Counts the blocks of an object that were there before.
    fn count_held(&self, version: &Version, missing: &[u32]) {
        let brought: u64 = missing.iter().map(|index| version.block_len(*index)).sum();
        self.outcomes.count(|tally| {
            tally.brought(version.size_bytes - brought, None);
            tally.objects.unchanged += u64::from(missing.is_empty());
        });
    }

    /// Returns the blocks that the nodes which are to hold them do not have.
    fn missing(&self, version: &Version, holdings: &Holdings) -> Vec<u32> {
        let is_missing = |index: &u32| !self.placer.is_placed(version, *index, holdings);
        (0..version.block_count()).filter(is_missing).collect()
    }

    async fn missing_now(&self, version: &Version) -> Vec<u32> {
        let nodes = self.placer.targets.nodes();
        let holdings = self.placer.holdings(&nodes, &[version]).await;
        self.missing(version, &holdings)
    }

    /// Brings blocks of an object to their nodes. Fails with the first failure of one. Blocks that the
    /// nodes were asked for by then are brought to their end: their room counts until they have come.
    async fn bring_all(&self, candidate: &Candidate, missing: &[u32]) -> Result<(), NotFilled> {
        let failure = OnceLock::new();
        stream::iter(missing.iter().copied())
            .map(|index| self.bring(candidate, index, &failure))
            .buffer_unordered(BLOCKS_AT_ONCE)
            .for_each(|()| ready(()))
            .await;
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Brings a block of an object, unless a block of it has failed. Notes the `failure` if this one does.
    async fn bring(&self, candidate: &Candidate, index: u32, failure: &OnceLock<NotFilled>) {
        let block = Block {
            name: candidate.name.clone(),
            version: Arc::clone(&candidate.version),
            index,
        };
        let bytes = block.bytes();
        let is_wanted = || failure.get().cloned().map_or(Ok(()), Err);
        let begin = || async {
            let place = self
                .blocks
                .acquire()
                .await
                .expect("the semaphore is never closed");
            is_wanted()?;
            tokio::time::sleep(self.estimate.wait(bytes)).await;
            is_wanted()?;
            Ok::<_, NotFilled>(place)
        };
        let pin = self.pin.as_ref().map(|(pin, _)| *pin);
        match self.placer.bring(&block, pin, None, begin).await {
            Ok(source) => self.outcomes.brought(bytes, source),
            Err(error) => drop(failure.set(error)),
        }
    }

    /// Ensures that all blocks of an object are pinned where they are, if the task pins.
    async fn keep(&self, version: &Version) -> Result<(), ObjectFailure> {
        let Some((pin, _)) = &self.pin else {
            return Ok(());
        };
        let mut blocks_at = BTreeMap::<NodeId, u64>::new();
        for index in 0..version.block_count() {
            if let Some((node, _)) = self.placer.targets.of(version.block(index)) {
                *blocks_at.entry(node).or_default() += 1;
            }
        }
        for (node, blocks) in blocks_at {
            let question = Question::Pin(*pin, vec![version.object]);
            let kept = match self.nodes.ask(node, question).await {
                Ok(Answer::Kept(kept)) => kept.into_iter().next().unwrap_or_default(),
                Ok(_) => return Err(ObjectFailure::Failed("a node answered something else".into())),
                Err(why) => return Err(ObjectFailure::Failed(why)),
            };
            let name = self.nodes.name_of(node);
            self.outcomes.count(|tally| {
                tally.bytes.pinned += kept.bytes;
                tally.at(&name, kept.blocks, kept.bytes);
            });
            if kept.blocks < blocks {
                let why = kept
                    .refusal
                    .unwrap_or_else(|| "some of its blocks have left".into());
                return Err(ObjectFailure::Failed(format!("not pinned: {why}")));
            }
        }
        Ok(())
    }
}
