//! The in-memory state: resident blocks, the room that they take, mappings, readers and pins.
//!
//! One lock guards everything except the mappings, which have their own locks so that a hit does not contend
//! for this one. Nothing here accesses the disk. A removed block is returned as a [`Victim`], whose room is
//! free once the caller has removed the file and called [`Ledger::left`].

mod c2p;
pub(crate) mod counts;
pub(crate) mod index;
pub(crate) mod mapped_lru;
pub(crate) mod mappings;
pub(crate) mod pin_orders;
mod pins;
mod policy_time;
pub(crate) mod quota_room;
pub(crate) mod segments;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use shoal_base::clock;
use shoal_policy::admission::Refusal;
use shoal_policy::eviction::layered::divide;
use shoal_policy::eviction::{Gwf, Layered, Named, PolicyName};
use shoal_policy::quotas::Quotas;
use shoal_policy::residency::{FreeRoom, Leaving, Reservation, Residency};
use shoal_policy::route::Hierarchy;
use shoal_policy::{BlockId, Layer, ObjectId, VersionId};
use tokio::sync::Notify;

use self::c2p::EventTimes;
pub(super) use self::c2p::c2ps;
pub use self::pins::Kept;

use self::counts::Counts;
use self::index::{Index, Position};
use self::mapped_lru::MappedLru;
use self::mappings::Mappings;
use self::pin_orders::Pins;
use self::policy_time::PolicyTime;
use self::quota_room::RoomInQuotas;
use self::segments::Segments;
use super::counters::Counters;
use super::files::footer::StoredBlock;
use super::files::location::{Entry, Location};
use super::files::mapping::Mapping;
use super::files::place::{Address, Place, SegmentNumber};

type Resident = Residency<BlockId, Layered<BlockId, Named<BlockId>>>;

/// The in-memory state of all blocks. A hit takes the lock of one shard of the mappings and, once in many
/// hits, that of the ledger.
pub(super) struct Ledger {
    state: Mutex<State>,
    /// Notified when room is freed.
    freed: Condvar,
    /// Notified while an urgent event for other nodes waits, at each eviction.
    pub(super) urgent: Notify,
    pub(super) mappings: Mappings,
}

/// The state that the lock of the ledger guards. `residency`, `index` and the pinned blocks agree whenever it
/// is free.
#[derive(Debug)]
pub(super) struct State {
    pub(super) residency: Resident,
    pub(super) index: Index,
    pub(super) segments: Segments,
    mapped: MappedLru,
    /// The blocks that must not be evicted because they are being read from the disk.
    pub(super) readers: Counts<BlockId>,
    pub(super) pins: Pins,
    pub(super) quotas: Quotas<BlockId>,
    pub(super) time: PolicyTime,
    pub(super) event_times: EventTimes,
}

/// A block that was removed from the ledger, with its mapping, if any.
#[derive(Debug)]
pub(super) struct Victim {
    pub(super) block: BlockId,
    /// Its disk space in bytes.
    pub(super) bytes: u64,
    /// Length of its data in bytes.
    pub(super) data_bytes: u64,
    pub(super) mapping: Option<Arc<Mapping>>,
    pub(super) remains: Remains,
}

/// The bytes on the disk of a block that was removed from the ledger.
#[derive(Debug)]
pub(super) enum Remains {
    /// Its file, and the room that is free once the file is gone.
    File(Leaving<BlockId>),
    /// Its entry, whose room belongs to the segment.
    Entry(Entry),
}

/// Protects a block from eviction while it is read.
pub(super) struct BlockRead<'a> {
    ledger: &'a Ledger,
    pub(super) block: BlockId,
    /// Where its bytes lay when the read began. They stay readable there if the block moves.
    pub(super) location: Location,
}

impl Drop for BlockRead<'_> {
    fn drop(&mut self) {
        self.ledger.state.lock().readers.leave(self.block);
    }
}

