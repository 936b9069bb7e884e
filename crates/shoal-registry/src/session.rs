//! How long a node may act, and which node acts for one that is gone.
//!
//! A node has a session with the registry, and renews it. While the session lasts, no other node ends its
//! changes at the lake. A node believes in its session for less long than the registry does: it counts from
//! before it sent the renewal, by its own monotonic clock, and adds the time for which its machine was
//! suspended. A node that finds its session over sends nothing more to the lake, and begins another life.
//!
//! A node that was killed need not wait for its session to end: it keeps the name of its life and session in
//! a file that only one process at a time uses, and takes its own session over. The changes of the earlier
//! life are as if that session had gone on until its time was over: see [`Session::earlier_lasts_until`].
//!
//! The lists of a node whose session is over are worked off by one other node, which holds a key of its own
//! for that as long as its own session lasts.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;
use shoal_base::{chance, clock};
use tokio::time::Instant;
use ulid::Ulid;

use crate::engine::{
    At, Change, Condition, Engine, EngineError, Outcome, Range, Revision, SessionId, Stored, Transaction,
};
use crate::entry::Owner;
use crate::keys::{LIVES, MEMBERS, adopter, life, member, node_in};
use crate::moment::Moment;

/// The number of nodes that are read at a time.
const PAGE: usize = 1024;

/// A node's session with the registry.
#[derive(Debug)]
pub struct Session {
    engine: Arc<dyn Engine>,
    node: u64,
    time_to_live: Duration,
    life: Mutex<Option<Life>>,
    /// The last life that this process has tried to begin.
    last_life: Mutex<Option<Ulid>>,
    /// Where the node finds its latest life after it was killed.
    kept_in: Option<PathBuf>,
    earlier: Mutex<Earlier>,
}

/// The session of a life that this one has taken over.
#[derive(Clone, Copy, Debug, Default)]
struct Earlier {
    /// The life, until its session is closed.
    unclosed: Option<KeptLife>,
    lasts_until: Option<Instant>,
}

/// A life of a node and its session, as the node keeps them in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeptLife {
    life: Ulid,
    session: SessionId,
}

impl KeptLife {
    fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let (life, session) = text.trim_end().split_once(' ')?;
        Some(Self {
            life: Ulid::from_string(life).ok()?,
            session: SessionId(session.parse().ok()?),
        })
    }

    /// Returns whether it is the life that the registry has.
    fn is(self, stored: &Stored) -> bool {
        stored.value == self.life.to_string().as_bytes()
    }

    /// Replaces the file. A power cut may lose it: the node then waits for its session to end.
    fn write(self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        writeln!(options.open(&new)?, "{} {}", self.life, self.session.0)?;
        fs::rename(new, path)
    }
}

/// The membership of a node as it was read. It changes each time the node opens a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    node: u64,
    revision: Option<Revision>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    owner: Owner,
    session: SessionId,
    /// From before the registry was asked to renew it.
    renewed: Moment,
}

impl Session {
    /// A session that is not open yet. The node is taken for dead when it has not renewed it for
    /// `time_to_live`.
    pub fn new(engine: Arc<dyn Engine>, node: u64, time_to_live: Duration) -> Self {
        Self {
            engine,
            node,
            time_to_live,
            life: Mutex::new(None),
            last_life: Mutex::new(None),
            kept_in: None,
            earlier: Mutex::default(),
        }
    }

    /// The same session, whose node takes its own earlier one over after it was killed. The latest life is
    /// kept in `file`. The caller makes sure that one process at a time uses the file, so that the process of
    /// an earlier life is gone.
    #[must_use]
    pub fn kept_in(mut self, file: PathBuf) -> Self {
        self.kept_in = Some(file);
        self
    }

    /// When the session of an earlier life that this node has taken over would have ended by its own clock.
    /// The requests of that life to the lake may be sent until then, as far as this node knows.
    pub fn earlier_lasts_until(&self) -> Option<Instant> {
        self.earlier.lock().lasts_until
    }

    /// The owner of what this node begins now; `None` if its session may be over.
    pub fn owner(&self) -> Option<Owner> {
        self.current().map(|life| life.owner)
    }

    /// Whether `owner` is this node, and its session lasts.
    pub fn is_of(&self, owner: Owner) -> bool {
        self.owner() == Some(owner)
    }

    fn current(&self) -> Option<Life> {
        let life = *self.life.lock();
        life.filter(|life| life.renewed.elapsed() < self.time_to_live)
    }

