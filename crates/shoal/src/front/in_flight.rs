//! How many requests may be in flight, on the node and of one identity.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;

use crate::front::error::{ErrorCode, S3Error};
use crate::identity::Caller;

/// Counts requests in flight; a request counts until its response has been sent or given up.
///
/// One payer may have as many as are still free, times its share: half of the node when it is alone, a third each when
/// there are two. So there is always room for one more payer, and the first to be refused is the one that has most.
#[derive(Debug)]
pub struct InFlight {
    max: usize,
    payer_max: usize,
    count: Arc<AtomicUsize>,
    /// By payer. Few are ever added: one for each identity, and one for strangers together.
    payers: RwLock<HashMap<u32, Arc<Usage>>>,
}

/// What one payer has, and was refused.
#[derive(Debug)]
struct Usage {
    name: String,
    in_flight: AtomicUsize,
    refused: AtomicU64,
}

/// [`Usage`] as it is at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayerUsage {
    /// As in [`Payer`](shoal_policy::fair::Payer).
    pub id: u32,
    /// What operators call it.
    pub name: String,
    /// Requests in flight.
    pub in_flight: usize,
    /// Requests refused so far.
    pub refused: u64,
}

/// A place among the requests in flight, given back when dropped.
#[derive(Debug)]
pub struct Place {
    count: Arc<AtomicUsize>,
    usage: Arc<Usage>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crowded {
    /// The node is full, as far as this payer is concerned.
    Node,
    /// The payer has as many as any may have.
    Payer,
}

impl Crowded {
    /// The label of the refusal in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "requests",
            Self::Payer => "requests-per-identity",
        }
    }
}

impl From<Crowded> for S3Error {
    fn from(_: Crowded) -> Self {
        Self::new(
            ErrorCode::SlowDown,
            "Too many requests are in flight; please reduce your rate.",
        )
    }
}

impl InFlight {
    /// At most `max` requests, and `payer_max` of one payer.
    pub fn new(max: usize, payer_max: usize) -> Self {
        Self {
            max,
            payer_max,
            count: Arc::default(),
            payers: RwLock::default(),
        }
    }

    /// A place for a request of `caller`.
    pub fn enter(&self, caller: &Caller) -> Result<Place, Crowded> {
        let payer = caller.payer();
        let usage = self.usage(payer.id, caller);
        let before = self.count.fetch_add(1, Ordering::AcqRel);
        let own_before = usage.in_flight.fetch_add(1, Ordering::AcqRel);
        let place = Place {
            count: Arc::clone(&self.count),
            usage,
        };
        match judge((self.max, before), (self.payer_max, own_before), payer.share) {
            None => Ok(place),
            Some(crowded) => {
                place.usage.refused.fetch_add(1, Ordering::Relaxed);
                Err(crowded)
            }
        }
    }

    /// What each payer has that ever asked.
    pub fn by_payer(&self) -> Vec<PayerUsage> {
        let payers = self.payers.read();
        payers
            .iter()
            .map(|(id, usage)| PayerUsage {
                id: *id,
                name: usage.name.clone(),
                in_flight: usage.in_flight.load(Ordering::Relaxed),
                refused: usage.refused.load(Ordering::Relaxed),
            })
            .collect()
    }

    fn usage(&self, id: u32, caller: &Caller) -> Arc<Usage> {
        if let Some(usage) = self.payers.read().get(&id) {
            return Arc::clone(usage);
        }
        let new = || {
            Arc::new(Usage {
                name: caller.name().to_owned(),
                in_flight: AtomicUsize::new(0),
                refused: AtomicU64::new(0),
            })
        };
        Arc::clone(self.payers.write().entry(id).or_insert_with(new))
    }
}

/// Whether one more request is too many, when so many are there already.
fn judge((max, count): (usize, usize), (payer_max, own): (usize, usize), share: u32) -> Option<Crowded> {
    let free = max.saturating_sub(count);
    if own >= payer_max {
        Some(Crowded::Payer)
    } else if own >= free.saturating_mul(share as usize) || free == 0 {
        Some(Crowded::Node)
    } else {
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.usage.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use crate::secret::Secret;

    fn caller(index: u32, share: u32) -> Caller {
        Caller::Identity(Arc::new(Identity {
            index,
            access_key: format!("key-{index}"),
            secret_key: Secret::new("s"),
            share,
            lake_account: None,
        }))
    }

    fn as_many_as_may(limits: &InFlight, caller: &Caller) -> Vec<Place> {
        std::iter::from_fn(|| limits.enter(caller).ok()).collect()
    }

    #[test]
    fn a_place_is_given_back_and_one_callers_load_is_not_anothers() {
        let limits = InFlight::new(1000, 1);
        let (alice_key, bob_key) = (caller(0, 1), caller(1, 1));
        let alice = limits.enter(&alice_key).unwrap();
        assert_eq!(limits.enter(&alice_key).unwrap_err(), Crowded::Payer);
        let _bob = limits.enter(&bob_key).unwrap();
        let _stranger = limits.enter(&Caller::Anonymous).unwrap();
        drop(alice);
        limits.enter(&alice_key).unwrap();
        assert_eq!(S3Error::from(Crowded::Payer).code, ErrorCode::SlowDown);
    }

    #[test]
    fn those_that_have_most_are_refused_first_and_a_newcomer_finds_room() {
        let limits = InFlight::new(4096, 4096);
        let (alice_key, bob_key) = (caller(0, 1), caller(1, 1));
        let alice = as_many_as_may(&limits, &alice_key);
        assert_eq!(alice.len(), 2048);
        let bob = as_many_as_may(&limits, &bob_key);
        assert_eq!(bob.len(), 1024);
        assert_eq!(limits.enter(&alice_key).unwrap_err(), Crowded::Node);
        assert_eq!(as_many_as_may(&limits, &caller(2, 1)).len(), 512);
        drop(alice);
        let more: Vec<_> = as_many_as_may(&limits, &bob_key);
        assert!(more.len() > 500, "what is given back is for those that are there");
        let of_alice = PayerUsage {
            id: 0,
            name: "key-0".into(),
            in_flight: 0,
            refused: 2,
        };
        assert!(limits.by_payer().contains(&of_alice), "{:?}", limits.by_payer());
    }

    #[test]
    fn a_greater_share_is_a_greater_part_of_the_node() {
        let limits = InFlight::new(4000, 4000);
        let alice = as_many_as_may(&limits, &caller(0, 3));
        assert_eq!(alice.len(), 3000);
    }

    #[test]
    fn the_node_is_bounded_whatever_the_shares() {
        let limits = InFlight::new(100, 1000);
        let places: Vec<Vec<Place>> = (0..200)
            .map(|id| as_many_as_may(&limits, &caller(id, 1000)))
            .collect();
        assert!(places.iter().map(Vec::len).sum::<usize>() <= 100);
    }
}
