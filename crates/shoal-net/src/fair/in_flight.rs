//! Limits the requests in flight, in total and per payer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use shoal_policy::fair::Payer;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::Caller;
use tokio::time::timeout;

use crate::fair::WaitQueue;
use crate::words;

/// A request waits this long for a permit before it is refused. The wait slows down clients that ignore
/// refusals: they would otherwise retry at once, and a refusal costs the node as much as a response.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Counts requests in flight. A request counts until its response has been sent or abandoned.
///
/// A payer may have as many requests in flight as there are free permits, times its share: half of the node
/// when it is alone, a third each when there are two payers. So there is always room for one more payer.
/// Requests beyond that wait in a queue with the same rule. So the payer with the most requests is refused
/// first.
#[derive(Debug)]
pub struct InFlight {
    permits: Bound,
    waiting: Bound,
    /// By payer. Bounded: one entry for each identity, and one for all anonymous callers.
    payers: RwLock<BTreeMap<u32, Arc<PayerUsage>>>,
    /// True if a request in the queue may be waiting for a permit that is returned.
    has_queue: AtomicBool,
    queue: Mutex<WaitQueue<InFlightPermit>>,
}

/// A limit on requests, in total and per payer, and the current count.
#[derive(Debug)]
struct Bound {
    max: usize,
    payer_max: usize,
    count: AtomicUsize,
}

/// The requests of one payer.
#[derive(Debug)]
pub struct PayerUsage {
    /// The id, as in [`Payer`].
    pub id: u32,
    /// The payer's name in metrics and logs.
    pub name: String,
    /// The number of requests in flight.
    pub in_flight: AtomicUsize,
    /// The number of requests that wait for a permit.
    pub waiting: AtomicUsize,
    /// The number of refused requests since the start.
    pub refused: AtomicUsize,
}

/// A permit for one request in flight, returned on drop.
#[derive(Debug)]
pub struct InFlightPermit {
    among: Arc<InFlight>,
    usage: Arc<PayerUsage>,
}

/// Counts a request as waiting until dropped.
struct Waiting<'a> {
    bound: &'a Bound,
    usage: &'a PayerUsage,
}

words! {
    /// The reason why there is no permit.
    pub enum Overloaded {
        /// The node has too many requests to accept another one from this payer.
        Node = "requests",
        /// The payer has reached the limit per payer.
        Payer = "requests-per-identity",
    }
}

impl From<Overloaded> for S3Error {
    fn from(_: Overloaded) -> Self {
        Self::new(
            ErrorCode::SlowDown,
            "Too many requests are in flight; please reduce your rate.",
        )
    }
}

impl Bound {
    fn new(max: usize, payer_max: usize) -> Self {
        Self {
            max,
            payer_max,
            count: AtomicUsize::new(0),
        }
    }

    /// Counts one more request of a payer that has `own`, unless that exceeds the limit.
    fn add(&self, own: &AtomicUsize, share: u32) -> Result<(), Overloaded> {
        let free = self.max.saturating_sub(self.count.fetch_add(1, Ordering::SeqCst));
        let own_before = own.fetch_add(1, Ordering::SeqCst);
        let judged = if own_before >= self.payer_max {
            Err(Overloaded::Payer)
        } else if own_before >= free.saturating_mul(share as usize) || free == 0 {
            Err(Overloaded::Node)
        } else {
            Ok(())
        };
        judged.inspect_err(|_| self.take_away(own))
    }

    fn take_away(&self, own: &AtomicUsize) {
        let own_before = own.fetch_sub(1, Ordering::SeqCst);
        let before = self.count.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(own_before > 0 && before > 0, "a permit is returned once");
    }
}

