//! Nodes over one registry, and their lake.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_registry::changes::{ChangedObject, Changes, LakeChange};
use shoal_registry::engine::Engine;
use shoal_registry::entry::Kind;
use shoal_registry::names::{BeginError, Names};
use shoal_registry::roots::{MapTable, Roots};
use shoal_registry::session::Session;
use shoal_registry::worker::{Flushing, Lake, NotFlushed, Pace, Packing, ROUND_MAX, Worker};
use shoal_registry::{DirtyVersion, MapName, Name};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use ulid::Ulid;

use crate::support::{FENCE, Memory, version};

pub(super) const SESSION: Duration = Duration::from_secs(10);
pub(super) const PACE: Pace = Pace {
    age: Duration::ZERO,
    short_age: Duration::from_hours(1),
    holds: true,
    parallel: 4,
    upload_age: Duration::from_hours(24),
};

/// Objects whose keys begin with this are packed.
const PACKED: &[u8] = b"packed/";

/// Their map.
pub(super) fn map() -> MapName {
    MapName::new("bucket", PACKED)
}

/// The lake's objects, and what it does with the next writes.
#[derive(Clone, Default)]
pub(super) struct TestLake(pub(super) Arc<Mutex<LakeState>>);

#[derive(Default)]
pub(super) struct LakeState {
    pub(super) objects: HashMap<Name, DirtyVersion>,
    pub(super) writes: usize,
    /// The number of tombstones in each request.
    pub(super) removals: Vec<usize>,
    pub(super) discarded: Vec<String>,
    pub(super) next: Vec<NotFlushed>,
    pub(super) latency: Duration,
    /// The keys of objects that a run still reads.
    pub(super) held: Vec<String>,
    /// The number of times it was asked about one.
    pub(super) asked_held: usize,
    /// How long objects that are due wait for others.
    pub(super) idle: Duration,
    /// The number of objects in each round.
    pub(super) rounds: Vec<usize>,
    /// The map that each table lists.
    pub(super) tables: HashMap<u64, Vec<MapTable>>,
    /// The tables that it was asked about.
    pub(super) asked_tables: Vec<u64>,
    /// True if it does not say which tables it has.
    pub(super) is_silent: bool,
}

impl Lake for TestLake {
    async fn flush(
        &self,
        name: &Name,
        version: &DirtyVersion,
        change: &LakeChange,
    ) -> Result<(), NotFlushed> {
        let latency = self.0.lock().latency;
        sleep(latency).await;
        if !change.permit().may_send() {
            return Err(NotFlushed::Lake("the session is over".into()));
        }
        let mut state = self.0.lock();
        state.writes += 1;
        if let Some(failure) = state.next.pop() {
            return Err(failure);
        }
        state.objects.insert(name.clone(), version.clone());
        Ok(())
    }

    async fn remove(&self, removals: &[Flushing]) -> Vec<Result<(), NotFlushed>> {
        let latency = self.0.lock().latency;
        sleep(latency).await;
        let mut state = self.0.lock();
        state.removals.push(removals.len());
        let mut outcomes = Vec::new();
        for Flushing { version, change } in removals {
            assert!(version.is_tombstone && change.permit().may_send());
            let failure = state.next.pop();
            if failure.is_none() {
                state.objects.remove(change.name());
            }
            outcomes.push(failure.map_or(Ok(()), Err));
        }
        outcomes
    }

    fn packing(&self, name: &Name) -> Option<Packing> {
        let (_, key) = name.parts();
        key.starts_with(PACKED).then(|| Packing {
            map: map(),
            idle: self.0.lock().idle,
        })
    }

    fn holds(&self, _: Ulid, name: &Name) -> bool {
        let (_, key) = name.parts();
        let mut state = self.0.lock();
        state.asked_held += 1;
        state.held.iter().any(|held| held.as_bytes() == key)
    }

