//! Removes the pieces of a tier that nothing references.
//!
//! A piece is written before the registry names it, and loses its name only when it is about to be removed.
//! So a crash may leave unreferenced pieces, but never a name without its piece. Every node of a tier sweeps
//! once an hour, each at a time of its own; it is harmless if two nodes remove the same piece.
//!
//! **No piece is removed that is or will be needed:**
//!
//! - *Names are read after the pieces are listed*, and nothing is removed unless all names were read: so a
//!   piece that got a name between the two stays. Names that move during the scan are not missed
//!   (`shoal_registry::references`).
//! - *A piece that is not named yet is younger than a day.* A write names its piece, and an upload its part,
//!   as soon as the store has confirmed it. Two clocks must agree that a piece is old: the store's, for the
//!   time when it was written, and this node's, by the ULID in its key, for the time when the write began.
//!   One clock that jumps ahead removes nothing. (A folder has the clock of its node. If that clock jumps by
//!   a day, a write is lost only if the sweep runs between its last byte and the commit.)
//! - *A piece that is older than the registry belongs to another registry*, which may have been lost or be
//!   misconfigured. It stays for an operator to inspect; so does a piece whose key does not end in a ULID.
//!
//! A receipt that no entry lists is that of a write which was not committed, and a recovery would bring that
//! write back after others. So receipts do not wait for a day: a commit is sent within the fence of its
//! receipt (`shoal_registry::receipts`) and happens within the fence of that, so one that is older is swept.

use std::collections::HashSet;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt;
use parking_lot::Mutex;
use shoal_base::{chance, clock};
use shoal_registry::engine::EngineError;
use shoal_registry::names::Names;
use shoal_registry::receipts::RECEIPTS;
use shoal_registry::session::new_id;
use ulid::{ULID_LEN, Ulid};

use super::receipts::pieces_below;
use super::tier_store::TierStore;
use crate::tier::{ListedPiece, StoreError};

/// Pause between two sweeps.
const PAUSE: Duration = Duration::from_hours(1);

/// The mean pause between two sweeps of receipts.
const RECEIPTS_PAUSE: Duration = Duration::from_mins(5);

/// Minimum age of a piece that may be removed.
const AGE: Duration = Duration::from_hours(24);

/// Limits on the memory and the requests of a sweep.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Number of pieces on a page of the store's listing, and of keys on a page of the registry's.
    page: usize,
    /// Number of old pieces to collect before the names are read. Most old pieces are named if the lake was
    /// away for a day.
    old: usize,
    /// Number of pieces that one request removes.
    batch: usize,
}

const SIZES: Sizes = Sizes {
    page: 1000,
    old: 100_000,
    batch: 500,
};

/// Sweeps one tier.
pub(crate) struct Sweeper {
    store: Arc<TierStore>,
    names: Names,
    /// The pieces that this node has removed since it started.
    total: Mutex<Swept>,
    /// True once the log has named a piece that is left alone: one line is enough.
    has_logged: AtomicBool,
}

/// Counts of removed pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The number of pieces.
    pub pieces: u64,
    /// The bytes in those pieces.
    pub bytes: u64,
}

/// A sweep failed. The next one starts over.
#[derive(Debug, thiserror::Error)]
enum SweepError {
    #[error(transparent)]
    Registry(#[from] EngineError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The verdict on a piece, from its key and its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It may still get a name.
    Young,
    /// It is removed unless it is named.
    Old,
    /// It is older than the registry.
    OfAnotherRegistry,
    /// Its key does not end in a ULID.
    Unknown,
}

/// The times that pieces are judged by.
#[derive(Clone, Copy, Debug)]
struct Times {
    now: SystemTime,
    /// The time when the registry was created.
    began: SystemTime,
    /// Minimum age of a piece that may be removed.
    age: Duration,
}

impl Times {
    fn judge(&self, piece: &ListedPiece) -> Verdict {
        let Some(written) = written(&piece.key) else {
            return Verdict::Unknown;
        };
        let is_old = self.now.duration_since(written).unwrap_or_default() > self.age;
        if !is_old || piece.age <= self.age {
            Verdict::Young
        } else if written < self.began {
            Verdict::OfAnotherRegistry
        } else {
            Verdict::Old
        }
    }
}

impl Sweeper {
    pub(crate) fn new(store: Arc<TierStore>, names: Names) -> Self {
        Self {
            store,
            names,
            total: Mutex::default(),
            has_logged: AtomicBool::new(false),
        }
    }

