//! What this node keeps of dirty objects: manifests, in memory and on disk, and the blocks that they place
//! here.
//!
//! Whoever holds a block of an object, and both homes of its name, have its manifest. So a node that comes
//! back knows what it held, and whoever is the home by then can ask everybody.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_policy::admission::Refusal;
use shoal_policy::{NodeId, VersionId};
use shoal_s3::object::{ObjectName, Version};
use shoal_store::Store;

use crate::dirty::manifest::Manifest;

/// Blocks that were sent here are on disk by then.
const ARRIVAL_LOOKS: u32 = 500;
const ARRIVAL_PAUSE: Duration = Duration::from_millis(10);

/// Those that are not may have left, and can be sent again.
const NAME_LOOKS: u32 = 100;

/// Objects of which it is remembered that they no longer exist.
const GONE_MAX: usize = 1 << 14;

/// Bucket and key: the order of listings.
type Key = (Arc<str>, Arc<[u8]>);

/// The dirty objects of this node.
pub(in crate::dirty) struct Records {
    store: Arc<Store>,
    me: NodeId,
    /// Dirty blocks may take so many bytes here.
    limit_bytes: u64,
    /// Of these, so many are of parts of uploads that are not complete.
    aside_bytes: Arc<AtomicU64>,
    shelf: Mutex<Shelf>,
    /// One change of the files at a time, so that the last one is the one that stays.
    files: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Shelf {
    manifests: BTreeMap<Key, Arc<Manifest>>,
    bytes: u64,
    gone: HashMap<Key, u64>,
    /// In the order in which they went.
    gone_order: VecDeque<Key>,
}

/// Why a manifest is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::dirty) enum KeepError {
    /// The name has been written or removed since.
    #[error("it has been overtaken")]
    Overtaken,
    /// Not all blocks that it places here are here.
    #[error("its blocks are not all there")]
    Missing,
    /// Dirty blocks take all the room that they may.
    #[error("too much is dirty already")]
    Full,
    /// The disk.
    #[error("the disk does not take it: {0:?}")]
    Disk(Refusal),
}

impl Records {
    /// What the disk holds from the node's last life. Records of objects whose blocks are not all here any
    /// more are dropped.
    pub(in crate::dirty) async fn load(
        store: Arc<Store>,
        me: NodeId,
        limit_bytes: u64,
        aside_bytes: Arc<AtomicU64>,
        found: Vec<(VersionId, Vec<u8>)>,
    ) -> Self {
        let records = Self {
            store,
            me,
            limit_bytes,
            aside_bytes,
            shelf: Mutex::default(),
            files: tokio::sync::Mutex::default(),
        };
        for (version, record) in found {
            let manifest = Manifest::of_bytes(&record)
                .ok()
                .filter(|manifest| manifest.version.id == version && records.vouches_for(manifest));
            if let Some(manifest) = manifest {
                records.shelf.lock().insert(Arc::new(manifest), me);
                continue;
            }
            tracing::error!(%version, "a dirty object has lost blocks on this node: it is lost");
            if let Err(error) = records.store.drop_record(version).await {
                tracing::warn!(%version, %error, "a record cannot be removed");
            }
        }
        records
    }

    /// Gives blocks that came before their version was known its name; the indexes of all blocks of the
    /// version that are here.
    pub(in crate::dirty) async fn name_blocks(
        &self,
        (stand_in, sent): (VersionId, u32),
        version: Arc<Version>,
    ) -> Vec<u32> {
        let here = |version| self.store.blocks_of(version).len();
        for _ in 0..NAME_LOOKS {
            if here(stand_in) + here(version.id) >= sent as usize {
                break;
            }
            tokio::time::sleep(ARRIVAL_PAUSE).await;
        }
        self.store.rename_version(stand_in, version).await
    }

    /// Keeps a manifest in place of earlier writes of the same name, once the blocks that it places here are
    /// here.
    pub(in crate::dirty) async fn keep(&self, manifest: Arc<Manifest>) -> Result<(), KeepError> {
        // Until the record does it.
        let _protection = self.store.protect(manifest.version.id);
        self.arrival(&manifest).await?;
        self.note(manifest).await
    }

