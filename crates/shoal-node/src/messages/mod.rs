//! Small soft news from node to node: one bounded way for all kinds of it (decision 0037).
//!
//! A part of the node [tells](Messages::tell) others a [`Message`] and goes on: the message waits for up to
//! 200 ms for others to the same node ([`shoal_policy::outbox`]) and goes with them in one request over the
//! peers' channel. At the other end a [handler](Messages::on) of its kind gets it.
//!
//! **Nothing waits for a message and nothing depends on one.** A message may be lost, late, repeated, or sent
//! by a node that lies: that costs accuracy, and never a byte or an answer. A node learns the content of a
//! lost message in some other way, and each kind says how.
//!
//! Everything is bounded: the bytes that wait for a node, the bytes that a node takes from another, and the
//! time that sending takes. Nodes of an earlier build that know no messages are left alone. Nodes that do not
//! know a kind pass it over.

mod batch;
mod intake;
mod kind;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use http::StatusCode;
use parking_lot::Mutex;
use shoal_policy::NodeId;
use shoal_policy::outbox::{Limits, Outbox};
use tokio::sync::Notify;
use tokio::time::sleep;

pub(crate) use self::batch::BODY_BYTES_MAX;
pub use self::kind::{Kind, Message};

use self::batch::{BATCH_BYTES, Batch, Group, Queued};
use self::intake::Intake;
use crate::clock;
use crate::cooperation::Cooperation;
use crate::peer::PeerError;
use crate::shutdown::Shutdown;

/// Limits of the messages that wait for one node. Beyond them the least important ones are dropped, the
/// oldest first.
const LIMITS: Limits = Limits {
    batch_bytes: BATCH_BYTES,
    waiting_bytes: 64 << 10,
};

/// A node that knows no messages is told none for so long: it may be of a later build by then.
const DEAF_FOR: Duration = Duration::from_mins(1);

/// Sends messages to other nodes, and passes on those that come from them.
pub struct Messages {
    cooperation: Arc<Cooperation>,
    began: Instant,
    outbox: Mutex<Outbox<NodeId, Queued>>,
    /// Notified when something may be due earlier than before.
    hastened: Notify,
    intake: Mutex<Intake>,
    handlers: [OnceLock<Handler>; Kind::ALL.len()],
    counts: [[AtomicU64; MessageOutcome::ALL.len()]; Kind::ALL.len()],
    batches: [AtomicU64; BatchOutcome::ALL.len()],
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
}

/// Takes the messages of one kind that came in one batch; returns how many were well-formed.
type Handler = Box<dyn Fn(NodeId, &Group<'_>) -> usize + Send + Sync>;

/// Outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOutcome {
    /// The other node has it.
    Sent,
    /// Too much happened at once, and it was never written.
    Untold,
    /// Too much waited for the other node.
    Dropped,
    /// The other node could not be reached, refused it, or knows no messages.
    Lost,
    /// It came from another node, and was taken in.
    Received,
    /// It came from another node, and cannot be understood.
    Malformed,
}

impl MessageOutcome {
    /// Every outcome.
    pub const ALL: [Self; 6] = [
        Self::Sent,
        Self::Untold,
        Self::Dropped,
        Self::Lost,
        Self::Received,
        Self::Malformed,
    ];

    /// The word in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Untold => "untold",
            Self::Dropped => "dropped",
            Self::Lost => "lost",
            Self::Received => "received",
            Self::Malformed => "malformed",
        }
    }
}

/// Outcome of a batch. The first four are of a batch that came, the others of a batch that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchOutcome {
    /// It came, and its messages were passed on.
    Taken,
    /// It came, and is no batch.
    Malformed,
    /// It came from no member of the cluster that this node knows.
    Stranger,
    /// It came from a node that sends too much.
    TooMuch,
    /// The other node took it.
    Sent,
    /// The other node did not take it, or did not answer in time.
    Failed,
    /// The other node knows no messages.
    Deaf,
}

