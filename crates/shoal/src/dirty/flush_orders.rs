//! Orders to bring everything to the lake now, or what is below a prefix.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{AuthorityUnreachable, DirtyObjects};
use crate::s3::object::ObjectName;
use crate::s3::uri::S3Uri;

/// Objects asked to be flushed at a time; each home bounds what it does by itself.
const PARALLEL: usize = 8;

/// So many times it is looked for what there is to flush, each of which waits some seconds for members that change.
const LOOKS: u32 = 10;

/// Carries out orders, one after the other.
#[derive(Default)]
pub struct FlushOrders {
    dirty: Option<Arc<DirtyObjects>>,
    now: Arc<Mutex<Now>>,
}

#[derive(Default)]
struct Now {
    order: u64,
    progress: FlushProgress,
}

/// How far the last order is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushProgress {
    /// Counts orders.
    pub order: u64,
    /// Whether it is being carried out.
    pub running: bool,
    /// What was to be flushed; nothing: everything.
    pub below: Option<String>,
    /// Objects that are dirty yet and will be tried.
    pub left: u64,
    /// Objects that the lake has now.
    pub flushed: u64,
    /// Objects that it has not: they stay dirty and are tried again.
    pub failed: u64,
    /// Why nothing could be tried.
    pub error: Option<String>,
}

impl FlushOrders {
    /// For a node on which objects may be dirty.
    pub fn of(dirty: &Arc<DirtyObjects>) -> Self {
        Self {
            dirty: Some(Arc::clone(dirty)),
            now: Arc::default(),
        }
    }

    /// How far the last order is.
    pub fn progress(&self) -> FlushProgress {
        self.now.lock().progress.clone()
    }

    /// Begins to flush what is dirty on any node, in a task of its own. An order under way is overtaken.
    pub fn begin(&self, below: Option<S3Uri>) -> FlushProgress {
        let mut now = self.now.lock();
        now.order += 1;
        now.progress = FlushProgress {
            order: now.order,
            running: true,
            below: below.as_ref().map(ToString::to_string),
            ..FlushProgress::default()
        };
        if let Some(dirty) = &self.dirty {
            let (dirty, now, order) = (Arc::clone(dirty), Arc::clone(&self.now), now.order);
            tokio::spawn(async move { carry_out(&dirty, &now, order, below.as_ref()).await });
        } else {
            now.progress.running = false;
        }
        now.progress.clone()
    }
}

async fn carry_out(dirty: &DirtyObjects, now: &Mutex<Now>, order: u64, below: Option<&S3Uri>) {
    let note = |change: &dyn Fn(&mut FlushProgress)| {
        let mut now = now.lock();
        if now.order == order {
            change(&mut now.progress);
        }
    };
    match all_below_patiently(dirty, below).await {
        Ok(names) => {
            note(&|progress| progress.left = names.len() as u64);
            stream::iter(names)
                .for_each_concurrent(PARALLEL, |name| async move {
                    let flushed = dirty.flush(&name).await.is_ok();
                    note(&|progress| {
                        progress.left -= 1;
                        progress.flushed += u64::from(flushed);
                        progress.failed += u64::from(!flushed);
                    });
                })
                .await;
        }
        Err(error) => note(&|progress| progress.error = Some(error.to_string())),
    }
    note(&|progress| progress.running = false);
}

/// As [`all_below`], also while members change: a client that has ordered a flush can wait for it.
async fn all_below_patiently(
    dirty: &DirtyObjects,
    below: Option<&S3Uri>,
) -> Result<Vec<ObjectName>, AuthorityUnreachable> {
    for _ in 1..LOOKS {
        if let Ok(names) = all_below(dirty, below).await {
            return Ok(names);
        }
    }
    all_below(dirty, below).await
}

/// The name of every object that is dirty on any node, or of those below a prefix.
async fn all_below(
    dirty: &DirtyObjects,
    below: Option<&S3Uri>,
) -> Result<Vec<ObjectName>, AuthorityUnreachable> {
    let mut names = BTreeMap::new();
    for (bucket, prefix) in dirty.prefixes() {
        let Some(prefix) = narrowed((&bucket, &prefix), below) else {
            continue;
        };
        for manifest in dirty.list(&bucket, prefix, b"").await? {
            let name = manifest.name.clone();
            names.insert((Arc::clone(&name.bucket), Arc::clone(&name.key)), name);
        }
    }
    Ok(names.into_values().collect())
}

/// The beginning of the keys that are below both; `None`: there are none.
fn narrowed<'a>((bucket, prefix): (&str, &'a [u8]), below: Option<&'a S3Uri>) -> Option<&'a [u8]> {
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
        let below = |text: &str| narrowed(("b", b"tmp/"), Some(&text.parse().unwrap())).map(<[u8]>::to_vec);
        assert_eq!(narrowed(("b", b"tmp/"), None), Some(&b"tmp/"[..]));
        assert_eq!(below("s3://b"), Some(b"tmp/".to_vec()));
        assert_eq!(below("s3://b/tmp/x"), Some(b"tmp/x".to_vec()));
        assert_eq!(below("s3://b/t"), Some(b"tmp/".to_vec()));
        assert_eq!(below("s3://b/x"), None);
        assert_eq!(below("s3://c/tmp/"), None);
    }
}
