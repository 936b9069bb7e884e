//! Operators' orders about packs: to unpack all objects of a rule, and to take a map from the lake that the
//! registry has lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_base::words;
use shoal_pack::table::{DamagedBlock, Map, Names};
use shoal_registry::{MapName, Name};
use shoal_s3::uri::S3Uri;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use ulid::Ulid;

use crate::dirty::Entries;
use crate::dirty::packs::{PackMap, Rebuilt};

/// Number of objects that are unpacked together, by one table. Their names are busy meanwhile.
const ROUND: usize = 256;

/// Pause before a map is read again that is not empty, although all of its objects were unpacked.
const PAUSE: Duration = Duration::from_secs(1);

/// Number of rounds of an order that unpack nothing, at most.
const IDLE_ROUNDS: u32 = 10;

/// Why an order to unpack ends before its time.
const NOT_ALL: &str = "some objects could not be unpacked, and the log of this node says why; the others are, and \
                       nothing is packed any more: repeat the order once the reason is gone";

/// Executes orders about packs, one at a time.
pub struct PackOrders {
    entries: Arc<Entries>,
    latest: Arc<Mutex<PackProgress>>,
}

words! {
    /// An order about packs.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum PackOrder {
        /// Unpack all objects of a rule, and end its map.
        #[default]
        Unpack = "unpack",
        /// Take the map from the newest table at the lake.
        Rebuild = "rebuild",
        /// Make the map from all packs at the lake.
        RebuildFromPacks = "rebuild-from-packs",
    }
}

/// The progress of the latest order about packs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackProgress {
    /// The number of the order, counted from the start of the node.
    pub order: u64,
    /// True while the order is being executed.
    pub running: bool,
    /// The order.
    pub what: PackOrder,
    /// The prefix of the rule.
    pub below: String,
    /// Objects that are still to be unpacked.
    pub left: u64,
    /// Objects that were unpacked, or tables that the map has now.
    pub done: u64,
    /// Objects that could not be unpacked, or packs that cannot be read.
    pub failed: u64,
    /// The reason why the order was not carried out.
    pub error: Option<String>,
}

/// An order is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderRefused {
    /// No rule with this prefix packs.
    #[error("no [[write.rule]] with pack = true has the prefix {below}; those with packs have: {packing}")]
    NoRule {
        /// The prefix.
        below: String,
        /// The prefixes of rules that pack.
        packing: String,
    },
    /// Another order is being executed.
    #[error("the order to {} {} is being executed", .0.what.as_str(), .0.below)]
    Busy(Box<PackProgress>),
}

impl PackOrders {
    /// Creates the executor of orders about the packs of these entries.
    pub fn new(entries: &Arc<Entries>) -> Self {
        Self {
            entries: Arc::clone(entries),
            latest: Arc::default(),
        }
    }

    /// Returns the progress of the latest order.
    pub fn progress(&self) -> PackProgress {
        self.latest.lock().clone()
    }

    /// Starts a task that carries an order out for the rule with this prefix.
    ///
    /// # Errors
    ///
    /// Nothing has started.
    pub fn begin(&self, what: PackOrder, below: &S3Uri) -> Result<PackProgress, OrderRefused> {
        let map = self.map(below)?;
        let mut latest = self.latest.lock();
        if latest.running {
            return Err(OrderRefused::Busy(Box::new(latest.clone())));
        }
        *latest = PackProgress {
            order: latest.order + 1,
            running: true,
            what,
            below: map.below(),
            ..PackProgress::default()
        };
        let execution = Execution {
            entries: Arc::clone(&self.entries),
            map,
            progress: Arc::clone(&self.latest),
        };
        tokio::spawn(async move {
            let error = execution.carry_out(what).await.err();
            let mut progress = execution.progress.lock();
            progress.error = error;
            progress.running = false;
        });
        Ok(latest.clone())
    }

    fn map(&self, below: &S3Uri) -> Result<Arc<PackMap>, OrderRefused> {
        let is_it = |map: &&Arc<PackMap>| {
            let (bucket, prefix) = map.name().parts();
            bucket == below.bucket.as_bytes() && prefix == below.key.as_bytes()
        };
        let found = self.entries.packs.all().find(is_it);
        found.cloned().ok_or_else(|| {
            let mut packing: Vec<_> = self.entries.packs.all().map(|map| map.below()).collect();
            packing.sort_unstable();
            OrderRefused::NoRule {
                below: below.to_string(),
                packing: if packing.is_empty() {
                    "none".into()
                } else {
                    packing.join(", ")
                },
            }
        })
    }
}