impl BatchOutcome {
    /// Every outcome.
    pub const ALL: [Self; 7] = [
        Self::Taken,
        Self::Malformed,
        Self::Stranger,
        Self::TooMuch,
        Self::Sent,
        Self::Failed,
        Self::Deaf,
    ];

    /// The word in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Malformed => "malformed",
            Self::Stranger => "stranger",
            Self::TooMuch => "too-much",
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Deaf => "deaf",
        }
    }

    /// The status of the answer to a batch.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Taken | Self::Sent => StatusCode::NO_CONTENT,
            Self::Malformed | Self::Failed | Self::Deaf => StatusCode::BAD_REQUEST,
            Self::Stranger => StatusCode::FORBIDDEN,
            Self::TooMuch => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

/// The counts since the node started.
#[derive(Clone, Debug, Default)]
pub struct MessageFigures {
    /// Messages by kind and outcome.
    pub messages: Vec<(Kind, MessageOutcome, u64)>,
    /// Batches by outcome.
    pub batches: Vec<(BatchOutcome, u64)>,
    /// The bytes of the batches that were sent, without the heads of requests.
    pub bytes_sent: u64,
    /// The bytes of the batches that came.
    pub bytes_received: u64,
}

impl Messages {
    /// Messages among the nodes of a cluster.
    pub fn new(cooperation: &Arc<Cooperation>) -> Arc<Self> {
        Arc::new(Self {
            cooperation: Arc::clone(cooperation),
            began: clock::instant(),
            outbox: Mutex::new(Outbox::new(LIMITS)),
            hastened: Notify::new(),
            intake: Mutex::default(),
            handlers: Default::default(),
            counts: Default::default(),
            batches: Default::default(),
            bytes_sent: AtomicU64::new(0),
            bytes_received: AtomicU64::new(0),
        })
    }

