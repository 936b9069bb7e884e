//! Processes the lists of a node, and of dead nodes that it acts for: flushes dirty objects when they are
//! due, gives up changes whose owner is gone, and removes empty entries and the bytes of objects that are no
//! longer dirty.
//!
//! The oldest objects are flushed first (dissertation 4.5.2, "Cleaning Dirty Objects"). Regardless of the
//! number of dirty objects, a node reads only the head of their list.

mod removals;
mod waiting_room;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use ulid::Ulid;

pub use self::removals::{REMOVALS_MAX, Removal};
use self::waiting_room::WaitingRoom;
use crate::changes::{ChangedObject, Changes, LakeChange};
use crate::engine::EngineError;
use crate::entry::Kind;
use crate::keys::{Name, NodeList};
use crate::moment::age_of;
use crate::names::{BeginError, BegunChange, ChangeError, End, Found, Listed};
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

/// The operations of a node on the lake and on the tier's store that the worker needs.
pub trait Lake: Send + Sync + 'static {
    /// Writes a dirty object to the lake. The implementation must check [`LakeChange::permit`] at the point
    /// where the bytes of each request leave the process.
    ///
    /// # Errors
    ///
    /// [`NotFlushed::Lake`] or [`NotFlushed::Refused`] only if the lake will certainly not have the object.
    fn flush(
        &self,
        name: &Name,
        version: &DirtyVersion,
        change: &LakeChange,
    ) -> impl Future<Output = Result<(), NotFlushed>> + Send;

    /// Removes the names of tombstones, at most [`REMOVALS_MAX`], at the lake. Returns the outcome of each,
    /// in their order; the permission of each change is checked as for a flush.
    fn remove(&self, removals: &[Removal]) -> impl Future<Output = Vec<Result<(), NotFlushed>>> + Send;

    /// Removes the bytes under a key of the tier's store. Returns true if they are gone.
    fn discard(&self, key: &str) -> impl Future<Output = bool> + Send;
}

/// The object is still dirty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFlushed {
    /// The flush could not begin in the registry.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The lake does not have the object, and will not.
    #[error("{0}")]
    Lake(Arc<str>),
    /// The lake refuses the object, and will until an operator or a client intervenes.
    #[error("{0}")]
    Refused(Arc<str>),
    /// The lake did not answer, and may have the object or still get it.
    #[error("{0}")]
    Unknown(Arc<str>),
}

impl From<EngineError> for NotFlushed {
    fn from(error: EngineError) -> Self {
        Self::Begin(error.into())
    }
}

/// The schedule of flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The age at which an object is due.
    pub age: Duration,
    /// The age at which an object that is expected to be short-lived is due.
    pub short_age: Duration,
    /// The number of objects that are flushed in parallel.
    pub parallel: usize,
    /// The time without a new part after which an open upload expires.
    pub upload_age: Duration,
}

/// Processes the lists.
pub struct Worker<L> {
    uploads: Uploads,
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
    /// The dead nodes that this node acts for.
    adopted: Vec<u64>,
    flushing: HashSet<Ulid>,
    /// The tombstones in requests of this node.
    removing: HashSet<Ulid>,
    /// The number of these requests.
    removals: usize,
    /// The objects and tombstones whose last flush failed.
    failed: BTreeMap<Ulid, FailedFlush>,
}

impl State {
    /// Returns true if the flush of an object may begin.
    fn is_ready(&self, id: &Ulid) -> bool {
        let may_try = |failed: &FailedFlush| failed.retry_at <= Instant::now();
        let is_in_flight = self.flushing.contains(id) || self.removing.contains(id);
        !is_in_flight && self.failed.get(id).is_none_or(may_try)
    }

    /// Returns the number of flushes that may begin if `parallel` may be in flight.
    fn room(&self, parallel: usize) -> usize {
        parallel.saturating_sub(self.flushing.len() + self.removals)
    }
}

