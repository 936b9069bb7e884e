//! The state in memory: which blocks are here, how much room they take, which are mapped, which must stay.
//!
//! One lock guards all of it but the mappings, which have locks of their own so that a hit does not meet this
//! one. Nothing here touches the disk. A block that leaves comes out as a [`Victim`], and its room is free
//! when the caller has removed the file and said so ([`Ledger::left`]).

mod c2p;
mod gwf;
mod pins;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use shoal_base::clock;
use shoal_policy::admission::Refusal;
use shoal_policy::eviction::c2p::Completeness;
use shoal_policy::eviction::layered::{LayerRoom, divide};
use shoal_policy::eviction::{Layered, Named, PolicyName};
use shoal_policy::residency::{Leaving, Reservation, Residency, Watermarks};
use shoal_policy::route::Hierarchy;
use shoal_policy::{BlockId, ObjectId, VersionId};
use shoal_s3::object::Extent;

use self::c2p::EventTimes;
pub use self::c2p::{CacheEvent, GroupKnowledge, LayerGroup};
pub use self::gwf::{Least, NextToLeave, Ranks};
pub use self::pins::Kept;

use super::index::Index;
use super::mapped_lru::MappedLru;
use super::mapping::Mapping;
use super::mappings::Mappings;
use super::pinning::PinCounts;
use super::pins::Pins;
use super::readers::Readers;

type Resident = Residency<BlockId, Layered<BlockId, Named<BlockId>>>;

/// Everything the store knows about its blocks. A hit takes the lock of one shard of the mappings and, once
/// in many hits, this one.
pub(super) struct Ledger {
    state: Mutex<State>,
    /// Notified when there is more room than before.
    freed: Condvar,
    mappings: Mappings,
}

#[derive(Debug)]
struct State {
    residency: Resident,
    index: Index,
    mapped: MappedLru,
    readers: Readers,
    pins: Pins,
    time: PolicyTime,
    event_times: EventTimes,
}

/// The time as policies see it: since 1970, so that it goes on after a restart, and never back.
#[derive(Clone, Copy, Debug)]
struct PolicyTime {
    at_start: Duration,
    started: Instant,
}

/// A block on its way out, with its mapping, if it had one.
#[derive(Debug)]
pub(super) struct Victim {
    pub(super) leaving: Leaving<BlockId>,
    /// Length of its data in bytes.
    pub(super) data_bytes: u64,
    pub(super) mapping: Option<Arc<Mapping>>,
}

/// The answer to a request for room.
pub(super) struct Attempt {
    /// The room, or why there is none.
    pub(super) room: Result<Reservation, Refusal>,
    /// Whether room has to be made ahead of need.
    pub(super) is_crowded: bool,
}

/// How much of everything is here, at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) room_bytes: u64,
    pub(super) taken_bytes: u64,
    pub(super) resident_bytes: u64,
    pub(super) blocks: u64,
    pub(super) mapped_blocks: u64,
    pub(super) mapped_bytes: u64,
    pub(super) pins: PinCounts,
}

/// A block that must not leave while it is read.
pub(super) struct BlockRead<'a> {
    ledger: &'a Ledger,
    block: BlockId,
}

impl Drop for BlockRead<'_> {
    fn drop(&mut self) {
        self.ledger.state.lock().readers.leave(self.block);
    }
}