    /// Keeps a manifest whether or not its blocks are here: whoever is home to it must know of it, to say
    /// that it is lost.
    pub(in crate::dirty) async fn note(&self, manifest: Arc<Manifest>) -> Result<(), KeepError> {
        let _turn = self.files.lock().await;
        let before = self.admit(&manifest)?;
        if before
            .as_ref()
            .is_some_and(|before| before.sequence == manifest.sequence)
        {
            return Ok(());
        }
        let kept = self
            .store
            .keep_record(manifest.version.id, manifest.to_bytes())
            .await;
        kept.map_err(KeepError::Disk)?;
        self.shelf.lock().insert(Arc::clone(&manifest), self.me);
        match before {
            Some(before) if before.version.id != manifest.version.id => self.drop_file(&before).await,
            _ => {}
        }
        Ok(())
    }

    /// Forgets what is known of writes of `name` up to `sequence`. Errors: the disk; nothing is forgotten.
    pub(in crate::dirty) async fn drop_up_to(&self, name: &ObjectName, sequence: u64) -> std::io::Result<()> {
        let _turn = self.files.lock().await;
        let dropped = self.get(name).filter(|manifest| manifest.sequence <= sequence);
        if let Some(manifest) = dropped {
            self.store.drop_record(manifest.version.id).await?;
        }
        self.shelf.lock().forget(name, sequence, self.me);
        Ok(())
    }

    /// Keeps a manifest no more that others keep, or that nobody needs: nothing is said about whether the
    /// object exists.
    pub(in crate::dirty) async fn let_go(&self, manifest: &Manifest) -> std::io::Result<()> {
        let _turn = self.files.lock().await;
        let is_kept = self
            .get(&manifest.name)
            .is_some_and(|known| known.sequence == manifest.sequence);
        if is_kept {
            self.store.drop_record(manifest.version.id).await?;
            self.shelf.lock().remove(&manifest.name, self.me);
        }
        Ok(())
    }

    /// The latest write of a name that is kept here.
    pub(in crate::dirty) fn get(&self, name: &ObjectName) -> Option<Arc<Manifest>> {
        self.shelf.lock().manifests.get(&key(name)).cloned()
    }

    /// The last write of a name that is known not to exist any more.
    pub(in crate::dirty) fn gone(&self, name: &ObjectName) -> Option<u64> {
        self.shelf.lock().gone.get(&key(name)).copied()
    }

    /// What is known not to exist any more.
    pub(in crate::dirty) fn all_gone(&self) -> Vec<(ObjectName, u64)> {
        let shelf = self.shelf.lock();
        shelf
            .gone
            .iter()
            .map(|(key, sequence)| (name(key), *sequence))
            .collect()
    }

