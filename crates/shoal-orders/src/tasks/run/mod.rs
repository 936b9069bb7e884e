//! One run of a task on this node: from where it was until it is over, or is no longer this node's.

pub(super) mod catalogue;
pub(super) mod figures;
pub(super) mod meter;
pub(super) mod outcomes;
pub(super) mod runner;
pub(super) mod unpinned;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_net::clock;
use shoal_net::link::{BandwidthScope, LinkFigures};
use shoal_net::shutdown::Shutdown;
use tokio::sync::Semaphore;
use ulid::Ulid;

use self::figures::KindTotals;
use self::meter::Meter;
use self::runner::Runner;
use crate::bulletin::NotTaken;
use crate::tasks::parts::nodes::Nodes;
use crate::tasks::parts::task_identity::TaskIdentity;
use crate::tasks::plan::Plans;
use crate::tasks::records::Records;
use crate::tasks::records::entry::Entry;
use crate::tasks::records::moment::Moment;
use crate::tasks::records::order::{Order, Selection, TaskKind};
use crate::tasks::records::progress::{Progress, TaskState};

/// The interval at which a node writes the progress of its tasks.
const REPORT: Duration = Duration::from_secs(1);

/// The pause before a task is begun for whose progress there was no room.
const FULL_PAUSE: Duration = Duration::from_secs(30);

/// The limits of hints: room on nodes, and a share of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintLimits {
    /// Percent of the room of all nodes.
    pub room_percent: u32,
    /// Percent of the bandwidth of the link to the lake, if it is metered.
    pub link_percent: u32,
}

/// The parts that all runs on this node share.
pub(in crate::tasks) struct TaskBase {
    pub(in crate::tasks) nodes: Arc<Nodes>,
    pub(in crate::tasks) records: Records,
    pub(in crate::tasks) plans: Plans,
    pub(in crate::tasks) hints: HintLimits,
    /// Held while the log of a table is read: the logs of several would need as much more memory.
    pub(in crate::tasks) table_turn: Semaphore,
    /// Totals of each kind, in the order of [`TaskKind::ALL`].
    pub(in crate::tasks) totals: Mutex<[KindTotals; TaskKind::ALL.len()]>,
}

/// A task that this node runs.
pub(in crate::tasks) struct Run<'a> {
    base: &'a TaskBase,
    id: u128,
    order: Arc<Order>,
    progress: Arc<Mutex<Progress>>,
    /// Counts of the task that the totals include already, and the last record.
    reported: Mutex<(KindTotals, Vec<u8>)>,
}

impl<'a> Run<'a> {
    /// Starts a task, or resumes it.
    pub(in crate::tasks) fn new(base: &'a TaskBase, entry: Entry) -> Self {
        let mut progress = if entry.progress.state.is_over() {
            Progress::default()
        } else {
            Arc::unwrap_or_clone(entry.progress)
        };
        progress.state = TaskState::Running;
        progress.runner = Some(base.nodes.parts.name.clone());
        progress.started.get_or_insert_with(Moment::now);
        progress.go_back();
        progress.members = Some(base.records.homes.members().0);
        Self {
            base,
            id: entry.id,
            order: entry.order,
            reported: Mutex::new((KindTotals::of(&progress), Vec::new())),
            progress: Arc::new(Mutex::new(progress)),
        }
    }

    /// Runs one task until it is over, or is no longer this node's.
    pub(in crate::tasks) async fn to_the_end(&self, stopping: Shutdown) {
        let (id, order, records) = (self.id, &self.order, &self.base.records);
        let started = self.progress.lock().started.unwrap_or_else(Moment::now);
        if self.report() == Err(NotTaken::Full) {
            // Without a record of its progress, the task would start over again and again.
            tokio::select! {
                () = tokio::time::sleep(FULL_PAUSE) => return,
                () = stopping.begun() => return,
            }
        }
        let runner = match self.runner() {
            Ok(runner) => runner,
            Err(why) => return self.end(TaskState::Failed, Some(&why)),
        };
        let mut changes = records.bulletin.changes();
        let mut meter = Meter::new(&self.progress);
        self.limit_hint(runner.as_ref());
        let mut working = std::pin::pin!(self.work(runner.as_ref()));
        let (state, why) = loop {
            tokio::select! {
                ended = &mut working => break ended,
                _ = changes.changed() => {}
                () = tokio::time::sleep(REPORT) => {
                    self.limit_hint(runner.as_ref());
                    meter.measure(&self.progress, |speed| self.is_at_risk(runner.as_ref(), speed));
                    let _ = self.report();
                }
                () = stopping.begun() => {
                    let _ = self.report();
                    return;
                }
            }
            if records.is_cancelled(id) {
                break (TaskState::Cancelled, None);
            }
            if !records.homes.is_mine(id) {
                return;
            }
            let now = clock::utc_now();
            if order.ends(started).after(now).is_zero() {
                let is_unpinned = order.request.kind.pins() && !order.pins(now);
                let why = if is_unpinned {
                    "its pins ended before all objects were there"
                } else {
                    "it took too long and was given up"
                };
                break (TaskState::Failed, Some(why.into()));
            }
        };
        self.end(state, why.as_deref());
    }