impl Ledger {
    /// Creates `layers` layers of equal size, each with a policy of this name; in L1 of several layers, C2P
    /// is left out. `hierarchy` assigns blocks to layers. Pinned blocks take at most `pinned_bytes_max`.
    pub(super) fn new(
        block_bytes: u64,
        room_bytes: u64,
        pinned_bytes_max: u64,
        mapped_bytes_max: u64,
        policy: PolicyName,
        layers: usize,
        hierarchy: &Arc<Hierarchy>,
    ) -> Self {
        let targets = divide(room_bytes, &vec![1_u64; layers]);
        let with_policy = |(place, target_bytes)| {
            // Of several layers, L1 holds copies of the blocks that this node reads, and only the others
            // spread objects over nodes.
            let is_spread = layers == 1 || place > 0;
            let policy = if is_spread { policy } else { policy.alone() };
            (policy.build(), target_bytes)
        };
        let mut policy = Box::new(Layered::new(
            targets.into_iter().enumerate().map(with_policy),
            Arc::clone(hierarchy),
        ));
        c2ps(&mut policy).for_each(|(_, c2p)| c2p.set_recording(false));
        Self {
            state: Mutex::new(State {
                residency: Residency::new(room_bytes, policy).with_pins(pinned_bytes_max),
                index: Index::new(block_bytes),
                segments: Segments::default(),
                mapped: MappedLru::new(mapped_bytes_max),
                readers: Counts::default(),
                pins: Pins::default(),
                quotas: Quotas::default(),
                time: PolicyTime::begin(),
                event_times: EventTimes::default(),
            }),
            freed: Condvar::new(),
            urgent: Notify::new(),
            mappings: Mappings::new(),
        }
    }

    /// Locks the state. While it is held, no other lock of the store may be taken but those of the mappings.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Reads.
impl Ledger {
    /// Returns the block if it is mapped and all of it is in memory, and counts a use if `is_used`.
    pub(super) fn resident(&self, block: BlockId, is_used: bool) -> Option<Bytes> {
        let (bytes, uses) = self.mappings.get(block, clock::instant(), is_used)?;
        if let Some(uses) = uses {
            self.state.lock().touch(&uses);
        }
        Some(bytes)
    }

    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.state.lock().residency.contains(&block)
    }

    /// Returns true if a resident block has a file of its own.
    pub(super) fn is_file(&self, block: BlockId) -> bool {
        self.state.lock().index.place(block) == Some(Place::File)
    }

    /// Protects a block from eviction until the returned value is dropped. `None` if it is not resident.
    pub(super) fn begin_read(&self, block: BlockId) -> Option<BlockRead<'_>> {
        let mut state = self.state.lock();
        let location = state.locate(block)?;
        state.readers.enter(block);
        Some(BlockRead {
            ledger: self,
            block,
            location,
        })
    }

    /// Keeps a mapping for later hits, and counts a use if `is_used`. Returns `None` if the block has been
    /// removed, because its room may already belong to other blocks.
    pub(super) fn keep_mapped(&self, read: &BlockRead<'_>, mapping: Mapping, is_used: bool) -> Option<Bytes> {
        let block = read.block;
        let data_bytes = mapping.as_ref().len() as u64;
        let mut state = self.state.lock();
        if state.index.place(block)? != read.location.place() {
            // It has moved. Its former segment is kept for this reader alone.
            return Some(Mappings::lease(mapping));
        }
        let bytes = self.mappings.insert(block, mapping, clock::instant());
        if is_used {
            state.touch(&[block]);
        }
        let unmapped = state.mapped.insert(block, data_bytes, &self.mappings);
        drop(state);
        // Unmapping is slow, so it happens outside the lock.
        drop(unmapped);
        Some(bytes)
    }

    /// Returns a resident block of the latest stored version of `object`.
    pub(super) fn any_block_of(&self, object: ObjectId) -> Option<BlockId> {
        let state = self.state.lock();
        state.index.any_block_of(state.index.newest(object)?)
    }

    /// Returns the resident blocks of at least `data_bytes_min`, most recently used first: mapped blocks by
    /// last use (a use maps a block, so these were used after all others), then the others by the time at
    /// which their version was stored.
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
            // The lock is taken per version, because the list is long and readers must not wait for all of
            // it.
            let state = self.state.lock();
            let all = state.index.ids_of(version).into_iter();
            let is_long = |block: &BlockId| state.index.block_len(*block) >= data_bytes_min;
            blocks.extend(all.filter(|block| !mapped.contains(block) && is_long(block)));
        }
        blocks
    }

    /// Returns a consistent snapshot of the amounts in the ledger.
    pub(super) fn amounts(&self) -> Counters {
        let state = self.state.lock();
        let room = state.residency.room();
        debug_assert!(room.used_bytes() <= room.taken_bytes());
        debug_assert!(room.taken_bytes() <= room.capacity_bytes());
        Counters {
            resident_bytes: room.used_bytes(),
            taken_bytes: room.taken_bytes(),
            capacity_bytes: room.capacity_bytes(),
            blocks: state.residency.held() as u64,
            mapped_blocks: state.mapped.len() as u64,
            mapped_bytes: state.mapped.bytes(),
            pins: state.pin_counts(),
            ..Counters::default()
        }
    }

    pub(super) fn room_bytes(&self) -> u64 {
        self.state.lock().residency.room().capacity_bytes()
    }
}

