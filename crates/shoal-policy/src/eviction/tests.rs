//! The obligations of every eviction policy to its caller, whatever order it chooses.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestRunner};

use crate::PartOf;
use crate::eviction::c2p::{Closeness, Completeness};
use crate::eviction::gwf::Ageing;

use super::{Belady, C2p, Duel, Eviction, Gwf, Layered, Lfu, Lfuda, Life, Lru, S3Fifo, Sieve};
use crate::NodeId;
use crate::fingerprint::{Fingerprint, Placed};
use crate::ring::Ring;
use crate::route::{Hierarchy, Neighbourhood};

/// Runs the suite against one policy: `conforms!(name, an empty policy)`.
macro_rules! conforms {
    ($name:ident, $empty:expr) => {
        conforms!($name, $empty;
            each_key_leaves_once_with_its_bytes
            only_keys_that_may_leave_leave
            a_removed_key_is_not_evicted_and_may_return
            absent_keys_are_ignored
            churn_does_not_grow_it
            any_history_holds_what_a_map_holds
        );
    };
    ($name:ident, $empty:expr; $($test:ident)*) => {
        mod $name {
            use super::*;

            $(#[test]
            fn $test() {
                super::$test(|| $empty);
            })*
        }
    };
}

conforms!(lru, Lru::default());
conforms!(lfu, Lfu::default());
conforms!(lfuda, Lfuda::default());
conforms!(sieve, Sieve::default());
conforms!(s3_fifo, S3Fifo::default());
conforms!(duel, Duel::default());
conforms!(gwf, Gwf::new(Ageing::Added));
conforms!(gwf_as_printed, Gwf::new(Ageing::Compounded));
conforms!(
    c2p,
    C2p::above(Box::new(Closeness::default()), Completeness::Read)
);
conforms!(
    c2p_above_duel,
    C2p::above(Box::new(Duel::default()), Completeness::Whole)
);
conforms!(
    c2p_above_gwf,
    C2p::above(Box::new(Gwf::new(Ageing::Added)), Completeness::Read)
);
conforms!(closeness, Closeness::default());
conforms!(life, Life::default());
conforms!(belady, Belady::new((0..4_000).chain(0..100)));
conforms!(
    one_layer,
    Layered::new([(Box::<Lru<u32>>::default(), 1)], cluster_of(0))
);
conforms!(
    three_layers,
    Layered::new(
        [10, 20, 0].map(|target| (Box::<Sieve<u32>>::default(), target)),
        cluster_of(2)
    )
);

/// Node 0 and another node in every ring.
fn cluster_of(rings: usize) -> Arc<Hierarchy> {
    let ring = || Ring::new([(NodeId(0), 1), (NodeId(1), 1)].into());
    let layers = (0..rings).map(|_| Neighbourhood {
        ring: ring(),
        former: None,
    });
    Arc::new(Hierarchy {
        node: NodeId(0),
        layers: layers.collect(),
    })
}

impl Placed for u32 {
    fn place(&self) -> Fingerprint {
        Fingerprint::of_number((*self).into())
    }
}

/// In tests, four keys in a row form an object.
impl PartOf for u32 {
    type Whole = Self;

    fn whole(&self) -> Self {
        self / 4
    }

    fn index(&self) -> Self {
        self % 4
    }
}

/// A policy that holds `keys` of one byte each, for the tests of single policies.
pub(super) fn holding<P: Eviction<u32> + Default>(keys: impl IntoIterator<Item = u32>) -> P {
    let mut policy = P::default();
    keys.into_iter().for_each(|key| policy.insert(key, 1));
    policy
}

/// The keys in the order they leave when all of them may leave.
pub(super) fn leaving_order(mut policy: impl Eviction<u32>) -> Vec<u32> {
    std::iter::from_fn(|| policy.evict(&mut |_| true))
        .map(|(key, _)| key)
        .collect()
}

/// The number of misses of a cache with room for `capacity` keys.
pub(super) fn misses<K: Copy>(mut policy: impl Eviction<K>, trace: &[K], capacity: usize) -> u32 {
    let mut misses = 0;
    for key in trace {
        if policy.contains(key) {
            policy.touch(key);
            continue;
        }
        misses += 1;
        if policy.len() == capacity {
            policy.evict(&mut |_| true).expect("a full cache has a victim");
        }
        policy.insert(*key, 1);
    }
    misses
}