    /// Has `handler` take messages of the kind `M` from now on: the node that says it sent them, and those
    /// of one batch, in their order. It is called by the task that answers the other node, so it must not
    /// wait. Only the first handler of a kind counts.
    pub fn on<M: Message>(&self, handler: impl Fn(NodeId, Vec<M>) + Send + Sync + 'static) {
        let handler = move |sender: NodeId, group: &Group<'_>| {
            let messages = group.read::<M>();
            let count = messages.len();
            handler(sender, messages);
            count
        };
        let _ = self.handlers[M::KIND.place()].set(Box::new(handler));
    }

    /// Queues a message for other nodes. Never waits.
    pub fn tell<M: Message>(&self, to: impl IntoIterator<Item = NodeId>, message: &M) {
        let Some(queued) = Queued::new(message) else {
            return self.count(M::KIND, MessageOutcome::Dropped, 1);
        };
        let now = self.now();
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

    /// Counts messages that a part of the node did not get to write in time.
    pub fn count_untold<M: Message>(&self, messages: u64) {
        self.count(M::KIND, MessageOutcome::Untold, messages as usize);
    }

    /// Sends what is due, until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        let sending = async {
            let mut under_way = FuturesUnordered::new();
            let mut busy = HashSet::new();
            let mut deaf = HashMap::new();
            loop {
                deaf.retain(|_, until| *until > clock::instant());
                let due = self
                    .outbox
                    .lock()
                    .take_due(self.now(), |node| !busy.contains(&node));
                for (node, messages) in due {
                    busy.insert(node);
                    under_way.push(self.deliver(node, messages, deaf.contains_key(&node)));
                }
                let next = self.outbox.lock().next_due(|node| !busy.contains(&node));
                let pause = next.map(|next| next.saturating_sub(self.now()));
                tokio::select! {
                    Some((node, outcome)) = under_way.next() => {
                        busy.remove(&node);
                        if outcome == BatchOutcome::Deaf {
                            deaf.entry(node).or_insert_with(|| clock::instant() + DEAF_FOR);
                        }
                    }
                    () = sleep(pause.unwrap_or(DEAF_FOR)) => {}
                    () = self.hastened.notified() => {}
                }
            }
        };
        tokio::select! {
            () = sending => {}
            () = stopping.begun() => {}
        }
    }

    /// Sends one batch to one node. One that was deaf is not asked again.
    async fn deliver(&self, node: NodeId, messages: Vec<Queued>, is_deaf: bool) -> (NodeId, BatchOutcome) {
        let outcome = if is_deaf {
            BatchOutcome::Deaf
        } else {
            self.send(node, &messages).await
        };
        self.batches[outcome as usize].fetch_add(1, Ordering::Relaxed);
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

    async fn send(&self, node: NodeId, messages: &[Queued]) -> BatchOutcome {
        let Some(peer) = self.cooperation.peer(node).filter(|peer| peer.is_reachable()) else {
            return BatchOutcome::Failed;
        };
        let body = Batch::of(self.cooperation.me(), messages).to_bytes();
        let bytes = body.len() as u64;
        match peer.tell(body).await {
            Ok(()) => {
                self.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
                BatchOutcome::Sent
            }
            // An earlier build gives this answer to a path that it does not know.
            Err(PeerError::Refused { status, .. }) if status == StatusCode::BAD_REQUEST => BatchOutcome::Deaf,
            Err(error) => {
                tracing::debug!(peer = peer.name(), %error, "messages were not taken");
                BatchOutcome::Failed
            }
        }
    }

    /// Takes in a batch that another node sent.
    pub fn receive(&self, body: &[u8]) -> BatchOutcome {
        let outcome = self.take_in(body);
        self.batches[outcome as usize].fetch_add(1, Ordering::Relaxed);
        outcome
    }

    fn take_in(&self, body: &[u8]) -> BatchOutcome {
        let Ok(batch) = Batch::of_bytes(body) else {
            return BatchOutcome::Malformed;
        };
        let sender = batch.sender();
        if self.cooperation.peer(sender).is_none() {
            return BatchOutcome::Stranger;
        }
        let admitted = {
            let mut intake = self.intake.lock();
            let admitted = intake.admits(sender, body.len(), self.now());
            if intake.len() > self.cooperation.members().len() {
                intake.retain(|sender| self.cooperation.peer(sender).is_some());
            }
            admitted
        };
        if !admitted {
            return BatchOutcome::TooMuch;
        }
        self.bytes_received
            .fetch_add(body.len() as u64, Ordering::Relaxed);
        for group in batch.groups() {
            // A later build knows more kinds.
            let Some(kind) = Kind::of(group.kind) else {
                continue;
            };
            let Some(handler) = self.handlers[kind.place()].get() else {
                continue;
            };
            let taken = handler(sender, group);
            self.count(kind, MessageOutcome::Received, taken);
            self.count(kind, MessageOutcome::Malformed, group.messages.len() - taken);
        }
        BatchOutcome::Taken
    }

    /// The counts until now.
    pub fn figures(&self) -> MessageFigures {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of_kind = |kind: Kind| {
            let counts = &self.counts[kind.place()];
            MessageOutcome::ALL.map(|outcome| (kind, outcome, load(&counts[outcome as usize])))
        };
        let batches = BatchOutcome::ALL.map(|outcome| (outcome, load(&self.batches[outcome as usize])));
        MessageFigures {
            messages: Kind::ALL.into_iter().flat_map(of_kind).collect(),
            batches: batches.into(),
            bytes_sent: load(&self.bytes_sent),
            bytes_received: load(&self.bytes_received),
        }
    }

    fn count(&self, kind: Kind, outcome: MessageOutcome, messages: usize) {
        self.counts[kind.place()][outcome as usize].fetch_add(messages as u64, Ordering::Relaxed);
    }

    fn now(&self) -> Duration {
        clock::instant().saturating_duration_since(self.began)
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages")
            .field("figures", &self.figures())
            .finish_non_exhaustive()
    }
}
