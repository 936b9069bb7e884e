//! Rounds: the due objects of a rule that packs go to the lake together.
//!
//! A node has one round of each map in flight. It begins when the oldest object has been due for some time,
//! when it is full, or when the tier needs room, and takes the oldest objects that are due.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::task::JoinHandle;
use ulid::Ulid;

use super::flushing::{Flushing, NotStarted, PARALLEL, end_all};
use super::{Lake, NotFlushed, State, Worker};
use crate::keys::{MapName, Name};
use crate::moment::age_of;

/// The most objects in a round.
pub const ROUND_MAX: usize = 8_192;

/// The packing of the objects of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The map of the rule.
    pub map: MapName,
    /// How long an object that is due waits for others.
    pub idle: Duration,
}

/// The next round of each map, while its objects are collected from a list, the oldest first.
pub(super) struct NextRounds {
    /// The age at which the objects of the list are due.
    age: Duration,
    /// True if rounds do not wait for more objects.
    hurries: bool,
    in_flight: HashSet<MapName>,
    rounds: HashMap<MapName, NextRound>,
    /// The number of ready objects that have to wait for a later round.
    left_over: usize,
}

#[derive(Default)]
struct NextRound {
    listed: Vec<(Ulid, Name)>,
    /// True if the round begins although it is not full.
    is_ripe: bool,
}

impl NextRounds {
    pub(super) fn new(age: Duration, state: &State) -> Self {
        Self {
            age,
            hurries: state.hurries(),
            in_flight: state.rounds.clone(),
            rounds: HashMap::new(),
            left_over: 0,
        }
    }

    /// Adds a due object to the next round of its map.
    pub(super) fn add(&mut self, packing: Packing, id: Ulid, name: Name) {
        if self.in_flight.contains(&packing.map) {
            self.left_over += 1;
            return;
        }
        let round = self.rounds.entry(packing.map).or_default();
        if round.listed.len() == ROUND_MAX {
            self.left_over += 1;
            return;
        }
        let has_waited = || age_of(id) >= self.age.saturating_add(packing.idle);
        round.is_ripe = round.is_ripe || self.hurries || has_waited();
        round.listed.push((id, name));
    }

    /// Returns true if a round begins although it is not full.
    pub(super) fn are_ripe(&self) -> bool {
        self.rounds.values().any(|round| round.is_ripe)
    }

    /// Returns true if the rest of the list has to wait, because older objects do: as many as a later round
    /// takes.
    pub(super) fn are_enough(&self) -> bool {
        self.left_over >= ROUND_MAX
    }
}

impl<L: Lake> Worker<L> {
    /// Begins the rounds that are ripe or full.
    pub(super) fn begin_rounds(self: &Arc<Self>, rounds: NextRounds) {
        for (map, NextRound { listed, is_ripe }) in rounds.rounds {
            if is_ripe || listed.len() == ROUND_MAX {
                self.begin_round(map, listed);
            }
        }
    }

    /// Begins a round of some objects of a map, unless one is in flight.
    pub(super) fn begin_round(
        self: &Arc<Self>,
        map: MapName,
        listed: Vec<(Ulid, Name)>,
    ) -> Option<JoinHandle<()>> {
        let ids: Vec<_> = listed.iter().map(|(id, _)| *id).collect();
        {
            let mut state = self.state.lock();
            if ids.is_empty() || !state.rounds.insert(map.clone()) {
                return None;
            }
            state.together.extend(&ids);
        }
        let this = Arc::clone(self);
        Some(tokio::spawn(async move {
            this.pack_listed(&map, listed).await;
            {
                let mut state = this.state.lock();
                state.rounds.remove(&map);
                for id in &ids {
                    state.together.remove(id);
                }
            }
            this.hurried.notify_one();
        }))
    }

    /// Brings listed objects of a map to the lake. Those that fail are recorded, and retried.
    async fn pack_listed(&self, map: &MapName, listed: Vec<(Ulid, Name)>) {
        let flushing = self.begin_listed(listed, false).await;
        if flushing.is_empty() {
            return;
        }
        let outcomes = self.lake.pack(map, &flushing).await;
        for (id, name, packed) in end_all(flushing, outcomes).await {
            self.note(id, &name, false, &packed);
        }
    }

    /// Brings what is dirty under these names of one map to the lake now, due or not, at most [`ROUND_MAX`].
    /// Returns the outcome of each, in their order. Those that fail are recorded, and retried.
    pub async fn flush_together(&self, map: &MapName, names: &[Name]) -> Vec<Result<(), NotFlushed>> {
        let begun: Vec<_> = names.iter().map(|name| self.begin_now(name)).collect();
        let begun: Vec<_> = stream::iter(begun).buffered(PARALLEL).collect().await;
        let mut outcomes = BTreeMap::new();
        let (mut flushing, mut places) = (Vec::new(), Vec::new());
        for (place, begun) in begun.into_iter().enumerate() {
            match begun {
                Ok(begun) => {
                    flushing.push(begun);
                    places.push(place);
                }
                Err(NotStarted::Gone) => drop(outcomes.insert(place, Ok(()))),
                // Another change of the name is in flight, or the registry does not answer.
                Err(NotStarted::Failed(_)) => drop(outcomes.insert(place, self.flush(&names[place]).await)),
            }
        }
        let packed = self.lake.pack(map, &flushing).await;
        for (place, (id, name, packed)) in places.into_iter().zip(end_all(flushing, packed).await) {
            self.note(id, &name, false, &packed);
            outcomes.insert(place, packed);
        }
        outcomes.into_values().collect()
    }

    /// Begins the change of the object that is dirty under a name. Brings a tombstone to the lake instead.
    async fn begin_now(&self, name: &Name) -> Result<Flushing, NotStarted> {
        let found = self.changes.names.find(name).await;
        let found = found.map_err(|error| NotStarted::Failed(error.into()))?;
        match &found.entry.current {
            None => Err(NotStarted::Gone),
            Some(version) if version.is_tombstone => {
                let flushed = self.flush(name).await;
                Err(flushed.map_or_else(NotStarted::Failed, |()| NotStarted::Gone))
            }
            Some(version) => self.begin_one(version.id, name.clone()).await,
        }
    }
}
