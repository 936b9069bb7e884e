//! Nodes that share a bandwidth, over a network that delays and loses their exchange.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::{DEMAND_LIFE, Demand, DemandExchange, NodeId, RISE_DELAY, ReceivedDemand, shares};

const B: u64 = 1_000_000_000;
const STEP: Duration = Duration::from_millis(50);
/// Each share is rounded to whole bytes.
const ROUNDING: u64 = 100;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn client(rate: u64) -> Demand {
    Demand([0, rate, 0, 0, 0])
}

fn received(sequence: u64, rate: u64, at: Duration) -> ReceivedDemand {
    ReceivedDemand {
        sequence,
        demand: client(rate),
        at,
    }
}

#[test]
fn a_node_that_hears_of_no_other_has_an_equal_part() {
    let mut exchange = DemandExchange::new(NodeId(0), B);
    assert_eq!(exchange.share(&client(B), ms(0)), B);
    exchange.set_nodes([NodeId(0), NodeId(1), NodeId(2), NodeId(3)]);
    assert_eq!(exchange.share(&client(B), ms(0)), B / 4);
    exchange.record_sent(client(B), ms(0));
    assert_eq!(exchange.share(&client(B), ms(1_000)), B / 4);
}

#[test]
fn a_node_rises_late_and_falls_at_once() {
    let mut exchange = DemandExchange::new(NodeId(0), B);
    exchange.set_nodes([NodeId(1)]);
    exchange.record_sent(client(0), ms(0));
    exchange.receive(NodeId(1), received(1, B / 2, ms(500)));
    let low = exchange.share(&client(B), ms(500));
    assert!(low < B / 2 + B / 20, "{low}");
    exchange.record_sent(client(B), ms(600));
    assert_eq!(
        exchange.share(&client(B), (ms(600) + RISE_DELAY).saturating_sub(ms(1))),
        low
    );
    assert_eq!(exchange.share(&client(B), ms(600) + RISE_DELAY), B / 2);
    let fallen = exchange.share(&client(0), ms(1_000));
    assert!(fallen <= low, "{fallen}");
}

#[test]
fn a_node_that_fell_silent_keeps_an_equal_part() {
    let mut exchange = DemandExchange::new(NodeId(0), B);
    exchange.set_nodes([NodeId(1)]);
    exchange.record_sent(client(B), ms(0));
    exchange.receive(NodeId(1), received(1, 0, ms(0)));
    let alone = exchange.share(&client(B), DEMAND_LIFE.saturating_sub(ms(1)));
    assert_eq!(alone, B * 95 / 100);
    assert_eq!(exchange.share(&client(B), DEMAND_LIFE), B / 2);
    exchange.set_nodes([]);
    assert_eq!(exchange.share(&client(B), DEMAND_LIFE), B);
}

#[test]
fn only_newer_messages_of_living_nodes_count() {
    let mut exchange = DemandExchange::new(NodeId(0), B);
    exchange.set_nodes([NodeId(1)]);
    assert!(exchange.receive(NodeId(1), received(2, 5, ms(0))));
    assert!(!exchange.receive(NodeId(1), received(1, 9, ms(1))), "it is older");
    assert!(
        !exchange.receive(NodeId(1), received(2, 9, ms(1))),
        "it was received"
    );
    assert!(
        !exchange.receive(NodeId(7), received(3, 9, ms(1))),
        "not a member"
    );
    assert!(!exchange.receive(NodeId(0), received(3, 9, ms(1))), "itself");
    exchange.set_nodes([NodeId(0), NodeId(1), NodeId(2)]);
    assert!(
        !exchange.receive(NodeId(1), received(2, 9, ms(1))),
        "a living node is not forgotten"
    );
}

#[test]
fn a_rise_is_told_at_once_and_all_else_each_second() {
    let mut exchange = DemandExchange::new(NodeId(0), B);
    assert!(exchange.should_send(&client(0), ms(0)));
    exchange.record_sent(client(0), ms(0));
    assert!(!exchange.should_send(&client(B), ms(99)), "too soon");
    assert!(exchange.should_send(&client(B), ms(100)));
    assert!(!exchange.should_send(&client(B / 200), ms(999)), "too little");
    assert!(exchange.should_send(&client(0), ms(1_000)));
}

#[test]
fn the_history_of_a_node_stays_short() {
    let mut exchange = DemandExchange::new(NodeId(0), B);
    for step in 0..10_000 {
        exchange.record_sent(client(step), ms(step * 100));
        assert!(exchange.sent.len() <= 5, "{}", exchange.sent.len());
    }
}

/// A cluster whose nodes follow a script of demands, and whose exchange take their time.
struct Cluster {
    nodes: Vec<DemandExchange>,
    wants: Vec<Demand>,
    /// Messages on their way, by the time of their arrival.
    under_way: BTreeMap<(Duration, u64), (usize, usize, ReceivedDemand)>,
    sequence: u64,
    now: Duration,
}

impl Cluster {
    fn new(count: usize) -> Self {
        let ids = || (0..count as u64).map(NodeId);
        let node = |id| {
            let mut exchange = DemandExchange::new(id, B);
            exchange.set_nodes(ids());
            exchange
        };
        Self {
            nodes: ids().map(node).collect(),
            wants: vec![Demand::default(); count],
            under_way: BTreeMap::new(),
            sequence: 0,
            now: Duration::ZERO,
        }
    }

