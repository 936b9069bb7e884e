//! The tasks of a cluster, as one of its nodes knows them: it accepts orders, answers for all tasks, and runs
//! those whose home it is.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use ulid::Ulid;

use super::book::{Book, Entry, first_pin, oldest_ended};
use super::figures::{TaskFigures, Totals};
use super::gathering::Gatherings;
use super::manifest;
use super::meter::Meter;
use super::order::{ManifestFacts, Order, Selection, TaskKind, TaskRequest};
use super::parts::TaskParts;
use super::progress::{ByteCounts, ObjectCounts, Progress, TaskState};
use super::records::new_id;
use super::refusal::TaskRefusal;
use super::runner::{Runner, now};
use super::unpinned::Unpinned;
use crate::bulletin::{Bulletin, Kind, NotTaken};
use crate::clock;
use crate::http::connection::ClientBody;
use crate::shutdown::Shutdown;

/// The number of tasks that a node runs at a time; others are queued.
const RUN_AT_ONCE: usize = 4;

/// The number of orders that are remembered. Each may come to have three records. Where room is needed, the
/// oldest that have ended are forgotten, this many at once; while none has, orders are refused.
const ORDERS_MAX: usize = 10_000;
const FORGOTTEN_AT_ONCE: usize = 500;

/// The number of orders up to which announcements become tasks. People have the rest.
const ANNOUNCED_MAX: usize = 8_000;

/// How often a node writes how far its tasks are.
const REPORT: Duration = Duration::from_secs(1);

/// The pause before a task is begun for whose progress there was no room.
const FULL_PAUSE: Duration = Duration::from_secs(30);

/// A list without an order is kept for this time: a node may still be accepting the order.
const ORDER_PATIENCE: Duration = Duration::from_mins(10);

/// The tasks of the cluster.
pub struct Tasks {
    parts: Arc<TaskParts>,
    book: Book,
    running: Mutex<BTreeSet<u128>>,
    gatherings: tokio::sync::Mutex<Gatherings>,
    totals: Mutex<Totals>,
}

/// A task that this node runs.
struct Run {
    id: u128,
    order: Arc<Order>,
    progress: Arc<Mutex<Progress>>,
    /// Counts of the task that the totals include already.
    counted: Mutex<(ObjectCounts, ByteCounts)>,
}

/// The tasks that an operator asks about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskListPart {
    /// Only those in this state.
    pub state: Option<TaskState>,
    /// Only those before the one with this id.
    pub before: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// A part of the tasks, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskList {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// The id before which the next part begins; `None`: this one is the last.
    #[serde(default)]
    pub next: Option<String>,
}

/// A task as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Names it.
    pub id: String,
    /// The order, as a node accepted it.
    #[serde(flatten)]
    pub order: Order,
    /// How far it is.
    #[serde(flatten)]
    pub progress: Progress,
}

impl Tasks {
    /// The tasks that `bulletin` knows.
    pub fn new(parts: &Arc<TaskParts>, bulletin: &Arc<Bulletin>) -> Arc<Self> {
        Arc::new(Self {
            parts: Arc::clone(parts),
            book: Book::new(bulletin, &parts.cooperation),
            running: Mutex::default(),
            gatherings: tokio::sync::Mutex::default(),
            totals: Mutex::default(),
        })
    }

    /// Takes an order about the objects of its URI.
    ///
    /// # Errors
    ///
    /// Says why it is not taken.
    pub fn post(&self, request: TaskRequest) -> Result<Task, TaskRefusal> {
        let now = clock::utc_now();
        let request = self.checked(request, false, now)?;
        let (id, order) = (self.book.next_id(now), self.order_of(request, None, now));
        self.accept(id, &order, ORDERS_MAX)
    }

