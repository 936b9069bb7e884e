//! A queue of requests, served in the turns of their payers.

use shoal_policy::fair::{FairQueue, Payer};
use tokio::sync::oneshot;

/// Each time the queue of a payer grows by this number, cancelled requests are removed from it.
const GIVEN_UP_MAX: usize = 256;

/// Requests that wait for a `T`.
#[derive(Debug)]
pub struct WaitQueue<T>(FairQueue<oneshot::Sender<T>>);

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self(FairQueue::with_credit(0))
    }
}

impl<T> WaitQueue<T> {
    /// Creates a queue in which a payer that was idle may catch up on `credit` of cost.
    pub fn with_credit(credit: u64) -> Self {
        Self(FairQueue::with_credit(credit))
    }

    /// Adds a request of `payer`. The `T` arrives through the receiver; dropping the receiver cancels the
    /// request.
    pub fn join(&mut self, payer: Payer, cost: u64) -> oneshot::Receiver<T> {
        let (grant, granted) = oneshot::channel();
        self.0.push(payer, cost, grant);
        if self.0.len_of(payer.id).is_multiple_of(GIVEN_UP_MAX) {
            self.0.retain(payer.id, |grant| !grant.is_closed());
        }
        granted
    }

    /// Removes and returns the next request in turn, among the payers for which `may` returns true. `may` is
    /// called once for the payer of the returned request.
    pub fn next(&mut self, mut may: impl FnMut(Payer) -> bool) -> Option<oneshot::Sender<T>> {
        loop {
            let mut may_go = false;
            let grant = self.0.pop_where(|payer, grant| {
                let given_up = grant.is_closed();
                may_go = !given_up && may(payer);
                may_go || given_up
            })?;
            if may_go {
                return Some(grant);
            }
        }
    }

    /// Returns true if no request is waiting.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of waiting requests.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of waiting requests of one payer, including recently cancelled ones.
    pub fn len_of(&self, payer: u32) -> usize {
        self.0.len_of(payer)
    }
}
