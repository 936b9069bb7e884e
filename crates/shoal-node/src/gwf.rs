//! Globally weighted eviction (GWF), live (dissertation 4.5.3, Algorithm 3): which blocks make room on this
//! node, by what they are worth to all nodes.
//!
//! The store wakes the keeper when room is short. The keeper takes the blocks of least worth here, asks the
//! directory which of them other nodes hold, and lets [`shoal_policy::eviction::gwf::decide`] say what
//! becomes of each:
//!
//! - **Other nodes hold it**: the copy leaves, and its weight goes to the block's global weight.
//! - **It is the last copy, and its two weights together are not the least here**: it stays with both.
//! - **It is the last copy, and is worth more than the average block of another node**: that node gets it,
//!   unless the directory has it as short-lived: such an object is about to be removed, and its tier has it.
//! - **Otherwise** it leaves, and its rank becomes the age.
//!
//! The global weight of a last copy stays in the directory until the node decides about the copy: one that
//! was only asked about keeps it. Blocks without entries are last copies on their homes, where other nodes
//! look for them, and copies elsewhere. They have no global weight and are sent nowhere.
//!
//! Nodes tell each other their ages and averages once a second, by way of the directory. While it does not
//! answer, the node evicts by local worth alone and pushes nothing. A block that finds no room at all waits a
//! moment for the keeper, and then evicts others by local worth. No reader waits for that.

mod decisions;
mod pushes;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use shoal_directory::{Group, Left, NodeState, WEIGHT_MAX};
use shoal_policy::eviction::gwf::{Action, Facts, Peer, Reading, Weight, Worth, decide};
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::{BlockId, Layer, NodeId};
use shoal_store::{Health, Least, Ranks, RemovalReason, Store};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

pub use self::decisions::Decision;
pub use self::pushes::PushOutcome;

use self::decisions::Decisions;
use self::pushes::Pushes;
use crate::cooperation::Cooperation;
use crate::directory::BlockDirectory;
use crate::fetch::Fetcher;
use crate::peer::PeerError;
use crate::shutdown::Shutdown;

/// The number of blocks that the directory is asked about at a time.
const BATCH: usize = 64;

/// How often nodes tell each other their ages and averages.
const EXCHANGE: Duration = Duration::from_secs(1);

/// Weights of blocks, by group and index in the version.
type Weights = BTreeMap<Group, Vec<(u32, u64)>>;

/// Makes room on a node whose store follows GWF.
pub struct Keeper {
    store: Arc<Store>,
    directory: Arc<BlockDirectory>,
    cooperation: Arc<Cooperation>,
    fetcher: Arc<Fetcher>,
    /// The states of the other nodes when they were last exchanged; none while the directory is silent.
    others: Mutex<Vec<NodeState>>,
    pushes: Pushes,
    decisions: Mutex<Decisions>,
    kept: AtomicU64,
    /// Notified when room is short.
    is_short: Arc<Notify>,
}

/// Counters of the keeper since the node started, and the ranks that it decides by.
#[derive(Clone, Debug)]
pub struct GwfFigures {
    /// The age and the average rank.
    pub ranks: Ranks,
    /// Last copies that stayed for their global weight.
    pub kept: u64,
    /// Blocks sent to other nodes, by outcome.
    pub pushes: [(PushOutcome, u64); PushOutcome::ALL.len()],
    /// Blocks on their way to other nodes.
    pub pushes_under_way: usize,
}

impl Keeper {
    /// The keeper of a node, which wakes when room in `store` is short. `None` if the store follows another
    /// policy.
    pub fn new(
        store: &Arc<Store>,
        directory: &Arc<BlockDirectory>,
        cooperation: &Arc<Cooperation>,
        fetcher: &Arc<Fetcher>,
    ) -> Option<Arc<Self>> {
        store.ranks()?;
        let is_short = Arc::<Notify>::default();
        let notified = Arc::clone(&is_short);
        store.keep_room_by(move || notified.notify_one());
        Some(Arc::new(Self {
            store: Arc::clone(store),
            directory: Arc::clone(directory),
            cooperation: Arc::clone(cooperation),
            fetcher: Arc::clone(fetcher),
            others: Mutex::default(),
            pushes: Pushes::default(),
            decisions: Mutex::default(),
            kept: AtomicU64::new(0),
            is_short,
        }))
    }

