//! The tasks of a cluster, at one of its nodes: it accepts orders, answers for all tasks, and runs those
//! whose home it is.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_net::clock;
use shoal_net::http::connection::ClientBody;
use shoal_net::shutdown::Shutdown;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use ulid::Ulid;

use super::gathering::Gatherings;
use super::parts::TaskParts;
use super::parts::helper::TaskHelper;
use super::parts::manifest;
use super::parts::nodes::Nodes;
use super::plan::{self, PlanConfig, Plans};
use super::records::entry::{Entries, Entry, Task, first_pin, oldest_ended};
use super::records::files::{DocumentFacts, ManifestFacts};
use super::records::order::{Order, TaskKind, TaskRequest};
use super::records::progress::TaskState;
use super::records::{Records, new_id};
use super::refusal::TaskRefusal;
use super::run::figures::{PlanFigures, TaskFigures};
use super::run::{HintLimits, Run, TaskBase};
use crate::bulletin::{Bulletin, Kind, NotTaken};

/// Tasks that wait for each other's places, and not for those of other lanes: a hint is of no use after a
/// long order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Orders,
    Hints,
    Plans,
}

impl Lane {
    const fn of(kind: TaskKind) -> Self {
        match kind {
            TaskKind::Plan => Self::Plans,
            TaskKind::Hint => Self::Hints,
            _ => Self::Orders,
        }
    }

    /// Returns the number of tasks that a node runs at a time; others are queued. A plan that was replaced
    /// ends before its successor begins.
    const fn places(self) -> usize {
        match self {
            Self::Orders | Self::Hints => 4,
            Self::Plans => 1,
        }
    }
}

/// The number of orders that are remembered. Each may come to have three records. Where room is needed, the
/// oldest that have ended are forgotten, this many at once; while none has, orders are refused.
pub(super) const ORDERS_MAX: usize = 10_000;
const FORGOTTEN_AT_ONCE: usize = 500;

/// The number of orders up to which announcements and hints become tasks. People have the rest.
pub(super) const ANNOUNCED_MAX: usize = 8_000;

/// The interval at which a node looks for tasks to run.
const LOOK: Duration = Duration::from_secs(1);

/// The time for which the pins of a plan hold on after another one has taken its place: the coordinator of
/// that one sets its own within some seconds.
const PINS_OVERLAP: Duration = Duration::from_secs(15);

/// A list without an order is kept for this time: a node may still be accepting the order.
const ORDER_PATIENCE: Duration = Duration::from_mins(10);

/// The tasks of the cluster.
pub struct Tasks {
    pub(super) base: TaskBase,
    /// The tasks that this node runs.
    running: Mutex<BTreeMap<u128, TaskKind>>,
    gatherings: tokio::sync::Mutex<Gatherings>,
    /// Plans are accepted one at a time, so that each refers to the one before.
    succession: Mutex<()>,
}

/// The tasks that an operator asks about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskListPart {
    /// The state of the tasks; `None` for any.
    pub state: Option<TaskState>,
    /// The id before which the tasks are; `None` for any.
    pub before: Option<String>,
    /// Maximum number of tasks.
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

impl Tasks {
    /// Creates the tasks that `bulletin` has.
    pub fn new(
        helper: &Arc<TaskHelper>,
        bulletin: &Arc<Bulletin>,
        config: &PlanConfig,
        hints: HintLimits,
    ) -> Arc<Self> {
        let nodes = Nodes::new(helper);
        Arc::new(Self {
            base: TaskBase {
                records: Records::new(bulletin, &nodes.parts.cache().cooperation),
                plans: Plans::new(&nodes, config),
                hints,
                table_turn: Semaphore::new(1),
                nodes,
                totals: Mutex::default(),
            },
            running: Mutex::default(),
            gatherings: tokio::sync::Mutex::default(),
            succession: Mutex::default(),
        })
    }

    pub(super) fn parts(&self) -> &TaskParts {
        &self.base.nodes.parts
    }

