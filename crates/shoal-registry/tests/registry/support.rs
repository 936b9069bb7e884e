//! An in-memory engine that loses answers on command, and objects to write.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_registry::engine::{
    Change, Engine, EngineError, Outcome, Page, Range, Revision, Room, SessionId, Stored, Transaction,
};
use shoal_registry::session::new_id;
use shoal_registry::{Content, DirtyVersion, Lifetime};
use tokio::sync::oneshot;

pub(crate) const FENCE: Duration = Duration::from_secs(40);

/// A new dirty object of a node.
pub(crate) fn version(node: u64, record: &str) -> DirtyVersion {
    DirtyVersion {
        id: new_id(),
        node,
        size_bytes: record.len() as u64,
        lifetime: Lifetime::Normal,
        data: vec![record.into()],
        record: record.to_owned().into(),
        is_tombstone: false,
        content: None,
    }
}

/// A new tombstone of a node.
pub(crate) fn tombstone(node: u64) -> DirtyVersion {
    DirtyVersion {
        data: Vec::new(),
        is_tombstone: true,
        ..version(node, "")
    }
}

/// A new dirty object of a node whose bytes the registry keeps.
pub(crate) fn inline(node: u64, content: &'static str) -> DirtyVersion {
    DirtyVersion {
        data: Vec::new(),
        content: Some(Content(content.into())),
        ..version(node, content)
    }
}

/// A fault of the next transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It happens, and its answer is lost.
    AnswerLost,
    /// It does not happen, and its answer is lost.
    RequestLost,
    /// It does not happen: the engine is not reached, and the node knows.
    Unreached,
    /// It does not happen: a condition does not hold.
    Conflict,
}

/// The engine.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    revision: u64,
    keys: BTreeMap<Bytes, (Stored, Option<SessionId>)>,
    sessions_opened: u64,
    sessions: HashMap<u64, Duration>,
    faults: VecDeque<Fault>,
    page_max: Option<usize>,
    gives_way: bool,
    gets: usize,
    ranges: HashMap<Bytes, usize>,
    held_request: Option<oneshot::Receiver<()>>,
    held_answer: Option<oneshot::Receiver<()>>,
}

impl Memory {
    /// The faults of the next transactions, in order.
    pub(crate) fn fail(&self, faults: &[Fault]) {
        self.0.lock().faults.extend(faults);
    }

    /// Holds the next transaction back until the sender is used or dropped.
    pub(crate) fn hold_request(&self) -> oneshot::Sender<()> {
        let (release, held) = oneshot::channel();
        self.0.lock().held_request = Some(held);
        release
    }

    /// Holds the answer to the next transaction back until the sender is used or dropped.
    pub(crate) fn hold_answer(&self) -> oneshot::Sender<()> {
        let (release, held) = oneshot::channel();
        self.0.lock().held_answer = Some(held);
        release
    }

    /// Limits pages to this many keys from now on, whatever a range asks for.
    pub(crate) fn give_pages_of(&self, keys: usize) {
        self.0.lock().page_max = Some(keys);
    }

    /// Lets other tasks go on before each read from now on, as with a real engine.
    pub(crate) fn give_way(&self) {
        self.0.lock().gives_way = true;
    }

    /// Ends the session of a node as if the node had not renewed it.
    pub(crate) fn expire(&self, node: u64) {
        let mut state = self.0.lock();
        let (_, session) = state.keys[format!("n/{node:016x}").as_bytes()];
        state.end(session.expect("a life has a session"));
    }

    /// How often keys were read by name.
    pub(crate) fn gets(&self) -> usize {
        self.0.lock().gets
    }

    /// How often keys below a prefix were read in order.
    pub(crate) fn ranges(&self, prefix: &str) -> usize {
        let ranges = &self.0.lock().ranges;
        ranges.get(prefix.as_bytes()).copied().unwrap_or_default()
    }

    /// The keys that begin with `prefix`.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        let state = self.0.lock();
        let keys = state.keys.keys().filter(|key| key.starts_with(prefix.as_bytes()));
        keys.map(|key| String::from_utf8_lossy(key).into_owned())
            .collect()
    }
}

