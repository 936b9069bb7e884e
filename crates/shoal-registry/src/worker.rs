//! Processes the lists of a node, and of dead nodes that it acts for: flushes dirty objects when they are
//! due, gives up changes whose owner is gone, and removes empty entries and the bytes of objects that are no
//! longer dirty.
//!
//! The oldest objects are flushed first (dissertation 4.5.2, "Cleaning Dirty Objects"). Regardless of the
//! number of dirty objects, a node reads only the head of their list.

mod flushing;
mod held_head;
mod lake;
mod orphans;
mod removals;
mod rounds;
mod waiting_room;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use ulid::Ulid;

pub use self::flushing::Flushing;
use self::held_head::HeldHead;
pub use self::lake::{Lake, NotFlushed};
use self::orphans::Orphans;
pub use self::removals::REMOVALS_MAX;
use self::rounds::NextRounds;
pub use self::rounds::{Packing, ROUND_MAX};
use self::waiting_room::WaitingRoom;
use crate::changes::{ChangedObject, Changes, LakeChange};
use crate::engine::EngineError;
use crate::entry::Kind;
use crate::keys::{MapName, Name, NodeList};
use crate::moment::age_of;
use crate::names::{BeginError, Found, Listed};
use crate::roots::Roots;
use crate::uploads::Uploads;
use crate::version::{DirtyVersion, Trash};

/// Number of names on a page of a list.
const PAGE: usize = 256;

/// Number of items that are removed from a list at a time.
const UNLISTED_MAX: usize = 64;

/// Pause between two passes over the lists.
const TICK: Duration = Duration::from_millis(500);

/// Pause between two searches for dead nodes.
const LOOK_PAUSE: Duration = Duration::from_secs(3);

/// Pause before a failed flush is retried, doubled with every failure in a row.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(5);

/// How long all objects count as due after the tier had no room.
const FLUSH_NOW_TIME: Duration = Duration::from_secs(10);

/// The schedule of flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The age at which an object is due.
    pub age: Duration,
    /// The age at which an object that is expected to be short-lived is due.
    pub short_age: Duration,
    /// True if objects that a run still reads stay beyond these ages.
    pub holds: bool,
    /// The number of objects that are flushed in parallel.
    pub parallel: usize,
    /// The time without a new part after which an open upload expires.
    pub upload_age: Duration,
}

/// Processes the lists.
pub struct Worker<L> {
    uploads: Uploads,
    roots: Roots,
    changes: Arc<Changes>,
    lake: L,
    pace: Mutex<Pace>,
    hurried: Notify,
    /// Held for one tombstone after the other that somebody waits for: the first takes the others along.
    removal_turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until this time, every object is due.
    hurries_until: Option<Instant>,
    /// The last of the oldest objects of this node that stay although they are due.
    held_last: Option<Ulid>,
    /// The dead nodes that this node acts for.
    adopted: Vec<u64>,
    flushing: HashSet<Ulid>,
    /// The tombstones and objects that go to the lake together with others.
    together: HashSet<Ulid>,
    /// The number of requests about tombstones.
    removals: usize,
    /// The maps with a round in flight.
    rounds: HashSet<MapName>,
    /// The objects and tombstones whose last flush failed.
    failed: BTreeMap<Ulid, FailedFlush>,
}

impl State {
    /// Returns true if the flush of an object may begin.
    fn is_ready(&self, id: &Ulid) -> bool {
        let may_try = |failed: &FailedFlush| failed.retry_at <= Instant::now();
        let is_in_flight = self.flushing.contains(id) || self.together.contains(id);
        !is_in_flight && self.failed.get(id).is_none_or(may_try)
    }

