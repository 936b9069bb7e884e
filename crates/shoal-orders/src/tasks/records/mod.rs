//! The tasks of the cluster, as the records of all nodes have them.

pub(super) mod entry;
pub(super) mod files;
pub(super) mod homes;
pub(super) mod moment;
pub(super) mod order;
mod parsed;
pub(super) mod plan_progress;
pub(super) mod progress;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use shoal_base::moment::millis_since_1970;
use shoal_cache::cooperation::Cooperation;
use shoal_hints::{JobRecord, Jobs};
use shoal_net::clock;
use ulid::Ulid;

use self::entry::{Entries, Entry};
use self::homes::Homes;
use self::moment::Moment;
use self::order::Order;
use self::parsed::Parsed;
use crate::bulletin::{Bulletin, Key, Kind, NotTaken};

/// The time for which the last run of a job is remembered, and after which its record gets a new id.
const JOB_MEMORY: Duration = Duration::from_hours(35 * 24);
const JOB_ID_LIFE: Duration = Duration::from_hours(300 * 24);

/// Maximum number of jobs that are remembered, and of bytes of their records.
const JOBS_MAX: usize = 4_000;
const JOBS_BYTES_MAX: usize = 4 << 20;

/// The tasks of all nodes, and which of them this node is to carry out.
pub(in crate::tasks) struct Records {
    /// The records of this node and the others.
    pub(in crate::tasks) bulletin: Arc<Bulletin>,
    /// The nodes that are to carry out orders.
    pub(in crate::tasks) homes: Homes,
    parsed: Mutex<Parsed>,
}

impl Records {
    /// Reads the records of `bulletin`, whose orders the nodes of `cooperation` carry out.
    pub(in crate::tasks) fn new(bulletin: &Arc<Bulletin>, cooperation: &Arc<Cooperation>) -> Self {
        Self {
            bulletin: Arc::clone(bulletin),
            homes: Homes::new(cooperation),
            parsed: Mutex::default(),
        }
    }

    /// Returns all tasks. One whose order this build cannot read is left out.
    pub(in crate::tasks) fn all(&self) -> Arc<Entries> {
        Arc::clone(&self.parsed().entries)
    }

    /// Returns the hints whose objects may be kept now.
    pub(in crate::tasks) fn live_hints(&self) -> Vec<Entry> {
        let (now, all) = (clock::utc_now(), self.all());
        let live = |entry: &&Entry| entry.order.hint.is_some() && entry.is_live(now);
        all.values().filter(live).cloned().collect()
    }

    /// Reads the orders that other nodes have accepted by now. Without knowledge of the plan in force, a node
    /// can neither replace nor stop it.
    pub(in crate::tasks) async fn catch_up(&self) {
        self.bulletin.catch_up(self.homes.cooperation()).await;
    }

    /// Returns the latest plan that is remembered.
    pub(in crate::tasks) fn latest_plan(&self) -> Option<Entry> {
        let all = self.all();
        let plans = all.values().filter(|entry| entry.succession().is_some());
        let latest = plans.max_by_key(|entry| (entry.succession(), entry.id));
        latest.cloned()
    }

    /// Returns the latest plan unless it is over.
    pub(in crate::tasks) fn plan_in_force(&self) -> Option<Entry> {
        self.latest_plan().filter(|plan| !plan.progress.state.is_over())
    }

    /// Returns the task with this id.
    pub(in crate::tasks) fn get(&self, id: u128) -> Option<Entry> {
        self.parsed().entries.get(&id).cloned()
    }

    /// Returns true if an operator has ended an order.
    pub(in crate::tasks) fn is_cancelled(&self, id: u128) -> bool {
        let kind = Kind::Cancel;
        self.bulletin.get(Key { id, kind }).is_some()
    }

    /// Returns the id of an order that comes now. It is above the ids that are forgotten, whatever the clocks
    /// of nodes say.
    pub(in crate::tasks) fn next_id(&self, now: SystemTime) -> u128 {
        new_id(now).max(self.bulletin.floor().below.saturating_add(1))
    }

    /// Returns the last runs of jobs.
    pub(in crate::tasks) fn jobs(&self) -> Arc<Jobs> {
        self.parsed().last_runs()
    }