    /// Renews the session; opens one if there is none or it is over. To be called several times within its
    /// time to live.
    ///
    /// # Errors
    ///
    /// The session was not renewed. It lasts as long as it did before.
    pub async fn keep(&self) -> Result<(), EngineError> {
        let began = Moment::now();
        let Some(current) = self.current() else {
            return self.open(began).await;
        };
        match self.engine.renew_session(current.session).await {
            Ok(()) => {
                self.lasts(current.owner, current.session, began);
                Ok(())
            }
            Err(EngineError::SessionEnded) => self.open(Moment::now()).await,
            Err(error) => Err(error),
        }
    }

    /// Opens a session, unless another process uses the id of this node: each would take the other's changes
    /// for those of an earlier life. A node that has crashed takes its earlier session over, or waits until
    /// it ends.
    async fn open(&self, began: Moment) -> Result<(), EngineError> {
        *self.life.lock() = None;
        let present = self.engine.get(&life(self.node)).await?;
        if let Some(present) = present.as_ref().filter(|present| !self.is_own(present)) {
            let unclosed = self.earlier.lock().unclosed;
            let earlier = unclosed.or_else(|| self.kept_life());
            let earlier = earlier.filter(|earlier| earlier.is(present));
            self.earlier.lock().unclosed = Some(earlier.ok_or_else(another_life)?);
        }
        let session = self.engine.open_session(self.time_to_live).await?;
        let owner = Owner {
            node: self.node,
            life: new_id(),
        };
        *self.last_life.lock() = Some(owner.life);
        let unchanged = Condition {
            key: life(self.node),
            revision: present.map(|stored| stored.revision),
        };
        let put = |key, value, session| Change::Put { key, value, session };
        let transaction = Transaction {
            conditions: vec![unchanged],
            changes: vec![
                put(life(self.node), owner.life.to_string().into(), Some(session)),
                put(member(self.node), Bytes::new(), None),
            ],
        };
        if self.engine.commit(transaction).await? == Outcome::Conflict {
            return Err(another_life());
        }
        let life = owner.life;
        if let Some(file) = &self.kept_in
            && let Err(error) = (KeptLife { life, session }).write(file)
        {
            tracing::debug!(%error, file = %file.display(), "the life of this node is not kept");
        }
        self.close_earlier().await?;
        self.lasts(owner, session, began);
        Ok(())
    }

    /// The life that the process before this one left. A process that has had a life of its own takes none
    /// over: if it was frozen, then another may have taken over its own.
    fn kept_life(&self) -> Option<KeptLife> {
        let is_first = self.last_life.lock().is_none();
        let file = self.kept_in.as_deref().filter(|_| is_first)?;
        KeptLife::read(file)
    }

    /// Returns whether a life of this node is one that this process has begun.
    fn is_own(&self, stored: &Stored) -> bool {
        let last = *self.last_life.lock();
        last.is_some_and(|last| stored.value == last.to_string().as_bytes())
    }

    /// Ends the session that this node has taken over, so that nothing can renew it.
    async fn close_earlier(&self) -> Result<(), EngineError> {
        let unclosed = self.earlier.lock().unclosed;
        let Some(earlier) = unclosed else { return Ok(()) };
        match self.engine.close_session(earlier.session).await {
            Ok(()) | Err(EngineError::SessionEnded) => {}
            Err(error) => return Err(error),
        }
        *self.earlier.lock() = Earlier {
            unclosed: None,
            lasts_until: Some(Instant::now() + self.time_to_live),
        };
        Ok(())
    }

    fn lasts(&self, owner: Owner, session: SessionId, began: Moment) {
        *self.life.lock() = Some(Life {
            owner,
            session,
            renewed: began,
        });
    }

    /// Ends the session, so that other nodes need not wait before they act for this one.
    ///
    /// # Errors
    ///
    /// The registry was not reached: the session ends by itself.
    pub async fn close(&self) -> Result<(), EngineError> {
        let life = self.life.lock().take();
        match life {
            Some(life) => self.engine.close_session(life.session).await,
            None => Ok(()),
        }
    }

    /// The nodes that have lists and no session, in ascending order.
    ///
    /// # Errors
    ///
    /// Fails if the registry cannot be asked.
    pub async fn dead_nodes(&self) -> Result<Vec<u64>, EngineError> {
        let mut dead = self.nodes_below(MEMBERS).await?;
        // Read later: a node that comes to life meanwhile is in the second list only.
        let living = self.nodes_below(LIVES).await?;
        dead.retain(|node| !living.contains(node));
        Ok(dead)
    }