    async fn pack(&self, of: &MapName, objects: &[Flushing]) -> Vec<Result<(), NotFlushed>> {
        assert!(*of == map() && objects.len() <= ROUND_MAX);
        let latency = self.0.lock().latency;
        sleep(latency).await;
        let mut state = self.0.lock();
        state.rounds.push(objects.len());
        let mut outcomes = Vec::new();
        for Flushing { version, change } in objects {
            assert!(!version.is_tombstone && change.permit().may_send());
            let failure = state.next.pop();
            if failure.is_none() {
                state.objects.insert(change.name().clone(), version.clone());
            }
            outcomes.push(failure.map_or(Ok(()), Err));
        }
        outcomes
    }

    async fn reserved_table(&self, of: &MapName, number: u64) -> Result<Option<Vec<MapTable>>, String> {
        assert_eq!(*of, map());
        let mut state = self.0.lock();
        state.asked_tables.push(number);
        if state.is_silent {
            return Err("the lake does not answer".into());
        }
        Ok(state.tables.get(&number).cloned())
    }

    async fn discard(&self, key: &str) -> bool {
        self.0.lock().discarded.push(key.to_owned());
        true
    }
}

/// One node.
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) names: Names,
    pub(super) session: Arc<Session>,
    pub(super) changes: Arc<Changes>,
    pub(super) roots: Roots,
    pub(super) worker: Arc<Worker<TestLake>>,
    pub(super) tasks: Vec<JoinHandle<()>>,
}

impl Node {
    pub(super) async fn start(id: u64, engine: &Arc<Memory>, lake: &TestLake) -> Self {
        let session = Session::new(Arc::clone(engine) as Arc<dyn Engine>, id, SESSION);
        Self::start_with(session, id, engine, lake).await
    }

    /// Starts node 1, which takes over the session of an earlier process that was killed.
    pub(super) async fn start_kept(folder: &Path, engine: &Arc<Memory>, lake: &TestLake) -> Self {
        let session = Session::new(Arc::clone(engine) as Arc<dyn Engine>, 1, SESSION);
        Self::start_with(session.kept_in(folder.join("life")), 1, engine, lake).await
    }

    pub(super) async fn start_with(session: Session, id: u64, engine: &Arc<Memory>, lake: &TestLake) -> Self {
        let engine = Arc::clone(engine) as Arc<dyn Engine>;
        let names = Names::new(engine, id, FENCE);
        let session = Arc::new(session);
        session.keep().await.unwrap();
        let changes = Arc::new(Changes::new(names.clone(), Arc::clone(&session)));
        let worker = Worker::new(Arc::clone(&changes), lake.clone(), PACE);
        let kept = Arc::clone(&session);
        let keeping = tokio::spawn(async move {
            loop {
                sleep(SESSION / 3).await;
                let _ = kept.keep().await;
            }
        });
        let working = tokio::spawn(Arc::clone(&worker).run(|error| panic!("{error}")));
        Self {
            id,
            roots: Roots::new(names.clone(), Arc::clone(&session)),
            names,
            session,
            changes,
            worker,
            tasks: vec![keeping, working],
        }
    }

    /// Ends the node at once. Its session lasts until the engine ends it.
    pub(super) fn kill(self) -> u64 {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.id
    }

    /// Ends the node and its session at once.
    pub(super) fn die(self, engine: &Memory) {
        engine.expire(self.kill());
    }

    pub(super) async fn write(&self, name: &Name, record: &str) -> DirtyVersion {
        let version = version(self.id, record);
        self.names.write(name, version.clone()).await.unwrap();
        version
    }

    /// Begins a change of the object that is dirty now.
    pub(super) async fn begin(&self, key: &str, kind: Kind) -> Result<LakeChange, BeginError> {
        self.changes
            .begin(&name(key), kind, ChangedObject::Current, None)
            .await
    }
}

pub(super) fn name(key: &str) -> Name {
    Name::new("bucket", key.as_bytes())
}
