//! The directory of blocks as this node uses it: asked for what the node misses, told what the node holds.
//!
//! No answer of it is needed. Without one, a node looks for a block at its homes.

mod config;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use shoal_directory::embedded::Embedded;
use shoal_directory::extensions::{Extension, SHORT};
use shoal_directory::guard::{Counts, Guard, Kind};
use shoal_directory::redis::{Redis, SettingsError};
use shoal_directory::reporter::{Change, Inventory, Reporter, Reporting};
use shoal_directory::{CLAIM_LIFE, Directory, Entry, GROUP_BLOCKS, Group, Left, Located, NodeState};
use shoal_policy::{BlockId, NodeId};
use shoal_s3::object::Version;
use shoal_store::{BlockEvent, Store};

pub use self::config::{DirectoryConfig, EMBEDDED};

use crate::shutdown::Shutdown;

/// Blocks of less data have no entries, which would cost more than the blocks (dissertation 4.6.1). They are
/// found at their homes.
const ENTERED_BYTES_MIN: u64 = 64 << 10;

/// Claims are renewed at this interval while a block is being fetched.
const RENEWAL: Duration = Duration::from_secs(4);
const _: () = assert!(RENEWAL.as_secs() * 2 < CLAIM_LIFE.as_secs());

/// The number of requests under way while the groups of one object are marked.
const MARKS_AT_ONCE: usize = 4;

/// The directory of blocks, for this node.
#[derive(Debug)]
pub struct BlockDirectory {
    me: NodeId,
    guard: Arc<Guard>,
    reporter: Reporter,
    claims: Arc<Claims>,
}

/// The task that reports to the directory.
#[derive(Debug)]
pub struct Reports {
    reporting: Reporting,
    claims: Arc<Claims>,
}

/// The blocks whose claims this node has.
type Claims = Mutex<HashSet<BlockId>>;

/// The right and the duty to fetch a block from the lake, while other nodes wait for this one. Given back
/// when it is dropped, unless the block is stored by then.
#[derive(Debug)]
pub struct Claim {
    me: NodeId,
    guard: Arc<Guard>,
    reporter: Reporter,
    claims: Arc<Claims>,
    block: BlockId,
    is_stored: bool,
}

/// The blocks in a store and on their way there, for a directory that has forgotten them.
struct Here {
    store: Arc<Store>,
    claims: Arc<Claims>,
}

impl BlockDirectory {
    /// The directory of `config` for a node whose lake is at `lake`, and the task that reports to it.
    /// Embedded ones are shared by the nodes of this process that have the same lake.
    ///
    /// # Errors
    ///
    /// Fails if the settings lead to no directory. It need not answer yet.
    pub fn open(
        config: &DirectoryConfig,
        me: NodeId,
        lake: &str,
    ) -> Result<(Arc<Self>, Reports), SettingsError> {
        let directory: Arc<dyn Directory> = match config.redis() {
            None => embedded(lake),
            Some(settings) => Arc::new(Redis::new(&settings)?),
        };
        let guard = Arc::new(Guard::new(directory, config.timeout));
        let (reporter, reporting) = Reporter::new(me, &guard);
        let claims = Arc::<Claims>::default();
        let reports = Reports {
            reporting,
            claims: Arc::clone(&claims),
        };
        let opened = Self {
            me,
            guard,
            reporter,
            claims,
        };
        Ok((Arc::new(opened), reports))
    }

    /// Whether blocks of this length have entries.
    pub const fn enters(block_bytes: u64) -> bool {
        block_bytes >= ENTERED_BYTES_MIN
    }

    /// Says where a block is that this node lacks and that the nodes in `without` have not sent. `None` if
    /// the directory does not answer.
    pub async fn locate(&self, block: BlockId, without: &[NodeId]) -> Option<Located> {
        self.guard.locate(self.me, block, without).await.ok()
    }

    /// The right to fetch a block that [`locate`](Self::locate) left to this node.
    pub fn claim(&self, block: BlockId) -> Claim {
        self.claims.lock().insert(block);
        Claim {
            me: self.me,
            guard: Arc::clone(&self.guard),
            reporter: self.reporter.clone(),
            claims: Arc::clone(&self.claims),
            block,
            is_stored: false,
        }
    }

    /// Repairs the entry of a block that a node does not hold although the entry says so.
    pub async fn correct(&self, block: BlockId, node: NodeId) {
        // If the directory does not answer, the next node that finds the mistake repairs it.
        let _ = self.guard.dropped(node, Group::of(block), &[block.index]).await;
    }

    /// Reports that another node's cache served this node a block, which adds `weight` to what the block is
    /// worth to all.
    pub fn used(&self, block: BlockId, weight: u64) {
        self.reporter.used(block, weight);
    }

    /// Reports that this node holds a block of this length, although it was about to give it up.
    pub fn holds(&self, block: BlockId, block_bytes: u64) {
        if Self::enters(block_bytes) {
            self.reporter.report(block, Change::Held);
        }
    }

    /// Says what becomes of copies that this node is about to give up, see [`Directory::leave`]. `None` if
    /// the directory does not answer.
    pub async fn leave(&self, group: Group, copies: &[(u32, u64)]) -> Option<Vec<Left>> {
        self.guard.leave(self.me, group, copies).await.ok()
    }

    /// Takes global weights out of entries, see [`Directory::take`]. If the directory does not answer, they
    /// may count twice.
    pub async fn take(&self, group: Group, weights: &[(u32, u64)]) {
        let _ = self.guard.take(group, weights).await;
    }

    /// Tells the state of this node and returns those of all. `None` if the directory does not answer.
    pub async fn exchange(&self, mine: NodeState) -> Option<Vec<NodeState>> {
        self.guard.exchange(mine).await.ok()
    }