    /// Makes this node the one that acts for a dead node, as long as its own session lasts. Returns `false`
    /// if another node does, or if the node is alive again.
    ///
    /// # Errors
    ///
    /// It is not known whether this node acts for the other: it must not.
    pub async fn adopt(&self, dead: u64) -> Result<bool, EngineError> {
        let Some(current) = self.current() else {
            return Ok(false);
        };
        let absent = |key| Condition { key, revision: None };
        let transaction = Transaction {
            conditions: vec![absent(adopter(dead)), absent(life(dead))],
            changes: vec![Change::Put {
                key: adopter(dead),
                value: current.owner.life.to_string().into(),
                session: Some(current.session),
            }],
        };
        let is_adopted = self.engine.commit(transaction).await? != Outcome::Conflict;
        // The answer to an earlier try may have been lost.
        Ok(is_adopted || self.acts_for(dead).await?)
    }

    /// Whether this node still acts for a dead node: that one is not back, and no other has taken its place.
    ///
    /// # Errors
    ///
    /// Fails if the registry cannot be asked.
    pub async fn acts_for(&self, dead: u64) -> Result<bool, EngineError> {
        let is_dead = self.engine.get(&life(dead)).await?.is_none();
        Ok(is_dead && self.own_adoption(dead).await?.is_some())
    }

    /// Stops acting for a node that is back. When it dies again, any node can adopt it.
    ///
    /// # Errors
    ///
    /// No other node can adopt the node as long as this session lasts, unless this is tried again.
    pub async fn step_down(&self, from: u64) -> Result<(), EngineError> {
        let Some(own) = self.own_adoption(from).await? else {
            return Ok(());
        };
        let step_down = Transaction {
            changes: vec![Change::Delete { key: own.key.clone() }],
            conditions: vec![own],
        };
        // A conflict says that the key is no longer this session's.
        self.engine.commit(step_down).await.map(drop)
    }

    /// Reads the membership of a node, for [`Session::release`].
    ///
    /// # Errors
    ///
    /// Fails if the registry cannot be asked.
    pub async fn membership(&self, node: u64) -> Result<Membership, EngineError> {
        let stored = self.engine.get(&member(node)).await?;
        let revision = stored.map(|stored| stored.revision);
        Ok(Membership { node, revision })
    }

    /// Stops acting for a dead node of which nothing is left, and ends its membership. The membership must
    /// have been read before this node saw that the other one was dead and had nothing left. Returns `false`
    /// if that node has been back since, or if this node no longer acts for it; nothing has changed then.
    ///
    /// # Errors
    ///
    /// The node may still be a member. The next node that acts for it finds nothing to do.
    pub async fn release(&self, dead: &Membership) -> Result<bool, EngineError> {
        let Some(own) = self.own_adoption(dead.node).await? else {
            return Ok(false);
        };
        let (life, member) = (life(dead.node), member(dead.node));
        let delete = |key: &Bytes| Change::Delete { key: key.clone() };
        let changes = vec![delete(&own.key), delete(&member)];
        let is_dead = Condition {
            key: life,
            revision: None,
        };
        // Each life of a node begins with a change of this key.
        let no_life_since = Condition {
            key: member,
            revision: dead.revision,
        };
        let conditions = vec![own, is_dead, no_life_since];
        let outcome = self.engine.commit(Transaction { conditions, changes }).await?;
        Ok(outcome != Outcome::Conflict)
    }

    /// The key that makes this node the one that acts for a dead node, as it is now; `None` if it is not this
    /// node's.
    async fn own_adoption(&self, dead: u64) -> Result<Option<Condition>, EngineError> {
        let Some(current) = self.current() else {
            return Ok(None);
        };
        let key = adopter(dead);
        let me = current.owner.life.to_string();
        let own = self
            .engine
            .get(&key)
            .await?
            .filter(|own| own.value == me.as_bytes());
        Ok(own.map(|own| Condition {
            key,
            revision: Some(own.revision),
        }))
    }

    async fn nodes_below(&self, prefix: &'static [u8]) -> Result<Vec<u64>, EngineError> {
        let mut nodes = Vec::new();
        let mut after = Bytes::new();
        loop {
            let range = Range {
                prefix: Bytes::from_static(prefix),
                after,
                limit: PAGE,
                at: At::Newest,
            };
            let page = self.engine.range(range).await?;
            nodes.extend(page.entries.iter().filter_map(|(key, _)| node_in(key)));
            match page.entries.into_iter().next_back() {
                Some((last, _)) if page.has_more => after = last,
                _ => return Ok(nodes),
            }
        }
    }
}

/// The error while the id of this node is in use.
fn another_life() -> EngineError {
    EngineError::Refused(
        "the session of another node of this name, or of an earlier life of this one, still lasts; if this \
         does not end in some seconds, give each node a name of its own"
            .into(),
    )
}

/// A new id: of a dirty object, a change, or a node's life.
pub fn new_id() -> Ulid {
    let since_1970 = clock::utc_now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = since_1970.unwrap_or_default().as_millis() as u64;
    let random = u128::from(chance::bits()) << 64 | u128::from(chance::bits());
    Ulid::from_parts(millis, random)
}
