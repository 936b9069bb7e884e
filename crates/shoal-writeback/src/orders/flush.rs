//! Operators' orders to flush all dirty objects, or those below a prefix.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_registry::worker::ROUND_MAX;
use shoal_s3::object::ObjectName;
use shoal_s3::uri::S3Uri;

use crate::dirty::Entries;
use crate::tier::TierUnavailable;

/// Number of objects that an order flushes in parallel.
const PARALLEL: usize = 8;

/// Attempts to list the dirty objects, with a pause between them.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// Executes flush orders. A new order replaces the current one.
pub struct FlushOrders {
    entries: Arc<Entries>,
    latest: Arc<Mutex<FlushProgress>>,
}

/// The progress of the latest order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushProgress {
    /// The number of the order, counted from the start of the node.
    pub order: u64,
    /// True while the order is being executed.
    pub running: bool,
    /// The prefix below which objects are flushed; `None` for all objects.
    pub below: Option<String>,
    /// Objects that are still to be flushed.
    pub left: u64,
    /// Objects that are now at the lake, by this order or otherwise.
    pub flushed: u64,
    /// Objects that could not be flushed. They stay dirty and are retried.
    pub failed: u64,
    /// The error, if the dirty objects could not be listed.
    pub error: Option<String>,
}

impl FlushOrders {
    /// Creates the executor of orders on these dirty objects.
    pub fn new(entries: &Arc<Entries>) -> Self {
        Self {
            entries: Arc::clone(entries),
            latest: Arc::default(),
        }
    }

    /// Returns the progress of the latest order.
    pub fn progress(&self) -> FlushProgress {
        self.latest.lock().clone()
    }

    /// Starts a task that flushes what is dirty on any node. The progress of an earlier order is discarded.
    pub fn begin(&self, below: Option<S3Uri>) -> FlushProgress {
        let mut latest = self.latest.lock();
        *latest = FlushProgress {
            order: latest.order + 1,
            running: true,
            below: below.as_ref().map(ToString::to_string),
            ..FlushProgress::default()
        };
        let (entries, progress, order) = (Arc::clone(&self.entries), Arc::clone(&self.latest), latest.order);
        tokio::spawn(async move { carry_out(&entries, &progress, order, below.as_ref()).await });
        latest.clone()
    }
}

async fn carry_out(entries: &Entries, latest: &Mutex<FlushProgress>, order: u64, below: Option<&S3Uri>) {
    let note = |change: &dyn Fn(&mut FlushProgress)| {
        let mut latest = latest.lock();
        if latest.order == order {
            change(&mut latest);
        }
    };
    // An order has no client that would time out, so it waits for a registry that does not answer.
    let mut looks = 1..LOOKS;
    let listed = loop {
        match all_below(entries, below).await {
            Err(_) if looks.next().is_some() => tokio::time::sleep(PAUSE).await,
            listed => break listed,
        }
    };
    match listed {
        Ok(names) => {
            note(&|progress| progress.left = names.len() as u64);
            let ended = |flushed: u64, failed: u64| {
                note(&|progress| {
                    progress.left -= flushed + failed;
                    progress.flushed += flushed;
                    progress.failed += failed;
                });
            };
            let mut alone = names;
            for map in entries.packs.all() {
                let is_of_map = |name: &mut ObjectName| {
                    let of = entries.packs.of(name);
                    of.is_some_and(|of| of.name() == map.name())
                };
                let packed: Vec<_> = alone.extract_if(.., is_of_map).collect();
                for names in packed.chunks(ROUND_MAX) {
                    let flushed = entries.pack(map, names).await;
                    ended(flushed, names.len() as u64 - flushed);
                }
            }
            stream::iter(alone)
                .for_each_concurrent(PARALLEL, |name| async move {
                    let flushed = u64::from(entries.flush_in_background(&name).await.is_ok());
                    ended(flushed, 1 - flushed);
                })
                .await;
        }
        Err(error) => note(&|progress| progress.error = Some(error.to_string())),
    }
    note(&|progress| progress.running = false);
}

/// Returns the names of the objects that are dirty on any node, all or those below a prefix.
async fn all_below(entries: &Entries, below: Option<&S3Uri>) -> Result<Vec<ObjectName>, TierUnavailable> {
    let mut names = BTreeMap::new();
    for (bucket, prefix) in entries.shared.parts.rules.back_prefixes() {
        let Some(prefix) = narrowed(&bucket, &prefix, below) else {
            continue;
        };
        for dirty in entries.list(&bucket, prefix).await? {
            let name = dirty.name().clone();
            names.insert((Arc::clone(&name.bucket), Arc::clone(&name.key)), name);
        }
    }
    Ok(names.into_values().collect())
}

/// Returns the longer of two prefixes if one contains the other, or `None` if no key has both.
fn narrowed<'a>(bucket: &str, prefix: &'a [u8], below: Option<&'a S3Uri>) -> Option<&'a [u8]> {
    let Some(below) = below else {
        return Some(prefix);
    };
    let wanted = below.key.as_bytes();
    if below.bucket != bucket {
        None
    } else if wanted.starts_with(prefix) {
        Some(wanted)
    } else if prefix.starts_with(wanted) {
        Some(prefix)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::narrowed;

    #[test]
    fn an_order_is_for_what_is_below_both_it_and_a_rule() {
        let below = |text: &str| narrowed("b", b"tmp/", Some(&text.parse().unwrap())).map(<[u8]>::to_vec);
        assert_eq!(narrowed("b", b"tmp/", None), Some(&b"tmp/"[..]));
        assert_eq!(below("s3://b"), Some(b"tmp/".to_vec()));
        assert_eq!(below("s3://b/tmp/x"), Some(b"tmp/x".to_vec()));
        assert_eq!(below("s3://b/t"), Some(b"tmp/".to_vec()));
        assert_eq!(below("s3://b/x"), None);
        assert_eq!(below("s3://c/tmp/"), None);
    }
}
