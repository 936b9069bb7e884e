//! The mapped blocks, from which hits are served without a copy and without disk access.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use shoal_policy::BlockId;

use crate::files::mapping::Mapping;

/// Number of shards, each with its own lock, so that readers of different blocks rarely contend.
const SHARDS: usize = 64;

/// Number of uses reported to the policy in one batch: one lock for this many hits.
const USES: usize = 64;

/// How long a block found in memory is assumed to stay there.
///
/// The kernel drops the least recently used pages first, so a page used a moment ago is the last to go. If it
/// is dropped anyway, one reader's thread blocks on the disk once. A check on every hit would double the cost
/// of a hit of 4 KiB, and cost more than that for a small range of a large block.
const RETEST_AFTER: Duration = Duration::from_millis(50);

/// Mapped blocks by ID.
pub(crate) struct Mappings {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Default)]
struct Shard {
    blocks: HashMap<BlockId, Mapped, foldhash::fast::RandomState>,
    /// Uses since the last report to the policy.
    uses: Vec<BlockId>,
}

struct Mapped {
    mapping: Arc<Mapping>,
    /// The bytes of which readers hold clones, created once and not per hit. Dropped to find out whether any
    /// reader still holds a clone.
    lease: Option<Bytes>,
    /// When all pages were last seen in memory.
    tested: Instant,
}

/// Keeps a mapping alive while a reader holds bytes of it.
struct Lease(Arc<Mapping>);

/// A block served from memory and, once per [`USES`] hits, the uses to report to the policy.
pub(crate) type Hit = (Bytes, Option<Vec<BlockId>>);

impl Mappings {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Returns the block if it is mapped and all of it is in memory, and counts a use if `is_used`.
    pub(crate) fn get(&self, block: BlockId, now: Instant, is_used: bool) -> Option<Hit> {
        let mut shard = self.shard(block);
        let bytes = shard.blocks.get_mut(&block)?.resident(now)?;
        if !is_used {
            return Some((bytes, None));
        }
        shard.uses.push(block);
        let uses =
            (shard.uses.len() >= USES).then(|| std::mem::replace(&mut shard.uses, Vec::with_capacity(USES)));
        Some((bytes, uses))
    }

    /// Returns true if the block is mapped, in memory or not.
    pub(crate) fn contains(&self, block: BlockId) -> bool {
        self.shard(block).blocks.contains_key(&block)
    }

    /// Keeps a mapping whose pages are in memory. If the block is already mapped, its existing mapping is
    /// kept.
    pub(crate) fn insert(&self, block: BlockId, mapping: Mapping, now: Instant) -> Bytes {
        let mut shard = self.shard(block);
        let fresh = || Mapped {
            mapping: Arc::new(mapping),
            lease: None,
            tested: now,
        };
        shard.blocks.entry(block).or_insert_with(fresh).lease()
    }

    /// Replaces the mapping of a block by one of the same bytes, if the block is mapped. Returns the former
    /// one.
    pub(crate) fn replace(&self, block: BlockId, mapping: Mapping) -> Option<Arc<Mapping>> {
        let mut shard = self.shard(block);
        let mapped = shard.blocks.get_mut(&block)?;
        mapped.lease = None;
        Some(std::mem::replace(&mut mapped.mapping, Arc::new(mapping)))
    }

    /// Returns the bytes of a mapping that is not kept.
    pub(crate) fn lease(mapping: Mapping) -> Bytes {
        Bytes::from_owner(Lease(Arc::new(mapping)))
    }

    /// Returns the bytes of a block whose pages have just been read in again.
    pub(crate) fn refreshed(&self, block: BlockId, now: Instant) -> Option<Bytes> {
        let mut shard = self.shard(block);
        let mapped = shard.blocks.get_mut(&block)?;
        mapped.tested = now;
        Some(mapped.lease())
    }

    /// Returns the mapping of a block, to read its pages in.
    pub(crate) fn mapping(&self, block: BlockId) -> Option<Arc<Mapping>> {
        self.shard(block)
            .blocks
            .get(&block)
            .map(|mapped| Arc::clone(&mapped.mapping))
    }

    /// Removes a block. The mapping stays alive while readers hold bytes of it.
    pub(crate) fn remove(&self, block: BlockId) -> Option<Arc<Mapping>> {
        let removed = self.shard(block).blocks.remove(&block);
        removed.map(|mapped| mapped.mapping)
    }

