//! Turns at the lake: limits the number of concurrent requests, and payers take turns to send the next one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_policy::fair::{ConcurrencyLimit, Payer};

use super::WaitQueue;
use crate::time::clock;

/// Initial limit of concurrent requests; [`ConcurrencyLimit`] adapts it to the lake. Fewer requests already
/// keep a nearby lake busy, and the limit for a distant one grows within a second.
const LIMIT_AT_FIRST: usize = 32;

/// The number of turns that a payer without waiting requests may catch up on. A client with few connections
/// has none waiting while its responses are in transit, and would otherwise lose a part of its share each
/// time.
const CREDIT_TURNS: u64 = 8;

/// A request that gets no turn within this time is refused, because clients do not wait much longer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The turns at one lake.
#[derive(Debug)]
pub struct Turns {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Adapts the limit; `None` for one turn at a time.
    concurrency: Option<ConcurrencyLimit>,
    taken: usize,
    waiting: WaitQueue<Turn>,
}

/// A request did not get its turn in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("too many requests wait for their turn at the lake")]
pub struct WaitedTooLong;

impl Turns {
    /// Allows at most `max` turns at a time.
    pub fn new(max: usize) -> Arc<Self> {
        Self::at(
            Some(ConcurrencyLimit::new(LIMIT_AT_FIRST, max)),
            WaitQueue::with_credit(CREDIT_TURNS),
        )
    }

    /// Allows one turn at a time.
    pub fn one_at_a_time() -> Arc<Self> {
        Self::at(None, WaitQueue::default())
    }

    fn at(concurrency: Option<ConcurrencyLimit>, waiting: WaitQueue<Turn>) -> Arc<Self> {
        Arc::new(Self {
            began: clock::instant(),
            state: Mutex::new(State {
                concurrency,
                taken: 0,
                waiting,
            }),
        })
    }

    /// Waits for a turn of `payer` that is charged `cost`.
    ///
    /// # Errors
    ///
    /// The turn does not come within [`TIMEOUT`].
    pub async fn turn(self: &Arc<Self>, payer: Payer, cost: u64) -> Result<Turn, WaitedTooLong> {
        let granted = {
            let mut state = self.state.lock();
            if state.waiting.is_empty() && state.taken < state.limit() {
                state.taken += 1;
                return Ok(Turn(Some(Arc::clone(self))));
            }
            state.waiting.join(payer, cost)
        };
        match tokio::time::timeout(TIMEOUT, granted).await {
            Ok(granted) => Ok(granted.expect("turns are given as long as the lake is known")),
            Err(_) => Err(WaitedTooLong),
        }
    }

    /// Returns the current limit of concurrent turns.
    pub fn limit(&self) -> usize {
        self.state.lock().limit()
    }

    /// Returns the number of waiting requests of one payer.
    pub fn waiting_of(&self, payer: u32) -> usize {
        self.state.lock().waiting.len_of(payer)
    }

    /// Returns the number of waiting requests of all other payers.
    pub fn waiting_beside(&self, payer: u32) -> usize {
        let state = self.state.lock();
        state.waiting.len() - state.waiting.len_of(payer)
    }

    /// Records that the lake has answered a request, within its turn or later.
    pub fn answered(&self) {
        let mut state = self.state.lock();
        let waiting = !state.waiting.is_empty();
        if let Some(concurrency) = &mut state.concurrency {
            concurrency.answered(waiting, clock::instant().saturating_duration_since(self.began));
        }
    }

    fn give_back(self: &Arc<Self>) {
        let mut state = self.state.lock();
        debug_assert!(state.taken > 0, "a turn is given back once");
        state.taken -= 1;
        while state.taken < state.limit()
            && let Some(grant) = state.waiting.next(|_| true)
        {
            state.taken += 1;
            if let Err(mut turn) = grant.send(Turn(Some(Arc::clone(self)))) {
                // The request was cancelled in the meantime. Without this, dropping the turn would call
                // `give_back` again.
                turn.0 = None;
                state.taken -= 1;
            }
        }
    }
}

impl State {
    fn limit(&self) -> usize {
        self.concurrency.as_ref().map_or(1, ConcurrencyLimit::limit)
    }
}

/// Permits a request at the lake until dropped.
#[derive(Debug)]
pub struct Turn(Option<Arc<Turns>>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const HOG: Payer = Payer { id: 1, share: 1 };
    const LIGHT: Payer = Payer { id: 2, share: 1 };

    /// Takes all turns that are available at the start.
    async fn all(turns: &Arc<Turns>) -> Vec<Turn> {
        let mut taken = Vec::new();
        for _ in 0..LIMIT_AT_FIRST {
            taken.push(turns.turn(HOG, 1).await.unwrap());
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_turn_is_the_newcomers_however_many_waited_before() {
        let turns = Turns::new(512);
        let mut taken = all(&turns).await;
        let hogs: Vec<_> = (0..1000)
            .map(|_| {
                let turns = Arc::clone(&turns);
                tokio::spawn(async move { turns.turn(HOG, 1).await.map(drop) })
            })
            .collect();
        while turns.waiting_of(HOG.id) < 1000 {
            tokio::task::yield_now().await;
        }
        let light = {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.turn(LIGHT, 1).await })
        };
        while turns.waiting_of(LIGHT.id) < 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(turns.state.lock().taken, LIMIT_AT_FIRST);
        taken.pop();
        let turn = light.await.unwrap().unwrap();
        let hogs_waiting = turns.waiting_of(HOG.id);
        assert!(hogs_waiting >= 999, "{} went first", 1000 - hogs_waiting);
        drop((turn, taken));
        for hog in hogs {
            hog.await.unwrap().unwrap();
        }
        assert_eq!(turns.state.lock().taken, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_payer_that_rested_makes_up_for_some_turns() {
        let turns = Turns::new(512);
        let mut taken = all(&turns).await;
        let enqueue = |payer, count| {
            for _ in 0..count {
                let turns = Arc::clone(&turns);
                tokio::spawn(async move {
                    if let Ok(turn) = turns.turn(payer, 1).await {
                        std::mem::forget(turn);
                    }
                });
            }
        };
        for (payer, count) in [(LIGHT, 1), (HOG, 100), (LIGHT, 4)] {
            enqueue(payer, count);
            while turns.waiting_of(payer.id) < count {
                tokio::task::yield_now().await;
            }
            drop(taken.drain(..count.min(24)));
        }
        assert_eq!((turns.waiting_of(HOG.id), turns.waiting_of(LIGHT.id)), (76, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_were_given_up_cost_neither_turns_nor_memory() {
        let turns = Turns::new(512);
        let taken = all(&turns).await;
        for _ in 0..10_000 {
            let mut waiting = Box::pin(turns.turn(HOG, 1));
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        assert!(turns.waiting_of(HOG.id) <= 256);
        drop(taken);
        assert_eq!(turns.state.lock().taken, 0);
        turns.turn(LIGHT, 1).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_come_is_refused_in_time() {
        let turns = Turns::new(512);
        let _taken = all(&turns).await;
        turns.turn(LIGHT, 1).await.unwrap_err();
    }
}