/// The progress on the lists of one node. Starts over when this node adopts the same node again.
#[derive(Default)]
struct Progress {
    /// When this node first saw each change whose owner is gone.
    orphans: HashMap<Ulid, Instant>,
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
            changes,
            lake,
            pace: Mutex::new(pace),
            hurried: Notify::new(),
            removal_turn: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        })
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
    /// recorded, and retried.
    pub async fn flush_all(&self, node: u64) {
        self.remove_all(node).await;
        for list in [NodeList::Dirty, NodeList::Short] {
            let mut after = None;
            // Objects that cannot be listed now are flushed when they are due.
            while let Ok(page) = self.changes.names.listed(list, node, after, PAGE).await {
                let parallel = self.pace.lock().parallel;
                stream::iter(page.names)
                    .for_each_concurrent(parallel, |listed| self.flush_listed(listed.id, listed.name))
                    .await;
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
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
        Ok(true)
    }

    async fn work_for(self: &Arc<Self>, node: u64, progress: &mut Progress) -> Result<(), EngineError> {
        self.give_up_orphans(node, &mut progress.orphans).await?;
        let mut pace = *self.pace.lock();
        let hurries_until = self.state.lock().hurries_until;
        if hurries_until.is_some_and(|until| Instant::now() < until) {
            (pace.age, pace.short_age) = (Duration::ZERO, Duration::ZERO);
        }
        self.flush_due(node, NodeList::Dirty, pace.age).await?;
        self.flush_due(node, NodeList::Short, pace.short_age).await?;
        self.remove_due(node, pace.age).await?;
        self.remove_empty(node, &mut progress.empty).await?;
        self.end_old_uploads(node, &mut progress.last_upload).await?;
        self.discard_trash(node, &mut progress.trash).await
    }

    /// Gives up changes of an earlier life, and of dead nodes, once the lake can no longer carry them out.
    async fn give_up_orphans(
        &self,
        node: u64,
        first_seen: &mut HashMap<Ulid, Instant>,
    ) -> Result<(), EngineError> {
        let orphans = self.changes.names.all_listed(NodeList::Busy, node);
        let orphans: Vec<_> = orphans.try_collect().await?;
        // Checked after the list was read: if the other node is still dead, so are the owners of all these
        // changes.
        if node != self.changes.names.node
            && !orphans.is_empty()
            && !self.changes.session.acts_for(node).await?
        {
            // A node that is back gives up the changes of its earlier lives itself.
            first_seen.clear();
            return Ok(());
        }
        first_seen.retain(|token, _| orphans.iter().any(|(listed, _)| listed == token));
        // An earlier life that this node has taken over may send until its session would have ended by its
        // own clock.
        let earlier_lasts_until = (node == self.changes.names.node)
            .then(|| self.changes.session.earlier_lasts_until())
            .flatten();
        for (token, name) in orphans {
            if self.changes.is_under_way(token) {
                continue;
            }
            let now = Instant::now();
            let first_seen = first_seen.entry(token).or_insert(now);
            let since = earlier_lasts_until.map_or(*first_seen, |until| until.max(*first_seen));
            if now.saturating_duration_since(since) < self.changes.names.fence {
                continue;
            }
            let found = self.changes.names.find(&name).await?;
            match BegunChange::in_entry(&name, &found, token) {
                Some(begun) => match self.changes.names.end(&begun, End::GivenUp, || true).await {
                    Err(ChangeError::Engine(error)) => return Err(error),
                    Ok(_) | Err(ChangeError::OutcomeUnknown | ChangeError::Contended) => {}
                },
                None => self.changes.names.unlist(NodeList::Busy, node, &[token]).await?,
            }
        }
        Ok(())
    }

    /// Starts to flush objects that are due, as many in parallel as the pace allows.
    async fn flush_due(
        self: &Arc<Self>,
        node: u64,
        list: NodeList,
        age: Duration,
    ) -> Result<(), EngineError> {
        let parallel = self.pace.lock().parallel;
        let mut listed = pin!(self.changes.names.all_listed(list, node));
        while let Some((id, name)) = listed.try_next().await? {
            let is_all = self.state.lock().room(parallel) == 0 || age_of(id) < age;
            if is_all {
                return Ok(());
            }
            if self.state.lock().is_ready(&id) {
                self.begin_flush(id, name);
            }
        }
        Ok(())
    }

    /// Retries failed flushes, due or not.
    fn flush_failed(self: &Arc<Self>) {
        let parallel = self.pace.lock().parallel;
        let failed = |is_tombstone, most| -> Vec<_> {
            let state = self.state.lock();
            let of_kind = state
                .failed
                .iter()
                .filter(|(_, failed)| failed.is_tombstone == is_tombstone);
            let ready = of_kind.filter(|(id, _)| state.is_ready(id));
            let ready = ready.map(|(id, failed)| (*id, failed.name.clone()));
            ready.take(most).collect()
        };
        let room = self.state.lock().room(parallel);
        for (id, name) in failed(false, room) {
            self.begin_flush(id, name);
        }
        let tombstones = failed(true, REMOVALS_MAX);
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
async fn ended(change: LakeChange, flushed: Result<(), NotFlushed>) -> Result<(), NotFlushed> {
    match &flushed {
        Ok(()) => change.done().await.map_err(BeginError::from)?,
        // If this fails, the registry learns of it later.
        Err(NotFlushed::Lake(_) | NotFlushed::Refused(_)) => drop(change.refused().await),
        // The outcome is unknown: dropping the change leaves it open.
        Err(NotFlushed::Unknown(_) | NotFlushed::Begin(_)) => {}
    }
    flushed
}