/// Room, and the blocks that take it.
impl Ledger {
    /// Checks that the policy would admit this block. Blocks of pinned objects are always admitted.
    pub(super) fn admits(&self, object: ObjectId, block: BlockId) -> Result<(), Refusal> {
        let state = self.state.lock();
        if state.pins.contains(object) {
            return Ok(());
        }
        state.residency.policy().admits(block)
    }

    /// Reports `uses` to the policy and reserves room. Also returns true if room has to be made ahead of
    /// demand.
    pub(super) fn reserve(&self, bytes: u64, uses: &[BlockId]) -> (Result<Reservation, Refusal>, bool) {
        let mut state = self.state.lock();
        state.touch(uses);
        let room = state.residency.reserve(bytes);
        (room, state.residency.room().is_crowded())
    }

    /// Sets how much room is kept free ahead of demand.
    pub(super) fn keep_free(&self, free: FreeRoom) {
        self.state.lock().residency.keep_free(free);
    }

    /// Waits until there is room for `bytes`, at most until `until`. Returns true if there is.
    pub(super) fn await_room(&self, bytes: u64, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.residency.room().free_bytes() < bytes {
            if self.freed.wait_until(&mut state, until).timed_out() {
                return false;
            }
        }
        true
    }

    /// Evicts one block. `None` if none may leave.
    pub(super) fn evict(&self) -> Option<Victim> {
        let state = &mut *self.state.lock();
        state.advance();
        let leaving = state
            .residency
            .evict(&mut may_leave(&state.readers, &self.mappings))?;
        let victim = state.forget(leaving, &self.mappings);
        self.notify_urgent(state);
        Some(victim)
    }

    /// Extends a reservation to at least `bytes`. On refusal it is unchanged.
    pub(super) fn extend_to(&self, room: &mut Reservation, bytes: u64) -> Result<(), Refusal> {
        let beyond = bytes.saturating_sub(room.bytes());
        self.state.lock().residency.extend(room, beyond)?;
        debug_assert!(room.bytes() >= bytes);
        Ok(())
    }

    /// Releases a reservation whose file is gone from the disk.
    pub(super) fn cancel(&self, room: Reservation) {
        self.state.lock().residency.cancel(room);
        self.freed.notify_all();
    }

    /// Wakes those that wait for room.
    pub(super) fn room_was_freed(&self) {
        self.freed.notify_all();
    }

    /// Releases the room of a block that is gone from the disk.
    pub(super) fn left(&self, leaving: Leaving<BlockId>) {
        self.state.lock().residency.left(leaving);
        self.freed.notify_all();
    }

    /// Admits a block whose bytes are where a start finds them, and keeps it mapped. Returns its bytes, and
    /// the mappings displaced by it, which the caller must drop outside all locks.
    pub(super) fn admit(
        &self,
        room: Reservation,
        in_quotas: RoomInQuotas<'_>,
        stored: &StoredBlock,
        location: &Location,
        mapping: Mapping,
    ) -> (Bytes, Vec<Arc<Mapping>>) {
        let data_bytes = mapping.as_ref().len() as u64;
        debug_assert!(data_bytes <= room.bytes(), "room is at least what is on the disk");
        let mut state = self.state.lock();
        state.advance();
        let charge_bytes = room.bytes();
        state.residency.commit(room, stored.id);
        in_quotas.use_up(&mut state.quotas);
        state.has_come(stored, location, charge_bytes);
        let bytes = self.mappings.insert(stored.id, mapping, clock::instant());
        let unmapped = state.mapped.insert(stored.id, data_bytes, &self.mappings);
        (bytes, unmapped)
    }