impl InFlight {
    /// Allows `max` requests, and `payer_max` per payer. Besides those, `waiting_max` may wait.
    pub fn new(max: usize, payer_max: usize, waiting_max: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Bound::new(max, payer_max),
            waiting: Bound::new(waiting_max, waiting_max),
            payers: RwLock::default(),
            has_queue: AtomicBool::new(false),
            queue: Mutex::default(),
        })
    }

    /// Returns a permit for a request of `caller`, waiting for one if necessary.
    ///
    /// # Errors
    ///
    /// No permit is free in time, or too many requests are already waiting.
    pub async fn enter(self: &Arc<Self>, caller: &Caller) -> Result<InFlightPermit, Overloaded> {
        let crowded = match self.try_enter(caller) {
            Ok(permit) => return Ok(permit),
            Err(crowded) => crowded,
        };
        // Boxed: hits rarely wait, and their future should not include the waiting state.
        let permit = Box::pin(self.wait(caller)).await;
        permit.ok_or_else(|| {
            self.usage(caller).refused.fetch_add(1, Ordering::Relaxed);
            crowded
        })
    }

    /// Returns a permit for a request of `caller`, if one is free.
    ///
    /// # Errors
    ///
    /// No permit is free.
    pub fn try_enter(self: &Arc<Self>, caller: &Caller) -> Result<InFlightPermit, Overloaded> {
        self.take(caller.payer(), self.usage(caller))
    }

    async fn wait(self: &Arc<Self>, caller: &Caller) -> Option<InFlightPermit> {
        let (payer, usage) = (caller.payer(), self.usage(caller));
        self.waiting.add(&usage.waiting, payer.share).ok()?;
        let _waiting = Waiting {
            bound: &self.waiting,
            usage: &usage,
        };
        let granted = {
            let mut queue = self.queue.lock();
            self.has_queue.store(true, Ordering::SeqCst);
            queue.join(payer, 1)
        };
        // A permit may have been returned before its owner could see the queue.
        self.serve_queue();
        timeout(TIMEOUT, granted).await.ok()?.ok()
    }

    /// Hands free permits to the waiting requests, in order of their turns.
    fn serve_queue(self: &Arc<Self>) {
        // Dropped after the lock is released, because dropping a permit calls this function.
        let mut given_up = Vec::new();
        let mut queue = self.queue.lock();
        loop {
            let mut permit = None;
            let grant = queue.next(|payer| {
                let usage = self.payers.read().get(&payer.id).map(Arc::clone);
                permit = usage.and_then(|usage| self.take(payer, usage).ok());
                permit.is_some()
            });
            let (Some(grant), Some(permit)) = (grant, permit) else {
                break;
            };
            given_up.extend(grant.send(permit).err());
        }
        self.has_queue.store(!queue.is_empty(), Ordering::SeqCst);
        drop(queue);
    }

    fn take(self: &Arc<Self>, payer: Payer, usage: Arc<PayerUsage>) -> Result<InFlightPermit, Overloaded> {
        self.permits.add(&usage.in_flight, payer.share)?;
        Ok(InFlightPermit {
            among: Arc::clone(self),
            usage,
        })
    }

    /// Returns the usage of each payer that has ever sent a request.
    pub fn by_payer(&self) -> Vec<Arc<PayerUsage>> {
        self.payers.read().values().cloned().collect()
    }

    fn usage(&self, caller: &Caller) -> Arc<PayerUsage> {
        let id = caller.payer().id;
        if let Some(usage) = self.payers.read().get(&id) {
            return Arc::clone(usage);
        }
        let new = || {
            Arc::new(PayerUsage {
                id,
                name: caller.payer_name().to_owned(),
                in_flight: AtomicUsize::new(0),
                waiting: AtomicUsize::new(0),
                refused: AtomicUsize::new(0),
            })
        };
        Arc::clone(self.payers.write().entry(id).or_insert_with(new))
    }
}