    /// Takes an order about the objects of a list that an operator sends, one URI a line.
    ///
    /// # Errors
    ///
    /// Says why it is not taken.
    pub async fn post_list(&self, request: TaskRequest, list: ClientBody) -> Result<Task, TaskRefusal> {
        let now = clock::utc_now();
        let request = self.checked(request, true, now)?;
        let id = self.book.next_id(now);
        let (objects, bytes) = self.parts.manifests.receive(id, list).await?;
        let order = self.order_of(request, Some(ManifestFacts { objects, bytes }), now);
        self.accept(id, &order, ORDERS_MAX)
    }

    /// Takes an order about the objects that a document of S3 announces. The announcements of a moment become
    /// one task. There is none if all objects were removed.
    ///
    /// # Errors
    ///
    /// Says why it is not taken.
    pub async fn post_notification(
        &self,
        request: TaskRequest,
        document: &[u8],
    ) -> Result<Option<Task>, TaskRefusal> {
        let now = clock::utc_now();
        let request = self.checked(request, true, now)?;
        let (lines, objects) = manifest::of_notification(document)?;
        if objects == 0 {
            return Ok(None);
        }
        let mut gatherings = self.gatherings.lock().await;
        self.end_gatherings(&mut gatherings);
        if let Some(open) = gatherings.of(&request) {
            let bytes = self.parts.manifests.append(open.id, &lines).await?;
            let objects = open.objects() + objects;
            open.note(ManifestFacts { objects, bytes });
            self.book.write(open.id, &open.order)?;
            return Ok(Some(self.entry(open.id)?.to_task(now)));
        }
        self.make_room(ANNOUNCED_MAX)?;
        let id = self.book.next_id(now);
        let bytes = self.parts.manifests.take(id, lines).await?;
        let facts = ManifestFacts { objects, bytes };
        let order = Order {
            gathers: true,
            ..self.order_of(request, Some(facts), now)
        };
        let task = self.accept(id, &order, ANNOUNCED_MAX)?;
        gatherings.begin(id, order, clock::instant());
        Ok(Some(task))
    }

    /// Begins the tasks whose announcements were gathered for long enough.
    fn end_gatherings(&self, gatherings: &mut Gatherings) {
        for (id, order) in gatherings.end(clock::instant(), |id| self.book.is_cancelled(id)) {
            // Otherwise all nodes take the list for complete some time later.
            let _ = self.book.write(id, &order);
        }
    }

    /// Begins what this node gathered before it began again: each list is as long as it became.
    fn begin_gathered_before(&self) {
        for entry in self.book.all() {
            if !entry.order.gathers || entry.order.accepted_by != self.parts.name {
                continue;
            }
            let mut order = Order::clone(&entry.order);
            order.gathers = false;
            if let (Some(facts), Some(bytes)) = (&mut order.manifest, self.parts.manifests.size(entry.id)) {
                facts.bytes = bytes;
            }
            let _ = self.book.write(entry.id, &order);
        }
    }

    /// Checks a request, and names its identity.
    fn checked(
        &self,
        mut request: TaskRequest,
        has_manifest: bool,
        now: SystemTime,
    ) -> Result<TaskRequest, TaskRefusal> {
        request.check(has_manifest, now)?;
        request.identity = self.parts.identity(request.identity.as_deref())?;
        if let Some(place) = &request.to
            && self.parts.cooperation.ring_at(Some(place)).is_none()
        {
            return Err(TaskRefusal::NoNode(place.clone()));
        }
        Ok(request)
    }

    /// The order that this node gives for a request.
    fn order_of(&self, request: TaskRequest, manifest: Option<ManifestFacts>, created: SystemTime) -> Order {
        let created_here = (created.into(), &*self.parts.name);
        if request.kind != TaskKind::Unpin {
            return Order::accepted(request, manifest, created_here, None);
        }
        // Pins that were ended do not come back before the end of the order that set them.
        let entries = self.book.all();
        let pins = entries.iter().filter(|entry| entry.order.pins(created));
        let last_end = pins.filter_map(|entry| entry.order.request.until).max();
        Order::accepted(request, manifest, created_here, last_end)
    }

