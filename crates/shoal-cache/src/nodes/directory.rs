//! This node's client of the block directory: locates blocks that the node misses, and reports those it
//! holds.
//!
//! The directory is optional. If it does not answer, a node looks for a block at its homes.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
pub use shoal_directory::config::{DirectoryConfig, EMBEDDED};
use shoal_directory::embedded::Embedded;
use shoal_directory::extensions::{Extension, SHORT};
use shoal_directory::guard::{Guard, Kind};
use shoal_directory::redis::{Redis, SettingsError};
use shoal_directory::reporter::{Change, Reporter, Reporting};
use shoal_directory::{CLAIM_LIFE, Directory, Entry, GROUP_BLOCKS, Group, Left, Located};
use shoal_policy::{BlockId, NodeId};
use shoal_s3::object::Version;
use shoal_store::{BlockEvent, Store};

use shoal_net::shutdown::Shutdown;

/// Smaller blocks have no entries, because an entry would cost more than the block (dissertation 4.6.1). They
/// are located by their homes.
const ENTERED_BYTES_MIN: u64 = 64 << 10;

/// Interval at which a claim is renewed while its block is being fetched.
const RENEWAL: Duration = Duration::from_secs(4);
const _: () = assert!(RENEWAL.as_secs() * 2 < CLAIM_LIFE.as_secs());

/// Concurrent requests while the groups of one object are marked.
const MARKS_AT_ONCE: usize = 4;

/// This node's handle of the block directory.
pub struct BlockDirectory {
    me: NodeId,
    /// The directory itself, with a time limit on every request.
    pub guard: Arc<Guard>,
    reporter: Reporter,
    claims: Arc<Claims>,
}

/// The task that reports to the directory.
pub struct Reports {
    reporting: Reporting,
    claims: Arc<Claims>,
}

/// Blocks that this node has claimed.
type Claims = Mutex<HashSet<BlockId>>;

/// The obligation to fetch a block from the lake while other nodes wait for this one. Released on drop,
/// unless the block has been stored by then.
pub struct Claim {
    directory: Arc<BlockDirectory>,
    block: BlockId,
    is_stored: bool,
}