    /// The entry of a block. `None` if the directory does not answer.
    pub async fn entry(&self, block: BlockId) -> Option<Entry> {
        self.guard.entry(block).await.ok()
    }

    /// Marks the blocks of an object as short-lived for `life`, in a task of its own. If the directory does
    /// not answer, nodes treat them as all others.
    pub fn mark_short(&self, version: &Version, life: Duration) {
        let last = version.block_count().saturating_sub(1);
        if !Self::enters(version.block_len(0)) {
            return;
        }
        let (guard, version) = (Arc::clone(&self.guard), version.id);
        tokio::spawn(async move {
            let short = Extension::new(SHORT, b"").expect("the name is one that directories keep");
            let groups = (0..=last / GROUP_BLOCKS).map(|number| Group { version, number });
            stream::iter(groups)
                .for_each_concurrent(MARKS_AT_ONCE, |group| {
                    let (guard, short) = (Arc::clone(&guard), short.clone());
                    async move { drop(guard.extend(group, &short, life).await) }
                })
                .await;
        });
    }

    /// Whether a block is marked as short-lived, as far as the directory answers.
    pub async fn is_short(&self, block: BlockId) -> bool {
        let noted = self.extensions(Group::of(block)).await;
        noted.iter().any(|extension| extension.name() == SHORT)
    }

    /// The extensions of a group of blocks; none if the directory does not answer.
    pub async fn extensions(&self, group: Group) -> Vec<Extension> {
        self.guard.extensions(group).await.unwrap_or_default()
    }

    /// The directory itself, in bounded time.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Whether the directory answered the last time.
    pub fn answers(&self) -> bool {
        self.guard.answers()
    }

    /// The requests to it until now, by kind.
    pub fn counts(&self) -> [(Kind, Counts); Kind::ALL.len()] {
        self.guard.counts()
    }

    /// Reports every change of the entries of a store's blocks from now on. A store that keeps objects
    /// complete learns from the answers which blocks other nodes hold.
    pub fn follow(&self, store: &Arc<Store>) {
        if store.cache_events().are_of_use() {
            // The store keeps the directory alive by its watcher, below.
            let learning = Arc::downgrade(store);
            self.guard.listen(move |group, elsewhere| {
                let first = BlockId {
                    version: group.version,
                    index: group.number * GROUP_BLOCKS,
                };
                if let Some(store) = learning.upgrade() {
                    store.cache_events().learn(first, elsewhere);
                }
            });
        }
        let reporter = self.reporter.clone();
        store.watch(move |block, block_bytes, event| {
            if !Self::enters(block_bytes) {
                return;
            }
            let change = match event {
                BlockEvent::Stored => Change::Held,
                BlockEvent::Removed => Change::Dropped,
            };
            reporter.report(block, change);
        });
    }
}

impl Reports {
    /// Sends the reports of this node until it stops.
    pub async fn run(self, store: Arc<Store>, stopping: Shutdown) {
        let Self { reporting, claims } = self;
        reporting.run(Here { store, claims }, stopping.begun()).await;
    }
}

/// The directory that the nodes of this process share which have this lake.
fn embedded(lake: &str) -> Arc<dyn Directory> {
    static SHARED: LazyLock<Mutex<HashMap<String, Weak<Embedded>>>> = LazyLock::new(Mutex::default);
    let mut shared = SHARED.lock();
    shared.retain(|_, directory| directory.strong_count() > 0);
    if let Some(directory) = shared.get(lake).and_then(Weak::upgrade) {
        return directory;
    }
    let directory = Arc::<Embedded>::default();
    shared.insert(lake.into(), Arc::downgrade(&directory));
    directory
}

impl Claim {
    /// Renews the claim: a lake may take longer for a block than a claim lasts.
    pub async fn keep_renewing(&self) -> Infallible {
        loop {
            tokio::time::sleep(RENEWAL).await;
            // Another node may hold the block by now, or claim it: then it is fetched twice.
            let _ = self.guard.locate(self.me, self.block, &[]).await;
        }
    }

    /// Notes that the store has the block: its report ends the claim.
    pub fn stored(mut self) {
        self.is_stored = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.block);
        if !self.is_stored {
            self.reporter.report(self.block, Change::Dropped);
        }
    }
}

impl Inventory for Here {
    fn claims(&self) -> Vec<BlockId> {
        self.claims.lock().iter().copied().collect()
    }

    fn blocks(&self) -> BoxFuture<'_, Vec<BlockId>> {
        self.store.blocks_by_use(ENTERED_BYTES_MIN).boxed()
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::VersionId;

    use super::*;

    #[test]
    fn a_directory_that_forgets_is_told_the_claims_that_last() {
        let (directory, reports) = BlockDirectory::open(&DirectoryConfig::default(), NodeId(1), "c").unwrap();
        let [fetched, given_back, stored] = [0, 1, 2].map(|index| BlockId {
            version: VersionId([7; 16]),
            index,
        });
        let claim = directory.claim(fetched);
        drop(directory.claim(given_back));
        directory.claim(stored).stored();
        assert_eq!(*reports.claims.lock(), HashSet::from([fetched]));
        drop(claim);
        assert_eq!(*reports.claims.lock(), HashSet::new());
    }

    #[test]
    fn nodes_of_one_process_share_a_directory_if_they_have_the_same_lake() {
        let (one, other) = (embedded("http://a"), embedded("http://a"));
        assert!(Arc::ptr_eq(&one, &other));
        assert!(!Arc::ptr_eq(&one, &embedded("http://b")));
    }
}