    /// Accepts an order about the objects of its URI.
    ///
    /// # Errors
    ///
    /// Fails if the order is not accepted, with the reason.
    pub fn post(&self, request: TaskRequest) -> Result<Task, TaskRefusal> {
        let now = clock::utc_now();
        let request = self.checked(request, false, now)?;
        let (id, order) = (self.base.records.next_id(now), self.order_of(request, None, now));
        self.accept(id, &order, ORDERS_MAX)
    }

    /// Accepts an order about the objects of a list that an operator sends, one URI a line.
    ///
    /// # Errors
    ///
    /// Fails if the order is not accepted, with the reason.
    pub async fn post_list(&self, request: TaskRequest, list: ClientBody) -> Result<Task, TaskRefusal> {
        let now = clock::utc_now();
        let request = self.checked(request, true, now)?;
        let id = self.base.records.next_id(now);
        let facts = self.parts().order_files.receive(id, list).await?;
        let order = self.order_of(request, Some(facts), now);
        self.accept(id, &order, ORDERS_MAX)
    }

    /// Accepts an order about the objects that a document of S3 announces. The announcements of a moment
    /// become one task. Returns `None` if all objects were removed.
    ///
    /// # Errors
    ///
    /// Fails if the order is not accepted, with the reason.
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
            let bytes = self.parts().order_files.append(open.id, lines).await?;
            let objects = open.objects() + objects;
            open.order.manifest = Some(ManifestFacts { objects, bytes });
            self.base.records.write(open.id, &open.order)?;
            return Ok(Some(self.entry(open.id)?.to_task(now)));
        }
        self.make_room(ANNOUNCED_MAX)?;
        let id = self.base.records.next_id(now);
        let bytes = self.parts().order_files.take(id, lines).await?;
        let facts = ManifestFacts { objects, bytes };
        let order = Order {
            gathers: true,
            ..self.order_of(request, Some(facts), now)
        };
        let task = self.accept(id, &order, ANNOUNCED_MAX)?;
        gatherings.begin(id, order, clock::instant());
        Ok(Some(task))
    }

    /// Accepts a plan in the name of an identity, in place of the plan in force if there is one.
    ///
    /// # Errors
    ///
    /// Fails if the order is not accepted, with the reason.
    pub async fn post_plan(&self, document: ClientBody, identity: Option<&str>) -> Result<Task, TaskRefusal> {
        let identity = self.parts().identity(identity)?;
        let now = clock::utc_now();
        let (file, facts) = self.base.plans.receive(document, now).await?;
        self.base.records.catch_up().await;
        self.make_room(ORDERS_MAX)?;
        let id = self.base.records.next_id(now);
        let kept = self.parts().order_files.keep(id, file).await;
        kept.map_err(plan::not_kept)?;
        self.put_in_force(id, facts, identity, now)
    }

    /// Accepts the plan of a document that is on this disk, in place of the plan in force if there is one.
    pub(super) fn put_in_force(
        &self,
        id: u128,
        mut facts: DocumentFacts,
        identity: Option<String>,
        now: SystemTime,
    ) -> Result<Task, TaskRefusal> {
        let _turn = self.succession.lock();
        let former = self.base.records.latest_plan();
        let succession = former.as_ref().and_then(Entry::succession);
        facts.succession = succession.map_or(0, |former| former.saturating_add(1));
        let replaced = former.filter(|former| !former.progress.state.is_over());
        facts.replaces = replaced.map(|former| Ulid(former.id).to_string());
        let order = Order::of_plan(identity, facts, now.into(), &self.parts().name);
        let plan = self.accept(id, &order, ORDERS_MAX)?;
        self.end_replaced_plans();
        Ok(plan)
    }

    /// Begins the tasks whose announcements were gathered for long enough.
    fn end_gatherings(&self, gatherings: &mut Gatherings) {
        for (id, order) in gatherings.end(clock::instant(), |id| self.base.records.is_cancelled(id)) {
            // Otherwise all nodes take the list for complete some time later.
            let _ = self.base.records.write(id, &order);
        }
    }

    /// Begins what this node gathered before it began again: each list is as long as it became.
    fn begin_gathered_before(&self) {
        for entry in self.base.records.all().values() {
            if !entry.order.gathers || entry.order.accepted_by != self.parts().name {
                continue;
            }
            let mut order = Order::clone(&entry.order);
            order.gathers = false;
            if let (Some(facts), Some(bytes)) = (&mut order.manifest, self.parts().order_files.size(entry.id))
            {
                facts.bytes = bytes;
            }
            let _ = self.base.records.write(entry.id, &order);
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
        request.identity = self.parts().identity(request.identity.as_deref())?;
        if let Some(place) = &request.to
            && self.parts().cache().cooperation.ring_at(Some(place)).is_none()
        {
            let hint = "name a node, or the beginning of a topology such as dc1/cluster-a";
            let why = format!("no node is at {place:?}\nhint: {hint}; `shoal status` shows both");
            return Err(TaskRefusal::bad(why));
        }
        Ok(request)
    }

    /// Returns the order that this node gives for a request.
    fn order_of(&self, request: TaskRequest, manifest: Option<ManifestFacts>, created: SystemTime) -> Order {
        let node = &*self.parts().name;
        if request.kind != TaskKind::Unpin {
            return Order::accepted(request, manifest, created.into(), node, None);
        }
        // Pins that were ended do not come back before the end of the order that set them.
        let entries = self.base.records.all();
        let pins = entries.values().filter(|entry| entry.order.pins(created));
        let last_end = pins.filter_map(|entry| entry.order.request.until).max();
        Order::accepted(request, manifest, created.into(), node, last_end)
    }

    /// Writes an order, if there is room for another among `orders_max`.
    pub(super) fn accept(&self, id: u128, order: &Order, orders_max: usize) -> Result<Task, TaskRefusal> {
        self.make_room(orders_max)?;
        self.base.records.write(id, order)?;
        self.entry(id).map(|entry| entry.to_task(order.created.time()))
    }

    /// Makes room for another order among `orders_max`: the oldest that have ended are forgotten.
    pub(super) fn make_room(&self, orders_max: usize) -> Result<(), NotTaken> {
        let bulletin = &self.base.records.bulletin;
        while !bulletin.has_room(orders_max) {
            let (ids, entries) = (bulletin.ids(Kind::Order), self.base.records.all());
            let (before, now) = (bulletin.floor(), clock::utc_now());
            let floor = oldest_ended(&entries, &ids, &before, FORGOTTEN_AT_ONCE, now);
            bulletin.forget(&floor.ok_or(NotTaken::Full)?)?;
        }
        Ok(())
    }

    /// Returns a part of the tasks, the latest first.
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
        let (now, entries) = (clock::utc_now(), self.base.records.all());
        let mut wanted = entries.values().rev().filter(|entry| is_wanted(entry));
        let shown = wanted.by_ref().take(part.limit);
        let tasks: Vec<_> = shown.map(|entry| entry.to_task(now)).collect();
        let is_part = wanted.next().is_some();
        let next = tasks.last().filter(|_| is_part).map(|task| task.id.clone());
        Ok(TaskList { tasks, next })
    }

    /// Returns the task with this id.
    ///
    /// # Errors
    ///
    /// Fails if there is none.
    pub fn get(&self, id: &str) -> Result<Task, TaskRefusal> {
        Ok(self.entry(number(id)?)?.to_task(clock::utc_now()))
    }

    pub(super) fn entry(&self, id: u128) -> Result<Entry, TaskRefusal> {
        self.base.records.get(id).ok_or_else(no_task)
    }

    /// Ends a task before its end.
    ///
    /// # Errors
    ///
    /// Fails if there is no such task, or if it is over.
    pub fn cancel(&self, id: &str) -> Result<Task, TaskRefusal> {
        let entry = self.entry(number(id)?)?;
        if !entry.is_live(clock::utc_now()) {
            let why = "the task is over\nhint: `shoal task ID` shows how it ended";
            return Err(TaskRefusal::new(StatusCode::CONFLICT, why));
        }
        self.base.records.end_early(entry.id, &entry.order)?;
        self.get(id)
    }

    /// Returns the plan in force, or the last one that was.
    ///
    /// # Errors
    ///
    /// Fails if there is none.
    pub fn plan(&self) -> Result<Task, TaskRefusal> {
        let entry = self.base.records.latest_plan().ok_or_else(|| {
            let why = "there is no plan\nhint: hand one over with `shoal plan start FILE`";
            TaskRefusal::new(StatusCode::NOT_FOUND, why)
        })?;
        Ok(entry.to_task(clock::utc_now()))
    }

    /// Ends the plan in force, and its pins.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or if it is over.
    pub async fn stop_plan(&self) -> Result<Task, TaskRefusal> {
        self.base.records.catch_up().await;
        let plan = self.plan()?;
        self.cancel(&plan.id)
    }

    /// Ends the plans that a later one has replaced, and their pins. Each node does: the one that took the
    /// later plan may not have known them.
    fn end_replaced_plans(&self) {
        let Some(latest) = self.base.records.latest_plan() else {
            return;
        };
        for entry in self.base.records.all().values() {
            let is_plan = entry.succession().is_some();
            if is_plan && entry.id != latest.id && !entry.progress.state.is_over() {
                // Otherwise it is tried again soon.
                let _ = self.base.records.end_early(entry.id, &entry.order);
            }
        }
    }

    /// Runs the tasks whose home this node is, until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        self.begin_gathered_before();
        let mut changes = self.base.records.bulletin.changes();
        let mut runs = JoinSet::new();
        loop {
            self.end_replaced_plans();
            self.end_cancelled_pins().await;
            self.end_gatherings(&mut *self.gatherings.lock().await);
            self.keep_files().await;
            self.forget_early_blocks();
            self.hold_objects();
            self.begin_due(&mut runs, &stopping);
            tokio::select! {
                _ = changes.changed() => {}
                Some(_) = runs.join_next(), if !runs.is_empty() => {}
                () = tokio::time::sleep(LOOK) => {}
                () = stopping.begun() => break,
            }
        }
        // Each of them has written how far it is.
        while runs.join_next().await.is_some() {}
    }

    /// Begins the tasks that this node is to run and does not run yet, the oldest first of each lane.
    fn begin_due(self: &Arc<Self>, runs: &mut JoinSet<()>, stopping: &Shutdown) {
        if !self.base.records.homes.may_know_all() {
            return;
        }
        let (members, same_for) = self.base.records.homes.members();
        let now = clock::utc_now();
        let is_due = |entry: &Entry| entry.is_due(now, members, same_for);
        let entries = self.base.records.all();
        for entry in entries.values().filter(|entry| is_due(entry)) {
            let (id, kind) = (entry.id, entry.order.request.kind);
            let mut running = self.running.lock();
            let beside = running
                .values()
                .filter(|other| Lane::of(**other) == Lane::of(kind));
            let has_place = beside.count() < Lane::of(kind).places();
            if !has_place
                || running.contains_key(&id)
                || is_behind_another(entry, &entries)
                || !self.base.records.homes.is_mine(id)
            {
                continue;
            }
            // It may have run to its end since the tasks were listed. A run that is no longer among these has
            // written how it ended.
            let Some(entry) = self.base.records.get(id).filter(is_due) else {
                continue;
            };
            running.insert(id, kind);
            let (this, stopping) = (Arc::clone(self), stopping.clone());
            runs.spawn(async move {
                Box::pin(Run::new(&this.base, entry).to_the_end(stopping)).await;
                this.running.lock().remove(&id);
            });
        }
    }

    /// Copies the lists and documents of tasks that this node may have to run, and removes those of tasks
    /// that are over.
    async fn keep_files(&self) {
        let here = self.parts().order_files.ids();
        let (now, entries) = (clock::utc_now(), self.base.records.all());
        let receiving = new_id(now - ORDER_PATIENCE);
        let first_pin = first_pin(&entries, now);
        for id in &here {
            let entry = entries.get(id);
            if !entry.map_or(*id > receiving, |entry| entry.is_wanted(now, first_pin)) {
                self.parts().order_files.remove(*id).await;
            }
        }
        for entry in entries.values() {
            let Some(bytes) = entry.order.file_bytes() else {
                continue;
            };
            if !here.contains(&entry.id)
                && !entry.gathers(now)
                && entry.is_wanted(now, first_pin)
                && self.base.records.homes.may_run(entry.id)
                && let Err(why) = self.base.nodes.bring_file(entry.id, bytes).await
            {
                tracing::debug!(id = %Ulid(entry.id), why, "the file of a task was not copied");
            }
        }
    }

    /// Ends the pins here of orders that were cancelled. Those of a plan hold on until the plan in its place
    /// has set its own.
    async fn end_cancelled_pins(&self) {
        let latest = self.base.records.plan_in_force();
        for order in self.parts().cache().store.pinning.orders() {
            if self.base.records.is_cancelled(order.0) && !self.is_just_replaced(order.0, latest.as_ref()) {
                self.parts().cache().store.pinning.end(order).await;
            }
        }
    }

    /// Returns true if the plan `latest` has lately taken the place of this one.
    fn is_just_replaced(&self, id: u128, latest: Option<&Entry>) -> bool {
        let replaced = latest
            .filter(|latest| latest.id != id)
            .and_then(|_| self.base.records.get(id));
        let plan = replaced.filter(|plan| plan.succession().is_some());
        let ended = plan.and_then(|plan| plan.progress.ended);
        ended.is_some_and(|ended| !ended.plus(PINS_OVERLAP).after(clock::utc_now()).is_zero())
    }

    /// Returns the state of the plan in force.
    pub fn plan_figures(&self) -> PlanFigures {
        let in_force = self.base.records.plan_in_force();
        in_force.map_or_else(PlanFigures::default, |entry| {
            let (bytes, plan) = (entry.progress.tally.bytes, entry.plan_progress());
            PlanFigures {
                in_force: true,
                carried_here: self.running.lock().contains_key(&entry.id),
                jobs: plan.jobs.by_status(),
                bytes: [bytes.total.unwrap_or_default(), plan.planned_bytes, bytes.done],
            }
        })
    }

    /// Returns the states of the cluster's tasks, and the counters of this node.
    pub fn figures(&self) -> TaskFigures {
        let (records, record_bytes) = self.base.records.bulletin.size();
        let entries = self.base.records.all();
        let in_state = |state: TaskState| {
            let entries = entries.values().filter(|entry| entry.progress.state == state);
            (state.as_str().to_owned(), entries.count() as u64)
        };
        let now = clock::utc_now();
        let at_risk = entries.values().filter(|entry| entry.is_at_risk(now));
        TaskFigures {
            states: TaskState::ALL.map(in_state).into(),
            at_risk: at_risk.count() as u64,
            running_here: self.running.lock().len() as u64,
            totals: *self.base.totals.lock(),
            records: records as u64,
            record_bytes: record_bytes as u64,
        }
    }
}

/// Returns true if a hint waits for one that goes before it: both would share the link, and the reader of
/// that one would wait for longer.
fn is_behind_another(entry: &Entry, entries: &Entries) -> bool {
    let Some(hint) = &entry.order.hint else {
        return false;
    };
    let is_before = |other: &Entry| {
        let other = other.order.hint.as_ref();
        other.is_some_and(|other| hint.goes_behind(other))
    };
    let mut others = entries.values();
    others.any(|other| !other.progress.state.is_over() && is_before(other))
}

/// Returns the number of an id.
pub(super) fn number(id: &str) -> Result<u128, TaskRefusal> {
    Ulid::from_str(id).map(|id| id.0).map_err(|_| no_task())
}

fn no_task() -> TaskRefusal {
    let hint = "`shoal tasks` lists them; tasks are forgotten some days after their end";
    let why = format!("no task has this id\nhint: {hint}");
    TaskRefusal::new(StatusCode::NOT_FOUND, why)
}