impl InFlightPermit {
    /// Returns the name of the payer whose request holds it.
    pub fn payer_name(&self) -> &str {
        &self.usage.name
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.among.permits.take_away(&self.usage.in_flight);
        if self.among.has_queue.load(Ordering::SeqCst) {
            self.among.serve_queue();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.bound.take_away(&self.usage.waiting);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use shoal_s3::identity::Identity;

    use super::*;

    fn caller(index: u32, share: u32) -> Caller {
        Caller::Identity(Arc::new(Identity {
            index,
            share,
            ..Identity::new(&format!("key-{index}"), "s")
        }))
    }

    fn as_many_as_may(limits: &Arc<InFlight>, caller: &Caller) -> Vec<InFlightPermit> {
        std::iter::from_fn(|| limits.try_enter(caller).ok()).collect()
    }

    #[test]
    fn a_place_is_given_back_and_one_callers_load_is_not_anothers() {
        let limits = InFlight::new(1000, 1, 10);
        let (alice_key, bob_key) = (caller(0, 1), caller(1, 1));
        let alice = limits.try_enter(&alice_key).unwrap();
        assert_eq!(limits.try_enter(&alice_key).unwrap_err(), Overloaded::Payer);
        let _bob = limits.try_enter(&bob_key).unwrap();
        let _stranger = limits.try_enter(&Caller::Anonymous).unwrap();
        drop(alice);
        limits.try_enter(&alice_key).unwrap();
        assert_eq!(S3Error::from(Overloaded::Payer).code, ErrorCode::SlowDown);
    }

    #[test]
    fn those_that_have_most_are_refused_first_and_a_newcomer_finds_room() {
        let limits = InFlight::new(4096, 4096, 10);
        let (alice_key, bob_key) = (caller(0, 1), caller(1, 1));
        let alice = as_many_as_may(&limits, &alice_key);
        assert_eq!(alice.len(), 2048);
        let bob = as_many_as_may(&limits, &bob_key);
        assert_eq!(bob.len(), 1024);
        assert_eq!(limits.try_enter(&alice_key).unwrap_err(), Overloaded::Node);
        assert_eq!(as_many_as_may(&limits, &caller(2, 1)).len(), 512);
        drop(alice);
        let more: Vec<_> = as_many_as_may(&limits, &bob_key);
        assert!(more.len() > 500, "what is given back is for those that are there");
        let payers = limits.by_payer();
        let of_alice = payers.iter().find(|payer| payer.name == "key-0").unwrap();
        let counts = [&of_alice.in_flight, &of_alice.waiting, &of_alice.refused];
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [0; 3]);
        assert_eq!(of_alice.id, 0);
    }

    #[test]
    fn a_greater_share_is_a_greater_part_of_the_node() {
        let limits = InFlight::new(4000, 4000, 10);
        let alice = as_many_as_may(&limits, &caller(0, 3));
        assert_eq!(alice.len(), 3000);
    }

    #[test]
    fn the_node_is_bounded_whatever_the_shares() {
        let limits = InFlight::new(100, 1000, 10);
        let permits: Vec<Vec<InFlightPermit>> = (0..200)
            .map(|id| as_many_as_may(&limits, &caller(id, 1000)))
            .collect();
        assert!(permits.iter().map(Vec::len).sum::<usize>() <= 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_beyond_waits_for_a_place_and_is_refused_when_none_comes() {
        let limits = InFlight::new(8, 8, 8);
        let alice = caller(0, 1);
        let mut permits = as_many_as_may(&limits, &alice);
        let waiting = limits.enter(&alice);
        let (permit, ()) = tokio::join!(waiting, async { drop(permits.pop()) });
        let _permit = permit.unwrap();
        assert_eq!(limits.enter(&alice).await.unwrap_err(), Overloaded::Node);
        assert_eq!(limits.by_payer()[0].refused.load(Ordering::SeqCst), 1);
        assert_eq!(limits.by_payer()[0].in_flight.load(Ordering::SeqCst), 4);
        assert_eq!(limits.waiting.count.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_goes_to_the_payer_that_may_have_it_and_not_to_the_first_in_line() {
        let limits = InFlight::new(100, 2, 100);
        let (alice_key, bob_key) = (caller(0, 1), caller(1, 1));
        let _alice = as_many_as_may(&limits, &alice_key);
        let mut bob = as_many_as_may(&limits, &bob_key);
        let (of_alice, of_bob, ()) = tokio::join!(limits.enter(&alice_key), limits.enter(&bob_key), async {
            drop(bob.pop());
        });
        assert_eq!(of_alice.unwrap_err(), Overloaded::Payer);
        of_bob.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_line_refuses_at_once_and_one_payer_does_not_fill_it() {
        let limits = InFlight::new(1, 1, 8);
        let (alice_key, bob_key) = (caller(0, 1), caller(1, 1));
        let _places = as_many_as_may(&limits, &alice_key);
        let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(limits.enter(&alice_key))).collect();
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
        }
        assert!(
            limits
                .enter(&alice_key)
                .now_or_never()
                .is_some_and(|entered| entered.is_err())
        );
        assert!(
            limits.enter(&bob_key).now_or_never().is_none(),
            "another payer waits"
        );
        drop(waiting);
        assert_eq!(limits.waiting.count.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn every_place_comes_back_whatever_is_given_up_on_the_way() {
        let limits = InFlight::new(8, 8, 100);
        let tasks: Vec<_> = (0..64_u32)
            .map(|number| {
                let (limits, caller) = (Arc::clone(&limits), caller(number % 3, 1));
                tokio::spawn(async move {
                    for round in 0..200 {
                        let mut entering = Box::pin(limits.enter(&caller));
                        if (number + round) % 5 == 0 {
                            drop(entering.as_mut().now_or_never());
                        } else if let Ok(permit) = entering.await {
                            tokio::task::yield_now().await;
                            drop(permit);
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(limits.permits.count.load(Ordering::SeqCst), 0);
        assert_eq!(limits.waiting.count.load(Ordering::SeqCst), 0);
        let payers = limits.by_payer();
        let refused = payers.iter().map(|payer| payer.refused.load(Ordering::SeqCst));
        assert_eq!(refused.sum::<usize>(), 0);
    }
}
