//! The store of a tier, as one node sees it: if it accepts pieces, and how full it is.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use http_body::Body;
use parking_lot::Mutex;
use shoal_cache::write::Uncached;
use shoal_policy::cleaning::Fill;
use shoal_registry::ByteCount;
use shoal_s3::error::S3Error;
use tokio::sync::Notify;

use super::intake::{Received, receive};
use crate::dirty::record::keys::size_in;
use crate::dirty::record::writing::WriteError;
use crate::tier::{ByteStore, PIECE_BYTES_MAX, Piece, ProbeError, StoreError, TierUnavailable, probe};

/// Pause between two probes of a store that failed its last probe.
const PROBE_PAUSE: Duration = Duration::from_secs(5);

/// Pause between two checks of a store that passed its last probe.
const CHECK_PAUSE: Duration = Duration::from_secs(10);

/// Time limit of a probe. A slower store fails it, because writes would time out.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);

/// Pause between two measurements of how full the store is.
const FILL_PAUSE: Duration = Duration::from_mins(5);

/// The same after a write has found the store full.
const FULL_PAUSE: Duration = Duration::from_secs(2);

/// Number of pieces on a page of the store's listing.
const LIST_PAGE: usize = 1000;

/// The state of a store that accepts no pieces.
struct Trouble {
    /// What a write gets to know of it.
    reason: Uncached,
    /// The problem that the last probe has found; `None` if it found none, or before the first one.
    problem: Option<String>,
}

impl Trouble {
    const fn without_a_probe(reason: Uncached) -> Self {
        Self {
            reason,
            problem: None,
        }
    }
}

/// The store of a tier.
pub(crate) struct TierStore {
    /// The name of the tier.
    pub(crate) tier: Arc<str>,
    bytes: Arc<dyn ByteStore>,
    stored: ByteCount,
    /// The bytes of objects that the registry keeps itself. They count for the capacity, too.
    inline: Arc<ByteCount>,
    capacity_bytes: u64,
    /// The reason why the store accepts no pieces at present. `None` if it has passed its last probe and has
    /// not reported being full since.
    trouble: Mutex<Option<Trouble>>,
    /// True if the store copies pieces. Assumed until the store has answered: if a copy fails, the lake makes
    /// it.
    copies: AtomicBool,
    /// Notified when a write fails.
    failed: Notify,
    /// Notified when a write finds no room.
    full: Notify,
    /// True if a write has found no room since the store was last measured.
    was_full: AtomicBool,
}

impl TierStore {
    /// Wraps the store of `tier`. It accepts no pieces until it has passed a probe. `inline` counts the bytes
    /// in the registry.
    pub(crate) fn new(
        tier: Arc<str>,
        bytes: Arc<dyn ByteStore>,
        capacity_bytes: u64,
        inline: Arc<ByteCount>,
    ) -> Self {
        Self {
            tier,
            bytes,
            stored: ByteCount::default(),
            inline,
            capacity_bytes,
            trouble: Mutex::new(Some(Trouble::without_a_probe(Uncached::TierUnavailable))),
            copies: AtomicBool::new(true),
            failed: Notify::new(),
            full: Notify::new(),
            was_full: AtomicBool::new(false),
        }
    }

    /// Returns the store itself.
    pub(crate) fn bytes(&self) -> &Arc<dyn ByteStore> {
        &self.bytes
    }

    /// Returns how full the tier is.
    pub(crate) fn fill(&self) -> Fill {
        Fill {
            stored_bytes: self.stored.bytes() + self.inline.bytes(),
            capacity_bytes: self.capacity_bytes,
        }
    }

    /// Returns the size limit of an object.
    pub(crate) fn object_bytes_max(&self) -> u64 {
        self.capacity_bytes.min(PIECE_BYTES_MAX)
    }

    /// Checks that the store accepts pieces.
    ///
    /// # Errors
    ///
    /// The reason why it does not.
    pub(crate) fn check(&self) -> Result<(), Uncached> {
        let trouble = self.trouble.lock();
        trouble.as_ref().map_or(Ok(()), |trouble| Err(trouble.reason))
    }

    /// Returns the problem that the last probe has found.
    pub(crate) fn problem(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        trouble.as_ref().and_then(|trouble| trouble.problem.clone())
    }

    /// Returns true if the store copies pieces, as far as this node knows.
    pub(crate) fn copies(&self) -> bool {
        self.copies.load(Ordering::Relaxed)
    }

