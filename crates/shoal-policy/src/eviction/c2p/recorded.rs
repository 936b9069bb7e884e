//! The events that a node has recorded for others and that were not taken yet.

use std::collections::VecDeque;
use std::time::Duration;

use super::EventKind;

/// The maximum number of recorded events. Beyond it the oldest are dropped.
const EVENTS_MAX: usize = 4096;

/// Recorded events, in their order.
#[derive(Debug)]
pub(super) struct Recorded<K> {
    /// True if events are recorded.
    is_on: bool,
    events: VecDeque<RecordedEvent<K>>,
    has_urgent: bool,
    lost: u64,
}

/// An event without the state of its group, which is added when it is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedEvent<K> {
    pub(super) at: Duration,
    pub(super) key: K,
    pub(super) kind: EventKind,
    pub(super) is_urgent: bool,
}

/// Empty, and recording.
impl<K> Default for Recorded<K> {
    fn default() -> Self {
        Self {
            is_on: true,
            events: VecDeque::new(),
            has_urgent: false,
            lost: 0,
        }
    }
}

impl<K: Copy + PartialEq> Recorded<K> {
    pub(super) const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Enables or disables recording, and drops and returns the recorded events.
    pub(super) fn set_on(&mut self, is_on: bool) -> VecDeque<RecordedEvent<K>> {
        self.is_on = is_on;
        self.take()
    }

    /// Records an event. Returns the oldest one if it was dropped to make room.
    pub(super) fn push(&mut self, event: RecordedEvent<K>) -> Option<RecordedEvent<K>> {
        let is_full = self.events.len() == EVENTS_MAX;
        let dropped = if is_full { self.events.pop_front() } else { None };
        self.lost += u64::from(is_full);
        self.has_urgent |= event.is_urgent;
        self.events.push_back(event);
        dropped
    }

    /// Takes the recorded events.
    pub(super) fn take(&mut self) -> VecDeque<RecordedEvent<K>> {
        self.has_urgent = false;
        std::mem::take(&mut self.events)
    }

    /// Turns the latest arrival of a block into an add.
    pub(super) fn added(&mut self, key: &K) {
        let of_key = |event: &&mut RecordedEvent<K>| {
            event.key == *key && matches!(event.kind, EventKind::Miss | EventKind::Add)
        };
        if let Some(event) = self.events.iter_mut().rev().find(of_key) {
            event.kind = EventKind::Add;
        }
    }

    /// Returns true if an urgent event was recorded since events were last taken.
    pub(super) const fn has_urgent(&self) -> bool {
        self.has_urgent
    }

    /// The number of events dropped because they were not taken in time.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }
}