    /// One step. `fate` decides when a message arrives, if at all. Returns the sum of all shares.
    fn step(&mut self, mut fate: impl FnMut() -> Option<Duration>) -> u64 {
        self.now += STEP;
        let later = self.under_way.split_off(&(self.now, u64::MAX));
        for (_, (from, to, received)) in std::mem::replace(&mut self.under_way, later) {
            let at = self.now;
            self.nodes[to].receive(NodeId(from as u64), ReceivedDemand { at, ..received });
        }
        for from in 0..self.nodes.len() {
            let demand = self.wants[from];
            if !self.nodes[from].should_send(&demand, self.now) {
                continue;
            }
            self.nodes[from].record_sent(demand, self.now);
            for to in (0..self.nodes.len()).filter(|to| *to != from) {
                self.sequence += 1;
                let (sequence, at) = (self.sequence, self.now);
                let message = (from, to, ReceivedDemand { sequence, demand, at });
                if let Some(delay) = fate() {
                    self.under_way.insert((self.now + delay, sequence), message);
                }
            }
        }
        self.shares().iter().sum()
    }

    fn shares(&self) -> Vec<u64> {
        let nodes = self.nodes.iter().zip(&self.wants);
        nodes.map(|(node, wants)| node.share(wants, self.now)).collect()
    }

    /// Returns true if each node has the share that follows from all demands.
    fn agrees(&self) -> bool {
        let all = shares(B, &self.wants);
        let mut pairs = self.shares().into_iter().zip(all);
        pairs.all(|(share, expected)| share.abs_diff(expected) <= ROUNDING)
    }
}

fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..B / 3, 0..2 * B, Just(u64::MAX)]
}

fn demand() -> impl Strategy<Value = Demand> {
    [rate(), rate(), rate(), rate(), rate()].prop_map(Demand)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any demands and any times of their changes: as long as each message arrives in time, the shares
    /// together never exceed the bandwidth. A while after the last change they use all of it.
    #[test]
    fn shares_stay_within_the_bandwidth_while_messages_are_under_way(
        count in 2_usize..8,
        changes in prop::collection::vec((0_usize..8, demand(), 0_usize..12), 1..20),
        delays in prop::collection::vec(0_u64..=250, 1..50),
    ) {
        let mut cluster = Cluster::new(count);
        let mut delays = delays.into_iter().cycle();
        let mut in_time = || delays.next().map(ms);
        for (node, wants, steps) in changes {
            cluster.wants[node % count] = wants;
            for _ in 0..steps {
                let sum = cluster.step(&mut in_time);
                prop_assert!(sum <= B + ROUNDING, "{sum} after {:?}", cluster.now);
            }
        }
        for _ in 0..40 {
            let sum = cluster.step(&mut in_time);
            prop_assert!(sum <= B + ROUNDING, "{sum} after {:?}", cluster.now);
        }
        prop_assert!(cluster.agrees(), "{:?}", cluster.shares());
    }

    /// If half of the exchange are lost, shares may exceed the bandwidth for a while: no node ever has more
    /// than the bandwidth without the floors of the others, and soon after the losses end all is in order.
    #[test]
    fn lost_messages_cost_a_bounded_excess_for_a_bounded_time(
        count in 2_usize..6,
        changes in prop::collection::vec((0_usize..6, demand(), 0_usize..12), 1..10),
        fates in prop::collection::vec((any::<bool>(), 0_u64..=250), 20..200),
    ) {
        let mut cluster = Cluster::new(count);
        let mut fates = fates.into_iter().cycle();
        let mut lossy = || fates.next().and_then(|(arrives, delay)| arrives.then_some(ms(delay)));
        let most = B - B / 10 / count as u64 * (count as u64 - 1);
        for (node, wants, steps) in changes {
            cluster.wants[node % count] = wants;
            for _ in 0..steps {
                cluster.step(&mut lossy);
                let shares = cluster.shares();
                prop_assert!(shares.iter().all(|share| *share <= most + ROUNDING), "{shares:?}");
            }
        }
        let settled = (DEMAND_LIFE.as_millis() / STEP.as_millis()) as usize;
        for _ in 0..settled {
            cluster.step(|| Some(ms(100)));
        }
        prop_assert!(cluster.agrees(), "{:?}", cluster.shares());
    }

    /// Nodes that join, leave and die: the shares of the living stay within the bandwidth and the equal parts
    /// of those that do not know each other yet.
    #[test]
    fn nodes_that_come_and_go_cost_no_more_than_equal_parts(
        count in 3_usize..7,
        present in prop::collection::vec(any::<bool>(), 7),
        wants in prop::collection::vec(demand(), 7),
    ) {
        let mut cluster = Cluster::new(count);
        cluster.wants.copy_from_slice(&wants[..count]);
        for _ in 0..60 {
            cluster.step(|| Some(ms(50)));
        }
        // All but the first may go; those that stay learn of it one by one.
        let stay: Vec<usize> = (0..count).filter(|node| *node == 0 || present[*node]).collect();
        let living = || stay.iter().map(|node| NodeId(*node as u64));
        for learns in &stay {
            cluster.nodes[*learns].set_nodes(living());
            let shares = cluster.shares();
            let sum: u64 = stay.iter().map(|node| shares[*node]).sum();
            prop_assert!(sum <= 2 * B, "{sum}");
        }
        for _ in 0..60 {
            cluster.step(|| Some(ms(50)));
        }
        let shares_now = cluster.shares();
        let sum: u64 = stay.iter().map(|node| shares_now[*node]).sum();
        prop_assert!(sum <= B + ROUNDING && sum + ROUNDING >= B, "{sum}");
    }
}