impl Ledger {
    /// Creates `layers` layers of equal size, each with a policy of this name, which is above no other in L1
    /// of several. Blocks belong where `hierarchy` says. Pinned blocks take at most `pinned_bytes_max`.
    pub(super) fn new(
        room_bytes: u64,
        pinned_bytes_max: u64,
        mapped_bytes_max: u64,
        (policy, completeness): (PolicyName, Completeness),
        layers: usize,
        hierarchy: &Arc<Hierarchy>,
    ) -> Self {
        let targets = divide(room_bytes, &vec![1_u64; layers]);
        let with_policy = |(place, target_bytes)| {
            // Of several layers the first has copies of what this node reads, and objects are spread over
            // nodes in the others.
            let is_spread = layers == 1 || place > 0;
            let policy = if is_spread { policy } else { policy.alone() };
            (policy.build_by(completeness), target_bytes)
        };
        let mut policy = Layered::new(
            targets.into_iter().enumerate().map(with_policy),
            Arc::clone(hierarchy),
        );
        c2p::keep_events(&mut policy, false);
        Self {
            state: Mutex::new(State {
                residency: Residency::new(room_bytes, Watermarks::of(room_bytes), policy)
                    .with_pins(pinned_bytes_max),
                index: Index::default(),
                mapped: MappedLru::new(mapped_bytes_max),
                readers: Readers::default(),
                pins: Pins::default(),
                time: PolicyTime::begin(),
                event_times: EventTimes::default(),
            }),
            freed: Condvar::new(),
            mappings: Mappings::new(),
        }
    }
}

/// Reads.
impl Ledger {
    /// Returns the block, if it is mapped and all of it is in memory. The policy hears of no use.
    pub(super) fn peek_resident(&self, block: BlockId) -> Option<Bytes> {
        self.mappings.peek(block, clock::instant())
    }

    /// Returns the block, if it is mapped and all of it is in memory.
    pub(super) fn get_resident(&self, block: BlockId) -> Option<Bytes> {
        let hit = self.mappings.get(block, clock::instant())?;
        if let Some(uses) = hit.uses {
            self.state.lock().touch(&uses);
        }
        Some(hit.bytes)
    }

    /// Whether room has to be made ahead of need.
    pub(super) fn is_crowded(&self) -> bool {
        self.state.lock().residency.is_crowded()
    }

    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.state.lock().residency.contains(&block)
    }

    pub(super) fn is_mapped(&self, block: BlockId) -> bool {
        self.mappings.contains(block)
    }

    /// Keeps a block from leaving until the read is dropped. `None` if it is not here.
    pub(super) fn begin_read(&self, block: BlockId) -> Option<BlockRead<'_>> {
        let mut state = self.state.lock();
        if !state.residency.contains(&block) {
            return None;
        }
        state.readers.enter(block);
        Some(BlockRead { ledger: self, block })
    }

    /// Returns the mapping of a block, for reading its pages in.
    pub(super) fn mapping(&self, block: BlockId) -> Option<Arc<Mapping>> {
        self.mappings.mapping(block)
    }

    /// Returns a mapped block whose pages have just been read again.
    pub(super) fn refreshed(&self, block: BlockId) -> Option<Bytes> {
        self.mappings.refreshed(block, clock::instant())
    }

    /// Keeps a mapping for later hits, and counts a use if `is_used`. Returns `None` if the block was
    /// invalidated in the meantime: its room may already belong to other blocks.
    pub(super) fn keep_mapped(&self, block: BlockId, mapping: Mapping, is_used: bool) -> Option<Bytes> {
        let data_bytes = mapping.as_ref().len() as u64;
        let mut state = self.state.lock();
        if !state.residency.contains(&block) {
            return None;
        }
        let bytes = self.mappings.insert(block, mapping, clock::instant());
        if is_used {
            state.touch(&[block]);
        }
        let unmapped = state.mapped.insert(block, data_bytes, &self.mappings);
        drop(state);
        // Unmapping takes a while; no other thread should wait for it.
        drop(unmapped);
        Some(bytes)
    }

    /// Returns the version of `object` that was stored last, among those that still have a block here.
    pub(super) fn newest(&self, object: ObjectId) -> Option<VersionId> {
        self.state.lock().index.newest(object)
    }

    /// Returns any block of the version that [`Ledger::newest`] names.
    pub(super) fn any_block_of(&self, object: ObjectId) -> Option<BlockId> {
        let state = self.state.lock();
        state.index.any_block_of(state.index.newest(object)?)
    }

    /// Returns the versions of `object` that are here.
    pub(super) fn versions_of(&self, object: ObjectId) -> Vec<VersionId> {
        self.state.lock().index.versions_of(object)
    }

    /// Returns the indexes of the blocks of `version` that are here, ascending.
    pub(super) fn blocks_of(&self, version: VersionId) -> Vec<u32> {
        self.state.lock().index.blocks_of(version)
    }

    /// Returns all versions, each with the sequence number of its block that was stored last.
    pub(super) fn versions(&self) -> Vec<(u64, VersionId)> {
        self.state.lock().index.versions()
    }

    /// Returns every block that is here. Mapped blocks come first, the one used last first: a use maps a
    /// block, so these were used after all others. The others follow, ordered by when their version was
    /// stored, the last one first. Shorter ones than `data_bytes_min` are left out.
    pub(super) fn blocks_by_use(&self, data_bytes_min: u64) -> Vec<BlockId> {
        let uses = self.mappings.take_uses();
        let (mut blocks, mut versions) = {
            let mut state = self.state.lock();
            state.touch(&uses);
            let mut mapped = state.mapped.newest_first();
            mapped.retain(|block| state.index.block_len(*block) >= data_bytes_min);
            (mapped, state.index.versions())
        };
        let mapped: HashSet<BlockId> = blocks.iter().copied().collect();
        versions.sort_unstable_by(|one, other| other.cmp(one));
        for (_, version) in versions {
            // One lock a version: the list is long, and readers wait for none of it.
            let state = self.state.lock();
            let all = state.index.blocks_of(version).into_iter();
            let all = all.map(|index| BlockId { version, index });
            let is_long = |block: &BlockId| state.index.block_len(*block) >= data_bytes_min;
            blocks.extend(all.filter(|block| !mapped.contains(block) && is_long(block)));
        }
        blocks
    }

    pub(super) fn usage(&self) -> Usage {
        let state = self.state.lock();
        debug_assert!(state.residency.used_bytes() <= state.residency.taken_bytes());
        debug_assert!(state.residency.taken_bytes() <= state.residency.capacity_bytes());
        Usage {
            room_bytes: state.residency.capacity_bytes(),
            taken_bytes: state.residency.taken_bytes(),
            resident_bytes: state.residency.used_bytes(),
            blocks: state.residency.len() as u64,
            mapped_blocks: state.mapped.len() as u64,
            mapped_bytes: state.mapped.bytes(),
            pins: state.pin_counts(),
        }
    }
}