    /// Takes an order, if there is room for another among `orders_max`.
    fn accept(&self, id: u128, order: &Order, orders_max: usize) -> Result<Task, TaskRefusal> {
        self.make_room(orders_max)?;
        self.book.write(id, order)?;
        self.entry(id).map(|entry| entry.to_task(order.created.time()))
    }

    /// Makes room for another order among `orders_max`: the oldest that have ended are forgotten.
    fn make_room(&self, orders_max: usize) -> Result<(), NotTaken> {
        let bulletin = self.book.bulletin();
        while !bulletin.has_room(orders_max) {
            let (ids, entries) = (bulletin.ids(Kind::is_order), self.book.all());
            let (before, now) = (bulletin.floor(), clock::utc_now());
            let floor = oldest_ended((&entries, &ids), &before, FORGOTTEN_AT_ONCE, now);
            bulletin.forget(&floor.ok_or(NotTaken::Full)?)?;
        }
        Ok(())
    }

    /// A part of the tasks, the latest first.
    ///
    /// # Errors
    ///
    /// Fails if `before` is no id.
    pub fn list(&self, part: &TaskListPart) -> Result<TaskList, TaskRefusal> {
        let before = match &part.before {
            Some(id) => Some(number(id)?),
            None => None,
        };
        let is_wanted = |entry: &Entry| {
            before.is_none_or(|before| entry.id < before)
                && part.state.is_none_or(|state| state == entry.progress.state)
        };
        let (now, mut entries) = (clock::utc_now(), self.book.all());
        entries.retain(is_wanted);
        let left = entries.len().saturating_sub(part.limit);
        let shown = entries[left..].iter().rev();
        let tasks: Vec<_> = shown.map(|entry| entry.to_task(now)).collect();
        let next = tasks.last().filter(|_| left > 0).map(|task| task.id.clone());
        Ok(TaskList { tasks, next })
    }

    /// The task with this id.
    ///
    /// # Errors
    ///
    /// Fails if there is none.
    pub fn get(&self, id: &str) -> Result<Task, TaskRefusal> {
        Ok(self.entry(number(id)?)?.to_task(clock::utc_now()))
    }

    fn entry(&self, id: u128) -> Result<Entry, TaskRefusal> {
        self.book.get(id).ok_or(TaskRefusal::NoTask)
    }

    /// Ends a task before its end.
    ///
    /// # Errors
    ///
    /// Fails if there is no such task, or if it is over.
    pub fn cancel(&self, id: &str) -> Result<Task, TaskRefusal> {
        let entry = self.entry(number(id)?)?;
        if !entry.is_live(clock::utc_now()) {
            return Err(TaskRefusal::Over);
        }
        self.book.end_early(entry.id, &entry.order)?;
        self.get(id)
    }

