//! One cache without a network: the blocks that it holds under a policy, and its hits.

use serde::Serialize;
use shoal_policy::admission::{self, Admission, Refusal};
use shoal_policy::eviction::Eviction;
use shoal_policy::eviction::c2p::GROUP_BLOCKS;
use shoal_policy::residency::Residency;

use crate::block::{Block, Granularity};
use crate::clock::Time;
use crate::cluster::{Arrival, Wanted};
use crate::trace::{Access, Operation};

/// A cache of blocks: the real [`Residency`], whose victims leave at once.
#[derive(Debug)]
pub struct Cache<P: ?Sized> {
    /// The blocks and their policy, for operations that the cache does not wrap.
    pub residency: Residency<Block, P>,
}

/// Counts of hits and misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Requested blocks.
    pub requests: u64,
    /// Of these, blocks that were held.
    pub hits: u64,
    /// Bytes of the requested blocks.
    pub bytes: u64,
    /// Of these, bytes of blocks that were held.
    pub hit_bytes: u64,
}

impl Tally {
    /// Counts a request for a block of `bytes`.
    pub fn count(&mut self, hit: bool, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
        if hit {
            self.hits += 1;
            self.hit_bytes += bytes;
        }
    }

    /// Requested blocks that were not held.
    pub const fn misses(&self) -> u64 {
        debug_assert!(self.hits <= self.requests, "a hit is a request");
        self.requests - self.hits
    }

    /// Share of the requested blocks that were not held, 0 to 1; 0 if there were no requests.
    pub fn miss_ratio(&self) -> f64 {
        ratio(self.misses(), self.requests)
    }

    /// Share of the requested bytes that were not held, 0 to 1; 0 if there were no requests.
    pub fn byte_miss_ratio(&self) -> f64 {
        debug_assert!(
            self.hit_bytes <= self.bytes,
            "bytes of hits are bytes of requests"
        );
        ratio(self.bytes - self.hit_bytes, self.bytes)
    }
}

pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

impl<P: Eviction<Block> + ?Sized> Cache<P> {
    /// Creates an empty cache with room for `capacity_bytes`.
    pub fn new(capacity_bytes: u64, policy: Box<P>) -> Self {
        Self {
            residency: Residency::new(capacity_bytes, policy),
        }
    }

    /// Uses `block` if it is held. Returns true if so.
    pub fn touch(&mut self, block: Block) -> bool {
        let held = self.residency.contains(&block);
        if held {
            self.residency.touch(&block);
        }
        held
    }

    /// Admits `block`, which is not held, and passes each evicted block to `left`.
    ///
    /// # Errors
    ///
    /// Fails with the [`Refusal`] if the block is larger than the cache, or the policy evicts nothing for it.
    pub fn admit(&mut self, block: Block, bytes: u64, mut left: impl FnMut(Block)) -> Result<(), Refusal> {
        loop {
            match self.residency.reserve(bytes) {
                Ok(room) => {
                    self.residency.commit(room, block);
                    assert!(
                        self.used_bytes() <= self.capacity_bytes(),
                        "a cache holds what fits"
                    );
                    return Ok(());
                }
                Err(Refusal::NoRoom) => {
                    let victim = self.residency.evict(&mut |_| true).ok_or(Refusal::NoRoom)?;
                    left(victim.key);
                    self.residency.left(victim);
                }
                Err(refusal) => return Err(refusal),
            }
        }
    }

    /// Advances the time to `now`.
    pub fn advance(&mut self, now: Time) {
        self.residency.advance(now.since_start());
    }

    /// Uses the requested block if it is held. Returns true if so.
    pub fn serve(&mut self, wanted: &Wanted) -> bool {
        self.advance(wanted.now);
        self.touch(wanted.block)
    }

    /// Admits a block that has arrived, unless it is held already or refused, and passes each evicted block
    /// to `left`. Returns true if the block is held afterwards.
    pub fn keep(&mut self, arrival: &Arrival, left: impl FnMut(Block)) -> bool {
        let wanted = &arrival.wanted;
        self.advance(arrival.now);
        let held = self.contains(wanted.block) || self.admit(wanted.block, wanted.bytes, left).is_ok();
        if held {
            self.observe(wanted.block.object, wanted.object_blocks);
        }
        held
    }

