//! What a node does for the dirty objects whose names are at home there: lets them exist, tells of them, lets
//! them go. One node orders all that is done to one name.
//!
//! Whatever changes an object is done only while the node has *settled*: everybody in the last layer sees the
//! same members and has told what it has (see `settling`). It looks again after it has written its own
//! record. A node that would be home under a newer view asks this one for its records only when this one sees
//! that view, too; so either the record is among them, or the change is not acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use shoal_policy::{NodeId, ObjectId, VersionId};
use shoal_s3::object::{ObjectName, Version};
use tokio::sync::Notify;

use super::messenger::{Answer, Messenger, Unheard};
use super::page::Page;
use super::records::Records;
use super::request::Request;
use super::view::View;
use crate::clock;
use crate::cooperation::Cooperation;
use crate::dirty::WriteBackOutcome;
use crate::dirty::flush_schedule::{FlushSchedule, FlushStatus};
use crate::dirty::lake_writer::LakeWriter;
use crate::dirty::manifest::Manifest;
use crate::grants::Grants;
use crate::membership::{Member, State};

/// Names share a lock by digest.
const NAME_LOCKS: usize = 64;

/// The dirty objects around one node.
pub(crate) struct Home {
    pub(in crate::dirty) records: Records,
    pub(in crate::dirty) cooperation: Arc<Cooperation>,
    pub(in crate::dirty) messenger: Messenger,
    pub(in crate::dirty) lake_writer: LakeWriter,
    pub(in crate::dirty) grants: Arc<Grants>,
    /// Names the lake in the digests of its objects.
    pub(in crate::dirty) lake: Arc<str>,
    pub(in crate::dirty) flush_interval: Duration,
    /// The view in which everybody has told this node what it has.
    pub(in crate::dirty) settled: Mutex<Option<u64>>,
    pub(in crate::dirty) schedule: Mutex<FlushSchedule>,
    /// Something is to be flushed before its time.
    pub(in crate::dirty) hurry: Notify,
    counts: [AtomicU64; WriteBackOutcome::ALL.len()],
    names: [tokio::sync::Mutex<()>; NAME_LOCKS],
}

impl Home {
    pub(in crate::dirty) fn new(
        records: Records,
        cooperation: Arc<Cooperation>,
        lake_writer: LakeWriter,
        grants: Arc<Grants>,
        lake: Arc<str>,
        flush_interval: Duration,
    ) -> Self {
        Self {
            records,
            messenger: Messenger(Arc::clone(&cooperation)),
            cooperation,
            lake_writer,
            grants,
            lake,
            flush_interval,
            settled: Mutex::default(),
            schedule: Mutex::default(),
            hurry: Notify::new(),
            counts: Default::default(),
            names: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
        }
    }

    /// Answers another node, or this one.
    pub(crate) async fn answer(self: &Arc<Self>, request: Request) -> Answer {
        match request {
            Request::Find { view, name } => self.find(view, &name),
            Request::Held { name } => self.held(&name),
            Request::List {
                view,
                home,
                bucket,
                prefix,
                after,
            } => self.list(view, home, (&bucket, &prefix, &after)),
            Request::Sync { view, node, after } => self.tell_all(view, node, after.as_ref()),
            Request::Name {
                stand_in,
                blocks,
                version,
            } => self.name((stand_in, blocks), Arc::from(version)).await,
            Request::Keep(manifest) => match self.records.keep(Arc::from(manifest)).await {
                Ok(()) => done(),
                Err(error) => {
                    tracing::debug!(%error, "a dirty object is not kept here");
                    Answer::Refused
                }
            },
            Request::Drop { name, sequence } => self.drop_here(&name, sequence).await,
            Request::Commit { view, manifest } => self.commit(view, *manifest).await,
            Request::Hold { view, name } => self.hold(view, &name).await,
            Request::Free { name } => {
                self.schedule.lock().release(name.id(&self.lake));
                done()
            }
            Request::Remove { view, name, sequence } => self.remove(view, &name, sequence).await,
            Request::Flush { view, name } => self.flush_for(view, &name).await,
        }
    }

    /// Blocks that came before their version was known are named; which there are now.
    async fn name(&self, sent: (VersionId, u32), version: Arc<Version>) -> Answer {
        let indexes = self.records.name_blocks(sent, version).await;
        let indexes: Vec<u8> = indexes.into_iter().flat_map(u32::to_le_bytes).collect();
        Answer::Done(indexes.into())
    }

    /// What this node sees now, once it knows everything that it is home to in this view.
    pub(in crate::dirty) fn settled_view(&self) -> Option<View> {
        let now = View::of(&self.cooperation);
        (*self.settled.lock() == Some(now.digest)).then_some(now)
    }

