//! This node's share of a bandwidth that belongs to the cluster.
//!
//! ```text
//! | mark 1 | version 1 | length 1 | name | sequence 8 | per direction: demands 5 x 8 |
//! ```
//!
//! Each node sends its demand to the others every second, and at once when it rises, in a datagram that is
//! authenticated like those of gossip. [`shoal_policy::link::DemandExchange`] computes the shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_policy::NodeId;
use shoal_policy::link::{Demand, DemandExchange, ReceivedDemand};
use tokio::time::Instant;

use super::{BandwidthScope, Link, since};
use crate::time::clock;

/// No gossip message and no digest of settings begins with this byte.
const MARK: u8 = 0xA6;
const VERSION: u8 = 1;
const NEEDS: usize = 5;
/// The sequence and the demands of both directions.
const BODY_BYTES: usize = 8 + 2 * NEEDS * 8;

/// Interval between two evaluations of the demands.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Tracks the demands of the nodes that share a bandwidth.
#[derive(Debug)]
pub struct Sharing {
    link: Arc<Link>,
    name: String,
    began: Instant,
    /// Greater than in any earlier life of the node.
    sequence: AtomicU64,
    /// For reads from the lake, and for writes to it.
    exchanges: Mutex<[DemandExchange; 2]>,
}

impl Sharing {
    /// Starts to share the bandwidth of `link` as the node `name`. `generation` must be greater than in
    /// earlier lives of the node. Returns `None` if this node does not share its bandwidth.
    pub fn of(link: Option<&Arc<Link>>, (name, me): (&str, NodeId), generation: u64) -> Option<Self> {
        let link = link.filter(|link| link.scope == BandwidthScope::Cluster)?;
        let exchanges = || DemandExchange::new(me, link.bandwidth());
        Some(Self {
            exchanges: Mutex::new([exchanges(), exchanges()]),
            link: Arc::clone(link),
            name: name.into(),
            began: clock::runtime_instant(),
            sequence: AtomicU64::new(generation),
        })
    }

    /// Sets the living nodes.
    pub fn set_nodes(&self, nodes: &[NodeId]) {
        let mut exchanges = self.exchanges.lock();
        for exchange in &mut *exchanges {
            exchange.set_nodes(nodes.iter().copied());
        }
        self.link.set_nodes(exchanges[0].nodes());
        drop(exchanges);
        self.take_share();
    }

    /// Updates this node's share from the demands known now. Returns a message for all other nodes if a
    /// demand is to be sent.
    #[must_use]
    pub fn look(&self) -> Option<Vec<u8>> {
        let now = since(self.began);
        let mut exchanges = self.exchanges.lock();
        for exchange in &mut *exchanges {
            exchange.set_bandwidth(self.link.bandwidth());
        }
        let demands = self.link.demands(exchanges[0].equal_part());
        let mut pairs = exchanges.iter().zip(&demands);
        let should_send = pairs.any(|(exchange, demand)| exchange.should_send(demand, now));
        if should_send {
            for (exchange, demand) in exchanges.iter_mut().zip(demands) {
                exchange.record_sent(demand, now);
            }
        }
        let [down, up] = &*exchanges;
        self.link
            .set_shares([down.share(&demands[0], now), up.share(&demands[1], now)]);
        should_send.then(|| self.encode(&demands))
    }

    /// Returns true if a message of another node contains demands.
    pub fn is_in(message: &[u8]) -> bool {
        message.first() == Some(&MARK)
    }

    /// Processes a message of another node. Returns true if it could be decoded.
    pub fn receive(&self, message: &[u8], id_of: impl Fn(&str) -> NodeId) -> bool {
        let Some((name, sequence, demands)) = decode(message) else {
            return false;
        };
        let (node, at) = (id_of(name), since(self.began));
        let mut exchanges = self.exchanges.lock();
        let mut counts = false;
        for (exchange, demand) in exchanges.iter_mut().zip(demands) {
            counts |= exchange.receive(node, ReceivedDemand { sequence, demand, at });
        }
        drop(exchanges);
        if counts {
            self.take_share();
        }
        true
    }

    /// Updates this node's share from the demands known now. If a demand has risen, the next look sends it.
    fn take_share(&self) {
        let now = since(self.began);
        let exchanges = self.exchanges.lock();
        let demands = self.link.demands(exchanges[0].equal_part());
        let [down, up] = &*exchanges;
        self.link
            .set_shares([down.share(&demands[0], now), up.share(&demands[1], now)]);
    }