    /// Returns the runner of a task about objects; `None` for a plan.
    fn runner(&self) -> Result<Option<Runner<'a>>, String> {
        let (base, id, order) = (self.base, self.id, &self.order);
        if order.request.kind == TaskKind::Plan {
            return Ok(None);
        }
        let identity = TaskIdentity::of(order, &base.nodes.parts, &self.progress);
        if order.request.kind == TaskKind::Unpin {
            self.end_covered_pins().map_err(|error| error.to_string())?;
        }
        Ok(Some(Runner::new(base, id, order, identity, &self.progress)))
    }

    /// Does the work. Returns the last state of the task, and why; its progress has the rest.
    async fn work(&self, runner: Option<&Runner<'a>>) -> (TaskState, Option<String>) {
        if let Some(runner) = runner {
            return Box::pin(runner.run()).await;
        }
        let (plans, records) = (&self.base.plans, &self.base.records);
        plans.run(self.id, &self.order, &self.progress, records).await
    }

    /// Gives a hint its part of the link: hints that run at the same time share what hints may take of it.
    fn limit_hint(&self, runner: Option<&Runner<'a>>) {
        let Some(runner) = runner.filter(|_| self.order.hint.is_some()) else {
            return;
        };
        let cache = self.base.nodes.parts.cache();
        let rate = cache.lake.link().map(|link| {
            let LinkFigures {
                bandwidth_bytes_per_second: bytes,
                scope,
                ..
            } = link.figures();
            let links = match scope {
                BandwidthScope::Cluster => 1,
                BandwidthScope::Node => self.base.nodes.all().len().max(1) as u64,
            };
            let hints = self.base.records.live_hints();
            let running = hints
                .iter()
                .filter(|entry| entry.progress.state == TaskState::Running);
            let all = bytes.saturating_mul(links) / 100 * u64::from(self.base.hints.link_percent);
            all / running.count().max(1) as u64
        });
        runner.estimate.limit(rate);
    }

    /// Returns true if the task, which is not over, may miss its deadline at this speed in bytes a second, or
    /// a job of the plan its own.
    fn is_at_risk(&self, runner: Option<&Runner<'a>>, speed: Option<u64>) -> bool {
        let Some(runner) = runner else {
            let progress = self.progress.lock();
            return progress.plan.as_ref().is_some_and(|plan| plan.jobs.at_risk > 0);
        };
        runner.estimate.is_at_risk(speed)
    }

    /// Cancels the pin orders all of whose objects this order unpins.
    fn end_covered_pins(&self) -> Result<(), NotTaken> {
        let order = &self.order;
        let Some(unpinned) = order.selection() else {
            return Ok(());
        };
        let (now, records) = (clock::utc_now(), &self.base.records);
        for entry in records.all().values() {
            let (pinning, is_covered) = (&entry.order, |pinned: Selection| unpinned.covers(&pinned));
            if pinning.pins(now)
                && pinning.created <= order.created
                && pinning.selection().is_some_and(is_covered)
                && entry.progress.state != TaskState::Cancelled
            {
                records.end_early(entry.id, &entry.order)?;
            }
        }
        Ok(())
    }

    fn end(&self, state: TaskState, why: Option<&str>) {
        debug_assert!(state.is_over(), "a task ends in a last state");
        self.progress.lock().end(state, why, Moment::now());
        let _ = self.report();
        let (id, kind) = (Ulid(self.id), self.order.request.kind);
        self.base.totals.lock()[kind as usize].ended[state as usize] += 1;
        tracing::info!(%id, kind = kind.as_str(), state = state.as_str(), why, "a task has ended");
    }

    /// Writes the progress of a task if it has changed, and counts what is new since the last time. A failure
    /// is in the log.
    fn report(&self) -> Result<(), NotTaken> {
        let (now, body) = {
            let progress = self.progress.lock();
            (KindTotals::of(&progress), progress.to_body())
        };
        let mut reported = self.reported.lock();
        let kind = self.order.request.kind;
        self.base.totals.lock()[kind as usize].add(&now, &reported.0);
        reported.0 = now;
        if reported.1 != body {
            self.base.records.report(self.id, &self.order, body.clone())?;
            reported.1 = body;
        }
        Ok(())
    }
}
