//! Ends what owners that are gone have left: dead nodes, and earlier lives of this one. First their
//! reservations, then their changes: a table that may still be committed names objects whose removal must not
//! begin before.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::time::Instant;
use ulid::Ulid;

use super::{Lake, Worker};
use crate::engine::EngineError;
use crate::keys::NodeList;
use crate::names::{BegunChange, ChangeError, End};
use crate::roots::AbandonedReservation;

/// Pause before the lake is asked about a reserved table again.
const ASK_PAUSE: Duration = Duration::from_secs(3);

/// The changes and reservations of one node whose owner is gone, with the time at which each may be ended.
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
    /// Ends the reservations and changes of an earlier life of this node, or of a dead node, once the lake
    /// can no longer carry out their requests.
    pub(super) async fn give_up_orphans(&self, node: u64, orphans: &mut Orphans) -> Result<(), EngineError> {
        let names = &self.changes.names;
        let mut changes: Vec<_> = names.all_listed(NodeList::Busy, node).try_collect().await?;
        changes.retain(|(token, _)| !self.changes.is_under_way(*token));
        let reservations = self.roots.abandoned(node).await?;
        if changes.is_empty() && reservations.is_empty() {
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
        let reserved = reservations.iter().map(|abandoned| abandoned.reservation.token);
        orphans.keep(reserved.chain(changes.iter().map(|(token, _)| *token)), ends_at);

        let mut are_resolved = true;
        for abandoned in &reservations {
            are_resolved &= self.resolve(abandoned, orphans).await?;
        }
        if !are_resolved {
            return Ok(());
        }
        for (token, name) in changes {
            if !orphans.may_end(token) {
                continue;
            }
            let found = names.find(&name).await?;
            match BegunChange::in_entry(&name, &found, token) {
                Some(begun) => {
                    let ended = names.end(&begun, End::GivenUp, || true).await;
                    if let Err(ChangeError::Engine(error)) = ended {
                        return Err(error);
                    }
                }
                None => names.unlist(NodeList::Busy, node, &[token]).await?,
            }
        }
        Ok(())
    }

    /// Ends a reservation once its table can no longer appear at the lake. Returns false if it has not ended.
    async fn resolve(
        &self,
        abandoned: &AbandonedReservation,
        orphans: &mut Orphans,
    ) -> Result<bool, EngineError> {
        let AbandonedReservation { map, reservation } = abandoned;
        if !orphans.may_end(reservation.token) {
            return Ok(false);
        }
        match self.lake.reserved_table(map, reservation.number).await {
            Ok(tables) => {
                self.roots.resolve(abandoned, tables.as_deref()).await?;
                let is_there = tables.is_some();
                tracing::info!(
                    ?map,
                    number = reservation.number,
                    is_there,
                    node = reservation.owner.node,
                    "the reservation of a table ended, because its owner is gone"
                );
                Ok(true)
            }
            Err(why) => {
                tracing::warn!(
                    ?map,
                    number = reservation.number,
                    why,
                    "the lake does not say if it has a reserved table; until then, nothing is packed below this \
                     prefix, and changes of its owner do not end"
                );
                orphans.0.insert(reservation.token, Instant::now() + ASK_PAUSE);
                Ok(false)
            }
        }
    }
}