    /// The same, if this node may answer for names that it is home to, to somebody who sees this view.
    pub(in crate::dirty) fn is_settled_in(&self, view: u64) -> Option<View> {
        self.settled_view().filter(|now| now.digest == view)
    }

    /// Whether this node, and no other, decides about an object.
    pub(in crate::dirty) fn decides(&self, view: u64, object: ObjectId) -> bool {
        self.is_settled_in(view)
            .is_some_and(|view| view.is_first_home(object))
    }

    fn find(&self, view: u64, name: &ObjectName) -> Answer {
        let object = name.id(&self.lake);
        let is_home = |view: &View| view.homes(object).contains(&view.me);
        let Some(view) = self.is_settled_in(view).filter(is_home) else {
            return Answer::Unsettled;
        };
        let Some(manifest) = self.records.get(name) else {
            return Answer::Nothing;
        };
        // Only the first home looks at what everybody holds; the next one knows at least who is gone.
        let is_there = |node: &NodeId| view.members().contains(node);
        if self.schedule.lock().is_lost(object) || !manifest.placement.nodes().iter().all(is_there) {
            return Answer::Lost(manifest.to_bytes().into());
        }
        Answer::Done(manifest.to_bytes().into())
    }

    fn held(&self, name: &ObjectName) -> Answer {
        let manifests: Vec<_> = self.records.get(name).into_iter().collect();
        let gone = self.records.gone(name).map(|sequence| (name.clone(), sequence));
        Answer::Done(Page::write(&manifests, gone.as_slice()).into())
    }

    fn list(&self, view: u64, home: NodeId, (bucket, prefix, after): (&str, &[u8], &[u8])) -> Answer {
        let Some(view) = self.is_settled_in(view) else {
            return Answer::Unsettled;
        };
        let mut manifests = self.records.below(bucket, prefix, after);
        manifests.retain(|manifest| {
            let homes = view.homes(manifest.version.object);
            homes.first() == Some(&home) && homes.contains(&view.me)
        });
        let schedule = self.schedule.lock();
        manifests.retain(|manifest| !schedule.is_lost(manifest.version.object));
        Answer::Done(Page::write(&manifests, &[]).into())
    }

    fn tell_all(&self, view: u64, node: NodeId, after: Option<&ObjectName>) -> Answer {
        let now = View::of(&self.cooperation);
        if now.digest != view || self.flushes_for_others(&now) {
            return Answer::Unsettled;
        }
        let concerns = |object| now.homes(object).contains(&node);
        let mut manifests = self.records.all(after);
        manifests.retain(|manifest| concerns(manifest.version.object) && self.records.vouches_for(manifest));
        let mut gone = self.records.all_gone();
        gone.retain(|(name, _)| concerns(name.id(&self.lake)));
        Answer::Done(Page::write(&manifests, &gone).into())
    }

    /// Whether a flush is under way that began when this node was the object's home; it is told to break off.
    /// Who is home now could flush a later write, and this one must not come to the lake after it.
    fn flushes_for_others(&self, now: &View) -> bool {
        let is_home = |object| now.is_first_home(object);
        self.schedule.lock().leave_to_others(is_home)
    }

    pub(in crate::dirty) async fn drop_here(&self, name: &ObjectName, sequence: u64) -> Answer {
        match self.records.drop_up_to(name, sequence).await {
            Ok(()) => done(),
            Err(error) => {
                tracing::warn!(object = ?name, %error, "the record of an object that is dirty no more cannot be removed");
                Answer::Failed
            }
        }
    }

    /// Lets an object exist: from here on everybody finds it.
    async fn commit(self: &Arc<Self>, view: u64, manifest: Manifest) -> Answer {
        let object = manifest.name.id(&self.lake);
        if manifest.version.object != object {
            return Answer::Misunderstood;
        }
        if !self.decides(view, object) {
            return Answer::Unsettled;
        }
        // A flush of what is overwritten must not come to the lake after that of what overwrites it.
        let _turn = self.turn_without_flush(object).await;
        let before = self.records.get(&manifest.name);
        let known = before.as_ref().map(|before| before.sequence);
        let known = known.max(self.records.gone(&manifest.name)).unwrap_or_default();
        let manifest = Arc::new(Manifest {
            sequence: sequence(clock::utc_now()).max(known + 1),
            ..manifest
        });
        if !self.spread(view, &manifest).await || !self.decides(view, object) {
            self.withdraw(&manifest, before.as_deref()).await;
            self.schedule.lock().release(object);
            return Answer::Refused;
        }
        if let Some(before) = before {
            self.overwritten(before);
        }
        self.schedule
            .lock()
            .expect(object, clock::instant() + self.flush_interval);
        self.grants.invalidate_object(&manifest.name);
        self.count(WriteBackOutcome::Committed);
        if self.records.is_crowded() {
            self.hurry.notify_one();
        }
        Answer::Done(Bytes::copy_from_slice(&manifest.sequence.to_le_bytes()))
    }

