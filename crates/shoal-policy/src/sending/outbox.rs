//! Batches small messages by receiver, and drops the least important when too many wait.
//!
//! The first message to a receiver waits for [`AGGREGATION`] (C2P 3.2, *Aggregation*), and later ones are
//! sent with it, so that the cost of sending hardly grows with the load. A full batch is sent at once. If
//! more messages wait for a receiver than there is room for, the least important are dropped, the oldest of
//! them first (C2P 3.2, *Filter*).
//!
//! An urgent message does not wait for others. It is sent at once with all that wait for its receiver, but
//! not sooner than [`URGENT_PAUSE`] after the last batch, so that any number of urgent messages makes at most
//! twenty batches a second for a receiver. The paper has no urgent messages.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a message waits for others to the same receiver.
pub const AGGREGATION: Duration = Duration::from_millis(200);

/// The minimum time between a batch and an urgent one to the same receiver: a quarter of [`AGGREGATION`].
pub const URGENT_PAUSE: Duration = Duration::from_millis(AGGREGATION.as_millis() as u64 / 4);

/// The number of levels of importance.
pub const DEGREES: usize = 8;

/// A message as an [`Outbox`] sees it.
pub trait Outgoing {
    /// Its size in a batch.
    fn bytes(&self) -> usize;

    /// Its importance, below [`DEGREES`]. Under overload the least important messages are dropped first.
    fn importance(&self) -> usize;

    /// True if it must not wait for others to the same receiver.
    fn is_urgent(&self) -> bool {
        false
    }
}

/// Outgoing messages by receiver, at most [`Limits::waiting_bytes`] for each.
#[derive(Debug)]
pub struct Outbox<N, M> {
    waiting: BTreeMap<N, Waiting<M>>,
    limits: Limits,
}

/// The bounds of an outbox, for each receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of a batch. A larger message is sent alone.
    pub batch_bytes: usize,
    /// The maximum size of all waiting messages.
    pub waiting_bytes: usize,
}

/// The messages that wait for a receiver. It is kept until no message waits and an urgent one would be due at
/// once.
#[derive(Debug)]
struct Waiting<M> {
    /// The time of the first message after a pause.
    since: Duration,
    /// The time before which no urgent message is due.
    urgent_from: Duration,
    /// The number of urgent messages.
    urgent: usize,
    bytes: usize,
    /// The number of messages pushed so far; numbers order the messages of all levels.
    came: u64,
    /// By importance, oldest first.
    messages: [VecDeque<(u64, M)>; DEGREES],
}

/// The outcome of a push into an outbox.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "dropped messages are counted"]
pub struct Pushed<M> {
    /// The messages dropped to make room; the new one itself if all others were more important.
    pub dropped: Vec<M>,
    /// True if the next due time may have changed.
    pub hastens: bool,
}

impl<N: Copy + Ord, M: Outgoing> Outbox<N, M> {
    /// Creates an empty outbox.
    pub const fn new(limits: Limits) -> Self {
        Self {
            waiting: BTreeMap::new(),
            limits,
        }
    }

    /// Queues a message for a receiver. If there is no room, the least important waiting messages are
    /// dropped, oldest first; the new one is dropped if that does not make enough room.
    pub fn push(&mut self, message: M, to: N, now: Duration) -> Pushed<M> {
        let Limits {
            batch_bytes,
            waiting_bytes,
        } = self.limits;
        let waiting = self.waiting.entry(to).or_insert_with(Waiting::new);
        if waiting.is_empty() {
            waiting.since = now;
        }
        let due_before = waiting.due_at(batch_bytes);
        let mut dropped = Vec::new();
        let bytes_max = waiting_bytes.checked_sub(message.bytes());
        while bytes_max.is_none_or(|bytes_max| waiting.bytes > bytes_max) {
            let least = bytes_max.and_then(|_| waiting.drop_one_up_to(message.importance()));
            let Some(least) = least else {
                dropped.push(message);
                return Pushed {
                    dropped,
                    hastens: false,
                };
            };
            dropped.push(least);
        }
        waiting.add(message);
        debug_assert!(
            waiting.bytes <= waiting_bytes,
            "what waits for a receiver is bounded"
        );
        let due = waiting.due_at(batch_bytes);
        Pushed {
            dropped,
            hastens: due_before.is_none_or(|before| due.is_some_and(|due| due < before)),
        }
    }

