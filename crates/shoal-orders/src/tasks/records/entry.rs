//! Tasks as their records describe them, and which of them are due, live, or to be forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use shoal_plan::execution::Verdicts;
use ulid::Ulid;

use super::moment::Moment;
use super::order::{Order, TaskKind};
use super::plan_progress::{JobCounts, PlanProgress};
use super::progress::{Progress, TaskState};
use crate::bulletin::{FLOOR_AGE, FLOOR_KEPT_MAX, Floor};

/// The time for which the set of nodes must stay the same before pins go to it: a node that restarts comes
/// back with its pins.
const SETTLED: Duration = Duration::from_mins(1);

/// Maximum time for which the list of a task may grow.
const GATHERING_MAX: Duration = Duration::from_mins(2);

/// Tasks, by their ids.
pub(in crate::tasks) type Entries = BTreeMap<u128, Entry>;

/// A task as the records have it.
#[derive(Clone, Debug)]
pub(in crate::tasks) struct Entry {
    /// Its id.
    pub(in crate::tasks) id: u128,
    /// The order, as a node accepted it.
    pub(in crate::tasks) order: Arc<Order>,
    /// Its progress. A task that was ended early is over, whatever has been written since.
    pub(in crate::tasks) progress: Arc<Progress>,
    /// When all of it was done. Its objects may be kept for longer, until an early end.
    pub(in crate::tasks) done: Option<Moment>,
}

/// A task as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Names it.
    pub id: String,
    /// The order, as a node accepted it.
    #[serde(flatten)]
    pub order: Order,
    /// Its progress.
    #[serde(flatten)]
    pub progress: Progress,
}

impl Entry {
    /// Creates a task from its records: `end` is the body of its early end, if it has one.
    pub(in crate::tasks) fn new(
        id: u128,
        order: Arc<Order>,
        mut progress: Arc<Progress>,
        end: Option<&[u8]>,
    ) -> Self {
        let done = progress.ended.filter(|_| progress.state == TaskState::Done);
        // Pins hold on after the end of their task.
        let may_end = !progress.state.is_over() || order.request.kind.pins();
        if let Some(end) = end.filter(|_| may_end) {
            let ended = serde_json::from_slice(end).unwrap_or_else(|_| Moment::now());
            Arc::make_mut(&mut progress).end(TaskState::Cancelled, None, ended);
        }
        Self {
            id,
            order,
            progress,
            done,
        }
    }

    /// Returns the task for operators.
    pub(in crate::tasks) fn to_task(&self, now: SystemTime) -> Task {
        let (mut order, mut progress) = (Order::clone(&self.order), Progress::clone(&self.progress));
        if let Some(document) = &mut order.document {
            document.succession = 0;
            let plan = progress.plan.get_or_insert_default();
            (plan.verdicts, plan.arrivals_over) = (Verdicts::default(), JobCounts::default());
        }
        progress.at_risk = self.is_at_risk(now);
        (progress.members, progress.resume) = (None, None);
        Task {
            id: Ulid(self.id).to_string(),
            order,
            progress,
        }
    }

    /// Returns the number of plans that were in force before this one, if it is one.
    pub(in crate::tasks) fn succession(&self) -> Option<u64> {
        self.order.document.as_ref().map(|document| document.succession)
    }

    /// Returns the part of the progress that only plans have.
    pub(in crate::tasks) fn plan_progress(&self) -> PlanProgress {
        self.progress.plan.as_deref().cloned().unwrap_or_default()
    }

    /// Returns true if the task is to be run: it is not over, or it pins, and its last run was for other
    /// nodes. `members` is the digest of the nodes, which have been the same for the time `same_for`.
    pub(in crate::tasks) fn is_due(&self, now: SystemTime, members: u64, same_for: Duration) -> bool {
        if self.gathers(now) {
            return false;
        }
        let is_over = self.progress.state.is_over();
        let has_new_nodes = self.progress.members.is_some_and(|then| then != members);
        !is_over || (self.is_live(now) && has_new_nodes && same_for >= SETTLED)
    }

    /// Returns true if the list of the task may still grow. The node that gathers it may have gone.
    pub(in crate::tasks) fn gathers(&self, now: SystemTime) -> bool {
        let given_up = self.order.created.plus(GATHERING_MAX);
        self.order.gathers && !given_up.after(now).is_zero()
    }

