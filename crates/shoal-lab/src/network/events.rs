//! Planned events, ordered by time and then by the order of planning.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use shoal_sim::Time;

/// A queue of planned events.
#[derive(Clone, Debug)]
pub struct Events<E> {
    heap: BinaryHeap<Reverse<Planned<E>>>,
    planned: u64,
}

#[derive(Clone, Debug)]
struct Planned<E> {
    at: Time,
    /// The number of events planned before. It makes the order total, and so every run the same.
    rank: u64,
    event: E,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            planned: 0,
        }
    }
}

impl<E> Events<E> {
    /// Plans `event` for the moment `at`.
    pub fn plan(&mut self, at: Time, event: E) {
        let rank = self.planned;
        self.planned += 1;
        self.heap.push(Reverse(Planned { at, rank, event }));
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(planned)| planned.at)
    }

    /// Takes the next event.
    pub fn take(&mut self) -> Option<(Time, E)> {
        let Reverse(planned) = self.heap.pop()?;
        Some((planned.at, planned.event))
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.rank) == (other.at, other.rank)
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.rank).cmp(&(other.at, other.rank))
    }
}

#[cfg(test)]
mod tests {
    use shoal_sim::Time;

    use super::Events;

    #[test]
    fn events_come_in_order_of_time_and_then_of_planning() {
        let mut events = Events::default();
        for (at, name) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            events.plan(Time(at), name);
        }
        assert_eq!(events.next_at(), Some(Time(3)));
        let order: String = std::iter::from_fn(|| events.take())
            .map(|(_, name)| name)
            .collect();
        assert_eq!(order, "abcde");
        assert_eq!(events.next_at(), None);
    }
}