    /// Runs the tasks whose home this node is, until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        self.begin_gathered_before();
        let mut changes = self.book.changes();
        let mut runs = JoinSet::new();
        loop {
            self.end_cancelled_pins().await;
            self.end_gatherings(&mut *self.gatherings.lock().await);
            self.keep_lists().await;
            self.begin_due(&mut runs, &stopping);
            tokio::select! {
                _ = changes.changed() => {}
                Some(_) = runs.join_next(), if !runs.is_empty() => {}
                () = tokio::time::sleep(REPORT) => {}
                () = stopping.begun() => break,
            }
        }
        // Each of them has written how far it is.
        while runs.join_next().await.is_some() {}
    }

    /// Begins the tasks that this node is to run and does not run yet, the oldest first.
    fn begin_due(self: &Arc<Self>, runs: &mut JoinSet<()>, stopping: &Shutdown) {
        if !self.book.may_know_all() {
            return;
        }
        let (now, members) = (clock::utc_now(), self.book.members());
        for entry in self.book.all() {
            let mut running = self.running.lock();
            if running.len() >= RUN_AT_ONCE {
                return;
            }
            let id = entry.id;
            if running.contains(&id) || !entry.is_due(now, members) || !self.book.is_mine(id) {
                continue;
            }
            // It may have run to its end since the tasks were listed. A run that is no longer among these has
            // written how it ended.
            let Some(entry) = self.book.get(id).filter(|entry| entry.is_due(now, members)) else {
                continue;
            };
            running.insert(id);
            let (this, stopping) = (Arc::clone(self), stopping.clone());
            runs.spawn(async move {
                Box::pin(this.run_one(entry, stopping)).await;
                this.running.lock().remove(&id);
            });
        }
    }

    /// Copies the lists of tasks that this node may have to run, and removes those of tasks that are over.
    async fn keep_lists(&self) {
        let here = self.parts.manifests.ids();
        let (now, entries) = (clock::utc_now(), self.book.all());
        let receiving = new_id(now - ORDER_PATIENCE);
        let first_pin = first_pin(&entries, now);
        for id in &here {
            let entry = entries.binary_search_by_key(id, |entry| entry.id);
            if !entry.map_or(*id > receiving, |place| entries[place].is_wanted(now, first_pin)) {
                self.parts.manifests.remove(*id).await;
            }
        }
        for entry in &entries {
            let Some(manifest) = &entry.order.manifest else {
                continue;
            };
            if !here.contains(&entry.id)
                && !entry.gathers(now)
                && entry.is_wanted(now, first_pin)
                && self.book.may_run(entry.id)
                && let Err(why) = self.parts.manifest(entry.id, manifest).await
            {
                tracing::debug!(id = %Ulid(entry.id), why, "the list of a task was not copied");
            }
        }
    }

    /// Ends the pins here of orders that were cancelled.
    async fn end_cancelled_pins(&self) {
        for order in self.parts.store.pin_orders() {
            if self.book.is_cancelled(order.0) {
                self.parts.store.end_pins(order).await;
            }
        }
    }

    /// Cancels the pin orders all of whose objects this order unpins.
    fn end_covered_pins(&self, order: &Order) -> Result<(), NotTaken> {
        let Some(unpinned) = order.selection() else {
            return Ok(());
        };
        let now = clock::utc_now();
        for entry in self.book.all() {
            let (pinning, is_covered) = (&entry.order, |pinned: Selection| unpinned.covers(&pinned));
            if pinning.pins(now)
                && pinning.created <= order.created
                && pinning.selection().is_some_and(is_covered)
                && entry.progress.state != TaskState::Cancelled
            {
                self.book.end_early(entry.id, &entry.order)?;
            }
        }
        Ok(())
    }

    /// Runs one task until it is over, or is no longer this node's.
    async fn run_one(&self, entry: Entry, stopping: Shutdown) {
        let run = self.begin(entry);
        let (id, order) = (run.id, &run.order);
        let started = run.progress.lock().started.unwrap_or_else(now);
        if self.report(&run) == Err(NotTaken::Full) {
            // Nothing would remember how far it is, and it would begin anew again and again.
            tokio::select! {
                () = tokio::time::sleep(FULL_PAUSE) => return,
                () = stopping.begun() => return,
            }
        }
        let caller = match self.parts.caller(order.request.identity.as_deref()) {
            Ok(caller) => caller,
            Err(why) => return self.end(&run, TaskState::Failed, Some(&why)),
        };
        if order.request.kind == TaskKind::Unpin
            && let Err(error) = self.end_covered_pins(order)
        {
            return self.end(&run, TaskState::Failed, Some(&error.to_string()));
        }
        let runner = Runner::new(&self.parts, (id, Arc::clone(order)), caller, &run.progress);
        let runner = runner.leaving_out(Unpinned::since(&self.book, &self.parts, id));
        let mut changes = self.book.changes();
        let mut meter = Meter::new(&run.progress);
        let mut working = std::pin::pin!(runner.run());
        let (state, why) = loop {
            tokio::select! {
                ended = &mut working => break ended,
                _ = changes.changed() => {}
                () = tokio::time::sleep(REPORT) => {
                    meter.measure(&run.progress, |speed| runner.is_at_risk(speed));
                    let _ = self.report(&run);
                }
                () = stopping.begun() => {
                    let _ = self.report(&run);
                    return;
                }
            }
            if self.book.is_cancelled(id) {
                break (TaskState::Cancelled, None);
            }
            if !self.book.is_mine(id) {
                return;
            }
            let now = clock::utc_now();
            if order.ends(started).after(now).is_zero() {
                let is_unpinned = order.request.kind == TaskKind::Pin && !order.pins(now);
                let why = if is_unpinned {
                    "its pins ended before all objects were there"
                } else {
                    "it took too long and was given up"
                };
                break (TaskState::Failed, Some(why.into()));
            }
        };
        self.end(&run, state, why.as_deref());
    }

    /// Begins a task, or goes on with it.
    fn begin(&self, entry: Entry) -> Run {
        let mut progress = if entry.progress.state.is_over() {
            Progress::default()
        } else {
            Arc::unwrap_or_clone(entry.progress)
        };
        progress.state = TaskState::Running;
        progress.runner = Some(self.parts.name.clone());
        progress.started.get_or_insert_with(now);
        progress.go_back();
        progress.members = Some(self.book.members().0);
        Run {
            id: entry.id,
            order: entry.order,
            counted: Mutex::new((progress.tally.objects, progress.tally.bytes)),
            progress: Arc::new(Mutex::new(progress)),
        }
    }

    fn end(&self, run: &Run, state: TaskState, why: Option<&str>) {
        run.progress.lock().end(state, why, now());
        let _ = self.report(run);
        let (id, kind) = (Ulid(run.id), run.order.request.kind);
        let place = TaskState::ALL.iter().position(|known| *known == state);
        self.totals.lock()[place_of(kind)].ended[place.expect("it is a state")] += 1;
        tracing::info!(%id, kind = kind.as_str(), state = state.as_str(), why, "a task has ended");
    }

    /// Writes how far a task is, and counts what has been done since the last time. A failure is in the log.
    fn report(&self, run: &Run) -> Result<(), NotTaken> {
        let progress = run.progress.lock().clone();
        let now = (progress.tally.objects, progress.tally.bytes);
        let before = std::mem::replace(&mut *run.counted.lock(), now);
        self.totals.lock()[place_of(run.order.request.kind)].add((&now.0, &now.1), (&before.0, &before.1));
        let body = serde_json::to_vec(&progress).expect("progress is JSON");
        self.book.report(run.id, &run.order, body)
    }

    /// States of the cluster's tasks, and the counters of this node.
    pub fn figures(&self) -> TaskFigures {
        let (records, record_bytes) = self.book.bulletin().size();
        let entries = self.book.all();
        let in_state = |state| {
            entries
                .iter()
                .filter(|entry| entry.progress.state == state)
                .count() as u64
        };
        let now = clock::utc_now();
        let at_risk = entries.iter().filter(|entry| entry.is_at_risk(now));
        TaskFigures {
            states: TaskState::ALL.map(in_state),
            at_risk: at_risk.count() as u64,
            running_here: self.running.lock().len() as u64,
            totals: *self.totals.lock(),
            records: records as u64,
            record_bytes: record_bytes as u64,
        }
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

fn place_of(kind: TaskKind) -> usize {
    let place = TaskKind::ALL.iter().position(|known| *known == kind);
    place.expect("it is a kind")
}

/// The number that an id stands for.
fn number(id: &str) -> Result<u128, TaskRefusal> {
    Ulid::from_str(id).map(|id| id.0).map_err(|_| TaskRefusal::NoTask)
}
