//! A directory in this process, for one node and for the nodes of `shoal dev`.

pub(crate) mod extensions;
pub(crate) mod names;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use shoal_base::clock;
use shoal_policy::{BlockId, NodeId, ObjectId};

use self::extensions::KnownExtensions;
use self::names::KnownNames;
use crate::extensions::Extension;
use crate::names::{Change, DirectoryTime, Presence, Promoted, Roll, Token};
use crate::{
    Answers, CLAIM_LIFE, Directory, ENTRY_LIFE, Entry, GROUP_BLOCKS, Group, HOLDERS_MAX, Left, Located,
    MARKER_LIFE, NodeState, STATE_LIFE, Silent, WEIGHT_MAX,
};

/// The number of shards, each with its own lock.
const SHARDS: usize = 16;

/// The number of changes of a shard between two sweeps for expired entries.
const CHANGES_PER_LOOK: u32 = 4096;

/// Entries in memory, for nodes in the same process.
#[derive(Debug, Default)]
pub struct Embedded {
    shards: [Mutex<Shard>; SHARDS],
    markers: Mutex<HashMap<(NodeId, u16), Instant>>,
    states: Mutex<HashMap<NodeId, (NodeState, Instant)>>,
    names: KnownNames,
    extensions: KnownExtensions,
}

#[derive(Debug, Default)]
struct Shard {
    groups: HashMap<Group, GroupEntry, foldhash::fast::RandomState>,
    changes: u32,
}

/// The entries of a group's blocks, by index in the version.
#[derive(Debug)]
struct GroupEntry {
    blocks: HashMap<u32, BlockEntry, foldhash::fast::RandomState>,
    forgotten_at: Instant,
}

#[derive(Debug, Default)]
struct BlockEntry {
    holders: Vec<NodeId>,
    claim: Option<Claim>,
    global_weight: u64,
}

#[derive(Clone, Copy, Debug)]
struct Claim {
    node: NodeId,
    until: Instant,
}

impl BlockEntry {
    fn claimant(&self, now: Instant) -> Option<NodeId> {
        self.claim
            .filter(|claim| claim.until > now)
            .map(|claim| claim.node)
    }

    /// Removes a holder. Without holders the block loses its weight.
    fn remove_holder(&mut self, node: NodeId) {
        self.holders.retain(|holder| *holder != node);
        if self.holders.is_empty() {
            self.global_weight = 0;
        }
    }

    fn add_weight(&mut self, weight: u64) {
        if !self.holders.is_empty() {
            self.global_weight = self.global_weight.saturating_add(weight).min(WEIGHT_MAX);
        }
    }

    /// Removes `node` from the holders if other nodes hold the block, see [`Left`]. `weight` is that of the
    /// node's copy.
    fn leave(&mut self, node: NodeId, weight: u64) -> Left {
        if self.holders.iter().any(|holder| *holder != node) {
            self.remove_holder(node);
            self.add_weight(weight);
            Left::Copied
        } else {
            Left::Last(self.global_weight)
        }
    }

    /// The invariants of an entry.
    fn is_sound(&self) -> bool {
        self.holders.len() <= HOLDERS_MAX
            && self.global_weight <= WEIGHT_MAX
            && (self.global_weight == 0 || !self.holders.is_empty())
    }

    fn is_empty(&self, now: Instant) -> bool {
        self.holders.is_empty() && self.claimant(now).is_none()
    }
}

impl Shard {
    /// Changes entries of a group, and restarts their life at `now`.
    fn change(&mut self, group: Group, now: Instant, change: impl FnOnce(&mut GroupEntry)) {
        let entry = self.groups.entry(group).or_insert_with(|| GroupEntry {
            blocks: HashMap::default(),
            forgotten_at: now,
        });
        entry.forgotten_at = now + ENTRY_LIFE;
        change(entry);
        debug_assert!(
            entry.blocks.values().all(BlockEntry::is_sound),
            "holders are few, and weight needs one"
        );
        entry.blocks.retain(|_, block| !block.is_empty(now));
        if entry.blocks.is_empty() {
            self.groups.remove(&group);
        }
        self.changes += 1;
        if self.changes >= CHANGES_PER_LOOK {
            self.changes = 0;
            self.groups.retain(|_, entry| entry.forgotten_at > now);
        }
    }

    /// The blocks of a group that nodes other than this one hold.
    fn elsewhere(&self, group: Group, node: NodeId, now: Instant) -> u32 {
        let entry = self.groups.get(&group).filter(|entry| entry.forgotten_at > now);
        let blocks = entry.into_iter().flat_map(|entry| &entry.blocks);
        let elsewhere = blocks.filter(|(_, block)| block.holders.iter().any(|holder| *holder != node));
        elsewhere.fold(0, |bits, (index, _)| bits | 1 << (index % GROUP_BLOCKS))
    }