    /// Returns true while every object is due.
    fn hurries(&self) -> bool {
        self.hurries_until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns the number of flushes that may begin if `parallel` may be in flight. Rounds do not count: each
    /// map has one.
    fn room(&self, parallel: usize) -> usize {
        parallel.saturating_sub(self.flushing.len() + self.removals)
    }
}

/// The progress on the lists of one node. Starts over when this node adopts the same node again.
#[derive(Default)]
struct Progress {
    held: HeldHead,
    held_short: HeldHead,
    orphans: Orphans,
    empty: WaitingRoom<Listed>,
    trash: WaitingRoom<Trash>,
    /// The last upload that was checked; `None` to start with the oldest.
    last_upload: Option<Ulid>,
}

/// An object or a tombstone whose last flush failed.
#[derive(Clone, Debug)]
pub struct FailedFlush {
    /// The name of the object.
    pub name: Name,
    /// True if it is a tombstone.
    pub is_tombstone: bool,
    /// The number of failures in a row.
    pub failures: u32,
    /// The last error.
    pub error: Arc<str>,
    /// True if retries will fail until an operator or a client intervenes.
    pub is_refused: bool,
    retry_at: Instant,
}

impl<L: Lake> Worker<L> {
    /// Creates the worker of the node that begins `changes`, with a pace that can be changed later.
    pub fn new(changes: Arc<Changes>, lake: L, pace: Pace) -> Arc<Self> {
        Arc::new(Self {
            uploads: Uploads::new(changes.names.clone()),
            roots: Roots::new(changes.names.clone(), Arc::clone(&changes.session)),
            changes,
            lake,
            pace: Mutex::new(pace),
            hurried: Notify::new(),
            removal_turn: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        })
    }

    /// The operations on the lake.
    pub fn lake(&self) -> &L {
        &self.lake
    }

    /// Works until dropped. Errors of the registry are reported to `trouble`, and the work continues.
    pub async fn run(self: Arc<Self>, trouble: impl Fn(&EngineError)) {
        let mut progress = HashMap::new();
        let mut next_look = Instant::now();
        loop {
            if Instant::now() >= next_look && self.changes.session.owner().is_some() {
                next_look = Instant::now() + LOOK_PAUSE;
                if let Err(error) = self.keep_adopting(&mut progress).await {
                    trouble(&error);
                }
            }
            if self.changes.session.owner().is_some() {
                self.flush_failed();
                let mut nodes = self.state.lock().adopted.clone();
                nodes.push(self.changes.names.node);
                for node in nodes {
                    if let Err(error) = self.work_for(node, progress.entry(node).or_default()).await {
                        trouble(&error);
                    }
                }
            }
            tokio::select! {
                () = sleep(TICK) => {}
                () = self.hurried.notified() => {}
            }
        }
    }

    /// Makes every object due for a while, because the tier has no room.
    pub fn hurry(&self) {
        self.state.lock().hurries_until = Some(Instant::now() + FLUSH_NOW_TIME);
        self.hurried.notify_one();
    }

    /// Changes the pace.
    pub fn set_pace(&self, pace: Pace) {
        *self.pace.lock() = pace;
        self.hurried.notify_one();
    }

    /// Returns the objects whose last flush failed, the oldest first. They are retried.
    pub fn failed(&self) -> Vec<FailedFlush> {
        self.state.lock().failed.values().cloned().collect()
    }

    /// Returns the last of the oldest objects of this node that are due, and stay because a run still reads
    /// them. They are not short-lived.
    pub fn held_last(&self) -> Option<Ulid> {
        self.state.lock().held_last
    }

    /// Returns the dead nodes that this node acts for.
    pub fn adopted(&self) -> Vec<u64> {
        self.state.lock().adopted.clone()
    }

    /// Flushes the object that is dirty under a name now, or waits while another change flushes it. If the
    /// lake does not accept it, it is retried later. Other tombstones go to the lake with a tombstone.
    ///
    /// # Errors
    ///
    /// The object is still dirty, or its state is unknown.
    pub async fn flush(&self, name: &Name) -> Result<(), NotFlushed> {
        let found = self.changes.names.find(name).await?;
        let Some(version) = found.entry.current.clone() else {
            return Ok(());
        };
        let flushed = if version.is_tombstone {
            self.flush_tombstone(name, version.id).await
        } else {
            self.flush_version(name, &version, found).await
        };
        self.note(version.id, name, version.is_tombstone, &flushed);
        flushed
    }