/// Room, and the blocks that take it.
impl Ledger {
    /// Checks that the policy would take this block. Pinned objects do not need it.
    pub(super) fn admits(&self, object: ObjectId, block: BlockId) -> Result<(), Refusal> {
        let state = self.state.lock();
        if state.pins.contains(object) {
            return Ok(());
        }
        state.residency.policy().admits(block)
    }

    /// Takes the uses that the policy does not know of, for the next call of [`Ledger::reserve`].
    pub(super) fn take_uses(&self) -> Vec<BlockId> {
        self.mappings.take_uses()
    }

    /// Reports `uses` to the policy and reserves room.
    pub(super) fn reserve(&self, bytes: u64, uses: &[BlockId]) -> Attempt {
        let mut state = self.state.lock();
        state.touch(uses);
        Attempt {
            room: state.residency.reserve(bytes),
            is_crowded: state.residency.is_crowded(),
        }
    }

    /// Waits until there is room for `bytes`. Returns whether there was before `until`.
    pub(super) fn await_room(&self, bytes: u64, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.residency.free_bytes() < bytes {
            if self.freed.wait_until(&mut state, until).timed_out() {
                return false;
            }
        }
        true
    }

    /// Forgets the block that leaves first. `None` if none may leave.
    pub(super) fn evict(&self) -> Option<Victim> {
        self.state.lock().evict(&self.mappings)
    }

    /// Reserves room only if it is free now.
    pub(super) fn reserve_free(&self, bytes: u64) -> Result<Reservation, Refusal> {
        self.state.lock().residency.reserve(bytes)
    }

