//! Orders of one kind, as the records of all nodes have them: tasks, or plans. Each record is read once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use ulid::Ulid;

use super::homes::Homes;
use super::moment::Moment;
use super::runner::now;
use crate::bulletin::{Bulletin, Key, Kind, NotTaken};
use crate::cooperation::Cooperation;

/// An order of operators that all nodes know by its record.
pub(crate) trait Recorded: Serialize + DeserializeOwned {
    /// The kind of its record.
    const KIND: Kind;

    /// How far it is.
    type Progress: Clone + Default + DeserializeOwned;

    /// When all nodes forget it.
    fn forgotten(&self) -> Moment;

    /// Notes that an operator has ended it, unless it was over by then.
    fn end_early(&self, progress: &mut Self::Progress, at: Moment);
}

/// An order as the records have it.
#[derive(Debug)]
pub(crate) struct Entry<O: Recorded> {
    /// Its id.
    pub id: u128,
    /// The order, as a node accepted it.
    pub order: Arc<O>,
    /// How far it is. One that was ended early is over, whatever has been written since.
    pub progress: Arc<O::Progress>,
}

/// The orders of one kind that the nodes know, and which of them are to be carried out here.
pub(crate) struct Records<O: Recorded> {
    bulletin: Arc<Bulletin>,
    cooperation: Arc<Cooperation>,
    homes: Mutex<Homes>,
    orders: Mutex<Read<O>>,
    progress: Mutex<Read<O::Progress>>,
}

/// Records of one kind that have been read, by the bodies that were read.
type Read<T> = BTreeMap<u128, (Arc<[u8]>, Option<Arc<T>>)>;

impl<O: Recorded> Clone for Entry<O> {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            order: Arc::clone(&self.order),
            progress: Arc::clone(&self.progress),
        }
    }
}

impl<O: Recorded> Records<O> {
    /// The orders that `bulletin` knows, which the nodes of `cooperation` carry out.
    pub(crate) fn new(bulletin: &Arc<Bulletin>, cooperation: &Arc<Cooperation>) -> Self {
        Self {
            bulletin: Arc::clone(bulletin),
            cooperation: Arc::clone(cooperation),
            homes: Mutex::default(),
            orders: Mutex::default(),
            progress: Mutex::default(),
        }
    }

    /// All orders, by their ids. One that this build cannot read is left out.
    pub(crate) fn all(&self) -> Vec<Entry<O>> {
        let orders = read(&mut self.orders.lock(), self.bulletin.all(O::KIND, |_| true));
        let progress = self.bulletin.all(Kind::Progress, |id| orders.contains_key(&id));
        let mut progress = read(&mut self.progress.lock(), progress);
        let ended: BTreeSet<u128> = self.bulletin.ids(|kind| kind == Kind::Cancel);
        let entries = orders.into_iter().map(|(id, order)| {
            let progress = progress.remove(&id).unwrap_or_default();
            let progress = if ended.contains(&id) {
                self.ended_early(id, &order, progress)
            } else {
                progress
            };
            Entry { id, order, progress }
        });
        entries.collect()
    }

    /// The order with this id.
    pub(crate) fn get(&self, id: u128) -> Option<Entry<O>> {
        let order: Arc<O> = Arc::new(serde_json::from_slice(&self.body(id, O::KIND)?).ok()?);
        let progress = self.body(id, Kind::Progress);
        let progress = progress.and_then(|body| serde_json::from_slice(&body).ok());
        let progress = self.ended_early(id, &order, Arc::new(progress.unwrap_or_default()));
        Some(Entry { id, order, progress })
    }

    /// Whether an order has this id.
    pub(crate) fn has(&self, id: u128) -> bool {
        self.body(id, O::KIND).is_some()
    }

    /// Whether an operator has ended an order.
    pub(crate) fn is_cancelled(&self, id: u128) -> bool {
        self.body(id, Kind::Cancel).is_some()
    }