    /// Returns true if the task goes on after its deadline, or may miss it according to its runner.
    pub(in crate::tasks) fn is_at_risk(&self, now: SystemTime) -> bool {
        let deadline = self.order.request.deadline;
        let is_late = deadline.is_some_and(|deadline| deadline.after(now).is_zero());
        !self.progress.state.is_over() && (is_late || self.progress.at_risk)
    }

    /// Returns true if the task may still have something to do, or if pins depend on the order.
    /// `first_pin` is the first task that may pin.
    pub(in crate::tasks) fn is_wanted(&self, now: SystemTime, first_pin: u128) -> bool {
        // An earlier pin that goes on or runs again leaves out what was unpinned.
        let unpins = self.order.request.kind == TaskKind::Unpin;
        self.is_live(now) || unpins && self.id > first_pin
    }

    /// Returns true if the task may still have something to do.
    pub(in crate::tasks) fn is_live(&self, now: SystemTime) -> bool {
        let state = self.progress.state;
        !state.is_over() || (self.order.pins(now) && state != TaskState::Cancelled)
    }
}

/// Returns the first of some tasks that may pin objects.
pub(in crate::tasks) fn first_pin(entries: &Entries, now: SystemTime) -> u128 {
    let may_pin = |entry: &&Entry| entry.order.request.kind.pins() && entry.is_live(now);
    entries.values().find(may_pin).map_or(u128::MAX, |entry| entry.id)
}