    /// Extends a reservation until it is `bytes` large, if it is smaller. On refusal it stays as it is.
    pub(super) fn extend_to(&self, room: &mut Reservation, bytes: u64) -> Result<(), Refusal> {
        let beyond = bytes.saturating_sub(room.bytes());
        self.state.lock().residency.extend(room, beyond)?;
        debug_assert!(room.bytes() >= bytes);
        Ok(())
    }

    /// Gives back reserved room of which nothing is left on the disk.
    pub(super) fn cancel(&self, room: Reservation) {
        self.state.lock().residency.cancel(room);
        self.freed.notify_all();
    }

    /// Gives back the room of a block that is gone from the disk.
    pub(super) fn left(&self, leaving: Leaving<BlockId>) {
        self.state.lock().residency.left(leaving);
        self.freed.notify_all();
    }

    /// Reserves the room of a leaving block for its file, which stays under another name.
    pub(super) fn retake(&self, leaving: Leaving<BlockId>) -> Reservation {
        self.state.lock().residency.retake(leaving)
    }

    /// Admits a block that has its name and its room, and keeps it mapped. Returns its bytes, and the
    /// mappings that give way to it, for the caller to drop when it holds no lock.
    pub(super) fn admit(
        &self,
        room: Reservation,
        object: ObjectId,
        (block, extent): (BlockId, Extent),
        sequence: u64,
        mapping: Mapping,
    ) -> (Bytes, Vec<Arc<Mapping>>) {
        let data_bytes = mapping.as_ref().len() as u64;
        debug_assert!(data_bytes <= room.bytes(), "room is at least what is in the file");
        let mut state = self.state.lock();
        state.advance();
        state.residency.commit(room, block);
        state.has_come(object, (block, extent), sequence);
        let bytes = self.mappings.insert(block, mapping, clock::instant());
        let unmapped = state.mapped.insert(block, data_bytes, &self.mappings);
        (bytes, unmapped)
    }

    /// Admits a block that an earlier process left on the disk. Returns `false` if there is no room for it.
    pub(super) fn restore(
        &self,
        bytes: u64,
        object: ObjectId,
        (block, extent): (BlockId, Extent),
        sequence: u64,
    ) -> bool {
        let mut state = self.state.lock();
        let Ok(room) = state.residency.reserve(bytes) else {
            return false;
        };
        state.advance();
        state.residency.restore(room, block);
        state.has_come(object, (block, extent), sequence);
        true
    }

    /// Forgets a block. `None` if it is not here.
    pub(super) fn remove(&self, block: BlockId) -> Option<Victim> {
        self.state.lock().remove(block, &self.mappings)
    }

    /// Forgets blocks ahead of need, at most `most`.
    pub(super) fn evict_ahead(&self, started: bool, most: usize) -> Vec<Victim> {
        let uses = self.mappings.take_uses();
        let mut state = self.state.lock();
        state.touch(&uses);
        state.evict_ahead(started, most, &self.mappings)
    }
}

/// Layers.
impl Ledger {
    pub(super) fn set_hierarchy(&self, hierarchy: Arc<Hierarchy>) {
        self.state.lock().residency.policy_mut().set_hierarchy(hierarchy);
    }

    pub(super) fn resize_layers(&self, targets_bytes: &[u64]) {
        self.state.lock().residency.policy_mut().resize(targets_bytes);
    }

    pub(super) fn layer_rooms(&self) -> Vec<LayerRoom> {
        self.state.lock().residency.policy().rooms()
    }

    /// Moves the blocks of versions to the layers that they belong to, under one lock, until at least `most`
    /// blocks were examined. Takes the versions that it examines from the end of `versions`.
    pub(super) fn move_to_layers(&self, versions: &mut Vec<VersionId>, most: usize) {
        let mut state = self.state.lock();
        state.advance();
        let mut examined = 0;
        while examined < most
            && let Some(version) = versions.pop()
        {
            let indexes = state.index.blocks_of(version);
            examined += indexes.len();
            for index in indexes {
                let block = BlockId { version, index };
                if state.residency.policy_mut().settle(block) {
                    state.observe(block);
                }
            }
        }
    }