    /// Writes the last run of a job for all nodes, in place of the one before. Where no
    /// further job is remembered, it takes the place of the one that has not run for the longest time.
    pub(in crate::tasks) fn remember(&self, record: &JobRecord) -> Result<(), NotTaken> {
        let now = clock::utc_now();
        let body = record.to_json().ok_or(NotTaken::TooLarge)?;
        let parsed = self.parsed();
        let jobs = || {
            let jobs = parsed.jobs.iter();
            jobs.filter_map(|(id, job)| Some((*id, job.bytes, job.record.as_ref()?)))
        };
        let mut known = jobs().filter(|(.., known)| known.job == record.job);
        let known = known.next_back();
        if known.is_some_and(|(.., known)| known.ended_ms > record.ended_ms) {
            return Err(NotTaken::Known);
        }
        let is_young = |id: &u128| Ulid(*id).datetime() + JOB_ID_LIFE > now;
        let bytes = parsed.jobs.values().map(|job| job.bytes).sum::<usize>() + body.len();
        let lacking = bytes.saturating_sub(JOBS_BYTES_MAX);
        let replaced = if known.is_none() && (jobs().count() >= JOBS_MAX || lacking > 0) {
            let gives_room = jobs().filter(|(_, bytes, _)| *bytes >= lacking);
            Some(
                gives_room
                    .min_by_key(|(.., job)| job.ended_ms)
                    .ok_or(NotTaken::Full)?,
            )
        } else {
            known
        };
        let id = replaced.map(|(id, ..)| id).filter(is_young);
        let (id, kind) = (id.unwrap_or_else(|| new_id(now)), Kind::Job);
        self.bulletin.put(Key { id, kind }, body, now + JOB_MEMORY)
    }

    /// Writes an order for all nodes.
    pub(in crate::tasks) fn write(&self, id: u128, order: &Order) -> Result<(), NotTaken> {
        let body = serde_json::to_vec(order).expect("an order is JSON");
        self.put(id, Kind::Order, order, body)
    }

    /// Writes the progress of an order for all nodes. A failure is in the log.
    pub(in crate::tasks) fn report(
        &self,
        id: u128,
        order: &Order,
        progress: Vec<u8>,
    ) -> Result<(), NotTaken> {
        let written = self.put(id, Kind::Progress, order, progress);
        written.inspect_err(|error| {
            tracing::warn!(id = %Ulid(id), %error, "the progress of an order is not known to other nodes");
        })
    }

    /// Ends an order, and its pins.
    pub(in crate::tasks) fn end_early(&self, id: u128, order: &Order) -> Result<(), NotTaken> {
        let body = serde_json::to_vec(&Moment::now()).expect("a time is JSON");
        self.put(id, Kind::Cancel, order, body)
    }

    /// Returns the records as they are now.
    fn parsed(&self) -> MutexGuard<'_, Parsed> {
        let mut parsed = self.parsed.lock();
        parsed.follow(&self.bulletin);
        parsed
    }

    fn put(&self, id: u128, kind: Kind, order: &Order, body: Vec<u8>) -> Result<(), NotTaken> {
        self.bulletin.put(Key { id, kind }, body, order.forgotten.time())
    }
}