impl BlockDirectory {
    /// Opens the directory of `config` for a node whose lake is at `lake`, and returns the task that reports
    /// to it. An embedded directory is shared by the nodes of this process with the same lake.
    ///
    /// # Errors
    ///
    /// Fails if the settings are invalid. The directory need not be reachable yet.
    pub fn open(
        config: &DirectoryConfig,
        me: NodeId,
        lake: &str,
    ) -> Result<(Arc<Self>, Reports), SettingsError> {
        let directory: Arc<dyn Directory> = if config.is_embedded() {
            embedded(lake)
        } else {
            Arc::new(Redis::new(config)?)
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

    /// Returns true if blocks of this length have entries.
    pub const fn enters(block_bytes: u64) -> bool {
        block_bytes >= ENTERED_BYTES_MIN
    }

    /// Locates a block that this node lacks, ignoring the nodes in `without`, which failed to send it.
    /// Returns `None` if the directory does not answer.
    pub async fn locate(&self, block: BlockId, without: &[NodeId]) -> Option<Located> {
        self.guard.locate(self.me, block, without).await.ok()
    }

    /// Returns the claim of a block that [`locate`](Self::locate) assigned to this node.
    pub fn claim(self: &Arc<Self>, block: BlockId) -> Claim {
        self.claims.lock().insert(block);
        Claim {
            directory: Arc::clone(self),
            block,
            is_stored: false,
        }
    }

    /// Removes `node` from the entry of a block that it does not hold.
    pub async fn correct(&self, block: BlockId, node: NodeId) {
        // If the directory does not answer, the next node that finds the stale entry removes it.
        let (group, index) = (Group::containing(block), [block.index]);
        let _ = self
            .guard
            .ask(Kind::Report, |directory| directory.dropped(node, group, &index))
            .await;
    }

    /// Reports that a peer's cache served this node a block, which adds `weight` to the block's global
    /// weight.
    pub fn used(&self, block: BlockId, weight: u64) {
        self.reporter.used(block, weight);
    }

    /// Reports that this node keeps a block of this length, after it had announced to evict it.
    pub fn holds(&self, block: BlockId, block_bytes: u64) {
        if Self::enters(block_bytes) {
            self.reporter.report(block, Change::Held);
        }
    }

    /// Returns what may happen to copies that this node is about to evict, see [`Directory::leave`]. `None`
    /// if the directory does not answer.
    pub async fn leave(&self, group: Group, copies: &[(u32, u64)]) -> Option<Vec<Left>> {
        self.guard.leave(self.me, group, copies).await.ok()
    }

    /// Returns the entry of a block. `None` if the directory does not answer.
    pub async fn entry(&self, block: BlockId) -> Option<Entry> {
        self.guard
            .ask(Kind::Look, |directory| directory.entry(block))
            .await
            .ok()
    }

    /// Marks the blocks of an object as short-lived for `life`, in a separate task. If the directory does not
    /// answer, nodes treat them like all others.
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
                    async move {
                        let marked =
                            guard.ask(Kind::Extension, |directory| directory.extend(group, &short, life));
                        drop(marked.await);
                    }
                })
                .await;
        });
    }

    /// Returns true if a block is known to be short-lived.
    pub async fn is_short(&self, block: BlockId) -> bool {
        let noted = self.extensions(Group::containing(block)).await;
        noted.iter().any(|extension| extension.name() == SHORT)
    }

    /// Returns the extensions of a group of blocks; none if the directory does not answer.
    pub async fn extensions(&self, group: Group) -> Vec<Extension> {
        let noted = self
            .guard
            .ask(Kind::Extension, |directory| directory.extensions(group));
        noted.await.unwrap_or_default()
    }

    /// Returns true if the directory answered the most recent request.
    pub fn answers(&self) -> bool {
        self.guard.requests.answers()
    }

    /// Returns the number of reports that wait or whose requests are under way.
    pub fn reports_under_way(&self) -> u64 {
        self.guard.reports_under_way()
    }

    /// Reports every change of the store's blocks from now on. A store that keeps objects complete learns
    /// from the responses which blocks other nodes hold.
    pub fn follow(&self, store: &Arc<Store>) {
        if store.cache_events.are_of_use() {
            // Weak, because the store keeps the directory alive through its watcher, below.
            let learning = Arc::downgrade(store);
            self.guard.listen(move |group, elsewhere| {
                let first = BlockId {
                    version: group.version,
                    index: group.number * GROUP_BLOCKS,
                };
                if let Some(store) = learning.upgrade() {
                    store.cache_events.learn(first, elsewhere);
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
    /// Sends this node's reports until it stops.
    pub async fn run(self, store: Arc<Store>, stopping: Shutdown) {
        let Self { reporting, claims } = self;
        let claimed = || claims.lock().iter().copied().collect();
        let held = || store.blocks_by_use(ENTERED_BYTES_MIN);
        reporting.run(claimed, held, stopping.begun()).await;
    }
}

/// Returns the in-process directory shared by all nodes with this lake.
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
    /// Renews the claim periodically: a lake may take longer for a block than a claim lasts.
    pub async fn keep_renewing(&self) -> Infallible {
        loop {
            tokio::time::sleep(RENEWAL).await;
            // If another node holds or claims the block by now, it is fetched twice.
            let _ = self.directory.locate(self.block, &[]).await;
        }
    }

    /// Records that the store has the block: the report of it ends the claim.
    pub fn stored(mut self) {
        self.is_stored = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.directory.claims.lock().remove(&self.block);
        if !self.is_stored {
            self.directory.reporter.report(self.block, Change::Dropped);
        }
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