    /// Has the policy's time run ahead, as if the clock had been so when the store opened.
    #[cfg(test)]
    pub(super) fn started_ahead(&self, by: Duration) {
        self.state.lock().time.at_start += by;
    }

    /// Asserts that index, layers and room tell the same story. True at any moment.
    #[cfg(test)]
    pub(super) fn assert_consistent(&self) {
        let state = &*self.state.lock();
        let (residency, rooms) = (&state.residency, state.residency.policy().rooms());
        let used_bytes: u64 = rooms.iter().map(|room| room.used_bytes).sum();
        let blocks: usize = rooms.iter().map(|room| room.keys).sum();
        let pinned = state.index.versions().into_iter().flat_map(|(_, version)| {
            let indexes = state.index.blocks_of(version).into_iter();
            indexes.filter_map(move |index| state.residency.pinned_bytes_of(&BlockId { version, index }))
        });
        let pinned: Vec<u64> = pinned.collect();
        assert_eq!(pinned.iter().sum::<u64>(), residency.pinned_bytes());
        assert_eq!(used_bytes + residency.pinned_bytes(), residency.used_bytes());
        assert_eq!(blocks + pinned.len(), residency.len());
        assert!(residency.taken_bytes() <= residency.capacity_bytes());
        let versions = state.index.versions();
        let indexed: usize = versions
            .iter()
            .map(|(_, version)| state.index.blocks_of(*version).len())
            .sum();
        assert_eq!(indexed, residency.len());
    }
}

impl State {
    /// Notes that blocks were used, perhaps a while ago.
    fn touch(&mut self, uses: &[BlockId]) {
        self.advance();
        for block in uses {
            self.residency.touch(block);
            self.mapped.touch(*block);
        }
    }

    /// Notes that a block is resident now.
    fn has_come(&mut self, object: ObjectId, (block, extent): (BlockId, Extent), sequence: u64) {
        self.index.insert(object, (block, extent), sequence);
        self.observe(block);
        self.pin_arrived(object, block);
    }

    /// Tells the policy what time it is.
    fn advance(&mut self) {
        self.residency.advance(self.time.now());
    }

    fn evict(&mut self, mappings: &Mappings) -> Option<Victim> {
        self.advance();
        let readers = &self.readers;
        let leaving = self
            .residency
            .evict(&mut |block| may_leave(*block, readers, mappings))?;
        Some(self.forget(leaving, mappings))
    }

    fn evict_ahead(&mut self, started: bool, most: usize, mappings: &Mappings) -> Vec<Victim> {
        let readers = &self.readers;
        let leaving = self
            .residency
            .evict_ahead(started, most, &mut |block| may_leave(*block, readers, mappings));
        leaving
            .into_iter()
            .map(|leaving| self.forget(leaving, mappings))
            .collect()
    }

    fn remove(&mut self, block: BlockId, mappings: &Mappings) -> Option<Victim> {
        let leaving = self.residency.remove(&block)?;
        Some(self.forget(leaving, mappings))
    }

    fn forget(&mut self, leaving: Leaving<BlockId>, mappings: &Mappings) -> Victim {
        let data_bytes = self.index.block_len(leaving.key);
        let was_indexed = self.index.remove(leaving.key);
        debug_assert!(was_indexed, "what has room is in the index");
        self.mapped.remove(leaving.key);
        let mapping = mappings.remove(leaving.key);
        Victim {
            leaving,
            data_bytes,
            mapping,
        }
    }
}

impl PolicyTime {
    fn begin() -> Self {
        Self {
            at_start: since_1970(),
            started: clock::instant(),
        }
    }

    fn now(&self) -> Duration {
        self.at_start + clock::instant().saturating_duration_since(self.started)
    }
}

/// The time by the clock of this node, which may be set at any moment.
fn since_1970() -> Duration {
    let since_1970 = clock::utc_now().duration_since(SystemTime::UNIX_EPOCH);
    since_1970.unwrap_or_default()
}

fn may_leave(block: BlockId, readers: &Readers, mappings: &Mappings) -> bool {
    !readers.has(block) && !mappings.is_in_use(block)
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}