/// Returns a new id; later ones are greater.
pub(in crate::tasks) fn new_id(now: SystemTime) -> u128 {
    let random = u128::from(shoal_base::chance::bits()) << 64 | u128::from(shoal_base::chance::bits());
    Ulid::from_parts(millis_since_1970(now), random).0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use serde_json::json;

    use super::progress::Progress;
    use super::{Bulletin, JOBS_BYTES_MAX, Key, Kind, NotTaken, Records, new_id};
    use crate::bulletin::Floor;
    use crate::tasks::{TaskKind, TaskState};
    use shoal_cache::cooperation::Cooperation;
    use shoal_hints::{Input, JobName, JobRecord};
    use shoal_net::channel::Channel;
    use shoal_net::clock;

    /// Takes a log.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn cooperation() -> Arc<Cooperation> {
        let channel = Channel::new("n0", [""], 8);
        Arc::new(Cooperation::new("n0", "dc1/a", 1, Arc::new(channel)))
    }

    fn put(bulletin: &Bulletin, body: &serde_json::Value) -> u128 {
        let now = clock::utc_now();
        let (id, body) = (new_id(now), serde_json::to_vec(body).unwrap());
        let expires = now + Duration::from_hours(1);
        let kind = Kind::Order;
        bulletin.put(Key { id, kind }, body, expires).unwrap();
        id
    }

    #[test]
    fn the_job_that_has_not_run_for_the_longest_time_makes_room() {
        let bulletin = Bulletin::in_memory(1);
        let records = Records::new(&bulletin, &cooperation());
        let name = |name: u64| JobName {
            namespace: "n".into(),
            name: name.to_string(),
        };
        let record = |number: u64, inputs: u64| JobRecord {
            job: name(number),
            started_ms: 0,
            ended_ms: number,
            inputs: (0..inputs)
                .map(|input| Input {
                    path: format!("s3://b/{input:01000}"),
                    bytes: None,
                })
                .collect(),
            outputs: Vec::new(),
            parent: None,
            next: Vec::new(),
        };
        let bytes = || bulletin.size().1;
        records.remember(&record(1, 1)).unwrap();
        for number in 2..1_000 {
            records.remember(&record(number, 7)).unwrap();
            assert!(bytes() <= JOBS_BYTES_MAX);
        }
        let jobs = records.jobs();
        assert!(jobs.len() > 200, "{}", jobs.len());
        assert!(!jobs.contains_key(&name(2)));
        assert!(jobs.contains_key(&name(999)));
        // The small one gives too little room.
        assert!(jobs.contains_key(&name(1)));
        // A known job needs none, and an older run of it does not replace the last one.
        let known = JobRecord {
            ended_ms: 1_000,
            ..record(999, 7)
        };
        records.remember(&known).unwrap();
        assert_eq!(records.jobs().len(), jobs.len());
        assert_eq!(records.remember(&record(999, 7)), Err(NotTaken::Known));
    }

    fn task() -> serde_json::Value {
        json!({
            "kind": "prefetch", "uri": "s3://b/p", "created": "2026-11-24T00:00:00Z", "accepted_by": "n0",
            "forgotten": "2026-12-02T00:00:00Z",
        })
    }

    fn running() -> Progress {
        Progress {
            state: TaskState::Running,
            ..Progress::default()
        }
    }

    fn plan() -> serde_json::Value {
        json!({
            "kind": "plan", "created": "2026-11-24T00:00:00Z", "accepted_by": "n0",
            "document": {
                "bytes": 1, "starts": "2026-11-24T00:00:00Z", "ends": "2026-11-24T01:00:00Z", "jobs": 1,
                "planned_jobs": 1, "transfers": 1, "succession": 3,
            },
            "forgotten": "2026-12-02T00:00:00Z",
        })
    }

    #[test]
    fn a_plan_is_a_task_among_others() {
        let bulletin = Bulletin::in_memory(1);
        let tasks = Records::new(&bulletin, &cooperation());
        let task = put(&bulletin, &task());
        let plan = put(&bulletin, &plan());
        let kinds: BTreeMap<u128, TaskKind> = tasks
            .all()
            .values()
            .map(|entry| (entry.id, entry.order.request.kind))
            .collect();
        assert_eq!(kinds, [(task, TaskKind::Prefetch), (plan, TaskKind::Plan)].into());
        let entry = tasks.get(plan).unwrap();
        assert_eq!(entry.order.document.as_ref().unwrap().succession, 3);
        tasks.end_early(plan, &entry.order).unwrap();
        assert_eq!(tasks.get(plan).unwrap().progress.state, TaskState::Cancelled);
        assert!(tasks.is_cancelled(plan) && !tasks.is_cancelled(task));
    }

    #[test]
    fn tasks_are_as_the_last_records_have_them_and_a_reader_keeps_those_that_it_has() {
        let bulletin = Bulletin::in_memory(1);
        let tasks = Records::new(&bulletin, &cooperation());
        let (id, other) = (put(&bulletin, &task()), put(&bulletin, &task()));
        let state = || tasks.get(id).map(|entry| entry.progress.state);
        let before = tasks.all();
        let order = Arc::clone(&before[&id].order);
        tasks.report(id, &order, running().to_body()).unwrap();
        assert_eq!(state(), Some(TaskState::Running));
        assert_eq!(before[&id].progress.state, TaskState::Queued);
        tasks.end_early(id, &order).unwrap();
        assert_eq!(state(), Some(TaskState::Cancelled));
        assert_eq!(tasks.all()[&other].progress.state, TaskState::Queued);
        let floor = Floor {
            below: id.max(other),
            kept: [other].into(),
        };
        bulletin.forget(&floor).unwrap();
        assert_eq!(state(), None);
        assert_eq!(tasks.all().keys().collect::<Vec<_>>(), [&other]);
    }

    #[test]
    fn progress_may_come_before_its_order() {
        let bulletin = Bulletin::in_memory(1);
        let tasks = Records::new(&bulletin, &cooperation());
        let now = clock::utc_now();
        let id = new_id(now);
        let put = |kind, body: Vec<u8>| {
            let expires = now + Duration::from_hours(1);
            bulletin.put(Key { id, kind }, body, expires).unwrap();
        };
        put(Kind::Progress, running().to_body());
        assert!(tasks.all().is_empty());
        put(Kind::Order, serde_json::to_vec(&task()).unwrap());
        assert_eq!(tasks.get(id).unwrap().progress.state, TaskState::Running);
    }

    #[test]
    fn records_of_another_build_are_ignored_and_named_once_in_the_log() {
        let bulletin = Bulletin::in_memory(1);
        let tasks = Records::new(&bulletin, &cooperation());
        let later = put(
            &bulletin,
            &json!({ "kind": "defragment", "created": "2026-11-24T00:00:00Z" }),
        );
        let damaged = put(&bulletin, &json!({ "created": 7 }));
        let known = put(&bulletin, &task());

        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..3 {
                let all = tasks.all();
                assert_eq!(all.keys().copied().collect::<Vec<_>>(), [known]);
            }
        });
        assert!(tasks.get(later).is_none() && tasks.get(damaged).is_none());
        let log = String::from_utf8(log.0.lock().clone()).unwrap();
        assert_eq!(
            log.matches("is of another build and is ignored").count(),
            2,
            "{log}"
        );
        for id in [later, damaged] {
            assert!(log.contains(&ulid::Ulid(id).to_string()), "{log}");
        }
    }
}
