//! Fetches the missing blocks of a nearly complete object to this node before a reader asks for them: the
//! outlook of C2P (section 6).
//!
//! An event of another node shows that an object is being read. If this node is home to missing blocks of it,
//! and nearly all other blocks are on some node, this node fetches them on behalf of the last reader that it
//! has seen, so that the lake can refuse that caller. Nothing waits for these blocks. They are fetched one at
//! a time, only while readers leave most of the memory window free, and are dropped if they have waited too
//! long or their last reader is too old.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use shoal_policy::eviction::c2p::{EventKind, GROUP_BLOCKS};
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::{BlockId, Layer, VersionId};
use shoal_s3::object::Version;
use shoal_s3::range::ByteRange;
use shoal_store::{CacheEvent, Store};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::blocks::{BlockReader, BlockStream, ReadAheadWindow};
use crate::clock;
use crate::cooperation::Cooperation;
use crate::fetch::Fetcher;
use crate::obtain::Obtain;
use crate::read_context::{Purpose, ReadContext};
use crate::shutdown::Shutdown;

/// Number of objects whose last reader is remembered.
const READERS: NonZeroUsize = NonZeroUsize::new(1 << 10).unwrap();

/// How long a reader's permission is used after its read, because the lake may have withdrawn it since.
const READER_LIFE: Duration = Duration::from_mins(10);

/// Maximum number of blocks that wait.
const WAITING_MAX: usize = 256;

/// A block that has waited this long is dropped: its readers have come, or they will not.
const WAITING_LIFE: Duration = Duration::from_secs(10);

/// Pause between checks for an idle node.
const PAUSE: Duration = Duration::from_millis(50);

/// Fetches blocks that readers are expected to want.
pub struct FetchAhead {
    store: Arc<Store>,
    fetcher: Arc<Fetcher>,
    cooperation: Arc<Cooperation>,
    readers: Mutex<LruCache<VersionId, LastReader>>,
    waiting: Mutex<VecDeque<Waiting>>,
    has_come: Notify,
    counts: [AtomicU64; AheadOutcome::ALL.len()],
}

/// Outcome for one missing block of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AheadOutcome {
    /// It was fetched.
    Fetched,
    /// A reader fetched it first.
    Here,
    /// It waited too long, or the queue was full.
    TooLate,
    /// The lake or another node did not send it.
    Failed,
}

impl AheadOutcome {
    /// Every outcome.
    pub const ALL: [Self; 4] = [Self::Fetched, Self::Here, Self::TooLate, Self::Failed];

    /// Label in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fetched => "fetched",
            Self::Here => "here",
            Self::TooLate => "too-late",
            Self::Failed => "failed",
        }
    }
}

struct LastReader {
    version: Arc<Version>,
    context: Arc<ReadContext>,
    at: Instant,
}

struct Waiting {
    version: Arc<Version>,
    index: u32,
    layer: Layer,
    context: Arc<ReadContext>,
    /// Deadline after which the block is not fetched.
    until: Instant,
}

/// Next step for a waiting block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Fetch,
    Wait,
    GiveUp,
}

impl Turn {
    /// Expiry is checked first, because a block may have waited for others even on an idle node.
    fn of(until: Instant, now: Instant, is_idle: impl FnOnce() -> bool) -> Self {
        if now >= until {
            Self::GiveUp
        } else if is_idle() {
            Self::Fetch
        } else {
            Self::Wait
        }
    }
}