    /// Gives the manifest to everybody who is to keep it, this node last.
    async fn spread(&self, view: u64, manifest: &Arc<Manifest>) -> bool {
        let Some(view) = self.is_settled_in(view) else {
            return false;
        };
        let others = participants(&view, manifest);
        let request = Request::Keep(Box::new(Manifest::clone(manifest)));
        let kept = join_all(others.into_iter().map(|node| self.messenger.say(node, &request))).await;
        for answer in &kept {
            match answer {
                Ok(Answer::Done(_)) => {}
                Ok(answer) => {
                    tracing::debug!(?answer, object = ?manifest.name, "a node does not keep a dirty object");
                }
                Err(error) => {
                    tracing::debug!(%error, object = ?manifest.name, "a node does not keep a dirty object");
                }
            }
        }
        if !kept.iter().all(|answer| matches!(answer, Ok(Answer::Done(_)))) {
            return false;
        }
        match self.records.keep(Arc::clone(manifest)).await {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, object = ?manifest.name, "a dirty object is not kept here");
                false
            }
        }
    }

    /// A write is not to exist after all; what it would have overwritten is to be there again, or told to be
    /// lost.
    async fn withdraw(&self, manifest: &Manifest, before: Option<&Manifest>) {
        self.forget(manifest).await;
        let Some(before) = before else { return };
        let restored = Manifest {
            sequence: manifest.sequence + 1,
            ..before.clone()
        };
        let others = participants(&View::of(&self.cooperation), &restored);
        let request = Request::Keep(Box::new(restored.clone()));
        join_all(others.into_iter().map(|node| self.messenger.say(node, &request))).await;
        let restored = Arc::new(restored);
        if let Err(error) = self.records.note(Arc::clone(&restored)).await {
            tracing::warn!(object = ?restored.name, %error, "a dirty object is not kept any more");
        }
        self.look_after(&restored).await;
    }

    /// Whoever keeps the write that was overwritten, and nothing of the one that did it, may forget it.
    fn overwritten(self: &Arc<Self>, before: Arc<Manifest>) {
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let request = Request::Drop {
                name: before.name.clone(),
                sequence: before.sequence,
            };
            let others = participants(&View::of(&this.cooperation), &before);
            // Who does not hear it finds out by itself.
            join_all(others.into_iter().map(|node| this.messenger.say(node, &request))).await;
        });
    }

    async fn hold(&self, view: u64, name: &ObjectName) -> Answer {
        let object = name.id(&self.lake);
        if !self.decides(view, object) {
            return Answer::Unsettled;
        }
        if self.records.get(name).is_none() {
            return Answer::Nothing;
        }
        let _turn = self.turn_without_flush(object).await;
        let Some(manifest) = self.records.get(name) else {
            self.schedule.lock().forget(object);
            return Answer::Nothing;
        };
        Answer::Done(Bytes::copy_from_slice(&manifest.sequence.to_le_bytes()))
    }

    /// The write that was held exists no more. Nothing, when it has been flushed or overwritten since.
    async fn remove(&self, view: u64, name: &ObjectName, sequence: u64) -> Answer {
        let object = name.id(&self.lake);
        if !self.decides(view, object) {
            return Answer::Unsettled;
        }
        let _turn = self.turn(object).await;
        let held = self.schedule.lock().is_held(object, clock::instant());
        let known = self.records.get(name).filter(|known| known.sequence == sequence);
        let Some(manifest) = known.filter(|_| held) else {
            return Answer::Nothing;
        };
        if !self.forget(&manifest).await {
            return Answer::Failed;
        }
        self.schedule.lock().forget(object);
        done()
    }

    /// Lets everybody forget a write, this node last. Who cannot be told is told when it asks or is asked
    /// again: this node remembers what is gone. `false`: this node's own disk does not forget it.
    pub(in crate::dirty) async fn forget(&self, manifest: &Manifest) -> bool {
        let others = participants(&View::of(&self.cooperation), manifest);
        let request = Request::Drop {
            name: manifest.name.clone(),
            sequence: manifest.sequence,
        };
        for answer in join_all(others.into_iter().map(|node| self.messenger.say(node, &request))).await {
            if let Err(error) = answer {
                tracing::debug!(%error, object = ?manifest.name, "a node was not told that an object is dirty no more");
            }
        }
        matches!(
            self.drop_here(&manifest.name, manifest.sequence).await,
            Answer::Done(_)
        )
    }

    /// The turn to change what is known of a name, which is not being flushed and is not for a while.
    async fn turn_without_flush(&self, object: ObjectId) -> tokio::sync::MutexGuard<'_, ()> {
        loop {
            let under_way = self.schedule.lock().hold(object, clock::instant());
            if let Some(mut ended) = under_way {
                // The sender goes with the flush.
                let _ = ended.changed().await;
            }
            let turn = self.turn(object).await;
            // Whoever had the turn before may have let it be flushed again.
            if self.schedule.lock().hold(object, clock::instant()).is_none() {
                return turn;
            }
        }
    }

    /// The turn to change what is known of a name.
    pub(in crate::dirty) async fn turn(&self, object: ObjectId) -> tokio::sync::MutexGuard<'_, ()> {
        self.names[usize::from(object.0[0]) % NAME_LOCKS].lock().await
    }

    /// The objects of which this node is the first home, and how they stand.
    pub(crate) fn objects(&self) -> Vec<(Arc<Manifest>, FlushStatus)> {
        let manifests = self.at_home(&View::of(&self.cooperation));
        let schedule = self.schedule.lock();
        let standing = |manifest: Arc<Manifest>| {
            let standing = schedule.standing(manifest.version.object);
            (manifest, standing)
        };
        manifests.into_iter().map(standing).collect()
    }

    /// The objects of which this node is the first home in a view.
    pub(in crate::dirty) fn at_home(&self, view: &View) -> Vec<Arc<Manifest>> {
        let mut manifests = self.records.all(None);
        manifests.retain(|manifest| view.is_first_home(manifest.version.object));
        manifests
    }

    /// Objects that this node keeps, as a home or because blocks of them are here, and the bytes of these.
    pub(crate) fn size(&self) -> (u64, u64) {
        self.records.size()
    }

    /// What became of objects at home here since the node started.
    pub(crate) fn outcomes(&self) -> Vec<(WriteBackOutcome, u64)> {
        let count = |outcome: WriteBackOutcome| self.counts[outcome as usize].load(Ordering::Relaxed);
        WriteBackOutcome::ALL
            .map(|outcome| (outcome, count(outcome)))
            .into()
    }

    pub(in crate::dirty) fn count(&self, outcome: WriteBackOutcome) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether this node is about to leave: it begins nothing that lasts.
    pub(in crate::dirty) fn is_leaving(&self) -> bool {
        let me = self.cooperation.me();
        let (_, known) = self.cooperation.arrangement();
        let is_draining = |member: &Member| member.id() == me && member.state == State::Draining;
        known.iter().any(is_draining)
    }

    /// Whether this node knows what it is home to.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled_view().is_some()
    }

    /// Keeps a manifest no more that is for others to keep, now that those know what they are home to.
    pub(in crate::dirty) async fn let_go(&self, manifest: &Manifest) {
        if let Err(error) = self.records.let_go(manifest).await {
            tracing::warn!(object = ?manifest.name, %error, "a record that is for others to keep cannot be removed");
        }
    }

    /// Asks a node about a name it is said to hold a part of.
    pub(in crate::dirty) async fn ask_held(&self, node: NodeId, name: &ObjectName) -> Result<Page, Unheard> {
        let answer = self
            .messenger
            .say(node, &Request::Held { name: name.clone() })
            .await?;
        Ok(Page::read(&answer.into_body()).unwrap_or_default())
    }
}

/// Whether a node is to keep a manifest: as a home of its name, or for its blocks.
pub(in crate::dirty) fn takes_part(view: &View, manifest: &Manifest) -> bool {
    view.homes(manifest.version.object).contains(&view.me) || manifest.placement.nodes().contains(&view.me)
}

/// Everybody but this node who keeps a manifest: the homes of its name, and whoever holds a block.
fn participants(view: &View, manifest: &Manifest) -> Vec<NodeId> {
    let mut nodes = view.homes(manifest.version.object);
    nodes.extend_from_slice(manifest.placement.nodes());
    nodes.retain(|node| *node != view.me);
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

fn done() -> Answer {
    Answer::Done(Bytes::new())
}

/// The time, which grows also over restarts, in microseconds since 1970.
fn sequence(now: SystemTime) -> u64 {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH);
    since_1970.unwrap_or_default().as_micros() as u64
}
