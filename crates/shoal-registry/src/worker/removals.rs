//! Brings tombstones to the lake, many in one request. Each has a change of its own in its entry, which ends
//! with the lake's answer for its name.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::TryStreamExt;
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use super::flushing::{Flushing, NotStarted, end_all};
use super::{Lake, NotFlushed, Worker};
use crate::changes::{LOOK_PAUSE, PATIENCE};
use crate::engine::EngineError;
use crate::entry::Kind;
use crate::keys::{Name, NodeList};
use crate::moment::age_of;
use crate::names::BeginError;

/// The most tombstones in one request, which is the most names of S3's `DeleteObjects`.
pub const REMOVALS_MAX: usize = 1_000;

impl<L: Lake> Worker<L> {
    /// Brings a tombstone to the lake, and takes others of its node along: the lake takes as long for many as
    /// for one. Waits while another change of the name is in flight.
    pub(super) async fn flush_tombstone(&self, name: &Name, id: Ulid) -> Result<(), NotFlushed> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let turn = self.removal_turn.lock().await;
            match self.begin_one(id, name.clone()).await {
                Ok(removal) => return self.remove_with_others(removal).await,
                Err(NotStarted::Gone) => return Ok(()),
                Err(NotStarted::Failed(NotFlushed::Begin(BeginError::Busy(busy))))
                    if busy.kind == Kind::Flush || Instant::now() < deadline => {}
                Err(NotStarted::Failed(error)) => return Err(error),
            }
            drop(turn);
            sleep(LOOK_PAUSE).await;
        }
    }

    async fn remove_with_others(&self, removal: Flushing) -> Result<(), NotFlushed> {
        let (own, node) = (removal.version.id, removal.version.node);
        let mut removals = vec![removal];
        let listed = self
            .changes
            .names
            .listed(NodeList::Removed, node, None, REMOVALS_MAX);
        if let Ok(page) = listed.await {
            let others = page.names.into_iter().map(|listed| (listed.id, listed.name));
            let others = others.filter(|(id, _)| *id != own && self.state.lock().is_ready(id));
            let others: Vec<_> = others.take(REMOVALS_MAX - 1).collect();
            // Those that do not begin now have their own turn.
            removals.extend(self.begin_all(others).await.into_iter().filter_map(Result::ok));
        }
        let mut outcomes = self.remove(removals).await.into_iter();
        let (.., removed) = outcomes.next().expect("each removal has an outcome");
        for (id, name, removed) in outcomes {
            self.note(id, &name, true, &removed);
        }
        removed
    }

    /// Starts to bring the tombstones of a node to the lake, if the oldest is due or one request is full.
    pub(super) async fn remove_due(self: &Arc<Self>, node: u64, age: Duration) -> Result<(), EngineError> {
        let names = &self.changes.names;
        let mut listed = pin!(names.all_listed(NodeList::Removed, node));
        let (mut ready, mut is_due) = (Vec::new(), false);
        let parallel = self.pace.lock().parallel;
        while let Some((id, name)) = listed.try_next().await? {
            if self.state.lock().room(parallel) == 0 {
                return Ok(());
            }
            if !self.state.lock().is_ready(&id) {
                continue;
            }
            if ready.is_empty() {
                is_due = age_of(id) >= age;
                if !is_due && names.count(NodeList::Removed, node).await? < REMOVALS_MAX as u64 {
                    return Ok(());
                }
            }
            ready.push((id, name));
            if ready.len() == REMOVALS_MAX {
                self.begin_removals(std::mem::take(&mut ready));
            }
        }
        if is_due && !ready.is_empty() {
            self.begin_removals(ready);
        }
        Ok(())
    }

    /// Starts to bring listed tombstones to the lake.
    pub(super) fn begin_removals(self: &Arc<Self>, listed: Vec<(Ulid, Name)>) {
        {
            let mut state = self.state.lock();
            state.together.extend(listed.iter().map(|(id, _)| *id));
            state.removals += 1;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let ids: Vec<_> = listed.iter().map(|(id, _)| *id).collect();
            this.remove_listed(listed).await;
            {
                let mut state = this.state.lock();
                state.removals -= 1;
                for id in &ids {
                    state.together.remove(id);
                }
            }
            this.hurried.notify_one();
        });
    }

    /// Brings every tombstone in the list of a node to the lake, due or not.
    pub(super) async fn remove_all(&self, node: u64) {
        let mut after = None;
        let names = &self.changes.names;
        while let Ok(page) = names.listed(NodeList::Removed, node, after, REMOVALS_MAX).await {
            let listed = page.names.into_iter().map(|listed| (listed.id, listed.name));
            self.remove_listed(listed.collect()).await;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }

    /// Brings listed tombstones to the lake. Those that fail are recorded, and retried.
    async fn remove_listed(&self, listed: Vec<(Ulid, Name)>) {
        let removals = self.begin_listed(listed, true).await;
        if removals.is_empty() {
            return;
        }
        for (id, name, removed) in self.remove(removals).await {
            self.note(id, &name, true, &removed);
        }
    }

    /// Has the lake remove names, and ends their changes. Returns the outcome of each, in their order.
    async fn remove(&self, removals: Vec<Flushing>) -> Vec<(Ulid, Name, Result<(), NotFlushed>)> {
        let outcomes = self.lake.remove(&removals).await;
        end_all(removals, outcomes).await
    }
}