    /// Admits a block stored by an earlier process. Returns `false` if there is no room for it.
    pub(super) fn restore(&self, bytes: u64, stored: &StoredBlock, location: &Location) -> bool {
        let mut state = self.state.lock();
        let mut room = match location {
            Location::File => Reservation::default(),
            // The segment's room is reserved, and is now covered by this block.
            Location::Entry(_) => state.segments.lend(bytes),
        };
        let rest_bytes = bytes - room.bytes();
        if state.residency.extend(&mut room, rest_bytes).is_err() {
            state.give(room);
            return false;
        }
        state.advance();
        state.residency.restore(room, stored.id);
        state.has_come(stored, location, bytes);
        true
    }

    /// Moves a block from one entry to another, with its mapping if it is mapped. Returns true unless the
    /// block has left the first entry.
    pub(super) fn move_entry(
        &self,
        block: BlockId,
        from: &Entry,
        to: &Entry,
        mapping: Option<Mapping>,
    ) -> bool {
        let mut state = self.state.lock();
        if state.index.place(block) != Some(Place::Entry(from.address())) {
            return false;
        }
        let position = state.index.set_place(block, Place::Entry(to.address()));
        state.segments.empty(from);
        state.segments.fill(to, position, block.index);
        let replaced = mapping.and_then(|mapping| self.mappings.replace(block, mapping));
        drop(state);
        // Unmapping is slow, so it happens outside the lock.
        drop(replaced);
        true
    }

    /// Returns the blocks in a segment.
    pub(super) fn blocks_in(&self, number: SegmentNumber) -> Vec<BlockId> {
        let state = self.state.lock();
        let slots = (0_u32..).zip(state.segments.slots(number));
        let blocks = slots.filter_map(|(slot, held)| {
            let (block, place) = state.index.block_at(held.position, held.index)?;
            let address = Address {
                segment: number,
                slot,
            };
            (place == Place::Entry(address)).then_some(block)
        });
        blocks.collect()
    }

    /// Releases the room of a segment whose file is gone from the disk.
    pub(super) fn segment_gone(&self, disk_bytes: u64) {
        let mut state = self.state.lock();
        let surplus = state.segments.gone(disk_bytes);
        state.residency.cancel(surplus);
        drop(state);
        self.room_was_freed();
    }

    /// Removes a block. `None` if it is not resident.
    pub(super) fn remove(&self, block: BlockId) -> Option<Victim> {
        let mut state = self.state.lock();
        let leaving = state.residency.remove(&block)?;
        Some(state.forget(leaving, &self.mappings))
    }

    /// Removes a block that was chosen for eviction, unless a reader holds it or it was pinned since.
    pub(super) fn part_with(&self, block: BlockId) -> Option<Victim> {
        let mut state = self.state.lock();
        let is_pinned = state.residency.pins().contains(&block);
        if is_pinned || !may_leave(&state.readers, &self.mappings)(&block) {
            return None;
        }
        let leaving = state.residency.remove(&block)?;
        let victim = state.forget(leaving, &self.mappings);
        self.notify_urgent(&mut state);
        Some(victim)
    }

    /// Evicts up to `most` blocks ahead of demand; `started` as in [`Residency::evict_ahead`].
    pub(super) fn evict_ahead(&self, started: bool, most: usize) -> Vec<Victim> {
        let uses = self.mappings.take_uses();
        let state = &mut *self.state.lock();
        state.touch(&uses);
        let leaving =
            state
                .residency
                .evict_ahead(started, most, &mut may_leave(&state.readers, &self.mappings));
        let leaving = leaving.into_iter();
        let victims = leaving.map(|leaving| state.forget(leaving, &self.mappings));
        let victims = victims.collect();
        self.notify_urgent(state);
        victims
    }
}

