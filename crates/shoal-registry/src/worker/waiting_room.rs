//! Items that are kept until nothing relies on them any more.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use ulid::Ulid;

/// Items of a list that wait for the fence to pass since this node saw them. The list is read in pages, and
/// from its head again after its end, because a new item may have a smaller id than those that were read.
pub(super) struct WaitingRoom<T> {
    /// The last id that was read; `None` to start at the head.
    pub(super) cursor: Option<Ulid>,
    waiting: VecDeque<(Ulid, T, Instant)>,
    /// The ids of the waiting items.
    ids: HashSet<Ulid>,
}

impl<T> Default for WaitingRoom<T> {
    fn default() -> Self {
        Self {
            cursor: None,
            waiting: VecDeque::new(),
            ids: HashSet::new(),
        }
    }
}

impl<T> WaitingRoom<T> {
    /// Adds the items that follow the cursor in the list, except those that are already waiting.
    pub(super) fn add(&mut self, listed: Vec<(Ulid, T)>) {
        let now = Instant::now();
        self.cursor = listed.last().map(|(id, _)| *id);
        for (id, item) in listed {
            if self.ids.insert(id) {
                self.waiting.push_back((id, item, now));
            }
        }
    }

    /// Removes and returns an item that has waited for `fence`.
    pub(super) fn waited(&mut self, fence: Duration) -> Option<(Ulid, T)> {
        let (_, _, since) = self.waiting.front()?;
        if Instant::now().saturating_duration_since(*since) < fence {
            return None;
        }
        let (id, item, _) = self.waiting.pop_front()?;
        let waited = self.ids.remove(&id);
        assert!(waited, "each waiting item has its id among the ids");
        Some((id, item))
    }
}
