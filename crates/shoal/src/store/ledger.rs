//! The index in memory: which blocks are here, how much room they take, which are mapped, which must stay.
//! One lock guards it.

use std::collections::HashMap;
use std::sync::Arc;

use shoal_policy::admission::Refusal;
use shoal_policy::eviction::layered::divide;
use shoal_policy::eviction::{Eviction as _, Layered, Lru, Named, PolicyName};
use shoal_policy::residency::{Leaving, Reservation, Residency, Watermarks};
use shoal_policy::route::Hierarchy;
use shoal_policy::{BlockId, ObjectId, VersionId};

use super::index::Index;
use super::mapping::Mapping;
use super::mappings::Mappings;

/// Maximum number of mappings kept: half of the Linux limit for a process (`vm.max_map_count`).
const MAPPINGS_MAX: usize = 32 << 10;

type Resident = Residency<BlockId, Layered<BlockId, Named<BlockId>>>;

/// Everything the store knows about its blocks. Hits do not touch it.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) residency: Resident,
    pub(super) index: Index,
    mapped: Lru<BlockId>,
    mapped_bytes: u64,
    mapped_bytes_max: u64,
    stays: Stays,
}

/// The blocks that must not leave to make room.
#[derive(Debug, Default)]
struct Stays {
    /// Blocks being read from disk, with the number of readers of each.
    pins: HashMap<BlockId, u32>,
    /// Versions that the lake does not have, with the number of holders that protect each.
    protected: HashMap<VersionId, u32>,
}

impl Stays {
    fn contains(&self, block: &BlockId, mappings: &Mappings) -> bool {
        self.pins.contains_key(block)
            || self.protected.contains_key(&block.version)
            || mappings.is_in_use(*block)
    }
}

/// Blocks on their way out, each with its mapping, if it had one.
pub(super) type Victims = Vec<(Leaving<BlockId>, Option<Arc<Mapping>>)>;

impl Ledger {
    /// Creates `layers` layers of equal size, each with a policy of this name. Blocks belong where
    /// `hierarchy` says.
    pub(super) fn new(
        capacity_bytes: u64,
        mapped_bytes_max: u64,
        policy: PolicyName,
        layers: usize,
        hierarchy: Arc<Hierarchy>,
    ) -> Self {
        let targets = divide(capacity_bytes, &vec![1_u64; layers]);
        let layers = targets
            .into_iter()
            .map(|target_bytes| (policy.build(), target_bytes));
        let policy = Layered::new(layers, hierarchy);
        Self {
            residency: Residency::new(capacity_bytes, Watermarks::of(capacity_bytes), policy),
            index: Index::default(),
            mapped: Lru::default(),
            mapped_bytes: 0,
            mapped_bytes_max,
            stays: Stays::default(),
        }
    }

    /// Admits a block that has its name and its room.
    pub(super) fn admit(&mut self, room: Reservation, block: BlockId, object: ObjectId, sequence: u64) {
        self.residency.commit(room, block);
        self.index.insert(object, block, sequence);
    }

    /// Notes that blocks were used, perhaps a while ago.
    pub(super) fn touch(&mut self, uses: &[BlockId]) {
        for block in uses {
            self.residency.touch(block);
            self.mapped.touch(block);
        }
    }

    /// Reserves room, or returns the block that leaves so that the caller may try again.
    pub(super) fn reserve(
        &mut self,
        bytes: u64,
        mappings: &Mappings,
    ) -> Result<Reservation, (Refusal, Victims)> {
        self.residency.reserve(bytes).map_err(|refusal| match refusal {
            Refusal::NoRoom => {
                let Self { residency, stays, .. } = &mut *self;
                let victim = residency.evict(&mut |block| !stays.contains(block, mappings));
                (refusal, self.forget_all(victim, mappings))
            }
            _ => (refusal, Victims::new()),
        })
    }