/// Returns the oldest ended tasks, some `count` of them, to be forgotten together with those `before`. `ids`
/// are those of all orders: one that is not among the `entries` is kept. Returns `None` if none has ended.
pub(in crate::tasks) fn oldest_ended(
    entries: &Entries,
    ids: &BTreeSet<u128>,
    before: &Floor,
    count: usize,
    now: SystemTime,
) -> Option<Floor> {
    let first_pin = first_pin(entries, now);
    let (mut floor, mut forgotten) = (Floor::default(), 0);
    let is_settled = |id: &&u128| Ulid(**id).datetime() + FLOOR_AGE <= now;
    for id in ids.iter().take_while(is_settled) {
        let is_complete = forgotten >= count || floor.kept.len() >= FLOOR_KEPT_MAX;
        if is_complete && *id > before.below {
            break;
        }
        let entry = entries.get(id);
        if entry.is_some_and(|entry| !entry.is_wanted(now, first_pin)) {
            forgotten += 1;
        } else {
            floor.kept.insert(*id);
        }
        floor.below = before.below.max(*id);
    }
    (forgotten > 0).then_some(floor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(kind: &str, state: TaskState, members: u64) -> Entry {
        let order = json!({
            "kind": kind, "uri": "s3://b/p", "until": "2026-11-27T00:00:00Z", "accepted_by": "n0",
            "created": "2026-11-24T00:00:00Z", "forgotten": "2026-12-02T00:00:00Z",
        });
        Entry {
            id: 1,
            order: Arc::new(serde_json::from_value(order).unwrap()),
            progress: Arc::new(Progress {
                state,
                members: Some(members),
                ..Progress::default()
            }),
            done: None,
        }
    }

    #[test]
    fn the_oldest_ended_tasks_are_forgotten_and_no_pin_is() {
        let now = "2026-11-25T00:00:00Z"
            .parse::<crate::tasks::Moment>()
            .unwrap()
            .time();
        let made = |ago: u64, number: u128| {
            Ulid::from_datetime(now - Duration::from_secs(ago)).0 >> 80 << 80 | number
        };
        let states = [
            ("prefetch", TaskState::Done),
            ("pin", TaskState::Done),
            ("unpin", TaskState::Done),
            ("prefetch", TaskState::Running),
            ("evict", TaskState::Failed),
            ("prefetch", TaskState::Cancelled),
        ];
        let mut entries = Entries::new();
        let mut add = |id, kind, state| {
            let mut entry = entry(kind, state, 1);
            entry.id = id;
            entries.insert(id, entry);
        };
        for (number, (kind, state)) in (0..).zip(states) {
            add(made(3_600, number * 10), kind, state);
        }
        add(made(1, 0), "prefetch", TaskState::Done);
        // An order of another build.
        let other = made(3_600, 1);
        let ids: BTreeSet<u128> = entries.keys().copied().chain([other]).collect();
        let at = |place: u128| made(3_600, place * 10);
        let oldest = |before: &Floor, count| oldest_ended(&entries, &ids, before, count, now);

        let two = oldest(&Floor::default(), 2).unwrap();
        assert_eq!(two.below, at(4));
        assert_eq!(
            two.kept,
            [other, at(1), at(2), at(3)].into(),
            "the pin leaves out what the unpin names"
        );
        let all = oldest(&Floor::default(), 100).unwrap();
        assert_eq!((all.below, &all.kept), (at(5), &two.kept));
        // Forgotten ids stay forgotten.
        let further = oldest(&all, 1).unwrap();
        assert_eq!((further.below, &further.kept), (at(5), &two.kept));
        let live: Entries = [at(1), at(3)].map(|id| (id, entries[&id].clone())).into();
        let ids = live.keys().copied().collect();
        assert_eq!(oldest_ended(&live, &ids, &Floor::default(), 1, now), None);
    }

    #[test]
    fn a_task_that_is_ended_after_it_was_done_still_says_when_that_was() {
        let order = entry("pin", TaskState::Done, 1).order;
        let [done, end] = ["2026-11-24T01:00:00Z", "2026-11-24T02:00:00Z"].map(|text| text.parse().unwrap());
        let body = serde_json::to_vec(&end).unwrap();
        for (state, expected) in [(TaskState::Done, Some(done)), (TaskState::Failed, None)] {
            let mut progress = Progress::default();
            progress.end(state, None, done);
            let ended = Entry::new(1, Arc::clone(&order), Arc::new(progress), Some(&body));
            assert_eq!(
                (ended.progress.state, ended.progress.ended),
                (TaskState::Cancelled, Some(end))
            );
            assert_eq!(ended.done, expected);
        }
    }

    #[test]
    fn a_task_whose_list_may_grow_is_not_due_while_the_node_that_gathers_it_may_be_there() {
        let mut entry = entry("prefetch", TaskState::Queued, 1);
        Arc::make_mut(&mut entry.order).gathers = true;
        let created = entry.order.created.time();
        for (after, is_due) in [(Duration::ZERO, false), (GATHERING_MAX, true)] {
            assert_eq!(
                entry.is_due(created + after, 1, Duration::ZERO),
                is_due,
                "{after:?}"
            );
        }
    }

    #[test]
    fn a_task_that_no_node_runs_is_at_risk_after_its_deadline() {
        let mut entry = entry("prefetch", TaskState::Queued, 1);
        let is_at_risk = |entry: &Entry, seconds| {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(entry.to_task(now).progress.at_risk, entry.is_at_risk(now));
            entry.is_at_risk(now)
        };
        assert!(!is_at_risk(&entry, 1000), "it has no deadline");
        let deadline = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        Arc::make_mut(&mut entry.order).request.deadline = Some(deadline.into());
        assert!(!is_at_risk(&entry, 999));
        assert!(is_at_risk(&entry, 1000));
        Arc::make_mut(&mut entry.progress).state = TaskState::Done;
        assert!(!is_at_risk(&entry, 1000), "it is over");
    }

    #[test]
    fn a_task_runs_until_it_is_over_and_pins_run_again_for_new_nodes() {
        let at = |text: &str| text.parse::<crate::tasks::Moment>().unwrap().time();
        let (before, after) = (at("2026-11-26T00:00:00Z"), at("2026-11-28T00:00:00Z"));
        let (long, brief) = (SETTLED, SETTLED.saturating_sub(Duration::from_millis(1)));
        for (kind, state, now, members, same_for, is_due) in [
            ("prefetch", TaskState::Queued, before, 1, brief, true),
            ("prefetch", TaskState::Running, before, 1, brief, true),
            ("prefetch", TaskState::Done, before, 2, long, false),
            ("prefetch", TaskState::Failed, before, 2, long, false),
            ("pin", TaskState::Done, before, 1, long, false),
            ("pin", TaskState::Done, before, 2, brief, false),
            ("pin", TaskState::Done, before, 2, long, true),
            ("pin", TaskState::Failed, before, 2, long, true),
            ("pin", TaskState::Cancelled, before, 2, long, false),
            ("pin", TaskState::Done, after, 2, long, false),
        ] {
            let entry = entry(kind, state, 1);
            assert_eq!(
                entry.is_due(now, members, same_for),
                is_due,
                "{kind} {state:?} {members} {same_for:?}"
            );
        }
    }
}
