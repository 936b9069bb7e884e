//! Determines how long a node may act, and which node acts for a dead one.
//!
//! A node has a session with the registry, and renews it. While the session lasts, no other node ends its
//! changes at the lake. A node considers its session over earlier than the registry does: it counts from
//! before it sent the renewal, by its own monotonic clock, and adds the time during which its machine was
//! suspended. A node whose session is over sends nothing more to the lake, and begins another life.
//!
//! A node that was killed need not wait for its session to end: it keeps the ids of its life and session in a
//! file that only one process at a time uses, and takes its own session over. The changes of the earlier life
//! are treated as if that session had lasted for its full time: see [`Session::earlier_lasts_until`].
//!
//! The lists of a dead node are processed by one other node, which holds a key of its own session for that.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use parking_lot::Mutex;
use shoal_base::moment::millis_since_1970;
use shoal_base::send_permit::SendPermit;
use shoal_base::{chance, clock};
use tokio::time::Instant;
use ulid::Ulid;

use crate::engine::{Change, Condition, Engine, EngineError, Outcome, SessionId, Stored, Transaction};
use crate::entry::Owner;
use crate::keys::{LIVES, MEMBERS, MapName, adopter, life, member, node_in};
use crate::moment::Moment;

/// Number of nodes on a page.
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
    /// The file that has the node's latest life, for use after it was killed.
    kept_in: Option<PathBuf>,
    /// An earlier life that this one has taken over, until its session is closed.
    unclosed: Mutex<Option<KeptLife>>,
    earlier_lasts_until: Mutex<Option<Instant>>,
    /// The reservations of tables' numbers that this process will end, whatever its life.
    pub(crate) reservations: Mutex<HashSet<Ulid>>,
}

/// A life of a node and its session, as stored in the file.
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

    /// Returns true if the registry has this life.
    fn is(self, stored: &Stored) -> bool {
        stored.value == self.life.to_string().as_bytes()
    }

    /// Replaces the file. If a power failure loses it, the node waits for its session to end.
    fn write(self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        writeln!(options.open(&new)?, "{} {}", self.life, self.session.0)?;
        fs::rename(new, path)
    }
}

#[derive(Clone, Copy, Debug)]
struct Life {
    owner: Owner,
    session: SessionId,
    /// From before the renewal was sent.
    renewed: Moment,
}

impl Session {
    /// Creates a session that is not open yet. The node is considered dead if it has not renewed the session
    /// for `time_to_live`.
    pub fn new(engine: Arc<dyn Engine>, node: u64, time_to_live: Duration) -> Self {
        Self {
            engine,
            node,
            time_to_live,
            life: Mutex::new(None),
            last_life: Mutex::new(None),
            kept_in: None,
            unclosed: Mutex::new(None),
            earlier_lasts_until: Mutex::new(None),
            reservations: Mutex::default(),
        }
    }

    /// Returns the same session with takeover: after the node was killed, it takes over its own earlier
    /// session. The latest life is kept in `file`. The caller must ensure that only one process uses the file
    /// at a time, so that the process of an earlier life has ended.
    #[must_use]
    pub fn kept_in(mut self, file: PathBuf) -> Self {
        self.kept_in = Some(file);
        self
    }

    /// Returns the time until which the session of an earlier life that this node has taken over would have
    /// lasted by its own clock. Until then, as far as this node knows, requests of that life may still be
    /// sent to the lake.
    pub fn earlier_lasts_until(&self) -> Option<Instant> {
        *self.earlier_lasts_until.lock()
    }

    /// Returns the owner of changes that this node begins now, or `None` if its session may be over.
    pub fn owner(&self) -> Option<Owner> {
        self.current().map(|life| life.owner)
    }

    /// Returns true if `owner` is the current life of this node, and its session lasts.
    pub fn is_of(&self, owner: Owner) -> bool {
        self.owner() == Some(owner)
    }

    fn current(&self) -> Option<Life> {
        let life = *self.life.lock();
        life.filter(|life| life.renewed.elapsed() < self.time_to_live)
    }

    /// Renews the session, or opens one if there is none or it is over. Must be called several times within
    /// its time to live.
    ///
    /// # Errors
    ///
    /// The session was not renewed. It lasts as long as before.
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

