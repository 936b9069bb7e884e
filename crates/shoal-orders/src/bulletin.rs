//! Small records that all nodes of a cluster have: the orders of operators, and their progress.
//!
//! Each node keeps all of them, in memory and in a journal on its disk. The last writer wins, by counter and
//! then by node. A few times a second at most, and once a second at least, a node compares its records with
//! those of another one at random, and each takes the newer records of the other ([`exchange`]).
//!
//! Numbers of other nodes are checked, and each author has room of its own: a node that writes nonsense, or
//! much, takes no room from the others. Where room is needed, the records of old ids end for all nodes at
//! once ([`Floor`]).
//!
//! Records are soft: while nodes cannot reach each other, two of them may act on one order. That costs work,
//! and never makes an answer wrong.

mod board;
pub(crate) mod exchange;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use shoal_base::chance;
use shoal_base::moment::millis_since_1970;
use shoal_store::journal::{Journal, JournalError};
use shoal_store::{FileRoom, Store};
use tokio::sync::watch;

#[cfg(test)]
pub use self::board::RECORD_BYTES_MAX;
pub use self::board::{FLOOR_AGE, FLOOR_KEPT_MAX, Floor, Key, Kind, NotTaken};
pub use self::exchange::{BULLETIN, MESSAGE_BYTES_MAX};

use shoal_cache::cooperation::Cooperation;
use shoal_cache::peer::Peer;
use shoal_net::clock;
use shoal_net::shutdown::Shutdown;

use self::board::{BYTES_MAX, Board, FLOOR, LIFE_MAX, Record};
use self::exchange::{Comparison, Message};

/// The interval at which a node compares its records with those of another one.
const ROUND: Duration = Duration::from_secs(1);

/// The interval after a change: a change reaches a thousand nodes in ten such steps.
const ROUND_WITH_NEWS: Duration = Duration::from_millis(100);

/// The number of rounds in which a change is news.
const NEWS_ROUNDS: u32 = 3;

/// The time that another node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The number of nodes with which a node that catches up compares its records at a time.
const AT_ONCE: usize = 16;

/// Maximum number of messages with records to one node in one round.
const TRADES: usize = 64;

/// The records that this node has.
pub struct Bulletin {
    /// This node.
    me: u64,
    board: Mutex<Board>,
    journal: Mutex<Option<Journal>>,
    changes: watch::Sender<()>,
}

impl Bulletin {
    /// Opens the bulletin of the node `me` with the records of its journal in `store`.
    ///
    /// # Errors
    ///
    /// The journal cannot be read.
    pub fn open(me: u64, store: &Store) -> Result<Arc<Self>, JournalError> {
        let mut board = Board::default();
        board.set_members([me].into());
        let now_ms = millis_since_1970(clock::utc_now());
        let path = store.node_folder().join("bulletin");
        let journal = Journal::open(&path, FileRoom::new(store), |line| {
            if let Ok((key, record)) = exchange::read::<(Key, Record)>(line) {
                // Each line is newer than those before it.
                let _ = board.take(key, record, now_ms);
            }
        })?;
        Ok(Arc::new(Self {
            me,
            board: Mutex::new(board),
            journal: Mutex::new(Some(journal)),
            changes: watch::Sender::new(()),
        }))
    }

    /// Creates the bulletin of the node `me` without a journal.
    #[cfg(test)]
    pub fn in_memory(me: u64) -> Arc<Self> {
        Arc::new(Self {
            me,
            board: Mutex::default(),
            journal: Mutex::default(),
            changes: watch::Sender::new(()),
        })
    }

    /// Writes a record in place of the one with this key. All nodes forget it at `expires`.
    ///
    /// # Errors
    ///
    /// Fails if the record is not written.
    pub fn put(&self, key: Key, body: impl Into<Arc<[u8]>>, expires: SystemTime) -> Result<(), NotTaken> {
        let record = {
            let mut board = self.board.lock();
            let record = Record {
                stamp: board.next_stamp(key, self.me),
                expires_ms: millis_since_1970(expires),
                body: body.into(),
            };
            board.take(key, record.clone(), millis_since_1970(clock::utc_now()))?;
            record
        };
        self.write_down(&[(key, record)]);
        self.changes.send_replace(());
        Ok(())
    }

    /// Returns the content of the record with this key.
    pub fn get(&self, key: Key) -> Option<Arc<[u8]>> {
        self.board.lock().get(key).map(|record| Arc::clone(&record.body))
    }

    /// Returns the keys of the records that were taken, replaced or forgotten since the last call, in their
    /// order.
    pub fn take_changed(&self) -> Vec<Key> {
        let changed = self.board.lock().take_changed();
        changed.into_iter().collect()
    }

    /// Returns the ids of all records of a kind.
    pub fn ids(&self, kind: Kind) -> BTreeSet<u128> {
        let board = self.board.lock();
        let keys = board.records().map(|(key, _)| key);
        keys.filter(|key| key.kind == kind).map(|key| key.id).collect()
    }