    fn entry(&self, block: BlockId, now: Instant) -> Option<&BlockEntry> {
        let group = self.groups.get(&Group::containing(block))?;
        (group.forgotten_at > now)
            .then(|| group.blocks.get(&block.index))
            .flatten()
    }
}

fn weightless(indexes: &[u32]) -> impl Iterator<Item = (u32, u64)> {
    indexes.iter().map(|index| (*index, 0))
}

impl Embedded {
    fn shard(&self, group: Group) -> &Mutex<Shard> {
        let [.., a, b] = group.version.0;
        let hash = usize::from(a) ^ usize::from(b) ^ group.number as usize;
        &self.shards[hash % SHARDS]
    }

    fn locate_at(&self, me: NodeId, block: BlockId, without: &[NodeId], now: Instant) -> Located {
        let counts = |node: &NodeId| *node != me && !without.contains(node);
        let group = Group::containing(block);
        let mut shard = self.shard(group).lock();
        if let Some(entry) = shard.entry(block, now) {
            let others: Vec<_> = entry.holders.iter().copied().filter(counts).collect();
            if !others.is_empty() {
                return Located::Held(others);
            }
            if let Some(other) = entry.claimant(now).filter(counts) {
                return Located::Claimed(other);
            }
        }
        shard.change(group, now, |entry| {
            let until = now + CLAIM_LIFE;
            entry.blocks.entry(block.index).or_default().claim = Some(Claim { node: me, until });
        });
        Located::Yours
    }

    /// Changes the entries of blocks of a group, each given by its index and a weight.
    fn change(
        &self,
        group: Group,
        blocks: impl Iterator<Item = (u32, u64)>,
        change: impl Fn(&mut BlockEntry, u64),
    ) {
        let mut shard = self.shard(group).lock();
        shard.change(group, clock::instant(), |entry| {
            for (index, weight) in blocks {
                change(entry.blocks.entry(index).or_default(), weight);
            }
        });
    }

    fn exchange_at(&self, mine: NodeState, now: Instant) -> Vec<NodeState> {
        let mut states = self.states.lock();
        states.insert(mine.node, (mine, now + STATE_LIFE));
        states.retain(|_, (_, until)| *until > now);
        states.values().map(|(state, _)| *state).collect()
    }

    fn mark_at(&self, node: NodeId, marker: u16, now: Instant) -> bool {
        let mut markers = self.markers.lock();
        markers.retain(|_, until| *until > now);
        markers.insert((node, marker), now + MARKER_LIFE).is_some()
    }
}

#[async_trait]
impl Directory for Embedded {
    async fn locate(
        &self,
        me: NodeId,
        group: Group,
        indexes: &[u32],
        without: &[NodeId],
    ) -> Result<Answers<Located>, Silent> {
        let (version, now) = (group.version, clock::instant());
        let blocks = indexes.iter().map(|index| BlockId {
            version,
            index: *index,
        });
        let each = blocks
            .map(|block| self.locate_at(me, block, without, now))
            .collect();
        let elsewhere = self.shard(group).lock().elsewhere(group, me, now);
        Ok(Answers { each, elsewhere })
    }

    async fn held(&self, node: NodeId, group: Group, indexes: &[u32]) -> Result<(), Silent> {
        self.change(group, weightless(indexes), |entry, _| {
            if !entry.holders.contains(&node) && entry.holders.len() < HOLDERS_MAX {
                entry.holders.push(node);
            }
            entry.claim = entry.claim.filter(|claim| claim.node != node);
        });
        Ok(())
    }

    async fn dropped(&self, node: NodeId, group: Group, indexes: &[u32]) -> Result<(), Silent> {
        self.change(group, weightless(indexes), |entry, _| {
            entry.remove_holder(node);
            entry.claim = entry.claim.filter(|claim| claim.node != node);
        });
        Ok(())
    }

    async fn used(&self, group: Group, uses: &[(u32, u64)]) -> Result<(), Silent> {
        self.change(group, uses.iter().copied(), BlockEntry::add_weight);
        Ok(())
    }

    async fn leave(
        &self,
        node: NodeId,
        group: Group,
        leaving: &[(u32, u64)],
    ) -> Result<Answers<Left>, Silent> {
        let (mut each, now) = (Vec::new(), clock::instant());
        let mut shard = self.shard(group).lock();
        shard.change(group, now, |entry| {
            let leaving = leaving.iter().map(|(index, weight)| {
                let block = entry.blocks.entry(*index).or_default();
                block.leave(node, *weight)
            });
            each.extend(leaving);
        });
        let elsewhere = shard.elsewhere(group, node, now);
        drop(shard);
        Ok(Answers { each, elsewhere })
    }