    /// Opens a session, unless another process uses this node's id: each would mistake the other's changes
    /// for those of an earlier life. A node that has crashed takes its earlier session over, or waits until
    /// it ends.
    async fn open(&self, began: Moment) -> Result<(), EngineError> {
        *self.life.lock() = None;
        let present = self.engine.get(&life(self.node)).await?;
        if let Some(present) = present.as_ref().filter(|present| !self.is_own(present)) {
            let unclosed = *self.unclosed.lock();
            let earlier = unclosed.or_else(|| self.kept_life());
            let earlier = earlier.filter(|earlier| earlier.is(present));
            *self.unclosed.lock() = Some(earlier.ok_or_else(another_life)?);
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
            tracing::debug!(%error, file = %file.display(), "the session file could not be written");
        }
        self.close_earlier().await?;
        self.lasts(owner, session, began);
        Ok(())
    }

    /// Returns the life that the previous process has left in the file. A process that has had a life of its
    /// own does not take one over: if it was suspended, another process may have taken over its own.
    fn kept_life(&self) -> Option<KeptLife> {
        let is_first = self.last_life.lock().is_none();
        let file = self.kept_in.as_deref().filter(|_| is_first)?;
        KeptLife::read(file)
    }

    /// Returns true if a stored life of this node was begun by this process.
    fn is_own(&self, stored: &Stored) -> bool {
        let last = *self.last_life.lock();
        last.is_some_and(|last| stored.value == last.to_string().as_bytes())
    }

    /// Closes the session that this node has taken over, so that it can no longer be renewed.
    async fn close_earlier(&self) -> Result<(), EngineError> {
        let unclosed = *self.unclosed.lock();
        let Some(earlier) = unclosed else { return Ok(()) };
        match self.engine.close_session(earlier.session).await {
            Ok(()) | Err(EngineError::SessionEnded) => {}
            Err(error) => return Err(error),
        }
        *self.earlier_lasts_until.lock() = Some(Instant::now() + self.time_to_live);
        *self.unclosed.lock() = None;
        Ok(())
    }

    fn lasts(&self, owner: Owner, session: SessionId, began: Moment) {
        assert_eq!(owner.node, self.node, "a node has sessions of its own only");
        *self.life.lock() = Some(Life {
            owner,
            session,
            renewed: began,
        });
    }

    /// Closes the session, so that other nodes can act for this one at once.
    ///
    /// # Errors
    ///
    /// The registry was not reached. The session will expire.
    pub async fn close(&self) -> Result<(), EngineError> {
        let life = self.life.lock().take();
        match life {
            Some(life) => self.engine.close_session(life.session).await,
            None => Ok(()),
        }
    }