    /// Returns true if there is room for `bytes` more.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let is_fit = self.fill().stored_bytes.saturating_add(bytes) <= self.capacity_bytes;
        if !is_fit {
            self.was_full.store(true, Ordering::Relaxed);
            self.full.notify_one();
        }
        is_fit
    }

    /// Returns true if the store has reported being full or has reached its capacity, or if a write has found
    /// no room since the last measurement.
    pub(crate) fn is_full(&self) -> bool {
        let fill = self.fill();
        self.check() == Err(Uncached::TooDirty)
            || self.was_full.load(Ordering::Relaxed)
            || fill.stored_bytes >= fill.capacity_bytes
    }

    /// Writes a body under a new key. `each` is called with every frame.
    ///
    /// # Errors
    ///
    /// The store keeps nothing that could be read as the whole body.
    pub(crate) async fn receive<B>(
        &self,
        key: &str,
        size_bytes: u64,
        body: Pin<&mut B>,
        each: impl FnMut(&Bytes),
    ) -> Result<Received, WriteError>
    where
        B: Body<Data = Bytes, Error = S3Error>,
    {
        let received = receive(&*self.bytes, key, size_bytes, body, each).await;
        match &received {
            Ok(_) => self.stored.add(size_bytes),
            Err(WriteError::Full) => self.note_full(),
            Err(WriteError::Unavailable(_)) => self.failed.notify_one(),
            Err(WriteError::Body(_) | WriteError::OutcomeUnknown) => {}
        }
        received
    }

    /// Copies a piece to a new key. The caller must [discard](Self::discard) a copy that fails.
    ///
    /// # Errors
    ///
    /// As [`ByteStore::copy`].
    pub(crate) async fn copy(&self, from: &Piece, to: &str) -> Result<(), StoreError> {
        self.stored.add(from.size_bytes);
        let copied = self.bytes.copy(from, to).await;
        match &copied {
            Ok(()) | Err(StoreError::Missing | StoreError::Damaged(_)) => {}
            Err(StoreError::Full(_)) => self.note_full(),
            Err(error) => {
                TierUnavailable::because(error);
                self.failed.notify_one();
            }
        }
        copied
    }

    /// Removes pieces. Returns the number of their bytes.
    ///
    /// # Errors
    ///
    /// As [`ByteStore::remove`].
    pub(crate) async fn remove(&self, keys: &[Arc<str>]) -> Result<u64, StoreError> {
        self.bytes.remove(keys).await?;
        let bytes = keys.iter().map(|key| size_in(key)).sum();
        self.stored.remove(bytes);
        Ok(bytes)
    }

    /// Removes bytes that no entry names. If that fails, a sweep removes them later.
    pub(crate) async fn discard(&self, keys: &[Arc<str>]) {
        if keys.is_empty() {
            return;
        }
        if let Err(error) = self.remove(keys).await {
            tracing::debug!(%error, ?keys, "unreferenced bytes were not removed");
        }
    }

    /// Stops writes to the store until it has passed another probe.
    fn note_full(&self) {
        *self.trouble.lock() = Some(Trouble::without_a_probe(Uncached::TooDirty));
        self.full.notify_one();
    }

    /// Probes the store: writes, reads, lists, removes and copies a piece. There is no time limit.
    ///
    /// # Errors
    ///
    /// The store is unsuitable as a tier, or unavailable. A store that only cannot copy passes.
    pub(crate) async fn probe(&self) -> Result<(), ProbeError> {
        let probed = probe::probe(&*self.bytes).await;
        if probed.is_ok() {
            self.note_copy(&probe::probe_copy(&*self.bytes).await);
        }
        self.note_probe(&probed);
        probed
    }

    fn note_probe(&self, probed: &Result<(), ProbeError>) {
        *self.trouble.lock() = probed.as_ref().err().map(|error| {
            tracing::warn!(tier = %self.tier, %error, "a tier takes no writes");
            Trouble {
                reason: Uncached::TierUnavailable,
                problem: Some(error.problem.clone()),
            }
        });
    }

    fn note_copy(&self, copied: &Result<(), ProbeError>) {
        if let Err(error) = copied {
            tracing::warn!(tier = %self.tier, %error, "a tier makes no copies");
        }
        // An outage does not show if the store supports copies.
        if copied.as_ref().err().is_none_or(|error| !error.is_outage) {
            self.copies.store(copied.is_ok(), Ordering::Relaxed);
        }
    }

    /// Checks the store periodically, and probes it at once after a failed write. A failed write alone proves
    /// nothing, because its client may have been too slow for the store.
    pub(crate) async fn keep_probing(&self) -> Infallible {
        loop {
            let is_well = self.check().is_ok();
            let has_failed = tokio::select! {
                () = tokio::time::sleep(if is_well { CHECK_PAUSE } else { PROBE_PAUSE }) => false,
                () = self.failed.notified() => true,
            };
            let mut is_probed = !is_well || has_failed;
            let mut found = if is_probed {
                in_time(probe::probe(&*self.bytes)).await
            } else {
                in_time(probe::check(&*self.bytes)).await
            };
            if found.is_err() && is_well {
                // A single failure may be spurious: versitygw refuses a piece while it removes an empty
                // folder.
                is_probed = true;
                found = in_time(probe::probe(&*self.bytes)).await;
            }
            if is_probed && found.is_ok() {
                self.note_copy(&in_time(probe::probe_copy(&*self.bytes)).await);
            }
            self.note_probe(&found);
        }
    }

    /// Measures the bytes in the store periodically, which is how the pieces of other nodes are counted.
    /// Calls `make_room` when a write finds no room.
    pub(crate) async fn keep_measuring(&self, make_room: impl Fn()) -> Infallible {
        loop {
            match self.measure().await {
                Ok(bytes) => {
                    self.stored.set(bytes);
                    self.was_full.store(false, Ordering::Relaxed);
                }
                Err(error) => tracing::debug!(%error, tier = %self.tier, "the tier was not measured"),
            }
            tokio::select! {
                () = tokio::time::sleep(FILL_PAUSE) => {}
                () = self.full.notified() => {
                    make_room();
                    tokio::time::sleep(FULL_PAUSE).await;
                }
            }
        }
    }

    async fn measure(&self) -> Result<u64, StoreError> {
        let pieces = self.bytes.all(LIST_PAGE);
        let sum = pieces.try_fold(0, async |bytes, piece| Ok(bytes + piece.size_bytes));
        sum.await
    }
}

/// Limits the time of a probe.
async fn in_time(probe: impl Future<Output = Result<(), ProbeError>>) -> Result<(), ProbeError> {
    let probed = tokio::time::timeout(PROBE_PATIENCE, probe).await;
    probed.unwrap_or_else(|_| {
        let patience = PROBE_PATIENCE.as_secs();
        Err(ProbeError {
            is_outage: true,
            problem: format!("the store has not answered a probe within {patience} s"),
            hint: "check that the store runs, and that this machine reaches it".into(),
        })
    })
}