fn each_key_leaves_once_with_its_bytes<P: Eviction<u32>>(empty: impl Fn() -> P) {
    let mut policy = empty();
    (0..100).for_each(|key| policy.insert(key, u64::from(key) * 10));
    (0..100).step_by(3).for_each(|key| policy.touch(&key));
    let mut left: Vec<_> = std::iter::from_fn(|| policy.evict(&mut |_| true)).collect();
    left.sort_unstable();
    assert_eq!(
        left,
        (0..100).map(|key| (key, u64::from(key) * 10)).collect::<Vec<_>>()
    );
    assert!(policy.is_empty());
}

fn only_keys_that_may_leave_leave<P: Eviction<u32>>(empty: impl Fn() -> P) {
    let mut policy = empty();
    (0..10).for_each(|key| policy.insert(key, 1));
    let odd: Vec<_> = std::iter::from_fn(|| policy.evict(&mut |key| key % 2 == 1)).collect();
    assert_eq!(odd.len(), 5);
    assert!(odd.iter().all(|(key, _)| key % 2 == 1));
    assert_eq!(policy.evict(&mut |_| false), None);
    assert_eq!(policy.len(), 5, "refusing everybody forgets nobody");
}

fn a_removed_key_is_not_evicted_and_may_return<P: Eviction<u32>>(empty: impl Fn() -> P) {
    let mut policy = empty();
    (0..3).for_each(|key| policy.insert(key, 7));
    assert_eq!(policy.remove(&1), Some(7));
    assert!(!policy.contains(&1));
    policy.insert(1, 9);
    let mut left: Vec<_> = std::iter::from_fn(|| policy.evict(&mut |_| true)).collect();
    left.sort_unstable();
    assert_eq!(left, [(0, 7), (1, 9), (2, 7)]);
}

fn absent_keys_are_ignored<P: Eviction<u32>>(empty: impl Fn() -> P) {
    let mut policy = empty();
    policy.touch(&1);
    assert_eq!(policy.remove(&1), None);
    assert_eq!(policy.evict(&mut |_| true), None);
    assert!(policy.is_empty() && !policy.contains(&1));
}

/// New keys arrive all the time, so any state that a policy fails to forget piles up.
fn churn_does_not_grow_it<P: Eviction<u32> + Debug>(empty: impl Fn() -> P) {
    let mut policy = empty();
    let mut debug_chars_max = [0; 2];
    for key in 0..4_000 {
        policy.insert(key, 1 + u64::from(key % 7));
        policy.touch(&(key / 2));
        policy.advance(Duration::from_secs(key.into()));
        if key % 5 == 0 {
            policy.remove(&(key - key % 3));
        }
        while policy.len() > 16 {
            policy
                .evict(&mut |other| other % 3 != key % 3)
                .expect("most may leave");
        }
        if key % 50 == 0 {
            let half = usize::from(key >= 2_000);
            debug_chars_max[half] = debug_chars_max[half].max(format!("{policy:?}").len());
        }
    }
    let [early, late] = debug_chars_max;
    assert!(
        late < early * 3 / 2,
        "{early} characters describe it at first, {late} in the end"
    );
}

fn any_history_holds_what_a_map_holds<P: Eviction<u32>>(empty: impl Fn() -> P) {
    let history = vec((0..5u8, 0..12u32, any::<u16>()), 0..400);
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    runner
        .run(&history, |steps| {
            let (mut policy, mut model) = (empty(), BTreeMap::new());
            for (step, key, mask) in steps {
                match step {
                    0 | 1 if !model.contains_key(&key) => {
                        policy.insert(key, u64::from(mask));
                        model.insert(key, u64::from(mask));
                    }
                    2 => assert_eq!(policy.remove(&key), model.remove(&key)),
                    3 => {
                        let may_leave = |key: &u32| mask & (1 << key) != 0;
                        match policy.evict(&mut |key| may_leave(key)) {
                            Some((key, bytes)) => {
                                assert!(may_leave(&key));
                                assert_eq!(model.remove(&key), Some(bytes));
                            }
                            None => assert!(!model.keys().any(may_leave), "somebody could have left"),
                        }
                    }
                    _ => policy.touch(&key),
                }
                assert_eq!(policy.len(), model.len());
                assert!((0..12).all(|key| policy.contains(&key) == model.contains_key(&key)));
            }
            Ok(())
        })
        .expect("the policy agrees with the map");
}