    async fn flush_version(
        &self,
        name: &Name,
        version: &DirtyVersion,
        found: Found,
    ) -> Result<(), NotFlushed> {
        let (of, mut known) = (ChangedObject::Exactly(Some(version.id)), Some(found));
        let change = loop {
            match self.changes.begin(name, Kind::Flush, of, known.take()).await {
                Ok(change) => break change,
                Err(BeginError::Changed) => return Ok(()),
                // Flushing a large object may take long.
                Err(BeginError::Busy(busy)) if busy.kind == Kind::Flush => {}
                Err(error) => return Err(error.into()),
            }
        };
        let flushed = self.lake.flush(name, version, &change).await;
        ended(change, flushed).await
    }

    /// Flushes every dirty object and tombstone in the lists of a node, due or not. Those that fail are
    /// recorded, and retried. Objects of a map with a round in flight are left out.
    pub async fn flush_all(self: &Arc<Self>, node: u64) {
        self.remove_all(node).await;
        for list in [NodeList::Dirty, NodeList::Short] {
            let listed = self.changes.names.all_listed(list, node);
            let mut chunks = pin!(listed.try_chunks(ROUND_MAX));
            // Objects that cannot be listed now are flushed when they are due.
            while let Ok(Some(listed)) = chunks.try_next().await {
                self.flush_chunk(listed).await;
            }
        }
    }

    /// Flushes listed objects, those of rules that pack in rounds.
    async fn flush_chunk(self: &Arc<Self>, listed: Vec<(Ulid, Name)>) {
        let parallel = self.pace.lock().parallel;
        let mut rounds: HashMap<MapName, Vec<_>> = HashMap::new();
        let mut alone = Vec::new();
        for (id, name) in listed {
            match self.lake.packing(&name) {
                None => alone.push((id, name)),
                Some(packing) => rounds.entry(packing.map).or_default().push((id, name)),
            }
        }
        let rounds = rounds.into_iter();
        let rounds = rounds.filter_map(|(map, listed)| self.begin_round(map, listed));
        let rounds: Vec<_> = rounds.collect();
        stream::iter(alone)
            .for_each_concurrent(parallel, |(id, name)| self.flush_listed(id, name))
            .await;
        join_all(rounds).await;
    }

    /// Adopts dead nodes, and releases those that are back or have nothing left.
    async fn keep_adopting(&self, progress: &mut HashMap<u64, Progress>) -> Result<(), EngineError> {
        for dead in self.adopted() {
            let membership = self.changes.session.membership(dead).await?;
            let is_over = if self.changes.session.acts_for(dead).await? {
                self.has_nothing(dead).await? && self.changes.session.release(dead, membership).await?
            } else {
                self.changes.session.step_down(dead).await?;
                true
            };
            if is_over {
                self.state.lock().adopted.retain(|node| *node != dead);
                progress.remove(&dead);
            }
        }
        for dead in self.changes.session.dead_nodes().await? {
            if dead != self.changes.names.node
                && !self.adopted().contains(&dead)
                && self.changes.session.adopt(dead).await?
            {
                self.state.lock().adopted.push(dead);
            }
        }
        Ok(())
    }

    async fn has_nothing(&self, node: u64) -> Result<bool, EngineError> {
        for list in NodeList::ALL {
            if self.changes.names.count(list, node).await? > 0 {
                return Ok(false);
            }
        }
        Ok(self.roots.abandoned(node).await?.is_empty())
    }

    async fn work_for(self: &Arc<Self>, node: u64, progress: &mut Progress) -> Result<(), EngineError> {
        self.give_up_orphans(node, &mut progress.orphans).await?;
        let mut pace = *self.pace.lock();
        if self.state.lock().hurries() {
            (pace.age, pace.short_age, pace.holds) = (Duration::ZERO, Duration::ZERO, false);
        }
        let held = pace.holds.then_some(&mut progress.held);
        self.flush_due(node, NodeList::Dirty, pace.age, held).await?;
        let held = pace.holds.then_some(&mut progress.held_short);
        self.flush_due(node, NodeList::Short, pace.short_age, held)
            .await?;
        if node == self.changes.names.node {
            self.state.lock().held_last = progress.held.last().filter(|_| pace.holds);
        }
        self.remove_due(node, pace.age).await?;
        self.remove_empty(node, &mut progress.empty).await?;
        self.end_old_uploads(node, &mut progress.last_upload).await?;
        self.discard_trash(node, &mut progress.trash).await
    }

