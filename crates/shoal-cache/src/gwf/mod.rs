//! Globally weighted eviction (GWF), live (dissertation 4.5.3, Algorithm 3): chooses the blocks to evict on
//! this node by their value to all nodes.
//!
//! The store wakes the keeper when room is short. The keeper takes the blocks of least worth here, asks the
//! directory which of them other nodes hold, and carries out what [`shoal_policy::eviction::gwf::decide`]
//! decides for each:
//!
//! - **Other nodes hold it**: the copy is evicted, and its weight is added to the block's global weight.
//! - **It is the last copy, and its two weights together are not the least here**: it stays with both.
//! - **It is the last copy, and is worth more than the average block of another node**: it is pushed to that
//!   node, unless it is marked as short-lived: its object is about to be removed, and is in a tier anyway.
//! - **Otherwise** it is evicted, and its rank becomes the age.
//!
//! The global weight of a last copy stays in the directory until the node has decided about the copy; a query
//! alone does not take it. Blocks without entries count as last copies on their homes, where other nodes look
//! for them, and as copies elsewhere. They have no global weight and are never pushed.
//!
//! Nodes exchange their ages and averages once a second through the directory. While the directory does not
//! answer, a node evicts by local worth alone and pushes nothing. A block that finds no room waits briefly
//! for the keeper, and then evicts others by local worth. No reader waits for that.

mod pushes;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lru::LruCache;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_directory::guard::Kind;
use shoal_directory::{Group, Left, NodeState, WEIGHT_MAX};
use shoal_policy::eviction::gwf::{Action, Facts, Peer, Reading, Weight, Worth, decide};
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::{BlockId, Layer, NodeId};
use shoal_store::{Health, Least, RemovalReason, Store};
use tokio::sync::Notify;

pub use self::pushes::PushOutcome;
use shoal_net::metrics::WordCounts;
use shoal_net::pauses::ticks;
use shoal_net::shutdown::Shutdown;

use self::pushes::Pushes;
use crate::fetch::Fetcher;
use crate::nodes::directory::BlockDirectory;
use crate::nodes::peer::{BlockRequest, PeerError};

/// Number of blocks in one query to the directory.
const BATCH: usize = 64;

/// How often nodes exchange their ages and averages.
const EXCHANGE: Duration = Duration::from_secs(1);

/// Number of decisions remembered, at about 100 bytes each.
const DECISIONS: NonZeroUsize = NonZeroUsize::new(4 << 10).expect("4,096 is not zero");

/// Decision about a block that had the least worth here while room was short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It stayed: it was the last copy, and its global weight made it worth more than other blocks here.
    Kept,
    /// It was evicted: other nodes hold it, and its weight was added to theirs.
    Copied,
    /// It was pushed to this node, whose blocks were worth less.
    Pushed(NodeId),
    /// It was evicted: no block here or elsewhere was worth less.
    Dropped,
}

/// Weights of blocks, by group and index within the version.
type Weights = BTreeMap<Group, Vec<(u32, u64)>>;

/// Evicts blocks on a node whose store uses GWF.
pub struct Keeper {
    directory: Arc<BlockDirectory>,
    fetcher: Arc<Fetcher>,
    /// The most recently exchanged states of the other nodes; empty while the directory does not answer.
    others: Mutex<Vec<NodeState>>,
    pushes: Pushes,
    /// The most recent decisions, which show operators why a block stayed, moved or left.
    decisions: Mutex<LruCache<BlockId, Decision>>,
    kept: AtomicU64,
    /// Notified when room is short.
    is_short: Arc<Notify>,
}

/// Counters of the keeper since the node started, and its current ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GwfFigures {
    /// The greatest rank of a block that left a node, as far as this node knows.
    pub age: u64,
    /// The average rank of the blocks here.
    pub average_rank: u64,
    /// Last copies kept because of their global weight.
    pub kept: u64,
    /// Blocks sent to other nodes, by outcome.
    pub pushes: WordCounts,
    /// Blocks on their way to other nodes.
    pub pushes_under_way: usize,
}

impl Keeper {
    /// Creates the keeper of a node, which wakes when room in the store is short. Returns `None` without a
    /// directory, or if the store uses another policy.
    pub fn new(fetcher: &Arc<Fetcher>) -> Option<Arc<Self>> {
        let store = &fetcher.parts.store;
        store.worths.ranks()?;
        let directory = fetcher.parts.directory.clone()?;
        let is_short = Arc::<Notify>::default();
        let notified = Arc::clone(&is_short);
        store.evictor.evict_by(move || notified.notify_one());
        Some(Arc::new(Self {
            directory,
            fetcher: Arc::clone(fetcher),
            others: Mutex::default(),
            pushes: Pushes::default(),
            decisions: Mutex::new(LruCache::new(DECISIONS)),
            kept: AtomicU64::new(0),
            is_short,
        }))
    }

    fn store(&self) -> &Arc<Store> {
        &self.fetcher.parts.store
    }