    /// Returns the nodes that have lists but no session, in ascending order.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn dead_nodes(&self) -> Result<Vec<u64>, EngineError> {
        let mut dead = self.nodes_below(MEMBERS).await?;
        // Read after the members: a node that comes back in between is only found here.
        let living = self.nodes_below(LIVES).await?;
        dead.retain(|node| !living.contains(node));
        Ok(dead)
    }

    /// Makes this node act for a dead node while its own session lasts. Returns `false` if another node does,
    /// or if the dead node is back.
    ///
    /// # Errors
    ///
    /// The outcome is unknown, so this node must not act for the other one.
    pub async fn adopt(&self, dead: u64) -> Result<bool, EngineError> {
        let Some(current) = self.current() else {
            return Ok(false);
        };
        let transaction = Transaction {
            conditions: vec![Condition::absent(adopter(dead)), Condition::absent(life(dead))],
            changes: vec![Change::Put {
                key: adopter(dead),
                value: current.owner.life.to_string().into(),
                session: Some(current.session),
            }],
        };
        let is_adopted = self.engine.commit(transaction).await? != Outcome::Conflict;
        // The response to an earlier attempt may have been lost.
        Ok(is_adopted || self.acts_for(dead).await?)
    }

    /// Returns true if this node still acts for a dead node: that node is not back, and no other node acts
    /// for it.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn acts_for(&self, dead: u64) -> Result<bool, EngineError> {
        let is_dead = self.engine.get(&life(dead)).await?.is_none();
        Ok(is_dead && self.own_adoption(dead).await?.is_some())
    }

    /// Stops acting for a node that is back. When that node dies again, any node can adopt it.
    ///
    /// # Errors
    ///
    /// No other node can adopt the node while this session lasts, unless this is retried.
    pub async fn step_down(&self, from: u64) -> Result<(), EngineError> {
        let Some(own) = self.own_adoption(from).await? else {
            return Ok(());
        };
        let step_down = Transaction {
            changes: vec![Change::delete(own.key.clone())],
            conditions: vec![own],
        };
        // On a conflict, the key no longer belongs to this session.
        self.engine.commit(step_down).await.map(drop)
    }

    /// Reads the membership of a node, for [`Session::release`]. It changes whenever the node opens a
    /// session.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn membership(&self, node: u64) -> Result<Condition, EngineError> {
        let key = member(node);
        let stored = self.engine.get(&key).await?;
        let revision = stored.map(|stored| stored.revision);
        Ok(Condition { key, revision })
    }

    /// Stops acting for a dead node that has nothing left, and ends its membership, which must have been
    /// read before this node found that the other one was dead and had nothing left. Returns `false`, and
    /// changes nothing, if that node has been back since, or if this node no longer acts for it.
    ///
    /// # Errors
    ///
    /// The node may still be a member. The next node that acts for it finds nothing to do.
    pub async fn release(&self, dead: u64, membership: Condition) -> Result<bool, EngineError> {
        let Some(own) = self.own_adoption(dead).await? else {
            return Ok(false);
        };
        assert_eq!(
            membership.key,
            member(dead),
            "the membership is that of the dead node"
        );
        let changes = vec![
            Change::delete(own.key.clone()),
            Change::delete(membership.key.clone()),
        ];
        let is_dead = Condition::absent(life(dead));
        // Each life of a node begins with a change of its membership.
        let conditions = vec![own, is_dead, membership];
        let outcome = self.engine.commit(Transaction { conditions, changes }).await?;
        Ok(outcome != Outcome::Conflict)
    }

    /// Returns the condition that this node still acts for a dead node, or `None` if it does not.
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

    /// Makes this node the keeper of a map while its session lasts. Returns `false` if another node is.
    ///
    /// # Errors
    ///
    /// The outcome is unknown, so this node must not act as keeper.
    pub async fn keep_map(&self, map: &MapName) -> Result<bool, EngineError> {
        let Some(current) = self.current() else {
            return Ok(false);
        };
        let (key, me) = (map.keeper_key(), Bytes::from(current.owner.life.to_string()));
        loop {
            if let Some(keeper) = self.engine.get(&key).await? {
                return Ok(keeper.value == me);
            }
            let transaction = Transaction {
                conditions: vec![Condition::absent(key.clone())],
                changes: vec![Change::Put {
                    key: key.clone(),
                    value: me.clone(),
                    session: Some(current.session),
                }],
            };
            self.engine.commit(transaction).await?;
        }
    }

    /// Returns the permission to send to the lake while the current life of this node lasts; `None` if its
    /// session may be over.
    pub fn permit(self: &Arc<Self>) -> Option<SendPermit> {
        let (session, owner) = (Arc::clone(self), self.owner()?);
        Some(SendPermit::new(move || session.is_of(owner)))
    }

    async fn nodes_below(&self, prefix: &'static [u8]) -> Result<Vec<u64>, EngineError> {
        let all = self.engine.all(Bytes::from_static(prefix), PAGE);
        let nodes = all.try_filter_map(async |(key, _)| Ok(node_in(&key)));
        nodes.try_collect().await
    }
}

/// Returns the error while another process uses this node's id.
fn another_life() -> EngineError {
    EngineError::Refused(
        "the session of another node of this name, or of an earlier life of this one, still lasts; if this \
         does not end in some seconds, give each node a name of its own"
            .into(),
    )
}

/// Returns a new id, for a dirty object, a change, or a life of a node. It is greater than those that this
/// process has made before, unless its clock was set back.
pub fn new_id() -> Ulid {
    static LAST: Mutex<Ulid> = Mutex::new(Ulid::nil());
    let random = u128::from(chance::bits()) << 64 | u128::from(chance::bits());
    let id = Ulid::from_parts(millis_since_1970(clock::utc_now()), random);
    let mut last = LAST.lock();
    *last = if id.timestamp_ms() == last.timestamp_ms() {
        id.max(id_after(*last))
    } else {
        id
    };
    *last
}

/// Returns a new id that is greater than `id`, for a version that follows one of a node whose clock is ahead.
pub fn new_id_after(id: Ulid) -> Ulid {
    new_id().max(id_after(id))
}

fn id_after(id: Ulid) -> Ulid {
    Ulid(id.0.saturating_add(1))
}
