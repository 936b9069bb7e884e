//! Ends the changes that owners that are gone have left: dead nodes, and earlier lives of this one.

use std::collections::HashMap;

use futures_util::TryStreamExt;
use tokio::time::Instant;
use ulid::Ulid;

use super::{Lake, Worker};
use crate::engine::EngineError;
use crate::keys::NodeList;
use crate::names::{BegunChange, ChangeError, End};

/// The changes of one node whose owner is gone, with the time at which each may be ended.
#[derive(Default)]
pub(super) struct Orphans(HashMap<Ulid, Instant>);

impl Orphans {
    /// Keeps those with these tokens. New ones may be ended at `ends_at`.
    fn keep(&mut self, tokens: impl Iterator<Item = Ulid>, ends_at: Instant) {
        let before = std::mem::take(&mut self.0);
        let time = |token| (token, before.get(&token).copied().unwrap_or(ends_at));
        self.0 = tokens.map(time).collect();
    }

    fn may_end(&self, token: Ulid) -> bool {
        self.0.get(&token).is_some_and(|at| *at <= Instant::now())
    }
}

impl<L: Lake> Worker<L> {
    /// Ends the changes of an earlier life of this node, or of a dead node, once the lake can
    /// no longer carry out their requests.
    pub(super) async fn give_up_orphans(&self, node: u64, orphans: &mut Orphans) -> Result<(), EngineError> {
        let names = &self.changes.names;
        let mut changes: Vec<_> = names.all_listed(NodeList::Busy, node).try_collect().await?;
        changes.retain(|(token, _)| !self.changes.is_under_way(*token));
        if changes.is_empty() {
            orphans.0.clear();
            return Ok(());
        }
        // Checked after they were read: if the other node is still dead, so are the owners of all of them.
        if node != names.node && !self.changes.session.acts_for(node).await? {
            // A node that is back ends what its earlier lives have left itself.
            orphans.0.clear();
            return Ok(());
        }
        let now = Instant::now();
        // An earlier life that this node has taken over may send until its session would have ended by its
        // own clock.
        let earlier_lasts_until = (node == names.node)
            .then(|| self.changes.session.earlier_lasts_until())
            .flatten();
        let ends_at = earlier_lasts_until.map_or(now, |until| until.max(now)) + names.fence;
        orphans.keep(changes.iter().map(|(token, _)| *token), ends_at);

        for (token, name) in changes {
            if !orphans.may_end(token) {
                continue;
            }
            let found = names.find(&name).await?;
            match BegunChange::in_entry(&name, &found, token) {
                Some(begun) => match names.end(&begun, End::GivenUp, || true).await {
                    Err(ChangeError::Engine(error)) => return Err(error),
                    Ok(_) | Err(ChangeError::OutcomeUnknown | ChangeError::Contended) => {}
                },
                None => names.unlist(NodeList::Busy, node, &[token]).await?,
            }
        }
        Ok(())
    }
}
