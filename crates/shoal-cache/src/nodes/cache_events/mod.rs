//! Exchanges cache events between the nodes that hold parts of an object, so that all of them evict the same
//! objects (C2P; decision 0038).
//!
//! The store's policy records what happens to blocks of each layer that spreads objects over nodes
//! ([`shoal_policy::eviction::C2p`]). Several times a second, and at once if an event is urgent, the exchange
//! takes these events and sends each of them to the other homes of the same group of blocks, as
//! [messages](crate::nodes::messages); the policy there applies them. No reader waits for this.
//!
//! An event lists all blocks of the group that its node holds, so it supersedes lost events. When a node
//! leaves the cluster, the others forget its blocks.

mod group_homes;
mod message;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_base::moment::since_1970;
use shoal_net::clock;
use shoal_net::membership::{Member, Members};
use shoal_net::metrics::{Counts, WordCounts};
use shoal_net::pauses::ticks;
use shoal_net::shutdown::Shutdown;
use shoal_policy::NodeId;
use shoal_policy::eviction::c2p::EventKind;
use shoal_policy::outbox::{AGGREGATION, URGENT_PAUSE};
use shoal_store::{CacheEvent, Store};

use self::group_homes::GroupHomes;
use self::message::CacheEventMessage;
use crate::nodes::cooperation::{Cooperation, CooperationMode};
use crate::nodes::messages::Messages;

/// How often events are taken from the policy; they are then batched per receiver.
const PERIOD: Duration = Duration::from_millis(AGGREGATION.as_millis() as u64 / 4);

/// Sends this node's events to the other homes of objects, and receives theirs.
pub struct EventExchange {
    store: Arc<Store>,
    cooperation: Arc<Cooperation>,
    messages: Arc<Messages>,
    homes: Mutex<GroupHomes>,
    sent: Counts<EventKind>,
    received: Counts<EventKind>,
    rejected: AtomicU64,
    /// Value of the policy's counter of lost events when events were last taken.
    lost: AtomicU64,
}

/// Counters of events since the node started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EventFigures {
    /// Events sent to other nodes, each counted once.
    pub sent: WordCounts,
    /// Events received from other nodes.
    pub received: WordCounts,
    /// Received events that were rejected as impossible.
    pub rejected: u64,
}

impl EventExchange {
    /// Creates the exchange of a node. Returns `None` if its store does not keep objects complete, or objects
    /// are not spread over nodes.
    pub fn new(
        mode: CooperationMode,
        store: &Arc<Store>,
        cooperation: &Arc<Cooperation>,
        messages: &Arc<Messages>,
    ) -> Option<Arc<Self>> {
        if mode != CooperationMode::Hierarchy || !store.cache_events.keep() {
            return None;
        }
        let exchange = Arc::new(Self {
            store: Arc::clone(store),
            cooperation: Arc::clone(cooperation),
            messages: Arc::clone(messages),
            homes: Mutex::new(GroupHomes::new(cooperation.hierarchy())),
            sent: Counts::default(),
            received: Counts::default(),
            rejected: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        });
        let receiver: Weak<Self> = Arc::downgrade(&exchange);
        messages.on(move |sender, events| {
            if let Some(exchange) = receiver.upgrade() {
                exchange.receive(sender, events);
            }
        });
        Some(exchange)
    }

    /// Sends events until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let sending = async {
            let mut members = Members::default();
            let mut pause = ticks(PERIOD);
            loop {
                let is_urgent = tokio::select! {
                    _ = pause.tick() => false,
                    () = self.store.cache_events.urgent() => true,
                };
                self.forget_the_gone(&mut members).await;
                self.send();
                if is_urgent {
                    // Until another urgent batch may go, taking events would only cost the store's lock.
                    tokio::time::sleep(URGENT_PAUSE).await;
                }
            }
        };
        stopping.limits(sending).await;
    }

    /// Returns the counters since the node started.
    pub fn figures(&self) -> EventFigures {
        EventFigures {
            sent: self.sent.by_word(),
            received: self.received.by_word(),
            rejected: self.rejected.load(Ordering::Relaxed),
        }
    }

    fn send(&self) {
        let lost = self.store.cache_events.lost();
        let lost_before = self.lost.swap(lost, Ordering::Relaxed);
        // A new node reads its own blocks before it finds other nodes; the events wait until then.
        if self.cooperation.is_alone() {
            return;
        }
        self.messages
            .count_overflowed::<CacheEventMessage>(lost - lost_before);
        let events = self.store.cache_events.take();
        if events.is_empty() {
            return;
        }
        let mut homes = self.homes.lock();
        homes.follow(&self.cooperation.hierarchy());
        for event in &events {
            let concerned = homes.of(event.layer, event.event.key, event.group_blocks);
            if !concerned.is_empty() {
                self.sent.count(event.event.kind);
                let message = CacheEventMessage::from(event);
                self.messages.send(concerned.iter().copied(), &message);
            }
        }
    }

    fn receive(&self, sender: NodeId, messages: Vec<CacheEventMessage>) {
        let (now, came) = (since_1970(clock::utc_now()), messages.len());
        let events = messages.into_iter().filter_map(|message| message.into_event(now));
        let events: Vec<CacheEvent> = events.collect();
        self.rejected
            .fetch_add((came - events.len()) as u64, Ordering::Relaxed);
        for event in &events {
            self.received.count(event.event.kind);
        }
        self.store.cache_events.receive(sender, &events);
    }

    /// Forgets the blocks of nodes that are no longer members.
    async fn forget_the_gone(&self, before: &mut Members) {
        let members = self.cooperation.members();
        if Arc::ptr_eq(before, &members) {
            return;
        }
        let before = std::mem::replace(before, Arc::clone(&members));
        let kept: HashSet<NodeId> = members.iter().map(Member::id).collect();
        if before.iter().all(|member| kept.contains(&member.id())) {
            return;
        }
        self.store.cache_events.forget(&kept).await;
    }
}
