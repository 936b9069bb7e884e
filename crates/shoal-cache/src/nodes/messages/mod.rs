//! Small best-effort messages between nodes: one bounded transport for all kinds (decision 0037).
//!
//! A part of the node [queues](Messages::send) a [`Message`] for other nodes without waiting. The message
//! waits for up to 200 ms for others to the same node unless it is urgent ([`shoal_policy::outbox`]), and
//! they are sent in one request over the peers' channel. The receiver passes it to the
//! [handler](Messages::on) of its kind.
//!
//! **Nothing waits for a message and correctness never depends on one.** A message may be lost, late,
//! repeated, or sent by a node that lies: that affects only efficiency, never the bytes or the status of a
//! response. Each kind documents how a node recovers from lost messages.
//!
//! Everything is bounded: the bytes queued for a node, the bytes accepted from a node, and the time that
//! sending takes. Earlier builds, which do not support messages, are skipped. Nodes ignore kinds that they do
//! not know.

mod batch;
mod intake;
mod kind;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use http::StatusCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_policy::NodeId;
use shoal_policy::outbox::{Limits, Outbox};
use tokio::sync::Notify;
use tokio::time::sleep;

pub use self::batch::BODY_BYTES_MAX;
pub use self::kind::{Kind, Message};
use shoal_net::clock;
use shoal_net::metrics::{Counts, WordCounts};
use shoal_net::shutdown::Shutdown;
use shoal_net::words;

use self::batch::{BATCH_BYTES, Batch, Group, Queued};
use self::intake::{Intake, admits};
use crate::nodes::cooperation::Cooperation;
use crate::nodes::peer::PeerError;

/// Limits of the messages queued for one node. Beyond them the least important messages are dropped, oldest
/// first.
const LIMITS: Limits = Limits {
    batch_bytes: BATCH_BYTES,
    waiting_bytes: 64 << 10,
};

/// Back-off before retrying a peer that does not support messages; it may have been upgraded.
const UNSUPPORTED_RETRY: Duration = Duration::from_mins(1);

/// Sends messages to other nodes, and dispatches those received.
pub struct Messages {
    cooperation: Arc<Cooperation>,
    outbox: Mutex<Outbox<NodeId, Queued>>,
    /// Notified when the next batch may be due earlier than before.
    hastened: Notify,
    intake: Mutex<Intake>,
    handlers: [OnceLock<Handler>; Kind::ALL.len()],
    counts: [Counts<MessageOutcome>; Kind::ALL.len()],
    batches: Counts<BatchOutcome>,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
}