    /// Evicts and exchanges states until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let making_room = async {
            loop {
                self.is_short.notified().await;
                self.make_room().await;
            }
        };
        let exchanging = async {
            let mut pause = ticks(EXCHANGE);
            loop {
                pause.tick().await;
                self.exchange().await;
            }
        };
        let working = async {
            tokio::join!(making_room, exchanging);
        };
        stopping.limits(working).await;
    }

    /// Returns the most recent decision about a block, if remembered.
    pub fn decision(&self, block: BlockId) -> Option<Decision> {
        self.decisions.lock().peek(&block).copied()
    }

    /// Returns the counters since the node started, and the current ranks.
    pub fn figures(&self) -> GwfFigures {
        let ranks = self.store().worths.ranks().unwrap_or_default();
        GwfFigures {
            age: ranks.age.to_u64_saturating(),
            average_rank: ranks.average.to_u64_saturating(),
            kept: self.kept.load(Ordering::Relaxed),
            pushes: self.pushes.counts.by_word(),
            pushes_under_way: self.pushes.under_way(),
        }
    }

    /// Publishes this node's state to the directory, and fetches those of the others.
    async fn exchange(&self) {
        let ranks = self.store().worths.ranks().unwrap_or_default();
        let mine = NodeState {
            node: self.fetcher.parts.cooperation.me,
            age: ranks.age.to_u64_saturating().min(WEIGHT_MAX),
            average_rank: ranks.average.to_u64_saturating(),
            takes_pushes: self.takes_pushes(),
        };
        let guard = &self.directory.guard;
        let exchanged = guard.ask(Kind::Exchange, |directory| directory.exchange(mine));
        let mut others = exchanged.await.unwrap_or_default();
        others.retain(|state| state.node != mine.node);
        let ages = others.iter().map(|state| state.age);
        // No node reports a greater age. Such an age would make all blocks equal.
        if let Some(age) = ages.filter(|age| *age <= WEIGHT_MAX).max() {
            self.store().worths.learn_age(Weight::from(age));
        }
        *self.others.lock() = others;
    }

    /// Returns true if this node can accept pushed blocks: its disk works and its memory window is not busy.
    fn takes_pushes(&self) -> bool {
        self.store().health() == Health::Serving && !self.fetcher.memory.is_busy()
    }

    /// Evicts blocks until there is enough room.
    async fn make_room(self: &Arc<Self>) {
        let mut started = false;
        loop {
            let least = self.store().worths.least(started, BATCH, &self.pushes.blocks());
            if least.is_empty() {
                return;
            }
            started = true;
            let left = self.leave(&least).await;
            let has_given_up = self.give_up_copies(&least, &left).await;
            let has_judged = self.judge_last_copies(left).await;
            if !has_given_up && !has_judged {
                self.store().evictor.evict_ahead().await;
                return;
            }
        }
    }

    /// Returns what may happen to each copy: the directory decides for blocks with entries. Copies for which
    /// it does not answer are omitted.
    async fn leave(&self, least: &[Least]) -> HashMap<BlockId, Left> {
        let (mut left, mut groups) = (HashMap::new(), Weights::new());
        let homes = self.fetcher.parts.cooperation.hierarchy();
        for each in least {
            let block = each.block;
            if BlockDirectory::enters(each.data_bytes) {
                note_weight(&mut groups, block, each.worth.weight);
            } else if homes.layer_here(block.place()) == Layer::L1 {
                left.insert(block, Left::Copied);
            } else {
                left.insert(block, Left::Last(0));
            }
        }
        let asked = groups.iter().map(|(group, copies)| async move {
            let left = self.directory.leave(*group, copies).await?;
            let blocks = copies.iter().map(|(index, _)| BlockId {
                version: group.version,
                index: *index,
            });
            Some(blocks.zip(left).collect::<Vec<_>>())
        });
        for answer in join_all(asked).await {
            left.extend(answer.into_iter().flatten());
        }
        left
    }

    /// Evicts the copies of blocks that other nodes hold, whose weights the directory has already taken.
    /// Returns true if there were any.
    async fn give_up_copies(&self, least: &[Least], left: &HashMap<BlockId, Left>) -> bool {
        let mut copies = Vec::new();
        for Least { block, worth, .. } in least {
            if left.get(block) == Some(&Left::Copied) {
                self.decisions.lock().put(*block, Decision::Copied);
                self.store().worths.learn_age(worth.rank());
                copies.push((*block, RemovalReason::Copied));
            }
        }
        let has_given_up = !copies.is_empty();
        // These were read in the meantime and stay.
        let kept: HashSet<_> = self.store().removal.part_with(copies).await.into_iter().collect();
        for kept in least.iter().filter(|each| kept.contains(&each.block)) {
            self.directory.holds(kept.block, kept.data_bytes);
        }
        has_given_up
    }

    /// Decides about last copies in order of worth, as long as the least block is among those the directory
    /// was asked about. Returns true if it has decided about any.
    async fn judge_last_copies(self: &Arc<Self>, mut left: HashMap<BlockId, Left>) -> bool {
        let (mut has_judged, mut dropped, mut taken) = (false, Vec::new(), Weights::new());
        let mut spared = self.pushes.blocks();
        while let Some(next) = self.store().worths.candidate(&spared) {
            let candidate = next.candidate;
            let Some(Left::Last(global_weight)) = left.insert(candidate.key, Left::Last(0)) else {
                break;
            };
            has_judged = true;
            let has_entry = BlockDirectory::enters(next.data_bytes);
            // Other nodes look for a block without an entry on this node, so it must not move.
            let peers = if has_entry { self.peers() } else { Vec::new() };
            let facts = Facts {
                local: candidate.local,
                global_weight: Weight::from(global_weight.min(WEIGHT_MAX)),
                is_last_copy: true,
                next_rank: candidate.next_rank,
                age: self.store().worths.ranks().unwrap_or_default().age,
                peers: &peers,
            };
            let block = candidate.key;
            let mut push = None;
            // C2P: a block of an incomplete object is not worth keeping or pushing.
            let actions = if next.is_of_incomplete {
                vec![Action::Drop]
            } else {
                decide(&facts, Reading::Text)
            };
            for action in actions {
                match action {
                    Action::TakeGlobalWeight(weight) => note_weight(&mut taken, block, weight),
                    // The directory added it when it was queried.
                    Action::AddGlobalWeight(_) => {}
                    Action::RaiseAge(age) => self.store().worths.learn_age(age),
                    Action::Push { to, local } => push = Some((to, local)),
                    Action::Keep { local } => {
                        self.store().worths.weigh(block, local);
                        self.kept.fetch_add(1, Ordering::Relaxed);
                        self.decisions.lock().put(block, Decision::Kept);
                    }
                    Action::Drop => {
                        spared.insert(block, candidate.bytes);
                        if let Some((to, worth)) = push {
                            self.push(block, candidate.bytes, to, worth);
                        } else {
                            self.decisions.lock().put(block, Decision::Dropped);
                            dropped.push((block, RemovalReason::Room));
                        }
                    }
                }
            }
            if self.store().worths.least(true, 1, &spared).is_empty() {
                break;
            }
        }
        // Before the next query about these blocks. If the directory does not answer, weights may be counted
        // twice.
        let guard = &self.directory.guard;
        let taken = taken
            .iter()
            .map(|(group, weights)| guard.ask(Kind::Leave, |directory| directory.take(*group, weights)));
        join_all(taken).await;
        self.store().removal.part_with(dropped).await;
        has_judged
    }

    /// Returns the nodes that currently accept blocks.
    fn peers(&self) -> Vec<Peer<NodeId>> {
        let others = self.others.lock();
        let willing = others.iter().filter(|state| {
            state.takes_pushes
                && self.pushes.has_room_to(state.node)
                && self.fetcher.parts.cooperation.can_keep_blocks(state.node)
        });
        willing
            .map(|state| Peer {
                node: state.node,
                average_rank: Weight::from(state.average_rank),
            })
            .collect()
    }

    /// Pushes a block to another node and then evicts it here, whatever the outcome.
    fn push(self: &Arc<Self>, block: BlockId, bytes: u64, to: NodeId, worth: Worth) {
        self.pushes.begin(block, bytes, to);
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let outcome = this.give(block, to, worth).await;
            let (reason, decision) = match outcome {
                PushOutcome::Taken => (RemovalReason::Pushed, Decision::Pushed(to)),
                PushOutcome::Refused | PushOutcome::Failed | PushOutcome::Gone | PushOutcome::ShortLived => {
                    (RemovalReason::Room, Decision::Dropped)
                }
            };
            this.decisions.lock().put(block, decision);
            this.store().removal.part_with(vec![(block, reason)]).await;
            this.pushes.end(block, outcome);
            this.is_short.notify_one();
        });
    }

    async fn give(&self, block: BlockId, to: NodeId, worth: Worth) -> PushOutcome {
        if self.directory.is_short(block).await {
            return PushOutcome::ShortLived;
        }
        let Some(version) = self.store().version_of(block).await else {
            return PushOutcome::Gone;
        };
        let request = BlockRequest::push(&version, block.index, self.fetcher.parts.cooperation.me, worth);
        match self.fetcher.parts.cooperation.offer(&request, to).await {
            Some(Ok(())) => PushOutcome::Taken,
            Some(Err(PeerError::Refused { .. })) => PushOutcome::Refused,
            Some(Err(error)) => {
                tracing::debug!(?block, %error, "a block was not pushed to another node");
                PushOutcome::Failed
            }
            None => PushOutcome::Failed,
        }
    }
}

fn note_weight(weights: &mut Weights, block: BlockId, weight: Weight) {
    let weight = weight.to_u64_saturating().min(WEIGHT_MAX);
    weights
        .entry(Group::containing(block))
        .or_default()
        .push((block.index, weight));
}