    /// Returns the pieces that this node has removed since it started, including those of failed sweeps.
    pub(crate) fn total(&self) -> Swept {
        *self.total.lock()
    }

    /// Sweeps once an hour.
    pub(crate) async fn run(&self) -> Infallible {
        tokio::time::sleep(PAUSE.mul_f64(chance::unit())).await;
        loop {
            match self.sweep(clock::utc_now(), AGE, SIZES).await {
                Ok(Swept { pieces: 0, .. }) => {}
                Ok(Swept { pieces, bytes }) => {
                    tracing::info!(tier = %self.store.tier, pieces, bytes, "unreferenced pieces were removed");
                }
                Err(error) => {
                    tracing::warn!(%error, tier = %self.store.tier, "a sweep failed; unreferenced pieces stay for now");
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sweeps receipts every few minutes.
    pub(crate) async fn run_for_receipts(&self) -> Infallible {
        loop {
            tokio::time::sleep(RECEIPTS_PAUSE.mul_f64(0.5 + chance::unit())).await;
            let age = 2 * self.names.fence();
            if let Err(error) = self.sweep_receipts(clock::utc_now(), age, SIZES).await {
                tracing::debug!(%error, tier = %self.store.tier, "receipts were not swept");
            }
        }
    }

    /// Removes receipts of at least this age that no entry lists.
    async fn sweep_receipts(&self, now: SystemTime, age: Duration, sizes: Sizes) -> Result<(), SweepError> {
        let is_old = |receipt: &ListedPiece| {
            let written = written(&receipt.key).and_then(|written| now.duration_since(written).ok());
            receipt.age > age && written.is_some_and(|since| since > age)
        };
        let mut old = HashSet::new();
        let mut receipts = pin!(pieces_below(self.store.bytes(), RECEIPTS.into()));
        while let Some(receipt) = receipts.try_next().await? {
            if is_old(&receipt) {
                old.insert(receipt.key);
            }
            if old.len() >= sizes.old {
                self.remove_unnamed(std::mem::take(&mut old), sizes).await?;
            }
        }
        self.remove_unnamed(old, sizes).await
    }

    async fn sweep(&self, now: SystemTime, age: Duration, sizes: Sizes) -> Result<Swept, SweepError> {
        let before = self.total();
        let began = time_of(self.names.began(new_id()).await?);
        let times = Times { now, began, age };
        let mut pieces = pin!(self.store.bytes().all(sizes.page));
        let mut old = HashSet::new();
        while let Some(piece) = pieces.try_next().await? {
            match times.judge(&piece) {
                Verdict::Young => {}
                Verdict::Old => _ = old.insert(piece.key),
                verdict @ (Verdict::OfAnotherRegistry | Verdict::Unknown) => self.log_left(&piece, verdict),
            }
            if old.len() >= sizes.old {
                self.remove_unnamed(std::mem::take(&mut old), sizes).await?;
            }
        }
        self.remove_unnamed(old, sizes).await?;
        let total = self.total();
        Ok(Swept {
            pieces: total.pieces - before.pieces,
            bytes: total.bytes - before.bytes,
        })
    }

    /// Reads all references of the registry, and then removes the pieces of `old` that none of them names. If
    /// one cannot be read, nothing is removed.
    async fn remove_unnamed(&self, mut old: HashSet<Arc<str>>, sizes: Sizes) -> Result<(), SweepError> {
        if old.is_empty() {
            return Ok(());
        }
        let mut references = pin!(self.names.references(sizes.page));
        while let Some(reference) = references.try_next().await? {
            for key in reference.keys() {
                old.remove(key);
            }
        }
        let keys: Vec<_> = old.into_iter().collect();
        for keys in keys.chunks(sizes.batch) {
            let bytes = self.store.remove(keys).await?;
            let mut total = self.total.lock();
            total.pieces += keys.len() as u64;
            total.bytes += bytes;
        }
        Ok(())
    }

    fn log_left(&self, piece: &ListedPiece, why: Verdict) {
        if !self.has_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                tier = %self.store.tier, key = %piece.key, ?why,
                hint = "the store of a tier must belong to one registry alone; remove what is not needed",
                "a tier's store has a piece of unknown origin, which is left alone"
            );
        }
    }
}

/// Returns the time when the write of a piece began, by the clock of its node.
fn written(key: &str) -> Option<SystemTime> {
    let id = key.get(key.len().checked_sub(ULID_LEN)?..)?;
    Ulid::from_string(id).ok().map(time_of)
}

fn time_of(id: Ulid) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(id.timestamp_ms())
}

#[cfg(test)]
mod tests;
