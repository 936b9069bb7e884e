//! Events that nodes send each other about their caches, gathered and thinned out.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Something that happened to one block on one node (C2P, table 2a).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<K> {
    /// The time, on the clock of the node where it happened.
    pub at: Duration,
    /// The block.
    pub key: K,
    /// The kind of event.
    pub kind: EventKind,
}

/// The five kinds of events, the least important first. Under overload, the least important are dropped
/// first.
///
/// A lost hit changes no presence. A lost add or miss makes an object look less present than it is, until its
/// next one. A lost delete or replacement makes blocks stay that are of no use, and nothing corrects that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// The block was read from the cache.
    Hit,
    /// The block was written and is in the cache.
    Add,
    /// The block was fetched for a read and is in the cache.
    Miss,
    /// The block is gone for good, not only from the cache.
    Delete,
    /// The block left the cache to make room.
    Replace,
}

const KINDS: usize = 5;

/// How long an event waits for others to the same peer (C2P 3.2, *Aggregation*).
pub const AGGREGATION: Duration = Duration::from_millis(200);

/// Outgoing events by peer. Memory is bounded by `events_max` for each peer.
#[derive(Debug)]
pub struct Outbox<N, K> {
    waiting: BTreeMap<N, Waiting<K>>,
    events_max: usize,
    dropped: u64,
}

#[derive(Debug)]
struct Waiting<K> {
    since: Duration,
    /// By kind, oldest first.
    events: [VecDeque<Event<K>>; KINDS],
}

impl<N: Copy + Ord, K: Copy> Outbox<N, K> {
    /// An empty outbox for at most `events_max` events a peer at a time, at least one.
    pub fn new(events_max: usize) -> Self {
        Self {
            waiting: BTreeMap::new(),
            events_max: events_max.max(1),
            dropped: 0,
        }
    }

    /// Queues an event for `peers`: the nodes that hold blocks of the same object, according to the ring.
    ///
    /// When too many events wait for a peer, the outbox drops the least important, the oldest of them first.
    /// It drops the new event if all waiting events are more important.
    pub fn push(&mut self, event: Event<K>, peers: impl IntoIterator<Item = N>, now: Duration) {
        for peer in peers {
            let waiting = self.waiting.entry(peer).or_insert_with(|| Waiting {
                since: now,
                events: Default::default(),
            });
            let is_full = waiting.len() >= self.events_max;
            self.dropped += u64::from(is_full);
            if !is_full || waiting.drop_one_up_to(event.kind) {
                waiting.events[event.kind as usize].push_back(event);
            }
        }
    }

    /// Removes the events that have waited for [`AGGREGATION`]: one message for each peer, in order of time.
    pub fn take_due(&mut self, now: Duration) -> Vec<(N, Vec<Event<K>>)> {
        let due = self
            .waiting
            .extract_if(.., |_, waiting| now.saturating_sub(waiting.since) >= AGGREGATION);
        due.map(|(peer, waiting)| {
            let mut events: Vec<_> = waiting.events.into_iter().flatten().collect();
            events.sort_by_key(|event| event.at);
            (peer, events)
        })
        .collect()
    }

    /// When [`Outbox::take_due`] next has something to return; `None` while nothing waits.
    pub fn next_due(&self) -> Option<Duration> {
        self.waiting
            .values()
            .map(|waiting| waiting.since + AGGREGATION)
            .min()
    }

    /// The number of events dropped since the start, counted for each peer.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl<K> Waiting<K> {
    fn len(&self) -> usize {
        self.events.iter().map(VecDeque::len).sum()
    }

    /// Drops the oldest event of the least important kind that waits, unless that kind is more important than
    /// `kind`.
    fn drop_one_up_to(&mut self, kind: EventKind) -> bool {
        self.events[..=kind as usize]
            .iter_mut()
            .any(|events| events.pop_front().is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::{AGGREGATION, Duration, Event, EventKind, Outbox};
    use EventKind::{Add, Delete, Hit, Miss, Replace};

    const fn event(at_ms: u64, kind: EventKind) -> Event<u32> {
        Event {
            at: Duration::from_millis(at_ms),
            key: 1,
            kind,
        }
    }

    fn push(outbox: &mut Outbox<char, u32>, peers: &str, event: Event<u32>) {
        outbox.push(event, peers.chars(), event.at);
    }

    #[test]
    fn events_wait_a_moment_for_others_to_the_same_peer() {
        let mut outbox = Outbox::new(10);
        assert_eq!(outbox.next_due(), None);
        push(&mut outbox, "ab", event(0, Replace));
        push(&mut outbox, "b", event(150, Hit));
        push(&mut outbox, "c", event(150, Miss));
        assert!(outbox.take_due(Duration::from_millis(199)).is_empty());
        assert_eq!(outbox.next_due(), Some(AGGREGATION));
        assert_eq!(
            outbox.take_due(AGGREGATION),
            [
                ('a', vec![event(0, Replace)]),
                ('b', vec![event(0, Replace), event(150, Hit)])
            ]
        );
        assert_eq!(outbox.next_due(), Some(Duration::from_millis(350)));
        assert_eq!(
            outbox.take_due(Duration::from_millis(350)),
            [('c', vec![event(150, Miss)])]
        );
    }

    #[test]
    fn overload_drops_the_least_important_first() {
        let mut outbox = Outbox::new(3);
        for (at, kind) in [
            (0, Hit),
            (1, Replace),
            (2, Add),
            (3, Hit),
            (4, Miss),
            (5, Replace),
            (6, Delete),
            (7, Hit),
        ] {
            push(&mut outbox, "a", event(at, kind));
        }
        assert_eq!(
            outbox.take_due(AGGREGATION),
            [('a', vec![event(1, Replace), event(5, Replace), event(6, Delete)])]
        );
        assert_eq!(outbox.dropped(), 5);
    }

    #[test]
    fn equals_give_way_to_newer_equals() {
        let mut outbox = Outbox::new(2);
        for at in 0..5 {
            push(&mut outbox, "a", event(at, Replace));
        }
        assert_eq!(
            outbox.take_due(AGGREGATION),
            [('a', vec![event(3, Replace), event(4, Replace)])]
        );
        assert_eq!(outbox.dropped(), 3);
    }
}