    /// Notes changes of the records from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.bulletin.changes()
    }

    /// The bulletin that has the records.
    pub(crate) fn bulletin(&self) -> &Bulletin {
        &self.bulletin
    }

    /// The id of an order that comes now. No node forgets it as one of those that are forgotten, whatever the
    /// clocks of nodes say.
    pub(crate) fn next_id(&self, now: SystemTime) -> u128 {
        new_id(now).max(self.bulletin.floor().below.saturating_add(1))
    }

    /// Writes an order for all nodes.
    pub(crate) fn write(&self, id: u128, order: &O) -> Result<(), NotTaken> {
        let body = serde_json::to_vec(order).expect("an order is JSON");
        self.put(Key { id, kind: O::KIND }, order, body)
    }

    /// Writes for all nodes how far an order is. A failure is in the log.
    pub(crate) fn report(&self, id: u128, order: &O, progress: Vec<u8>) -> Result<(), NotTaken> {
        let written = self.put(
            Key {
                id,
                kind: Kind::Progress,
            },
            order,
            progress,
        );
        written.inspect_err(|error| {
            let (id, kind) = (Ulid(id), O::KIND);
            tracing::warn!(%id, ?kind, %error, "the progress of an order is not known to other nodes");
        })
    }

    /// Ends an order, and its pins.
    pub(crate) fn end_early(&self, id: u128, order: &O) -> Result<(), NotTaken> {
        let body = serde_json::to_vec(&now()).expect("a time is JSON");
        self.put(
            Key {
                id,
                kind: Kind::Cancel,
            },
            order,
            body,
        )
    }

    /// Whether this node is to carry an order out.
    pub(crate) fn is_mine(&self, id: u128) -> bool {
        self.homes.lock().of(&self.cooperation, id) == self.cooperation.me()
    }

    /// Whether this node is to carry an order out, or would be if the one that is was gone.
    pub(crate) fn may_run(&self, id: u128) -> bool {
        self.homes.lock().may_run(&self.cooperation, id)
    }

    /// Whether this node may know the other nodes.
    pub(crate) fn may_know_all(&self) -> bool {
        self.homes.lock().may_know_all(&self.cooperation)
    }

    /// A digest of the nodes that are there, and how long they have been the same.
    pub(crate) fn members(&self) -> (u64, Duration) {
        self.homes.lock().members(&self.cooperation)
    }

    fn body(&self, id: u128, kind: Kind) -> Option<Arc<[u8]>> {
        self.bulletin.get(Key { id, kind })
    }

    fn put(&self, key: Key, order: &O, body: Vec<u8>) -> Result<(), NotTaken> {
        let forgotten = order.forgotten().time();
        self.bulletin.put(key, body, forgotten)
    }

    /// The progress of an order, with its early end if it has one.
    fn ended_early(&self, id: u128, order: &O, progress: Arc<O::Progress>) -> Arc<O::Progress> {
        let Some(ended) = self.body(id, Kind::Cancel) else {
            return progress;
        };
        let ended = serde_json::from_slice(&ended).unwrap_or_else(|_| now());
        let mut progress = Arc::unwrap_or_clone(progress);
        order.end_early(&mut progress, ended);
        Arc::new(progress)
    }
}

/// The records of one kind, read. Only those that are not among the `known` ones are read now.
fn read<T: DeserializeOwned>(known: &mut Read<T>, bodies: Vec<(u128, Arc<[u8]>)>) -> BTreeMap<u128, Arc<T>> {
    let mut before = std::mem::take(known);
    let mut all = BTreeMap::new();
    for (id, body) in bodies {
        let same = before.remove(&id).filter(|(read, _)| Arc::ptr_eq(read, &body));
        let (body, value) = same.unwrap_or_else(|| {
            let value = serde_json::from_slice(&body).inspect_err(|error| {
                let id = Ulid(id);
                tracing::warn!(%id, %error, "a record of an order is of another build and is ignored");
            });
            (body, value.ok().map(Arc::new))
        });
        if let Some(value) = &value {
            all.insert(id, Arc::clone(value));
        }
        known.insert(id, (body, value));
    }
    all
}