    /// Passes the number of blocks of `object` to the policy. A block of it may be held.
    pub fn observe(&mut self, object: u32, blocks: u32) {
        let policy = self.residency.policy_mut();
        // Only C2P judges groups of blocks.
        let step = policy.c2p().map_or(blocks.max(1), |_| GROUP_BLOCKS);
        for index in (0..blocks).step_by(step as usize) {
            policy.observe(&Block { object, index }, blocks);
        }
    }

    /// Returns true if `bytes` more fit without an eviction.
    pub const fn has_room(&self, bytes: u64) -> bool {
        self.residency.room().taken_bytes() + bytes <= self.residency.room().capacity_bytes()
    }

    /// Removes `block`, which is no longer valid. Returns true if it was held.
    pub fn remove(&mut self, block: Block) -> bool {
        let leaving = self.residency.remove(&block);
        leaving.map(|leaving| self.residency.left(leaving)).is_some()
    }

    /// Serves a read of `block` of `bytes`: a hit, or the block is admitted if `admission` allows it.
    pub fn request(&mut self, block: Block, bytes: u64, admission: &mut dyn Admission<Block>) -> bool {
        let arrival = admission::Arrival {
            key: block,
            bytes,
            is_crowded: !self.has_room(bytes),
        };
        let hit = self.touch(block);
        if !hit && admission.admit(&arrival).is_ok() {
            // The block was read even if the cache refused it.
            let _refused = self.admit(block, bytes, |_| ());
        }
        hit
    }

    /// Replays one line of a trace: requests its blocks, or removes them if it is a write or a deletion.
    pub fn replay(
        &mut self,
        access: &Access,
        granularity: Granularity,
        admission: &mut dyn Admission<Block>,
        tally: &mut Tally,
    ) {
        self.advance(access.at);
        match access.operation {
            Operation::Read => {
                for (block, bytes) in granularity.blocks_of(access) {
                    tally.count(self.request(block, bytes, admission), bytes);
                }
                self.observe(access.object, granularity.count(access.object_bytes));
            }
            Operation::Write | Operation::Delete => {
                for index in 0..granularity.count(access.object_bytes) {
                    self.remove(Block {
                        object: access.object,
                        index,
                    });
                }
            }
        }
    }

    /// Returns true if `block` is held.
    pub fn contains(&self, block: Block) -> bool {
        self.residency.contains(&block)
    }

    /// Bytes in use.
    pub const fn used_bytes(&self) -> u64 {
        self.residency.room().used_bytes()
    }

    /// Total room.
    pub const fn capacity_bytes(&self) -> u64 {
        self.residency.room().capacity_bytes()
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::admission::{Always, Refusal};

    use super::{Cache, Tally};
    use crate::block::{Block, Granularity};
    use crate::clock::Time;
    use crate::policy::PolicyName;
    use crate::trace::{Access, Operation};

    fn access(operation: Operation, object: u32, bytes: u64) -> Access {
        Access {
            at: Time::ZERO,
            client: 0,
            object,
            object_bytes: bytes,
            offset_bytes: 0,
            bytes,
            operation,
        }
    }

    #[test]
    fn the_least_recently_used_block_makes_room() {
        let mut cache = Cache::new(30, PolicyName::LRU.build());
        let block = |object| Block { object, index: 0 };
        let hits = [1, 2, 3, 1, 4, 2, 1].map(|object| cache.request(block(object), 10, &mut Always));
        assert_eq!(hits, [false, false, false, true, false, false, true]);
        assert_eq!(cache.used_bytes(), 30);
    }

    #[test]
    fn a_block_that_is_too_large_is_refused_and_evicts_nothing() {
        let mut cache = Cache::new(30, PolicyName::LRU.build());
        let block = |object| Block { object, index: 0 };
        cache.request(block(1), 10, &mut Always);
        let mut left = Vec::new();
        assert_eq!(
            cache.admit(block(2), 31, |b| left.push(b)),
            Err(Refusal::TooLarge)
        );
        assert!(left.is_empty() && cache.contains(block(1)));
    }

    #[test]
    fn a_write_forgets_every_block_of_the_object() {
        let (mut cache, mut tally) = (Cache::new(100, PolicyName::LRU.build()), Tally::default());
        let blocks = Granularity::blocks(10);
        for operation in [
            Operation::Read,
            Operation::Read,
            Operation::Write,
            Operation::Read,
        ] {
            cache.replay(&access(operation, 1, 25), blocks, &mut Always, &mut tally);
        }
        let expected = Tally {
            requests: 9,
            hits: 3,
            bytes: 75,
            hit_bytes: 25,
        };
        assert_eq!(tally, expected);
    }
}
