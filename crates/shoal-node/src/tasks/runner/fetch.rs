//! Brings the objects of a task to the nodes that are to hold them, and pins them there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::ready;
use std::sync::{Arc, OnceLock};

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use shoal_policy::{NodeId, ObjectId, Source};
use shoal_s3::object::Version;
use shoal_store::PinOrder;

use super::{BLOCKS_AT_ONCE, Candidate, Ended, ObjectFailure, Runner, TRIES, pauses};
use crate::peer::CallerName;
use crate::tasks::fill::FillOutcome;
use crate::tasks::messages::{Answer, BlockBits, Fill, Question};

/// Blocks of some versions that nodes hold: for each node, one set of blocks a version.
#[derive(Debug, Default)]
pub(super) struct Holdings(HashMap<NodeId, Vec<BlockBits>>);

impl Holdings {
    /// Whether a node holds a block of the version at `place` among those that it was asked about.
    pub(super) fn has(&self, node: NodeId, place: usize, index: u32) -> bool {
        let bits = self.0.get(&node).and_then(|versions| versions.get(place));
        bits.is_some_and(|bits| bits.has(index))
    }

    /// The nodes that have answered.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.0.keys().copied()
    }
}

impl Runner<'_> {
    /// Asks nodes which blocks of some versions they hold. A node that does not answer holds none.
    pub(super) async fn holdings(&self, nodes: &[NodeId], versions: &[&Version]) -> Holdings {
        let question = versions.iter().map(|version| (version.id, version.block_count()));
        let question = Question::Held(question.collect());
        let answers = nodes.iter().map(|node| {
            let question = question.clone();
            async move { (*node, self.parts.nodes.ask(*node, question).await) }
        });
        let mut holdings = Holdings::default();
        for (node, answer) in join_all(answers).await {
            match answer {
                Ok(Answer::Held(bits)) => drop(holdings.0.insert(node, bits)),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "a node does not say what it holds"),
            }
        }
        holdings
    }

    /// Brings some objects to their nodes.
    pub(super) async fn fetch_part(&self, part: Vec<Candidate>) -> Result<(), Ended> {
        let nodes = self.targets.nodes();
        let versions: Vec<&Version> = part.iter().map(|candidate| &*candidate.version).collect();
        let holdings = self.holdings(&nodes, &versions).await;
        let missing: Vec<Vec<u32>> = part
            .iter()
            .enumerate()
            .map(|(place, candidate)| self.missing(&candidate.version, place, &holdings))
            .collect();
        let work: Vec<Candidate> = part.clone();
        let missing: HashMap<_, _> = part
            .into_iter()
            .zip(missing)
            .map(|(candidate, missing)| (candidate.name, missing))
            .collect();
        let missing = &missing;
        self.each(work, |candidate| async move {
            let missing = missing[&candidate.name].clone();
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
        let unpin = |objects| Question::Unpin(PinOrder(unpin), objects);
        match self.ask_all(unpin, &[object], |_, _| ()).await {
            Ok(()) => Err(unpinned()),
            Err(Ended(why)) => Err(ObjectFailure::Failed(why)),
        }
    }

    /// Brings an object to its nodes, and pins it there if the task pins.
    async fn fetch_now(&self, mut candidate: Candidate, mut missing: Vec<u32>) -> Result<(), ObjectFailure> {
        for _ in 0..TRIES {
            if candidate.is_listed && !missing.is_empty() {
                let listed = candidate.version.id;
                candidate = self.current(&candidate.name).await?;
                if candidate.version.id != listed {
                    missing = self.missing_now(&candidate.version).await;
                }
            }
            match self.bring_all(&candidate, &missing).await {
                Ok(()) => {
                    self.count_held(&candidate.version, &missing);
                    return self.keep(&candidate.version).await;
                }
                Err(FillOutcome::Changed) => {
                    candidate = self.current(&candidate.name).await?;
                    missing = self.missing_now(&candidate.version).await;
                }
                Err(FillOutcome::Denied(status)) => {
                    return Err(ObjectFailure::Refused(format!("the lake answered {status}")));
                }
                Err(FillOutcome::Refused(refusal)) => {
                    return Err(ObjectFailure::Failed(format!("not stored: {}", refusal.as_str())));
                }
                Err(FillOutcome::Failed(error)) => return Err(ObjectFailure::Failed(error)),
                Err(outcome) => unreachable!("{outcome:?} is no failure"),
            }
        }
        Err(ObjectFailure::Failed(
            "it changes faster than it can be fetched".into(),
        ))
    }

    /// Counts the blocks of an object that were there before.
    fn count_held(&self, version: &Version, missing: &[u32]) {
        let brought: u64 = missing.iter().map(|index| version.block_len(*index)).sum();
        let mut progress = self.progress.lock();
        progress.tally.brought(version.size_bytes - brought, None);
        progress.tally.objects.unchanged += u64::from(missing.is_empty());
    }

    /// The blocks that the nodes which are to hold them do not have.
    fn missing(&self, version: &Version, place: usize, holdings: &Holdings) -> Vec<u32> {
        let is_missing = |index: &u32| {
            let target = self.targets.of(version.block(*index));
            target.is_none_or(|(node, _)| !holdings.has(node, place, *index))
        };
        (0..version.block_count()).filter(is_missing).collect()
    }

    async fn missing_now(&self, version: &Version) -> Vec<u32> {
        let holdings = self.holdings(&self.targets.nodes(), &[version]).await;
        self.missing(version, 0, &holdings)
    }

    /// Brings blocks of an object to their nodes. Fails with the first failure of one. Blocks that the
    /// nodes were asked for by then are brought to their end: their room counts until they have come.
    async fn bring_all(&self, candidate: &Candidate, missing: &[u32]) -> Result<(), FillOutcome> {
        let failure = OnceLock::new();
        stream::iter(missing.iter().copied())
            .map(|index| self.bring(candidate, index, &failure))
            .buffer_unordered(BLOCKS_AT_ONCE)
            .for_each(|()| ready(()))
            .await;
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Brings a block of an object, unless a block of it has failed. Notes the `failure` if this one does.
    async fn bring(&self, candidate: &Candidate, index: u32, failure: &OnceLock<FillOutcome>) {
        let version = &candidate.version;
        let bytes = version.block_len(index);
        let is_in_vain = || failure.get().is_some();
        let (mut pauses, mut tries) = (pauses(), 1);
        loop {
            let outcome = {
                let _place = self
                    .blocks
                    .acquire()
                    .await
                    .expect("the semaphore is never closed");
                if is_in_vain() {
                    return;
                }
                let wait = self.pace.lock().take(self.elapsed(), bytes, self.left_bytes());
                tokio::time::sleep(wait).await;
                if is_in_vain() {
                    return;
                }
                self.fill(candidate, index).await
            };
            match outcome {
                FillOutcome::Held => return self.note_block(bytes, None),
                FillOutcome::Brought(source) => return self.note_block(bytes, Some(source)),
                FillOutcome::Busy => {}
                FillOutcome::Failed(_) if tries < TRIES => tries += 1,
                outcome => {
                    let _ = failure.set(outcome);
                    return;
                }
            }
            pauses.wait().await;
        }
    }

    fn note_block(&self, bytes: u64, source: Option<Source>) {
        self.progress.lock().tally.brought(bytes, source);
        if source == Some(Source::Lake) {
            self.end_refusals();
        }
    }

    /// Asks the node that is to hold a block to fetch it.
    async fn fill(&self, candidate: &Candidate, index: u32) -> FillOutcome {
        let Some((node, layer)) = self.targets.of(candidate.version.block(index)) else {
            return FillOutcome::Failed("no node is there to hold it".into());
        };
        let fill = Fill {
            version: Arc::clone(&candidate.version),
            index,
            layer,
            pin: self.pin,
            planned: None,
            caller: CallerName::from(&self.caller),
            name: candidate.name.clone(),
        };
        match self.parts.nodes.ask(node, Question::Fill(Box::new(fill))).await {
            Ok(Answer::Filled(outcome)) => outcome,
            Ok(_) => FillOutcome::Failed("a node answered something else".into()),
            Err(error) => FillOutcome::Failed(error.to_string()),
        }
    }

    /// Makes sure that all blocks of an object are pinned where they are, if the task pins.
    async fn keep(&self, version: &Version) -> Result<(), ObjectFailure> {
        let Some(pin) = self.pin else { return Ok(()) };
        let homes = (0..version.block_count()).filter_map(|index| self.targets.of(version.block(index)));
        let mut blocks_at = BTreeMap::<NodeId, u64>::new();
        for (node, _) in homes {
            *blocks_at.entry(node).or_default() += 1;
        }
        for (node, blocks) in blocks_at {
            let question = Question::Pin(pin, vec![version.object]);
            let kept = match self.parts.nodes.ask(node, question).await {
                Ok(Answer::Kept(kept)) => kept.first().copied().unwrap_or_default(),
                Ok(_) => return Err(ObjectFailure::Failed("a node answered something else".into())),
                Err(error) => return Err(ObjectFailure::Failed(error.to_string())),
            };
            let mut progress = self.progress.lock();
            progress.tally.bytes.pinned += kept.bytes;
            progress
                .tally
                .at(&self.parts.nodes.name_of(node), kept.blocks, kept.bytes);
            if kept.blocks < blocks {
                let why = kept
                    .refusal
                    .map_or("some of its blocks have left", |refusal| refusal.as_str());
                return Err(ObjectFailure::Failed(format!("not pinned: {why}")));
            }
        }
        Ok(())
    }

    /// Asks all nodes about some objects, many at a time, and hands each answer to `note`.
    pub(super) async fn ask_all(
        &self,
        question: impl Fn(Vec<ObjectId>) -> Question,
        objects: &[ObjectId],
        mut note: impl FnMut(&str, Answer),
    ) -> Result<(), Ended> {
        let (mut left, mut pauses) = (self.parts.nodes.all(), pauses());
        for tries in 1.. {
            let asked = left.into_iter().map(|(node, name)| {
                let question = question(objects.to_vec());
                async move {
                    let answer = self.parts.nodes.ask(node, question).await;
                    (node, name, answer)
                }
            });
            let (mut silent, mut last) = (Vec::new(), None);
            for (node, name, answer) in join_all(asked).await {
                match answer {
                    Ok(answer) => note(&name, answer),
                    Err(error) => {
                        silent.push((node, name));
                        last = Some(error);
                    }
                }
            }
            let Some(error) = last else { break };
            if tries == TRIES {
                return Err(Ended(error.to_string()));
            }
            // A node that has left no longer holds anything.
            let alive: BTreeSet<NodeId> = self.parts.nodes.all().into_iter().map(|(node, _)| node).collect();
            left = silent
                .into_iter()
                .filter(|(node, _)| alive.contains(node))
                .collect();
            pauses.wait().await;
        }
        Ok(())
    }
}