    /// Everything that is kept, behind `after`, in the order of names.
    pub(in crate::dirty) fn all(&self, after: Option<&ObjectName>) -> Vec<Arc<Manifest>> {
        use std::ops::Bound;
        let shelf = self.shelf.lock();
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(key(after)));
        let behind = shelf.manifests.range((from, Bound::Unbounded));
        behind.map(|(_, manifest)| Arc::clone(manifest)).collect()
    }

    /// What is kept of a bucket below a prefix, behind a key, in order.
    pub(in crate::dirty) fn below(&self, bucket: &str, prefix: &[u8], after: &[u8]) -> Vec<Arc<Manifest>> {
        let shelf = self.shelf.lock();
        let first: Key = (bucket.into(), prefix.max(after).into());
        let from_first = shelf.manifests.range(first..);
        from_first
            .take_while(|((in_bucket, key), _)| &**in_bucket == bucket && key.starts_with(prefix))
            .filter(|((_, key), _)| &**key > after)
            .map(|(_, manifest)| Arc::clone(manifest))
            .collect()
    }

    /// Whether every block that the manifest places here is here.
    pub(in crate::dirty) fn vouches_for(&self, manifest: &Manifest) -> bool {
        let blocks = manifest.placement.held_by(self.me);
        let version = &manifest.version;
        blocks
            .into_iter()
            .all(|index| self.store.contains(version.block(index)))
    }

    /// Objects, and bytes of their blocks that are here.
    pub(in crate::dirty) fn size(&self) -> (u64, u64) {
        let shelf = self.shelf.lock();
        (shelf.manifests.len() as u64, shelf.bytes)
    }

    /// Whether half of the room for dirty blocks is taken.
    pub(in crate::dirty) fn is_crowded(&self) -> bool {
        self.shelf.lock().bytes + self.aside_bytes() > self.limit_bytes / 2
    }

    /// Whether so many bytes more would be too many.
    pub(in crate::dirty) fn is_full(&self, bytes: u64) -> bool {
        let taken_bytes = self.shelf.lock().bytes + self.aside_bytes();
        taken_bytes.saturating_add(bytes) > self.limit_bytes
    }

    fn aside_bytes(&self) -> u64 {
        self.aside_bytes.load(Ordering::Relaxed)
    }

    async fn arrival(&self, manifest: &Manifest) -> Result<(), KeepError> {
        for _ in 0..ARRIVAL_LOOKS {
            if self.vouches_for(manifest) {
                return Ok(());
            }
            tokio::time::sleep(ARRIVAL_PAUSE).await;
        }
        Err(KeepError::Missing)
    }

    /// Whether it may be kept, and in place of what.
    fn admit(&self, manifest: &Manifest) -> Result<Option<Arc<Manifest>>, KeepError> {
        let shelf = self.shelf.lock();
        let key = key(&manifest.name);
        let before = shelf.manifests.get(&key);
        let overtaken = before.is_some_and(|before| before.sequence > manifest.sequence)
            || shelf
                .gone
                .get(&key)
                .is_some_and(|gone| *gone >= manifest.sequence);
        if overtaken {
            return Err(KeepError::Overtaken);
        }
        let replaced = before.map_or(0, |before| before.bytes_at(self.me));
        if shelf.bytes - replaced + self.aside_bytes() + manifest.bytes_at(self.me) > self.limit_bytes {
            return Err(KeepError::Full);
        }
        Ok(before.cloned())
    }

    async fn drop_file(&self, manifest: &Manifest) {
        // Found again after a restart, it is overtaken by what the home knows.
        if let Err(error) = self.store.drop_record(manifest.version.id).await {
            tracing::warn!(object = ?manifest.name, %error, "the record of an overwritten object cannot be removed");
        }
    }
}

impl Shelf {
    fn insert(&mut self, manifest: Arc<Manifest>, me: NodeId) {
        self.bytes += manifest.bytes_at(me);
        if let Some(before) = self.manifests.insert(key(&manifest.name), manifest) {
            self.bytes -= before.bytes_at(me);
        }
    }

    fn remove(&mut self, name: &ObjectName, me: NodeId) {
        if let Some(manifest) = self.manifests.remove(&key(name)) {
            self.bytes -= manifest.bytes_at(me);
        }
    }

    fn forget(&mut self, name: &ObjectName, sequence: u64, me: NodeId) {
        let key = key(name);
        let known = self.manifests.get(&key);
        if known.is_some_and(|known| known.sequence <= sequence) {
            self.remove(name, me);
        }
        match self.gone.insert(key.clone(), sequence) {
            Some(before) if before > sequence => {
                self.gone.insert(key, before);
            }
            Some(_) => {}
            None => self.gone_order.push_back(key),
        }
        while self.gone_order.len() > GONE_MAX {
            let oldest = self.gone_order.pop_front().expect("a long queue has a front");
            self.gone.remove(&oldest);
        }
    }
}

fn key(name: &ObjectName) -> Key {
    (Arc::clone(&name.bucket), Arc::clone(&name.key))
}

fn name((bucket, key): &Key) -> ObjectName {
    ObjectName {
        bucket: Arc::clone(bucket),
        key: Arc::clone(key),
        version: None,
    }
}