impl FetchAhead {
    /// Creates a `FetchAhead` for this store.
    pub fn new(store: &Arc<Store>, fetcher: &Arc<Fetcher>, cooperation: &Arc<Cooperation>) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(store),
            fetcher: Arc::clone(fetcher),
            cooperation: Arc::clone(cooperation),
            readers: Mutex::new(LruCache::new(READERS)),
            waiting: Mutex::default(),
            has_come: Notify::new(),
            counts: Default::default(),
        })
    }

    /// Remembers the last reader of an object with several blocks.
    pub fn is_read(&self, version: &Arc<Version>, context: &Arc<ReadContext>) {
        if version.block_count() > 1 && context.name().is_some() {
            let reader = LastReader {
                version: Arc::clone(version),
                context: Arc::clone(context),
                at: clock::instant(),
            };
            self.readers.lock().put(version.id, reader);
        }
    }

    /// Queues the blocks that the event's object lacks here. Never blocks.
    pub fn consider(&self, event: &CacheEvent) {
        if !matches!(event.event.kind, EventKind::Hit | EventKind::Miss) {
            return;
        }
        let (layer, now) = (event.layer, clock::instant());
        let version = event.event.key.version;
        let (version, context, until) = {
            let mut readers = self.readers.lock();
            let known = readers.get(&version);
            let Some(reader) = known.filter(|reader| now < reader.at + READER_LIFE) else {
                return;
            };
            let until = (now + WAITING_LIFE).min(reader.at + READER_LIFE);
            (Arc::clone(&reader.version), Arc::clone(&reader.context), until)
        };
        let events = self.store.cache_events();
        let missing = events.missing(layer, &event.event, version.block_count());
        if missing == 0 {
            return;
        }
        let context = Arc::new(context.for_purpose(Purpose::Prefetch));
        let first = event.event.key.index - event.event.key.index % GROUP_BLOCKS;
        let indexes = (0..GROUP_BLOCKS).filter(|place| missing & (1 << place) != 0);
        let here = indexes
            .map(|place| first + place)
            .filter(|index| self.is_home(version.block(*index), layer));
        for index in here {
            self.waits(Waiting {
                version: Arc::clone(&version),
                index,
                layer,
                context: Arc::clone(&context),
                until,
            });
        }
    }

    /// Returns true if this node is the home of a block in a layer.
    fn is_home(&self, block: BlockId, layer: Layer) -> bool {
        let hierarchy = self.cooperation.hierarchy();
        let place = usize::from(layer.0).checked_sub(usize::from(Layer::L2.0));
        let ring = place.and_then(|place| hierarchy.layers.get(place));
        ring.is_some_and(|layer| layer.ring.home(block.place()) == Some(hierarchy.node))
    }

    fn waits(&self, block: Waiting) {
        let mut waiting = self.waiting.lock();
        let is_same = |other: &Waiting| other.index == block.index && other.version.id == block.version.id;
        if waiting.iter().any(is_same) {
            return;
        }
        if waiting.len() == WAITING_MAX {
            waiting.pop_front();
            self.count(AheadOutcome::TooLate);
        }
        waiting.push_back(block);
        drop(waiting);
        self.has_come.notify_one();
    }

    /// Fetches until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let fetching = async {
            loop {
                let next = self.waiting.lock().pop_front();
                match next {
                    None => self.has_come.notified().await,
                    Some(block) => {
                        let outcome = self.fetch(block).await;
                        self.count(outcome);
                    }
                }
            }
        };
        tokio::select! {
            () = fetching => {}
            () = stopping.begun() => {}
        }
    }

    async fn fetch(&self, block: Waiting) -> AheadOutcome {
        loop {
            match Turn::of(block.until, clock::instant(), || self.is_idle()) {
                Turn::Fetch => break,
                Turn::Wait => sleep(PAUSE).await,
                Turn::GiveUp => return AheadOutcome::TooLate,
            }
        }
        let id = block.version.block(block.index);
        if self.fetcher.holds(id) || self.fetcher.is_in_flight(id) {
            return AheadOutcome::Here;
        }
        let start = u64::from(block.index) * block.version.block_bytes;
        let range = ByteRange {
            start,
            end: start + block.version.block_len(block.index),
        };
        let reader = BlockReader {
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            version: block.version,
            context: block.context,
            obtain: Obtain::Ahead(block.layer),
        };
        let window = ReadAheadWindow { now: 1, max: 1 };
        let mut stream = BlockStream::new(Arc::new(reader), range, window, None);
        loop {
            match poll_fn(|cx| stream.poll_next(cx)).await {
                Some(Ok(_piece)) => {}
                Some(Err(error)) => {
                    tracing::debug!(block = ?id, %error, "a missing block was not fetched ahead");
                    return AheadOutcome::Failed;
                }
                None => return AheadOutcome::Fetched,
            }
        }
    }

    /// Returns true if readers leave enough room for blocks without readers. On a metered link, readers also
    /// go first.
    fn is_idle(&self) -> bool {
        !self.fetcher.memory().is_filling(0)
    }

    /// Returns the number of blocks since the node started, by outcome.
    pub fn counts(&self) -> [(AheadOutcome, u64); AheadOutcome::ALL.len()] {
        AheadOutcome::ALL.map(|outcome| (outcome, self.counts[outcome as usize].load(Ordering::Relaxed)))
    }

    fn count(&self, outcome: AheadOutcome) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for FetchAhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FetchAhead")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{PAUSE, Turn, WAITING_LIFE};
    use crate::clock;

    #[test]
    fn a_block_that_waited_for_long_is_given_up_even_if_readers_leave_time() {
        let since = clock::instant();
        let until = since + WAITING_LIFE;
        for (now, is_idle, expected) in [
            (since, true, Turn::Fetch),
            (since, false, Turn::Wait),
            (since + PAUSE, true, Turn::Fetch),
            (until, true, Turn::GiveUp),
            (until, false, Turn::GiveUp),
        ] {
            assert_eq!(Turn::of(until, now, || is_idle), expected, "{expected:?}");
        }
    }
}