/// Handles the messages of one kind in a batch; returns the number of well-formed ones.
type Handler = Box<dyn Fn(NodeId, &Group<'_>) -> usize + Send + Sync>;

words! {
    /// Outcome of a message.
    pub enum MessageOutcome {
        /// The peer accepted it.
        Sent = "sent",
        /// The part of the node that would have sent it dropped it under load, before it was encoded.
        Overflowed = "overflowed",
        /// The queue for the peer was full.
        Dropped = "dropped",
        /// The peer could not be reached, refused it, or does not support messages.
        Lost = "lost",
        /// It was received and handled.
        Received = "received",
        /// It was received but could not be parsed.
        Malformed = "malformed",
    }
}

words! {
    /// Outcome of a batch. The first four are for received batches, the others for sent ones.
    pub enum BatchOutcome {
        /// Received; its messages were dispatched.
        Accepted = "accepted",
        /// Received, but cannot be parsed.
        Malformed = "malformed",
        /// Received from a sender that is not a known member of the cluster.
        NonMember = "non-member",
        /// Received from a node that exceeds its rate.
        RateLimited = "rate-limited",
        /// The peer accepted it.
        Sent = "sent",
        /// The peer refused it, or did not answer in time.
        Failed = "failed",
        /// The peer does not support messages.
        Unsupported = "unsupported",
    }
}

impl BatchOutcome {
    /// Status of the response to a batch.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Accepted | Self::Sent => StatusCode::NO_CONTENT,
            Self::Malformed | Self::Failed | Self::Unsupported => StatusCode::BAD_REQUEST,
            Self::NonMember => StatusCode::FORBIDDEN,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

/// Counts since the node started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageFigures {
    /// Messages by kind and outcome.
    pub kinds: BTreeMap<String, WordCounts>,
    /// Batches by outcome.
    pub batches: WordCounts,
    /// Bytes of the batches sent, without request heads.
    pub bytes_sent: u64,
    /// Bytes of the batches received.
    pub bytes_received: u64,
}

impl Messages {
    /// Creates the message service of a node.
    pub fn new(cooperation: &Arc<Cooperation>) -> Arc<Self> {
        Arc::new(Self {
            cooperation: Arc::clone(cooperation),
            outbox: Mutex::new(Outbox::new(LIMITS)),
            hastened: Notify::new(),
            intake: Mutex::default(),
            handlers: Default::default(),
            counts: Default::default(),
            batches: Counts::default(),
            bytes_sent: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
        })
    }

    /// Registers `handler` for messages of kind `M`. It receives the claimed sender and the messages of one
    /// batch, in order. The task that answers the sender calls it, so it must not block. Only the first
    /// handler of a kind is used.
    pub fn on<M: Message>(&self, handler: impl Fn(NodeId, Vec<M>) + Send + Sync + 'static) {
        let handler = move |sender: NodeId, group: &Group<'_>| {
            let messages = group.read::<M>();
            let count = messages.len();
            handler(sender, messages);
            count
        };
        let _ = self.handlers[M::KIND as usize].set(Box::new(handler));
    }

    /// Queues a message for other nodes. Never blocks.
    pub fn send<M: Message>(&self, to: impl IntoIterator<Item = NodeId>, message: &M) {
        let Some(queued) = Queued::new(message) else {
            return self.count(M::KIND, MessageOutcome::Dropped, 1);
        };
        let now = clock::monotonic();
        let mut hastens = false;
        for node in to {
            let pushed = self.outbox.lock().push(queued.clone(), node, now);
            hastens |= pushed.hastens;
            for dropped in &pushed.dropped {
                self.count(dropped.kind, MessageOutcome::Dropped, 1);
            }
        }
        if hastens {
            self.hastened.notify_one();
        }
    }

    /// Counts messages that a part of the node dropped before they were encoded.
    pub fn count_overflowed<M: Message>(&self, messages: u64) {
        self.count(M::KIND, MessageOutcome::Overflowed, messages as usize);
    }

    /// Sends due batches until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let sending = async {
            let mut under_way = FuturesUnordered::new();
            let mut busy = HashSet::new();
            let mut unsupported = HashMap::new();
            loop {
                unsupported.retain(|_, until| *until > clock::instant());
                let due = self
                    .outbox
                    .lock()
                    .take_due(clock::monotonic(), |node| !busy.contains(&node));
                for (node, messages) in due {
                    busy.insert(node);
                    under_way.push(self.deliver(node, messages, unsupported.contains_key(&node)));
                }
                let next = self.outbox.lock().next_due(|node| !busy.contains(&node));
                let pause = next.map(|next| next.saturating_sub(clock::monotonic()));
                tokio::select! {
                    Some((node, outcome)) = under_way.next() => {
                        busy.remove(&node);
                        if outcome == BatchOutcome::Unsupported {
                            unsupported.entry(node).or_insert_with(|| clock::instant() + UNSUPPORTED_RETRY);
                        }
                    }
                    () = sleep(pause.unwrap_or(UNSUPPORTED_RETRY)) => {}
                    () = self.hastened.notified() => {}
                }
            }
        };
        stopping.limits(sending).await;
    }

    /// Sends one batch to one node, or drops it if the node does not support messages.
    async fn deliver(
        &self,
        node: NodeId,
        messages: Vec<Queued>,
        is_unsupported: bool,
    ) -> (NodeId, BatchOutcome) {
        let outcome = if is_unsupported {
            BatchOutcome::Unsupported
        } else {
            self.send_batch(node, &messages).await
        };
        self.batches.count(outcome);
        let of_messages = if outcome == BatchOutcome::Sent {
            MessageOutcome::Sent
        } else {
            MessageOutcome::Lost
        };
        for message in &messages {
            self.count(message.kind, of_messages, 1);
        }
        (node, outcome)
    }

    async fn send_batch(&self, node: NodeId, messages: &[Queued]) -> BatchOutcome {
        let Some(peer) = self.cooperation.peer(node).filter(|peer| peer.is_reachable()) else {
            return BatchOutcome::Failed;
        };
        let body = Batch::of(self.cooperation.me, messages).to_bytes();
        let bytes = body.len() as u64;
        match peer.send_messages(body).await {
            Ok(()) => {
                self.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
                BatchOutcome::Sent
            }
            // Earlier builds answer a path that they do not know with this status.
            Err(PeerError::Refused { status, .. }) if status == StatusCode::BAD_REQUEST => {
                BatchOutcome::Unsupported
            }
            Err(error) => {
                tracing::debug!(peer = peer.name, %error, "a batch of messages was not delivered");
                BatchOutcome::Failed
            }
        }
    }

    /// Handles a batch from another node.
    pub fn receive(&self, body: &[u8]) -> BatchOutcome {
        let outcome = self.take_in(body);
        self.batches.count(outcome);
        outcome
    }

    fn take_in(&self, body: &[u8]) -> BatchOutcome {
        let Ok(batch) = Batch::of_bytes(body) else {
            return BatchOutcome::Malformed;
        };
        let sender = batch.sender;
        if self.cooperation.peer(sender).is_none() {
            return BatchOutcome::NonMember;
        }
        let admitted = {
            let mut intake = self.intake.lock();
            let admitted = admits(&mut intake, sender, body.len(), clock::monotonic());
            if intake.len() > self.cooperation.members().len() {
                intake.retain(|sender, _| self.cooperation.peer(*sender).is_some());
            }
            admitted
        };
        if !admitted {
            return BatchOutcome::RateLimited;
        }
        self.bytes_received
            .fetch_add(body.len() as u64, Ordering::Relaxed);
        for group in &batch.groups {
            // A later build has more kinds.
            let Some(kind) = Kind::of(group.kind) else {
                continue;
            };
            let Some(handler) = self.handlers[kind as usize].get() else {
                continue;
            };
            let taken = handler(sender, group);
            self.count(kind, MessageOutcome::Received, taken);
            self.count(kind, MessageOutcome::Malformed, group.messages.len() - taken);
        }
        BatchOutcome::Accepted
    }

    /// Returns the current counts.
    pub fn figures(&self) -> MessageFigures {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of_kind = |kind: Kind| (kind.as_str().to_owned(), self.counts[kind as usize].by_word());
        MessageFigures {
            kinds: Kind::ALL.map(of_kind).into(),
            batches: self.batches.by_word(),
            bytes_sent: load(&self.bytes_sent),
            bytes_received: load(&self.bytes_received),
        }
    }

    fn count(&self, kind: Kind, outcome: MessageOutcome, messages: usize) {
        self.counts[kind as usize].add(outcome, messages as u64);
    }
}