/// A new id; later ones are greater.
pub(crate) fn new_id(now: SystemTime) -> u128 {
    let millis = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let random = u128::from(shoal_base::chance::bits()) << 64 | u128::from(shoal_base::chance::bits());
    Ulid::from_parts(millis.as_millis() as u64, random).0
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use serde_json::json;

    use super::{Bulletin, Key, Kind, Records, new_id};
    use crate::channel::Channel;
    use crate::clock;
    use crate::cooperation::Cooperation;
    use crate::peer::PeerConnector;
    use crate::plans::PlanOrder;
    use crate::tasks::{Order, TaskState};

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
        let peers = PeerConnector::new(Arc::new(channel));
        Arc::new(Cooperation::new("n0", "dc1/a", 1, peers))
    }

    fn put(bulletin: &Bulletin, kind: Kind, body: &serde_json::Value) -> u128 {
        let now = clock::utc_now();
        let (id, body) = (new_id(now), serde_json::to_vec(body).unwrap());
        let expires = now + Duration::from_hours(1);
        bulletin.put(Key { id, kind }, body, expires).unwrap();
        id
    }

    fn task() -> serde_json::Value {
        json!({
            "kind": "prefetch", "uri": "s3://b/p", "created": "2026-11-24T00:00:00Z", "accepted_by": "n0",
            "forgotten": "2026-12-02T00:00:00Z",
        })
    }

    fn plan(succession: u64) -> serde_json::Value {
        json!({
            "created": "2026-11-24T00:00:00Z", "accepted_by": "n0", "document_bytes": 1,
            "starts": "2026-11-24T00:00:00Z", "ends": "2026-11-24T01:00:00Z", "job_count": 1,
            "planned_count": 1, "transfer_count": 1, "succession": succession,
            "forgotten": "2026-11-25T01:00:00Z",
        })
    }

    #[test]
    fn tasks_and_plans_are_told_apart_by_the_kinds_of_their_records() {
        let (bulletin, cooperation) = (Bulletin::in_memory(1), cooperation());
        let tasks = Records::<Order>::new(&bulletin, &cooperation);
        let plans = Records::<PlanOrder>::new(&bulletin, &cooperation);
        let task = put(&bulletin, Kind::Task, &task());
        let plan = put(&bulletin, Kind::Plan, &plan(3));
        let ids = |kind: fn(Kind) -> bool| bulletin.ids(kind).len();
        assert_eq!(ids(Kind::is_order), 2);
        assert_eq!(
            tasks.all().iter().map(|entry| entry.id).collect::<Vec<_>>(),
            [task]
        );
        assert_eq!(
            plans.all().iter().map(|entry| entry.id).collect::<Vec<_>>(),
            [plan]
        );
        assert_eq!(plans.all()[0].order.succession, 3);
        assert!(tasks.has(task) && !tasks.has(plan) && plans.has(plan) && !plans.has(task));
        assert!(tasks.get(plan).is_none() && plans.get(task).is_none());

        let entry = tasks.get(task).unwrap();
        tasks.end_early(task, &entry.order).unwrap();
        assert_eq!(tasks.get(task).unwrap().progress.state, TaskState::Cancelled);
        assert!(tasks.is_cancelled(task) && !plans.is_cancelled(plan));
    }

    #[test]
    fn records_of_another_build_are_ignored_and_named_once_in_the_log() {
        let (bulletin, cooperation) = (Bulletin::in_memory(1), cooperation());
        let tasks = Records::<Order>::new(&bulletin, &cooperation);
        let plans = Records::<PlanOrder>::new(&bulletin, &cooperation);
        // Builds before kinds told a plan by the first field of its order.
        let mut old = plan(0);
        old["kind"] = "plan".into();
        let old = put(&bulletin, Kind::Task, &old);
        let damaged = put(&bulletin, Kind::Plan, &json!({ "created": 7 }));
        let known = put(&bulletin, Kind::Task, &task());

        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..3 {
                let all = tasks.all();
                assert_eq!(all.iter().map(|entry| entry.id).collect::<Vec<_>>(), [known]);
                assert!(plans.all().is_empty());
            }
        });
        assert!(tasks.get(old).is_none() && plans.get(old).is_none());
        let log = String::from_utf8(log.0.lock().clone()).unwrap();
        assert_eq!(
            log.matches("is of another build and is ignored").count(),
            2,
            "{log}"
        );
        for id in [old, damaged] {
            assert!(log.contains(&ulid::Ulid(id).to_string()), "{log}");
        }
    }
}