    /// Removes blocks ahead of need, at most `most`.
    pub(super) fn evict_ahead(&mut self, started: bool, most: usize, mappings: &Mappings) -> Victims {
        let Self { residency, stays, .. } = &mut *self;
        let victims = residency.evict_ahead(started, most, &mut |block| !stays.contains(block, mappings));
        self.forget_all(victims, mappings)
    }

    /// Removes a block that is no longer valid.
    pub(super) fn remove(&mut self, block: BlockId, mappings: &Mappings) -> Victims {
        let victim = self.residency.remove(&block);
        self.forget_all(victim, mappings)
    }

    /// Notes that a block was mapped. Returns the mappings that give way to it, for the caller to drop
    /// outside the lock.
    ///
    /// The bounds yield to readers: mappings that readers hold are kept.
    pub(super) fn mapped(&mut self, block: BlockId, bytes: u64, mappings: &Mappings) -> Vec<Arc<Mapping>> {
        if !self.mapped.contains(&block) {
            self.mapped.insert(block, bytes);
            self.mapped_bytes += bytes;
        }
        let mut unmapped = Vec::new();
        while self.mapped_bytes > self.mapped_bytes_max || self.mapped.len() > MAPPINGS_MAX {
            let Some((block, bytes)) = self.mapped.evict(&mut |block| !mappings.is_in_use(*block)) else {
                break;
            };
            self.mapped_bytes -= bytes;
            unmapped.extend(mappings.remove(block));
        }
        unmapped
    }

    /// Keeps a block from leaving until it is unpinned. Returns `false` if it is not here.
    pub(super) fn pin(&mut self, block: BlockId) -> bool {
        let here = self.residency.contains(&block);
        if here {
            *self.stays.pins.entry(block).or_default() += 1;
        }
        here
    }

    pub(super) fn unpin(&mut self, block: BlockId) {
        let pins = self
            .stays
            .pins
            .get_mut(&block)
            .expect("an unpinned block was pinned");
        *pins -= 1;
        if *pins == 0 {
            self.stays.pins.remove(&block);
        }
    }

    /// Keeps the blocks of a version from leaving to make room.
    pub(super) fn protect(&mut self, version: VersionId) {
        *self.stays.protected.entry(version).or_default() += 1;
    }

    pub(super) fn release(&mut self, version: VersionId) {
        let holders = self
            .stays
            .protected
            .get_mut(&version)
            .expect("a released version was protected");
        *holders -= 1;
        if *holders == 0 {
            self.stays.protected.remove(&version);
        }
    }

    /// Whether the blocks of any version are kept from leaving.
    pub(super) fn has_protected(&self) -> bool {
        !self.stays.protected.is_empty()
    }

    pub(super) fn is_protected(&self, version: VersionId) -> bool {
        self.stays.protected.contains_key(&version)
    }

    /// Returns the mapped blocks, the one used last first.
    pub(super) fn mapped_by_use(&self) -> Vec<BlockId> {
        let mut blocks: Vec<_> = self.mapped.oldest_first().collect();
        blocks.reverse();
        blocks
    }

    /// Returns the number of mapped blocks and of mapped bytes.
    pub(super) fn mapped_size(&self) -> (u64, u64) {
        (self.mapped.len() as u64, self.mapped_bytes)
    }

    fn forget_all(
        &mut self,
        victims: impl IntoIterator<Item = Leaving<BlockId>>,
        mappings: &Mappings,
    ) -> Victims {
        victims
            .into_iter()
            .map(|leaving| self.forget(leaving, mappings))
            .collect()
    }

    fn forget(
        &mut self,
        leaving: Leaving<BlockId>,
        mappings: &Mappings,
    ) -> (Leaving<BlockId>, Option<Arc<Mapping>>) {
        self.index.remove(leaving.key);
        self.mapped_bytes -= self.mapped.remove(&leaving.key).unwrap_or_default();
        let mapping = mappings.remove(leaving.key);
        (leaving, mapping)
    }
}