    fn encode(&self, demands: &[Demand; 2]) -> Vec<u8> {
        let name = self.name.as_bytes();
        let length = u8::try_from(name.len()).expect("a name has fewer than 256 bytes");
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let mut message = vec![MARK, VERSION, length];
        message.extend_from_slice(name);
        message.extend_from_slice(&sequence.to_le_bytes());
        for rate in demands.iter().flat_map(|demand| demand.0) {
            message.extend_from_slice(&rate.to_le_bytes());
        }
        debug_assert!(decode(&message).is_some(), "a message of ours can be decoded");
        message
    }
}

/// Returns the sender's name, the sequence, and the demands in both directions.
fn decode(message: &[u8]) -> Option<(&str, u64, [Demand; 2])> {
    let (&[mark, version, length], rest) = message.split_first_chunk()?;
    let (name, body) = rest.split_at_checked(length.into())?;
    if (mark, version) != (MARK, VERSION) || body.len() != BODY_BYTES {
        return None;
    }
    let (numbers, _) = body.as_chunks::<8>();
    let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
    let sequence = numbers.next()?;
    let mut demand = || Demand(std::array::from_fn(|_| numbers.next().unwrap_or_default()));
    Some((std::str::from_utf8(name).ok()?, sequence, [demand(), demand()]))
}

#[cfg(test)]
mod tests {
    use shoal_policy::NodeId;
    use shoal_policy::link::Demand;

    use super::{Sharing, decode};
    use crate::link::{Bandwidth, BandwidthScope, Link};

    const B: u64 = 1_000_000_000;

    fn link(scope: BandwidthScope) -> std::sync::Arc<Link> {
        Link::new(Bandwidth {
            bytes_per_second: B,
            scope,
        })
    }

    fn node(number: u64) -> Sharing {
        let link = link(BandwidthScope::Cluster);
        let name = format!("n{number}");
        Sharing::of(Some(&link), (&name, NodeId(number)), 100).unwrap()
    }

    fn id_of(name: &str) -> NodeId {
        NodeId(name[1..].parse().unwrap())
    }

    #[tokio::test]
    async fn a_message_reads_back_as_it_was_written() {
        let one = node(1);
        let demands = [Demand([1, 2, 3, 4, u64::MAX]), Demand([6, 7, 8, 9, 10])];
        let message = one.encode(&demands);
        assert!(Sharing::is_in(&message));
        assert_eq!(decode(&message), Some(("n1", 100, demands)));
        assert_eq!(decode(&one.encode(&demands)).unwrap().1, 101);
        for end in 0..message.len() {
            assert_eq!(decode(&message[..end]), None, "cut at {end}");
        }
        assert_eq!(decode(&[&message[..], &[0]].concat()), None);
    }

    #[tokio::test]
    async fn only_a_bandwidth_of_the_cluster_is_shared() {
        let own = link(BandwidthScope::Node);
        assert!(Sharing::of(Some(&own), ("n", NodeId(1)), 1).is_none());
        assert!(Sharing::of(None, ("n", NodeId(1)), 1).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_takes_the_share_that_others_leave() {
        let one = node(1);
        let share = || one.link.figures().down.share_bytes_per_second;
        assert_eq!(share(), B);
        one.set_nodes(&[NodeId(1), NodeId(2)]);
        assert_eq!(share(), B / 2);
        let two = node(2);
        two.set_nodes(&[NodeId(1), NodeId(2)]);
        let busy = two.encode(&[Demand([0, B, 0, 0, 0]), Demand::default()]);
        assert!(one.receive(&busy, id_of));
        assert_eq!(share(), B / 20, "this node wants nothing");
        assert!(!one.receive(&busy[1..], id_of));
        one.set_nodes(&[NodeId(1)]);
        assert_eq!(share(), B);
    }

    #[tokio::test(start_paused = true)]
    async fn the_nodes_that_a_node_learns_of_are_told_its_demand() {
        let one = node(1);
        one.set_nodes(&[NodeId(1), NodeId(2)]);
        let message = one.look().expect("the demand was not sent yet");
        assert_eq!(decode(&message).unwrap().0, "n1");
    }
}