    /// Makes room and exchanges states until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let making_room = async {
            loop {
                self.is_short.notified().await;
                self.make_room().await;
            }
        };
        let exchanging = async {
            let mut pause = interval(EXCHANGE);
            pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                pause.tick().await;
                self.exchange().await;
            }
        };
        tokio::select! {
            () = making_room => {}
            () = exchanging => {}
            () = stopping.begun() => {}
        }
    }

    /// The decision about a block that was made last, if it is remembered.
    pub fn decision(&self, block: BlockId) -> Option<Decision> {
        self.decisions.lock().about(block)
    }

    /// Counters since the node started, and the current ranks.
    pub fn figures(&self) -> GwfFigures {
        GwfFigures {
            ranks: self.store.ranks().unwrap_or_default(),
            kept: self.kept.load(Ordering::Relaxed),
            pushes: self.pushes.counts(),
            pushes_under_way: self.pushes.under_way(),
        }
    }

    /// Tells the other nodes about this one, and hears of them.
    async fn exchange(&self) {
        let ranks = self.store.ranks().unwrap_or_default();
        let mine = NodeState {
            node: self.cooperation.me(),
            age: ranks.age.to_u64_saturating().min(WEIGHT_MAX),
            average_rank: ranks.average.to_u64_saturating(),
            takes_pushes: self.takes_pushes(),
        };
        let mut others = self.directory.exchange(mine).await.unwrap_or_default();
        others.retain(|state| state.node != mine.node);
        let ages = others.iter().map(|state| state.age);
        // No node tells a greater age. Such an age would make all blocks equal.
        if let Some(age) = ages.filter(|age| *age <= WEIGHT_MAX).max() {
            self.store.learn_age(Weight::from(age));
        }
        *self.others.lock() = others;
    }

    /// Whether this node has time and a disk for blocks that none of its readers waits for.
    fn takes_pushes(&self) -> bool {
        self.store.health() == Health::Serving && !self.fetcher.memory().is_busy()
    }

    /// Gives up blocks until there is enough room.
    async fn make_room(self: &Arc<Self>) {
        let mut started = false;
        loop {
            let least = self.store.least(started, BATCH, &self.pushes.blocks());
            if least.is_empty() {
                return;
            }
            started = true;
            let left = self.leave(&least).await;
            let has_given_up = self.give_up_copies(&least, &left).await;
            let has_judged = self.judge_last_copies(left).await;
            if !has_given_up && !has_judged {
                self.store.evict_ahead().await;
                return;
            }
        }
    }

    /// What becomes of these copies: of those with entries the directory says it. Those about which it does
    /// not answer are left out.
    async fn leave(&self, least: &[Least]) -> HashMap<BlockId, Left> {
        let (mut left, mut groups) = (HashMap::new(), Weights::new());
        let homes = self.cooperation.hierarchy();
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

    /// Gives up the copies of blocks that other nodes hold, which have their weights by now. Returns whether
    /// there were any.
    async fn give_up_copies(&self, least: &[Least], left: &HashMap<BlockId, Left>) -> bool {
        let mut copies = Vec::new();
        for Least { block, worth, .. } in least {
            if left.get(block) == Some(&Left::Copied) {
                self.decisions.lock().note(*block, Decision::Copied);
                self.store.learn_age(worth.rank());
                copies.push((*block, RemovalReason::Copied));
            }
        }
        let has_given_up = !copies.is_empty();
        // A reader of these has come in the meantime.
        let kept: HashSet<_> = self.store.part_with(copies).await.into_iter().collect();
        for kept in least.iter().filter(|each| kept.contains(&each.block)) {
            self.directory.holds(kept.block, kept.data_bytes);
        }
        has_given_up
    }

    /// Decides about last copies, the least first, as long as the least block here is one that the directory
    /// was asked about. Returns whether it has decided about any.
    async fn judge_last_copies(self: &Arc<Self>, mut left: HashMap<BlockId, Left>) -> bool {
        let (mut has_judged, mut dropped, mut taken) = (false, Vec::new(), Weights::new());
        let mut spared = self.pushes.blocks();
        while let Some(next) = self.store.candidate(&spared) {
            let candidate = next.candidate;
            let Some(Left::Last(global_weight)) = left.insert(candidate.key, Left::Last(0)) else {
                break;
            };
            has_judged = true;
            let has_entry = BlockDirectory::enters(next.data_bytes);
            // Other nodes look for a block without an entry here and not where it would be sent.
            let peers = if has_entry { self.peers() } else { Vec::new() };
            let facts = Facts {
                local: candidate.local,
                global_weight: Weight::from(global_weight.min(WEIGHT_MAX)),
                is_last_copy: true,
                next_rank: candidate.next_rank,
                age: self.store.ranks().unwrap_or_default().age,
                peers: &peers,
            };
            let block = candidate.key;
            let mut push = None;
            // No block of an incomplete object is worth keeping or sending on (C2P).
            let actions = if next.is_of_incomplete {
                vec![Action::Drop]
            } else {
                decide(&facts, Reading::Text)
            };
            for action in actions {
                match action {
                    Action::TakeGlobalWeight(weight) => note_weight(&mut taken, block, weight),
                    // The directory has done it when it was asked.
                    Action::AddGlobalWeight(_) => {}
                    Action::RaiseAge(age) => self.store.learn_age(age),
                    Action::Push { to, local } => push = Some((to, local)),
                    Action::Keep { local } => {
                        self.store.weigh(block, local);
                        self.kept.fetch_add(1, Ordering::Relaxed);
                        self.decisions.lock().note(block, Decision::Kept);
                    }
                    Action::Drop => {
                        spared.insert(block, candidate.bytes);
                        if let Some((to, worth)) = push {
                            self.push(block, candidate.bytes, to, worth);
                        } else {
                            self.decisions.lock().note(block, Decision::Dropped);
                            dropped.push((block, RemovalReason::Room));
                        }
                    }
                }
            }
            if self.store.least(true, 1, &spared).is_empty() {
                break;
            }
        }
        // In time for the next question about these blocks.
        let taken = taken.iter();
        join_all(taken.map(|(group, weights)| self.directory.take(*group, weights))).await;
        self.store.part_with(dropped).await;
        has_judged
    }

    /// The nodes that take a block now.
    fn peers(&self) -> Vec<Peer<NodeId>> {
        let others = self.others.lock();
        let willing = others.iter().filter(|state| {
            state.takes_pushes
                && self.pushes.has_room_to(state.node)
                && self.cooperation.can_keep_blocks(state.node)
        });
        willing
            .map(|state| Peer {
                node: state.node,
                average_rank: Weight::from(state.average_rank),
            })
            .collect()
    }

    /// Sends a block to another node, and gives it up here when that has ended in one way or another.
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
            this.decisions.lock().note(block, decision);
            this.store.part_with(vec![(block, reason)]).await;
            this.pushes.end(block, to, outcome);
            this.is_short.notify_one();
        });
    }

    async fn give(&self, block: BlockId, to: NodeId, worth: Worth) -> PushOutcome {
        if self.directory.is_short(block).await {
            return PushOutcome::ShortLived;
        }
        let Some(version) = self.store.version_of(block).await else {
            return PushOutcome::Gone;
        };
        match self.cooperation.push(&version, block.index, to, worth).await {
            Some(Ok(())) => PushOutcome::Taken,
            Some(Err(PeerError::Refused { .. })) => PushOutcome::Refused,
            Some(Err(error)) => {
                tracing::debug!(?block, %error, "a block that leaves was not sent to another node");
                PushOutcome::Failed
            }
            None => PushOutcome::Failed,
        }
    }
}

fn note_weight(weights: &mut Weights, block: BlockId, weight: Weight) {
    let weight = weight.to_u64_saturating().min(WEIGHT_MAX);
    weights
        .entry(Group::of(block))
        .or_default()
        .push((block.index, weight));
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("figures", &self.figures())
            .finish_non_exhaustive()
    }
}