/// An order that is being executed.
struct Execution {
    entries: Arc<Entries>,
    map: Arc<PackMap>,
    progress: Arc<Mutex<PackProgress>>,
}

impl Execution {
    async fn carry_out(&self, what: PackOrder) -> Result<(), String> {
        match what {
            PackOrder::Unpack => self.unpack().await,
            PackOrder::Rebuild => self.rebuild(false).await,
            PackOrder::RebuildFromPacks => self.rebuild(true).await,
        }
    }

    async fn rebuild(&self, from_packs: bool) -> Result<(), String> {
        let rebuilt = self.map.rebuild(from_packs).await;
        let Rebuilt {
            tables,
            damaged_packs,
        } = rebuilt.map_err(|error| error.to_string())?;
        let mut progress = self.progress.lock();
        (progress.done, progress.failed) = (tables, damaged_packs);
        Ok(())
    }

    /// Unpacks all objects, ends the map, and removes what is left of it at the lake.
    async fn unpack(&self) -> Result<(), String> {
        self.map.end().await.map_err(|error| error.to_string())?;
        let (mut packs, mut idle_rounds) = (BTreeSet::new(), 0);
        loop {
            let newest = self.map.newest().await.map_err(|error| error.to_string())?;
            let Some(root) = newest.root else { break };
            let contents = contents_of(Arc::clone(&newest.map)).await?;
            self.progress.lock().left = contents.objects;
            packs.extend(contents.packs);
            if contents.objects == 0 {
                let is_over = self.map.remove_root(root.number).await;
                if is_over.map_err(|error| error.to_string())? {
                    break;
                }
            } else if self.unpack_all(&newest.map).await? > 0 {
                idle_rounds = 0;
                continue;
            }
            // A table whose number was reserved before may have been committed meanwhile.
            idle_rounds += 1;
            if idle_rounds > IDLE_ROUNDS {
                return Err(NOT_ALL.into());
            }
            sleep(PAUSE).await;
        }
        let removed = self.map.remove_remains(packs).await;
        removed.map_err(|error| error.to_string())
    }

    /// Unpacks the objects of a map once. Returns the number that was.
    async fn unpack_all(&self, map: &Arc<Map>) -> Result<u64, String> {
        self.progress.lock().failed = 0;
        let (mut from, mut all) = (Vec::new(), 0);
        loop {
            let names = page(Arc::clone(map), from, self.map.name().clone()).await?;
            let Some(last) = names.last() else {
                return Ok(all);
            };
            let (_, last) = last.parts();
            from = [last, b"\0"].concat();
            let unpacked = self.entries.unpack_all(&self.map, &names).await;
            let mut progress = self.progress.lock();
            progress.left = progress.left.saturating_sub(names.len() as u64);
            progress.done += unpacked;
            progress.failed += names.len() as u64 - unpacked;
            all += unpacked;
        }
    }
}

/// The objects that a map finds, and their packs.
struct Contents {
    objects: u64,
    packs: BTreeSet<Ulid>,
}

async fn contents_of(map: Arc<Map>) -> Result<Contents, String> {
    let reading = spawn_blocking(move || {
        let (mut objects, mut packs) = (0, BTreeSet::new());
        for object in map.objects(Names::default()) {
            objects += 1;
            packs.insert(object?.row.pack);
        }
        Ok(Contents { objects, packs })
    });
    let read: Result<_, DamagedBlock> = reading.await.expect("reading rows does not panic");
    read.map_err(|damaged| damaged.to_string())
}

/// Returns the names of the next objects of a map, from a key on.
async fn page(map: Arc<Map>, from: Vec<u8>, name: MapName) -> Result<Vec<Name>, String> {
    let reading = spawn_blocking(move || {
        let (bucket, _) = name.parts();
        let bucket = String::from_utf8_lossy(bucket);
        let names = Names {
            prefix: b"",
            from: &from,
        };
        let objects = map.objects(names).take(ROUND);
        objects
            .map(|object| Ok(Name::new(&bucket, &object?.key)))
            .collect()
    });
    let read: Result<_, DamagedBlock> = reading.await.expect("reading rows does not panic");
    read.map_err(|damaged| damaged.to_string())
}