    /// Starts to flush objects that are due, as many in parallel as the pace allows, and those of rules that
    /// pack in rounds. With `held`, those that a run still reads stay.
    async fn flush_due(
        self: &Arc<Self>,
        node: u64,
        list: NodeList,
        age: Duration,
        mut held: Option<&mut HeldHead>,
    ) -> Result<(), EngineError> {
        let parallel = self.pace.lock().parallel;
        let mut rounds = NextRounds::new(age, &self.state.lock());
        let after = held.as_mut().and_then(|held| held.begin_pass(Instant::now()));
        let mut listed = pin!(self.changes.names.listed_after(list, node, after));
        while !rounds.are_enough()
            && let Some((id, name)) = listed.try_next().await?
            && age_of(id) >= age
        {
            if let Some(held) = &mut held
                && held.has(id, self.lake.holds(id, &name))
            {
                continue;
            }
            let (is_ready, has_room) = {
                let state = self.state.lock();
                (state.is_ready(&id), state.room(parallel) > 0)
            };
            match self.lake.packing(&name) {
                // The rest of the list matters only to a round that begins now.
                None if !has_room && !rounds.are_ripe() => break,
                None if is_ready && has_room => self.begin_flush(id, name),
                Some(packing) if is_ready => rounds.add(packing, id, name),
                _ => {}
            }
        }
        self.begin_rounds(rounds);
        Ok(())
    }

    /// Retries failed flushes, due or not.
    fn flush_failed(self: &Arc<Self>) {
        let parallel = self.pace.lock().parallel;
        let (mut alone, mut tombstones) = (Vec::new(), Vec::new());
        let mut rounds: HashMap<MapName, Vec<_>> = HashMap::new();
        {
            let state = self.state.lock();
            for (id, failed) in state.failed.iter().filter(|(id, _)| state.is_ready(id)) {
                let (list, most) = match self.lake.packing(&failed.name) {
                    _ if failed.is_tombstone => (&mut tombstones, REMOVALS_MAX),
                    Some(packing) => (rounds.entry(packing.map).or_default(), ROUND_MAX),
                    None => (&mut alone, state.room(parallel)),
                };
                if list.len() < most {
                    list.push((*id, failed.name.clone()));
                }
            }
        }
        for (id, name) in alone {
            self.begin_flush(id, name);
        }
        for (map, listed) in rounds {
            self.begin_round(map, listed);
        }
        if !tombstones.is_empty() && self.state.lock().room(parallel) > 0 {
            self.begin_removals(tombstones);
        }
    }

    fn begin_flush(self: &Arc<Self>, id: Ulid, name: Name) {
        self.state.lock().flushing.insert(id);
        let this = Arc::clone(self);
        tokio::spawn(async move {
            this.flush_listed(id, name).await;
            this.state.lock().flushing.remove(&id);
            this.hurried.notify_one();
        });
    }

    /// Flushes a listed object, or the one that is dirty under its name now.
    async fn flush_listed(&self, id: Ulid, name: Name) {
        if self.flush(&name).await.is_ok() {
            self.state.lock().failed.remove(&id);
        }
    }

    /// Records if a flush failed.
    fn note(&self, id: Ulid, name: &Name, is_tombstone: bool, flushed: &Result<(), NotFlushed>) {
        let mut state = self.state.lock();
        let Err(error) = flushed else {
            state.failed.remove(&id);
            return;
        };
        let failures = state.failed.get(&id).map_or(0, |failed| failed.failures) + 1;
        let pause = PAUSE_MIN
            .saturating_mul(1 << (failures - 1).min(16))
            .min(PAUSE_MAX);
        let failed = FailedFlush {
            name: name.clone(),
            is_tombstone,
            failures,
            error: error.to_string().into(),
            is_refused: matches!(error, NotFlushed::Refused(_)),
            retry_at: Instant::now() + pause,
        };
        state.failed.insert(id, failed);
    }

