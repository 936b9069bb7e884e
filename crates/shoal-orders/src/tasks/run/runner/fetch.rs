//! Brings the objects of a task to the nodes that are to hold them, and pins them there.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, OnceLock};

use futures_util::stream::{self, StreamExt, TryStreamExt as _};
use shoal_cache::lake::Wanted;
use shoal_policy::{NodeId, ObjectId};
use shoal_s3::object::Version;

use super::pack_in_use::PackInUse;
use super::{BLOCKS_AT_ONCE, Candidate, ObjectFailure, Runner, TRIES};
use crate::tasks::parts::holdings::Holdings;
use crate::tasks::parts::messages::{Answer, NotFilled, PlannedFill, Question};
use crate::tasks::parts::placer::Block;

/// The number of packs that are read at a time: their blocks take room meanwhile.
const PACKS_AT_ONCE: usize = 2;

impl Runner<'_> {
    /// Brings some objects to their nodes, those that are read from blocks of packs first.
    pub(super) async fn fetch_all(&self, candidates: Vec<Candidate>) -> Result<(), String> {
        let versions: Vec<&Version> = candidates.iter().map(|candidate| &*candidate.version).collect();
        let nodes = self.placer.targets.nodes();
        let holdings = &self.placer.holdings(&nodes, &versions).await;
        let (packs, alone) = self.by_pack(candidates, holdings).await;
        let packs = stream::iter(packs).map(|(pack, candidates)| async move {
            let in_use = PackInUse::new(&self.nodes, pack);
            self.fetch_each(candidates, holdings).await?;
            in_use.end().await;
            Ok::<_, String>(())
        });
        packs.buffer_unordered(PACKS_AT_ONCE).try_collect::<()>().await?;
        self.fetch_each(alone, holdings).await
    }

    /// Divides objects into those that are read from blocks of packs, in the order in which the packs have
    /// them, and the others.
    async fn by_pack(
        &self,
        candidates: Vec<Candidate>,
        holdings: &Holdings,
    ) -> (BTreeMap<ObjectId, Vec<Candidate>>, Vec<Candidate>) {
        let (wanted, held): (Vec<Candidate>, Vec<Candidate>) =
            candidates.into_iter().partition(|candidate| {
                self.lake.may_be_packed(&candidate.name)
                    && !self.placer.missing(&candidate.version, holdings).is_empty()
            });
        let named: Vec<Wanted<'_>> = wanted
            .iter()
            .map(|candidate| Wanted {
                name: &candidate.name,
                version: candidate.version.id,
            })
            .collect();
        let places = self.lake.places(&named).await;
        let (mut packs, mut alone) = (BTreeMap::<_, Vec<_>>::new(), held);
        for (candidate, place) in wanted.into_iter().zip(places) {
            match place {
                Some(place) => packs
                    .entry(place.pack)
                    .or_default()
                    .push((place.start, candidate)),
                None => alone.push(candidate),
            }
        }
        let in_order = |(pack, mut candidates): (_, Vec<(u64, Candidate)>)| {
            candidates.sort_by_key(|(start, _)| *start);
            let candidates = candidates.into_iter().map(|(_, candidate)| Candidate {
                pack: Some(pack),
                ..candidate
            });
            (pack, candidates.collect())
        };
        (packs.into_iter().map(in_order).collect(), alone)
    }

    async fn fetch_each(&self, candidates: Vec<Candidate>, holdings: &Holdings) -> Result<(), String> {
        self.each(candidates, |candidate| async move {
            let missing = self.placer.missing(&candidate.version, holdings);
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
                    missing = self.placer.missing_now(&candidate.version).await;
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
                    missing = self.placer.missing_now(&candidate.version).await;
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
            pack: candidate.pack,
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
        match self.placer.bring(&block, pin, self.planned(), begin).await {
            Ok(source) => self.outcomes.brought(bytes, source),
            Err(error) => drop(failure.set(error)),
        }
    }

    /// Returns the planned transfer of a hint whose run has a deadline. While a plan is in force, the plan
    /// decides what such a run gets, and its hint gets nothing from others.
    fn planned(&self) -> Option<PlannedFill> {
        let is_of_run = self.order.hint.as_ref().is_some_and(|hint| !hint.is_behind);
        let rate = self.estimate.rate_for_deadline().filter(|_| is_of_run)?;
        let is_free = self.base.records.plan_in_force().is_none();
        is_free.then_some(PlannedFill {
            plan: self.id,
            transfer: PlannedFill::OF_HINT,
            rate,
        })
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