    /// Returns true if a reader holds bytes of the block.
    pub(crate) fn is_in_use(&self, block: BlockId) -> bool {
        self.shard(block).blocks.get_mut(&block).is_some_and(|mapped| {
            mapped.lease = None;
            Arc::strong_count(&mapped.mapping) > 1
        })
    }

    /// Takes the uses not yet reported to the policy.
    pub(crate) fn take_uses(&self) -> Vec<BlockId> {
        self.shards
            .iter()
            .flat_map(|shard| std::mem::take(&mut shard.lock().uses))
            .collect()
    }

    fn shard(&self, block: BlockId) -> MutexGuard<'_, Shard> {
        // The version ID is a digest, so any of its bytes is uniformly distributed. The index spreads the
        // blocks of one object.
        let position = block.version.0[1] as usize + block.index as usize;
        self.shards[position % SHARDS].lock()
    }
}

impl Mapped {
    /// The bytes, if all of them are in memory.
    fn resident(&mut self, now: Instant) -> Option<Bytes> {
        if now.saturating_duration_since(self.tested) >= RETEST_AFTER {
            if !self.mapping.is_resident() {
                return None;
            }
            self.tested = now;
        }
        Some(self.lease())
    }

    fn lease(&mut self) -> Bytes {
        self.lease
            .get_or_insert_with(|| Bytes::from_owner(Lease(Arc::clone(&self.mapping))))
            .clone()
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use shoal_base::clock;
    use shoal_policy::{BlockId, VersionId};

    use super::{Mapping, Mappings, RETEST_AFTER, USES};

    fn block(index: u32) -> BlockId {
        BlockId {
            version: VersionId([3; 16]),
            index,
        }
    }

    fn mapping(byte: u8) -> Mapping {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[byte; 5000]).unwrap();
        Mapping::of_file(&file, 5000).unwrap()
    }

    #[test]
    fn a_hit_shares_the_mapping_and_costs_no_copy() {
        let (mappings, now) = (Mappings::new(), clock::instant());
        let stored = mappings.insert(block(0), mapping(7), now);
        for later in [now, now + RETEST_AFTER] {
            let (bytes, _) = mappings.get(block(0), later, true).unwrap();
            assert_eq!(bytes.as_ptr(), stored.as_ptr());
            assert!(bytes.iter().all(|&byte| byte == 7));
        }
        assert!(mappings.get(block(1), now, true).is_none());
    }

    #[test]
    fn a_block_is_in_use_until_the_last_slice_of_it_is_dropped() {
        let (mappings, now) = (Mappings::new(), clock::instant());
        let slice = mappings.insert(block(0), mapping(7), now).slice(10..20);
        let other = mappings.get(block(0), now, true).unwrap().0;
        assert!(mappings.is_in_use(block(0)));
        drop(slice);
        assert!(mappings.is_in_use(block(0)));
        drop(other);
        assert!(!mappings.is_in_use(block(0)));
        assert!(
            mappings.get(block(0), now, true).is_some(),
            "asking does not end it"
        );
    }

    #[test]
    fn bytes_outlive_the_removal_of_their_block() {
        let (mappings, now) = (Mappings::new(), clock::instant());
        let bytes = mappings.insert(block(0), mapping(7), now);
        let removed = Arc::downgrade(&mappings.remove(block(0)).unwrap());
        assert!(mappings.get(block(0), now, true).is_none());
        assert!(bytes.iter().all(|&byte| byte == 7));
        assert_eq!(removed.strong_count(), 1);
        drop(bytes);
        assert_eq!(removed.strong_count(), 0);
    }

    #[test]
    fn a_block_mapped_twice_keeps_its_first_mapping() {
        let (mappings, now) = (Mappings::new(), clock::instant());
        let first = mappings.insert(block(0), mapping(7), now);
        let second = mappings.insert(block(0), mapping(7), now);
        assert_eq!(first.as_ptr(), second.as_ptr());
    }

    #[test]
    fn every_use_is_reported_once() {
        let (mappings, now) = (Mappings::new(), clock::instant());
        mappings.insert(block(0), mapping(7), now);
        let hits = USES * 2 + 3;
        let reported: usize = (0..hits)
            .filter_map(|_| mappings.get(block(0), now, true).unwrap().1)
            .map(|uses| uses.len())
            .sum();
        assert_eq!(reported, USES * 2);
        assert_eq!(mappings.take_uses().len(), 3);
        assert!(mappings.take_uses().is_empty());
    }
}