    async fn take(&self, group: Group, weights: &[(u32, u64)]) -> Result<(), Silent> {
        self.change(group, weights.iter().copied(), |entry, weight| {
            entry.global_weight = entry.global_weight.saturating_sub(weight);
        });
        Ok(())
    }

    async fn entry(&self, block: BlockId) -> Result<Entry, Silent> {
        let now = clock::instant();
        let shard = self.shard(Group::containing(block)).lock();
        let entry = shard.entry(block, now).map(|known| Entry {
            holders: known.holders.clone(),
            claimant: known.claimant(now),
            global_weight: known.global_weight,
        });
        drop(shard);
        Ok(entry.unwrap_or_default())
    }

    async fn exchange(&self, mine: NodeState) -> Result<Vec<NodeState>, Silent> {
        Ok(self.exchange_at(mine, clock::instant()))
    }

    async fn mark(&self, node: NodeId, marker: u16) -> Result<bool, Silent> {
        Ok(self.mark_at(node, marker, clock::instant()))
    }

    async fn token(&self, name: ObjectId, fresh: Token) -> Result<Option<Token>, Silent> {
        Ok(self.names.token_at(name, fresh, clock::instant()))
    }

    async fn begin(&self, name: ObjectId, change: Change, fresh: Token) -> Result<Option<Promoted>, Silent> {
        self.names.begin_at(name, change, fresh, clock::instant());
        Ok(None)
    }

    async fn end(&self, name: ObjectId, change: Change) -> Result<(), Silent> {
        self.names.end(name, change);
        Ok(())
    }

    async fn attend(&self, mine: Presence, at: Option<DirectoryTime>) -> Result<Roll, Silent> {
        Ok(self.names.attend_at(mine, at, clock::instant()))
    }

    async fn extend(&self, group: Group, extension: &Extension, life: Duration) -> Result<bool, Silent> {
        let now = clock::instant();
        Ok(self.extensions.extend_at(group, extension, life, now))
    }

    async fn extensions(&self, group: Group) -> Result<Vec<Extension>, Silent> {
        Ok(self.extensions.extensions_at(group, clock::instant()))
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::VersionId;

    use super::*;

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);

    fn block(index: u32) -> BlockId {
        BlockId {
            version: VersionId([7; 16]),
            index,
        }
    }

    #[test]
    fn a_claim_ends_with_its_time() {
        let (directory, now) = (Embedded::default(), clock::instant());
        assert_eq!(directory.locate_at(ME, block(0), &[], now), Located::Yours);
        let just_before = now + CLAIM_LIFE.saturating_sub(Duration::from_millis(1));
        let claimed = directory.locate_at(OTHER, block(0), &[], just_before);
        assert_eq!(claimed, Located::Claimed(ME));
        let after = directory.locate_at(OTHER, block(0), &[], now + CLAIM_LIFE);
        assert_eq!(after, Located::Yours);
    }

    #[test]
    fn an_entry_that_no_node_renews_is_forgotten_and_takes_no_room() {
        let (directory, now) = (Embedded::default(), clock::instant());
        let group = Group::containing(block(0));
        let mut shard = directory.shard(group).lock();
        shard.change(group, now, |entry| {
            entry.blocks.entry(0).or_default().holders.push(OTHER);
        });
        let later = now + ENTRY_LIFE;
        assert!(shard.entry(block(0), now + (ENTRY_LIFE / 2)).is_some());
        assert!(shard.entry(block(0), later).is_none());
        let another = Group { number: 1, ..group };
        for _ in 0..CHANGES_PER_LOOK {
            shard.change(another, later, |_| {});
        }
        assert!(shard.groups.is_empty());
    }

    #[test]
    fn the_state_of_a_node_ends_with_its_time() {
        let (directory, now) = (Embedded::default(), clock::instant());
        let state = |node| NodeState {
            node,
            age: 1,
            average_rank: 2,
            takes_pushes: true,
        };
        assert_eq!(directory.exchange_at(state(ME), now), [state(ME)]);
        let just_before = now + STATE_LIFE.saturating_sub(Duration::from_millis(1));
        assert_eq!(directory.exchange_at(state(OTHER), just_before).len(), 2);
        let after = directory.exchange_at(state(OTHER), now + STATE_LIFE);
        assert_eq!(after, [state(OTHER)]);
    }

    #[test]
    fn a_marker_ends_with_its_time() {
        let (directory, now) = (Embedded::default(), clock::instant());
        assert!(!directory.mark_at(ME, 3, now));
        assert!(directory.mark_at(ME, 3, now + MARKER_LIFE / 2));
        assert!(!directory.mark_at(ME, 3, now + MARKER_LIFE * 2));
    }
}