    /// Removes the due messages for receivers that are `ready`: one batch each, in the order in which they
    /// were pushed. Messages that do not fit wait for the next batch, which is due at once.
    pub fn take_due(&mut self, now: Duration, ready: impl Fn(N) -> bool) -> Vec<(N, Vec<M>)> {
        let batch_bytes = self.limits.batch_bytes;
        let mut due = Vec::new();
        for (&to, waiting) in &mut self.waiting {
            if ready(to) && waiting.due_at(batch_bytes).is_some_and(|due_at| due_at <= now) {
                due.push((to, waiting.take(batch_bytes)));
                waiting.urgent_from = now.saturating_add(URGENT_PAUSE);
            }
        }
        self.waiting
            .retain(|_, waiting| !waiting.is_empty() || waiting.urgent_from > now);
        due
    }

    /// The time at which [`Outbox::take_due`] next has something to return; `None` while nothing waits.
    pub fn next_due(&self, ready: impl Fn(N) -> bool) -> Option<Duration> {
        let waiting = self.waiting.iter().filter(|(to, _)| ready(**to));
        waiting
            .filter_map(|(_, waiting)| waiting.due_at(self.limits.batch_bytes))
            .min()
    }
}

impl<M: Outgoing> Waiting<M> {
    fn new() -> Self {
        Self {
            since: Duration::ZERO,
            urgent_from: Duration::ZERO,
            urgent: 0,
            bytes: 0,
            came: 0,
            messages: Default::default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.messages.iter().all(VecDeque::is_empty)
    }

    /// The time at which a batch is due; `None` if no message waits.
    fn due_at(&self, batch_bytes: usize) -> Option<Duration> {
        if self.is_empty() {
            return None;
        }
        if self.bytes >= batch_bytes {
            return Some(Duration::ZERO);
        }
        let aggregated_at = self.since + AGGREGATION;
        Some(if self.urgent > 0 {
            aggregated_at.min(self.urgent_from)
        } else {
            aggregated_at
        })
    }

    fn add(&mut self, message: M) {
        self.bytes += message.bytes();
        self.urgent += usize::from(message.is_urgent());
        self.messages[message.importance()].push_back((self.came, message));
        self.came += 1;
    }

    /// Drops the oldest of the least important messages, unless all are more important than `importance`.
    fn drop_one_up_to(&mut self, importance: usize) -> Option<M> {
        let degree = self.messages[..=importance]
            .iter()
            .position(|messages| !messages.is_empty())?;
        self.pop(degree)
    }

    fn pop(&mut self, degree: usize) -> Option<M> {
        let (_, message) = self.messages[degree].pop_front()?;
        self.bytes -= message.bytes();
        self.urgent -= usize::from(message.is_urgent());
        Some(message)
    }

    /// Removes the oldest messages: as many as fit, but at least one.
    fn take(&mut self, batch_bytes: usize) -> Vec<M> {
        let (mut batch, mut bytes) = (Vec::new(), 0_usize);
        loop {
            let fronts = self.messages.iter().map(VecDeque::front);
            let oldest = fronts
                .enumerate()
                .filter_map(|(degree, front)| front.map(|(came, message)| (came, degree, message.bytes())))
                .min();
            let Some((_, degree, next_bytes)) = oldest else {
                return batch;
            };
            bytes = bytes.saturating_add(next_bytes);
            if bytes > batch_bytes && !batch.is_empty() {
                return batch;
            }
            batch.extend(self.pop(degree));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, proptest};

    use super::{AGGREGATION, Limits, Outbox, Outgoing, Pushed, URGENT_PAUSE};

    /// A name, a degree and a size.
    type Letter = (u32, usize, usize);

    impl Outgoing for Letter {
        fn bytes(&self) -> usize {
            self.2
        }

        fn importance(&self) -> usize {
            self.1
        }

        fn is_urgent(&self) -> bool {
            self.1 == URGENT
        }
    }

    /// The degree of urgent letters.
    const URGENT: usize = 7;

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn outbox(batch_bytes: usize, waiting_bytes: usize) -> Outbox<char, Letter> {
        Outbox::new(Limits {
            batch_bytes,
            waiting_bytes,
        })
    }

    fn due(outbox: &mut Outbox<char, Letter>, now: Duration) -> Vec<(char, Vec<u32>)> {
        let due = outbox.take_due(now, |_| true).into_iter();
        due.map(|(to, letters)| (to, letters.into_iter().map(|(name, ..)| name).collect()))
            .collect()
    }

    /// Pushes a letter of one byte; returns the names of the dropped ones.
    fn push(outbox: &mut Outbox<char, Letter>, to: char, (name, degree): (u32, usize), ms: u64) -> Vec<u32> {
        let Pushed { dropped, .. } = outbox.push((name, degree, 1), to, at(ms));
        dropped.into_iter().map(|(name, ..)| name).collect()
    }

    #[test]
    fn messages_wait_a_moment_for_others_to_the_same_receiver() {
        let mut outbox = outbox(10, 10);
        assert_eq!(outbox.next_due(|_| true), None);
        push(&mut outbox, 'a', (1, 0), 0);
        push(&mut outbox, 'b', (1, 0), 0);
        push(&mut outbox, 'b', (2, 0), 150);
        push(&mut outbox, 'c', (3, 0), 150);
        assert!(due(&mut outbox, at(199)).is_empty());
        assert_eq!(outbox.next_due(|_| true), Some(AGGREGATION));
        assert_eq!(due(&mut outbox, AGGREGATION), [('a', vec![1]), ('b', vec![1, 2])]);
        assert_eq!(outbox.next_due(|_| true), Some(at(350)));
        assert_eq!(due(&mut outbox, at(350)), [('c', vec![3])]);
    }

    #[test]
    fn a_full_batch_goes_at_once_and_the_rest_follows_it() {
        let mut outbox = outbox(3, 10);
        for name in 0..2 {
            push(&mut outbox, 'a', (name, 0), 0);
        }
        assert_eq!(due(&mut outbox, at(1)), []);
        for name in 2..7 {
            push(&mut outbox, 'a', (name, 0), 1);
        }
        assert_eq!(due(&mut outbox, at(1)), [('a', vec![0, 1, 2])]);
        assert_eq!(due(&mut outbox, at(1)), [('a', vec![3, 4, 5])]);
        assert_eq!(due(&mut outbox, at(1)), [], "less than a batch waits on");
        assert_eq!(due(&mut outbox, at(200)), [('a', vec![6])]);
    }

    #[test]
    fn only_a_first_message_and_one_that_fills_a_batch_hasten_anything() {
        let mut outbox = outbox(3, 4);
        let hastens: Vec<bool> = (0..5)
            .map(|name| outbox.push((name, 0, 1), 'a', at(0)).hastens)
            .collect();
        assert_eq!(hastens, [true, false, true, false, false]);
    }

    #[test]
    fn an_urgent_message_takes_along_what_waits_and_the_next_one_comes_after_a_pause() {
        let mut outbox = outbox(10, 10);
        push(&mut outbox, 'a', (0, 0), 0);
        let urgent = outbox.push((1, URGENT, 1), 'a', at(10));
        assert!(urgent.hastens);
        push(&mut outbox, 'b', (2, 0), 10);
        assert_eq!(due(&mut outbox, at(10)), [('a', vec![0, 1])], "the others wait");
        let urgent = outbox.push((3, URGENT, 1), 'a', at(20));
        assert!(urgent.hastens);
        let again = outbox.push((4, URGENT, 1), 'a', at(21));
        assert!(!again.hastens, "it is sent with the one before");
        assert_eq!(outbox.next_due(|_| true), Some(at(10) + URGENT_PAUSE));
        assert_eq!(due(&mut outbox, at(59)), []);
        assert_eq!(due(&mut outbox, at(60)), [('a', vec![3, 4])]);
        assert_eq!(due(&mut outbox, at(210)), [('b', vec![2])]);
        push(&mut outbox, 'a', (5, URGENT), 211);
        assert_eq!(due(&mut outbox, at(211)), [('a', vec![5])]);
    }

    #[test]
    fn a_storm_of_urgent_messages_makes_few_batches() {
        let mut outbox = outbox(1_000, 1_000);
        let mut batches = 0;
        for ms in 0..1_000 {
            push(&mut outbox, 'a', (0, URGENT), ms);
            batches += due(&mut outbox, at(ms)).len();
        }
        assert_eq!(batches, 20);
    }

    #[test]
    fn an_urgent_message_that_was_dropped_hastens_nothing() {
        let mut outbox = outbox(10, 2);
        push(&mut outbox, 'a', (0, URGENT), 0);
        assert_eq!(due(&mut outbox, at(0)), [('a', vec![0])]);
        for name in 1..3 {
            push(&mut outbox, 'a', (name, URGENT), 1);
        }
        assert_eq!(outbox.push((3, URGENT, 2), 'a', at(1)).dropped.len(), 2);
        assert_eq!(due(&mut outbox, at(51)), [('a', vec![3])]);
        assert_eq!(outbox.next_due(|_| true), None);
        push(&mut outbox, 'a', (4, 0), 60);
        assert_eq!(outbox.next_due(|_| true), Some(at(260)), "another pause begins");
    }

    #[test]
    fn a_receiver_that_is_not_ready_keeps_what_waits_for_it() {
        let mut outbox = outbox(10, 10);
        push(&mut outbox, 'a', (1, 0), 0);
        push(&mut outbox, 'b', (2, 0), 100);
        let due = outbox.take_due(at(400), |to| to != 'a');
        assert_eq!(due, [('b', vec![(2, 0, 1)])]);
        assert_eq!(outbox.next_due(|to| to != 'a'), None);
        assert_eq!(outbox.next_due(|_| true), Some(AGGREGATION));
        let due = outbox.take_due(at(400), |to| to == 'a');
        assert_eq!(due, [('a', vec![(1, 0, 1)])]);
        assert_eq!(outbox.next_due(|_| true), None);
    }

    #[test]
    fn overload_drops_the_least_important_first_and_the_oldest_of_them() {
        let mut outbox = outbox(10, 3);
        let letters = [(0, 0), (1, 4), (2, 1), (3, 0), (4, 2), (5, 4), (6, 3), (7, 0)];
        let dropped: Vec<u32> = (0..)
            .zip(letters)
            .flat_map(|(ms, letter)| push(&mut outbox, 'a', letter, ms))
            .collect();
        assert_eq!(dropped, [0, 3, 2, 4, 7]);
        assert_eq!(due(&mut outbox, AGGREGATION), [('a', vec![1, 5, 6])]);
    }

    #[test]
    fn equals_give_way_to_newer_equals() {
        let mut outbox = outbox(10, 2);
        for name in 0..5 {
            push(&mut outbox, 'a', (name, 4), u64::from(name));
        }
        assert_eq!(due(&mut outbox, AGGREGATION), [('a', vec![3, 4])]);
    }

    #[test]
    fn a_message_larger_than_a_batch_goes_alone_and_one_larger_than_the_room_never() {
        let mut outbox = outbox(2, 5);
        push(&mut outbox, 'a', (1, 0), 0);
        assert_eq!(outbox.push((2, 0, 4), 'a', at(0)).dropped, []);
        assert_eq!(outbox.push((3, 7, 6), 'a', at(0)).dropped, [(3, 7, 6)]);
        assert_eq!(due(&mut outbox, at(0)), [('a', vec![1])]);
        assert_eq!(due(&mut outbox, at(0)), [('a', vec![2])]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_message_is_sent_or_dropped_once_and_no_queue_outgrows_its_room(
            steps in vec((0..4_u8, 0..8_usize, 0..9_usize, 0..300_u64), 0..200)
        ) {
            let (mut outbox, mut now, mut out) = (outbox(10, 25), Duration::ZERO, Vec::new());
            let mut names = 0..;
            let mut pushed = 0;
            for (step, degree, bytes, ms) in steps {
                if step == 0 {
                    now += at(ms);
                    for (_, batch) in outbox.take_due(now, |_| true) {
                        let bytes: usize = batch.iter().map(Outgoing::bytes).sum();
                        assert!(bytes <= 10 && !batch.is_empty());
                        assert!(batch.is_sorted_by_key(|(name, ..)| *name), "in the order in which they came");
                        out.extend(batch);
                    }
                    continue;
                }
                let to = if step == 1 { 'a' } else { 'b' };
                pushed += 1;
                out.extend(outbox.push((names.next().unwrap(), degree, bytes), to, now).dropped);
                assert!(outbox.waiting.values().all(|waiting| waiting.bytes <= 25));
            }
            while outbox.next_due(|_| true).is_some() {
                let due = outbox.take_due(Duration::MAX, |_| true);
                out.extend(due.into_iter().flat_map(|(_, batch)| batch));
            }
            out.sort_unstable();
            out.dedup();
            assert_eq!(out.len(), pushed);
        }
    }
}