    /// Returns the number of records, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        let board = self.board.lock();
        (board.len(), board.bytes())
    }

    /// Returns true if there is room for another order: there are fewer than `orders_max`, and half of the
    /// bytes are left for the progress of known orders; or this node has not used its share.
    pub fn has_room(&self, orders_max: usize) -> bool {
        let board = self.board.lock();
        let (mut orders, mut mine) = (0, 0);
        for (_, record) in board.records().filter(|(key, _)| key.kind == Kind::Order) {
            orders += 1;
            mine += usize::from(record.stamp.node == self.me);
        }
        let authors = board.member_count().max(1);
        let fits_bytes =
            board.bytes() <= BYTES_MAX / 2 || board.room_of(self.me).bytes <= BYTES_MAX / (4 * authors);
        let fits_orders = orders < orders_max || mine < orders_max / (2 * authors);
        fits_bytes && fits_orders
    }

    /// Makes all nodes forget the records of old ids, to make room.
    ///
    /// # Errors
    ///
    /// Fails if they are not forgotten.
    pub fn forget(&self, floor: &Floor) -> Result<(), NotTaken> {
        self.put(FLOOR, exchange::written(floor), clock::utc_now() + LIFE_MAX)
    }

    /// Returns the ids that are forgotten.
    pub fn floor(&self) -> Floor {
        self.board.lock().floor().clone()
    }

    /// Returns a receiver of changes from now on.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Answers another node.
    pub fn answer(&self, message: &[u8]) -> Option<Vec<u8>> {
        match exchange::read(message).ok()? {
            Message::Compare(digests) => {
                let comparison = exchange::compare(&self.board.lock(), &digests);
                Some(exchange::written(&comparison))
            }
            Message::Trade { given, wanted } => {
                self.take(given);
                let records = exchange::records(&self.board.lock(), wanted);
                Some(exchange::written(&records))
            }
        }
    }

    /// Compares records with other nodes until this node stops.
    pub async fn run(self: Arc<Self>, cooperation: Arc<Cooperation>, stopping: Shutdown) {
        let (mut changes, mut news) = (self.changes(), 0);
        loop {
            let pause = if news > 0 { ROUND_WITH_NEWS } else { ROUND };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = changes.changed(), if news == 0 => news = NEWS_ROUNDS,
                () = stopping.begun() => return,
            }
            news = if changes.has_changed().unwrap_or(false) {
                changes.mark_unchanged();
                NEWS_ROUNDS
            } else {
                u32::saturating_sub(news, 1)
            };
            let now_ms = millis_since_1970(clock::utc_now());
            if self.board.lock().forget_expired(now_ms) {
                self.changes.send_replace(());
            }
            let members = cooperation.members();
            let members = members.iter().map(|member| member.id().0).chain([self.me]);
            self.board.lock().set_members(members.collect());
            let peers = cooperation.peers();
            let reachable: Vec<_> = peers.iter().filter(|peer| peer.is_reachable()).collect();
            if let Some(peer) = reachable.get(chance::bits() as usize % reachable.len().max(1)) {
                tokio::select! {
                    () = self.round(peer) => {}
                    () = stopping.begun() => return,
                }
            }
        }
    }

    /// Makes the records of this node and of all others the same, as far as these answer within
    /// [`PATIENCE`].
    pub async fn catch_up(&self, cooperation: &Cooperation) {
        let peers = cooperation.peers();
        let reachable = peers.iter().filter(|peer| peer.is_reachable());
        let rounds = stream::iter(reachable).for_each_concurrent(AT_ONCE, |peer| self.round(peer));
        // A node that does not answer now is asked again later.
        let _ = tokio::time::timeout(PATIENCE, rounds).await;
    }

    /// Makes the records of this node and another one the same.
    async fn round(&self, peer: &Peer) {
        for _ in 0..TRADES {
            let digests = self.board.lock().digests().to_vec();
            let Some(comparison) = ask::<Comparison>(peer, &Message::Compare(digests)).await else {
                return;
            };
            if comparison.buckets.is_empty() {
                return;
            }
            let trade = exchange::trade(&self.board.lock(), &comparison);
            let Some(records) = ask::<Vec<(Key, Record)>>(peer, &trade).await else {
                return;
            };
            let gives_nothing = matches!(&trade, Message::Trade { given, .. } if given.is_empty());
            // Otherwise the nodes would exchange a record that neither takes for ever.
            if !self.take(records) && gives_nothing {
                return;
            }
        }
    }

    /// Takes the records of another node that are newer. Returns true if there was any.
    fn take(&self, records: Vec<(Key, Record)>) -> bool {
        let now_ms = millis_since_1970(clock::utc_now());
        let taken: Vec<_> = {
            let mut board = self.board.lock();
            let taken = records.into_iter().filter(is_plausible);
            taken
                .filter(|(key, record)| board.take(*key, record.clone(), now_ms).is_ok())
                .collect()
        };
        if taken.is_empty() {
            return false;
        }
        self.write_down(&taken);
        self.changes.send_replace(());
        true
    }

    /// Writes records into the journal. A few hundred bytes go to the page cache.
    fn write_down(&self, records: &[(Key, Record)]) {
        let mut journal = self.journal.lock();
        let Some(open) = journal.as_mut() else { return };
        let written = records
            .iter()
            .try_for_each(|record| open.append(&exchange::written(record)));
        let board = self.board.lock();
        let written = if open.is_mostly_dead((board.bytes() + 64 * board.len()) as u64) {
            written.and_then(|()| open.rewrite(board.records().map(|record| exchange::written(&record))))
        } else {
            written
        };
        if let Err(error) = written {
            // Other nodes have the records, too; without them a restart forgets what is lost here.
            tracing::warn!(%error, "records of tasks are not written down; they are in memory only");
        }
    }
}

/// Returns true if a node may have written the body of a record: bodies are JSON, of this release or of
/// another.
fn is_plausible((key, record): &(Key, Record)) -> bool {
    *key == FLOOR || serde_json::from_slice::<serde::de::IgnoredAny>(&record.body).is_ok()
}

async fn ask<T: for<'a> serde::Deserialize<'a>>(peer: &Peer, message: &Message) -> Option<T> {
    let answer = peer
        .ask(BULLETIN, exchange::written(message), MESSAGE_BYTES_MAX, PATIENCE)
        .await;
    match answer {
        Ok(answer) => exchange::read(&answer).ok(),
        Err(error) => {
            tracing::debug!(peer = peer.name, %error, "records were not compared");
            None
        }
    }
}