    /// Removes entries that have been empty for at least the fence, so that no read from before still waits
    /// for the lake.
    async fn remove_empty(&self, node: u64, waiting: &mut WaitingRoom<Listed>) -> Result<(), EngineError> {
        let mut empty = std::mem::take(waiting);
        let page = self
            .changes
            .names
            .listed(NodeList::Empty, node, empty.cursor, PAGE);
        let listed = page.await?.names.into_iter();
        empty.add(listed.map(|entry| (entry.id, entry)).collect());
        while let Some((_, entry)) = empty.waited(self.changes.names.fence) {
            self.changes.names.remove_empty(&entry, node).await?;
        }
        *waiting = empty;
        Ok(())
    }

    /// Removes bytes that have been in the trash for at least the fence, so that no reader still uses them.
    async fn discard_trash(&self, node: u64, waiting: &mut WaitingRoom<Trash>) -> Result<(), EngineError> {
        let mut trash = std::mem::take(waiting);
        let listed = self.changes.names.trash(node, trash.cursor, PAGE).await?;
        trash.add(listed);
        let mut gone = Vec::new();
        while gone.len() < UNLISTED_MAX
            && let Some((id, item)) = trash.waited(self.changes.names.fence)
        {
            if self.discard(&item).await? {
                gone.push(id);
            }
        }
        if !gone.is_empty() {
            self.changes.names.unlist(NodeList::Trash, node, &gone).await?;
        }
        *waiting = trash;
        Ok(())
    }

    /// Removes bytes. Returns true if all are gone.
    async fn discard(&self, trash: &Trash) -> Result<bool, EngineError> {
        match trash {
            Trash::Data(keys) => Ok(self.discard_all(keys).await),
            Trash::Parts { upload, kept } => {
                let mut chunks = pin!(self.uploads.parts(*upload).try_chunks(UNLISTED_MAX));
                while let Some(parts) = chunks.try_next().await.map_err(|error| error.1)? {
                    for (number, part) in &parts {
                        let is_kept = kept.iter().any(|(first, last)| (first..=last).contains(&number));
                        if !is_kept && !self.discard_all(std::slice::from_ref(&part.data)).await {
                            return Ok(false);
                        }
                    }
                    let numbers = parts.iter().map(|(number, _)| *number);
                    self.uploads.forget_parts(*upload, numbers).await?;
                }
                Ok(true)
            }
        }
    }

    async fn discard_all(&self, keys: &[Arc<str>]) -> bool {
        for key in keys {
            if !self.lake.discard(key).await {
                return false;
            }
        }
        true
    }

    /// Ends uploads that clients have abandoned, and removes those that ended long ago. Checks one page after
    /// `last`, and starts over with the oldest after all old ones: each of them may still be in use.
    async fn end_old_uploads(&self, node: u64, last: &mut Option<Ulid>) -> Result<(), EngineError> {
        let lifetime = self.pace.lock().upload_age;
        let page = self
            .changes
            .names
            .listed(NodeList::Uploads, node, *last, PAGE)
            .await?;
        *last = page.next;
        for Listed { id, name, .. } in page.names {
            if age_of(id) < lifetime {
                *last = None;
                return Ok(());
            }
            self.uploads.expire(&name, id, node, lifetime).await?;
        }
        Ok(())
    }
}

/// Ends the change of a flush.
///
/// # Errors
///
/// The outcome itself, or the registry could not record that the flush is done.
pub async fn ended(change: LakeChange, flushed: Result<(), NotFlushed>) -> Result<(), NotFlushed> {
    match &flushed {
        Ok(()) => change.done().await.map_err(BeginError::from)?,
        // If this fails, the registry learns of it later.
        Err(NotFlushed::Lake(_) | NotFlushed::Refused(_)) => drop(change.refused().await),
        // The outcome is unknown: dropping the change leaves it open.
        Err(NotFlushed::Unknown(_) | NotFlushed::Begin(_)) => {}
    }
    flushed
}