impl State {
    fn end(&mut self, session: SessionId) {
        self.sessions.remove(&session.0);
        self.keys.retain(|_, (_, of)| *of != Some(session));
    }

    fn commit_or_fail(&mut self, transaction: Transaction) -> Result<Outcome, EngineError> {
        match self.faults.pop_front() {
            None => self.commit(transaction),
            Some(Fault::Unreached) => Err(EngineError::Unavailable("no route".into())),
            Some(Fault::Conflict) => Ok(Outcome::Conflict),
            Some(Fault::RequestLost) => Err(EngineError::Unknown("the request is lost".into())),
            Some(Fault::AnswerLost) => {
                drop(self.commit(transaction));
                Err(EngineError::Unknown("the answer is lost".into()))
            }
        }
    }

    fn commit(&mut self, transaction: Transaction) -> Result<Outcome, EngineError> {
        let holds = transaction.conditions.iter().all(|condition| {
            self.keys.get(&condition.key).map(|(stored, _)| stored.revision) == condition.revision
        });
        if !holds {
            return Ok(Outcome::Conflict);
        }
        self.revision += 1;
        let revision = Revision(self.revision);
        for change in transaction.changes {
            match change {
                Change::Put { key, value, session } => {
                    if session.is_some_and(|session| !self.sessions.contains_key(&session.0)) {
                        return Err(EngineError::SessionEnded);
                    }
                    self.keys.insert(key, (Stored { value, revision }, session));
                }
                Change::Delete { key } => drop(self.keys.remove(&key)),
            }
        }
        Ok(Outcome::Committed(revision))
    }
}

async fn wait_for(held: Option<oneshot::Receiver<()>>) {
    if let Some(held) = held {
        drop(held.await);
    }
}

#[async_trait]
impl Engine for Memory {
    async fn get_together(&self, keys: &[Bytes]) -> Result<Vec<Option<Stored>>, EngineError> {
        let gives_way = self.0.lock().gives_way;
        if gives_way {
            tokio::task::yield_now().await;
        }
        let mut state = self.0.lock();
        state.gets += 1;
        let stored = |key| state.keys.get(key).map(|(stored, _)| stored.clone());
        Ok(keys.iter().map(stored).collect())
    }

    async fn range(&self, range: Range) -> Result<Page, EngineError> {
        let mut state = self.0.lock();
        *state.ranges.entry(range.prefix.clone()).or_default() += 1;
        let state = &*state;
        let wanted = |key: &&Bytes| key.starts_with(&range.prefix) && **key > range.after;
        let mut keys = state.keys.keys().filter(wanted);
        let entries = keys
            .by_ref()
            .take(range.limit.min(state.page_max.unwrap_or(usize::MAX)));
        let entries = entries
            .map(|key| (key.clone(), state.keys[key].0.clone()))
            .collect();
        let page = Page {
            entries,
            has_more: keys.next().is_some(),
        };
        Ok(page)
    }

    async fn count(&self, prefix: &[u8]) -> Result<u64, EngineError> {
        let state = self.0.lock();
        let count = state.keys.keys().filter(|key| key.starts_with(prefix)).count();
        Ok(count as u64)
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, EngineError> {
        let (request, answer) = {
            let mut state = self.0.lock();
            (state.held_request.take(), state.held_answer.take())
        };
        wait_for(request).await;
        let outcome = self.0.lock().commit_or_fail(transaction);
        wait_for(answer).await;
        outcome
    }

    async fn room(&self) -> Result<Room, EngineError> {
        let room = Room {
            used_bytes: 0,
            quota_bytes: 1 << 30,
        };
        Ok(room)
    }

    async fn open_session(&self, time_to_live: Duration) -> Result<SessionId, EngineError> {
        let mut state = self.0.lock();
        state.sessions_opened += 1;
        let id = state.sessions_opened;
        state.sessions.insert(id, time_to_live);
        Ok(SessionId(id))
    }

    async fn renew_session(&self, session: SessionId) -> Result<(), EngineError> {
        let lasts = self.0.lock().sessions.contains_key(&session.0);
        lasts.then_some(()).ok_or(EngineError::SessionEnded)
    }

    async fn close_session(&self, session: SessionId) -> Result<(), EngineError> {
        self.0.lock().end(session);
        Ok(())
    }
}