/// Layers.
impl Ledger {
    /// Moves blocks to the layers to which they belong, under one lock, until at least `most` blocks were
    /// examined. Pops the examined versions from the end of `versions`.
    pub(super) fn move_to_layers(&self, versions: &mut Vec<VersionId>, most: usize) {
        let mut state = self.state.lock();
        state.advance();
        let mut examined = 0;
        while examined < most
            && let Some(version) = versions.pop()
        {
            let blocks = state.index.ids_of(version);
            examined += blocks.len();
            for block in blocks {
                if state.residency.policy_mut().settle(block) {
                    state.observe(block);
                }
            }
        }
    }

    /// Sets the policy's time ahead, as if the clock had been ahead when the store was opened.
    #[cfg(test)]
    pub(super) fn started_ahead(&self, by: std::time::Duration) {
        self.state.lock().time.at_start += by;
    }
}

impl State {
    /// Reports uses of blocks, perhaps late, to the policy.
    pub(super) fn touch(&mut self, uses: &[BlockId]) {
        self.advance();
        for block in uses {
            self.residency.touch(block);
            self.mapped.touch(*block);
            self.quotas.touch(block);
        }
    }

    /// Returns where the bytes of a block lie. `None` if it is not resident.
    pub(super) fn locate(&self, block: BlockId) -> Option<Location> {
        Some(match self.index.place(block)? {
            Place::File => Location::File,
            Place::Entry(address) => Location::Entry(self.segments.entry(address)),
        })
    }

    /// Updates index, segments, policy, quotas and pins for a block that became resident and takes
    /// `charge_bytes`.
    fn has_come(&mut self, stored: &StoredBlock, location: &Location, charge_bytes: u64) {
        let position: Position = self.index.insert(stored, location.place());
        if let Location::Entry(entry) = location {
            self.segments.fill(entry, position, stored.id.index);
            self.give(Reservation::default());
        }
        self.observe(stored.id);
        self.quotas.insert(stored.id, stored.quotas, charge_bytes);
        self.pin_arrived(stored.object, stored.id);
    }

    /// Sets the policy's time to now.
    pub(super) fn advance(&mut self) {
        self.residency.advance(self.time.now());
    }

    /// Removes a block that leaves from index, quotas and mappings.
    fn forget(&mut self, leaving: Leaving<BlockId>, mappings: &Mappings) -> Victim {
        let (block, bytes) = (leaving.key, leaving.bytes());
        let data_bytes = self.index.block_len(block);
        let place = self.index.remove(block).expect("what has room is in the index");
        self.mapped.remove(block);
        self.quotas.remove(&block);
        let remains = match place {
            Place::File => Remains::File(leaving),
            Place::Entry(address) => {
                let entry = self.segments.entry(address);
                self.segments.empty(&entry);
                let freed = self.residency.retake(leaving);
                self.give(freed);
                Remains::Entry(entry)
            }
        };
        Victim {
            block,
            bytes,
            data_bytes,
            mapping: mappings.remove(block),
            remains,
        }
    }

    /// Gives room that was freed to the segments, as far as they need it.
    fn give(&mut self, freed: Reservation) {
        let surplus = self.segments.give(freed);
        self.residency.cancel(surplus);
    }

    /// The blocks of incomplete objects, which are evicted before others if C2P is above GWF.
    pub(super) fn incomplete(&self, may_leave: &mut dyn FnMut(&BlockId) -> bool) -> Vec<BlockId> {
        let policy = self.residency.policy().policy(Layer::L1);
        let c2p = policy.and_then(|policy| policy.c2p());
        c2p.map_or_else(Vec::new, |c2p| c2p.incomplete_first(may_leave))
    }

    pub(super) fn gwf(&self) -> Option<&Gwf<BlockId>> {
        self.residency.policy().policy(Layer::L1)?.gwf()
    }

    pub(super) fn gwf_mut(&mut self) -> Option<&mut Gwf<BlockId>> {
        self.residency.policy_mut().policy_mut(Layer::L1)?.gwf_mut()
    }
}

/// Returns the condition under which blocks may be evicted: no reader holds them.
pub(super) fn may_leave(readers: &Counts<BlockId>, mappings: &Mappings) -> impl FnMut(&BlockId) -> bool {
    |block| !readers.has(*block) && !mappings.is_in_use(*block)
}
