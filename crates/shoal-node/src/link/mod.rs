//! The link to the lake, metered: which transfer may move its next bytes, and the share of this node.
//!
//! [`shoal_policy::link`] decides; this module carries the decisions out. A [`Transfer`] says what a request
//! to the lake is for, a [`Flow`] paces one body, a [`Lane`] is one direction of the link, [`Sharing`]
//! follows the demands of other nodes, and [`Promises`] says which reads of clients have a rate of a plan. A
//! node without `[lake] bandwidth` has no link: nothing here runs.

mod config;
mod figures;
mod flow;
mod lane;
mod planned_rate;
mod promises;
mod sharing;
mod transfer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shoal_policy::fair::Payer;
use shoal_policy::link::{Class, Demand, Direction};
use tokio::time::Instant;

pub use self::config::{Bandwidth, BandwidthScope};
pub use self::figures::{ClassFigures, LaneFigures, LinkFigures};
pub use self::flow::Flow;
pub use self::planned_rate::PlannedRate;
pub use self::promises::{Promises, TooManyPromises};
pub use self::sharing::{LOOK_EVERY, Sharing};
pub use self::transfer::{Purpose, Transfer};

use self::lane::Lane;
use crate::clock;

/// The receive window of a transfer that no client waits for, as a time at the bandwidth of the link. It
/// bounds the bytes that the system has received and the node has not read. These bytes go before a client's.
/// With a larger window one transfer is faster over a long distance.
const WINDOW_TIME: Duration = Duration::from_millis(1);

/// The bounds of such a window.
const WINDOW_BYTES_MIN: u64 = 32 << 10;
const WINDOW_BYTES_MAX: u64 = 1 << 20;

/// The link between this node and the lake.
#[derive(Debug)]
pub struct Link {
    /// Bytes a second in each direction: of this node, or of all nodes together.
    bandwidth: AtomicU64,
    scope: BandwidthScope,
    /// It is that of connections, so it does not follow the share of the node: a flow that paid for less than
    /// the system may receive would let the rest come unpaid.
    window_bytes: u64,
    lanes: [Arc<Lane>; 2],
    /// The sum of the rates that plans reserve, in bytes a second.
    reserved: AtomicU64,
    /// The number of nodes that share the bandwidth, for operators.
    nodes: AtomicU64,
}

impl Link {
    /// A link of `bandwidth` in each direction, all of it for this node at first.
    pub fn new(bandwidth: Bandwidth, scope: BandwidthScope) -> Arc<Self> {
        let bytes = bandwidth.bytes_per_second;
        let began = clock::runtime_instant();
        Arc::new(Self {
            bandwidth: AtomicU64::new(bytes),
            scope,
            window_bytes: window_bytes(bytes),
            lanes: Direction::ALL.map(|direction| Lane::new(direction, bytes, began)),
            reserved: AtomicU64::new(0),
            nodes: AtomicU64::new(1),
        })
    }

    /// Bytes a second in each direction, as configured.
    pub fn bandwidth(&self) -> u64 {
        self.bandwidth.load(Ordering::Relaxed)
    }

    /// Whether each node has this bandwidth, or all nodes share it.
    pub fn scope(&self) -> BandwidthScope {
        self.scope
    }

    /// The receive window of a connection for transfers that no client waits for, in bytes.
    pub fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// Changes the bandwidth. If nodes share it, the share of this node follows with the next news.
    pub fn set_bandwidth(&self, bandwidth: Bandwidth) {
        let bytes = bandwidth.bytes_per_second;
        self.bandwidth.store(bytes, Ordering::Relaxed);
        if self.scope == BandwidthScope::Node {
            self.set_shares([bytes; 2]);
        }
    }

    /// Notes that a client's request begins to use a direction.
    pub fn expect_client(&self, direction: Direction) {
        self.lane(direction).expect_client();
    }

    /// Notes that the lake answered a read after this time.
    pub fn answered(&self, took: Duration) {
        self.lane(Direction::Down).answered(took);
    }

    /// Paces the body of a response.
    pub fn down(self: &Arc<Self>, transfer: Option<Transfer>, payer: Payer) -> Flow {
        let lane = Arc::clone(self.lane(Direction::Down));
        Flow::new(Some(lane), transfer, payer).ahead_by(self.window_bytes)
    }

    /// Paces the body of a request.
    pub fn up(self: &Arc<Self>, transfer: Option<Transfer>, payer: Payer) -> Flow {
        Flow::new(Some(Arc::clone(self.lane(Direction::Up))), transfer, payer)
    }

    /// State and counters of the link, for operators.
    pub fn figures(&self) -> LinkFigures {
        LinkFigures {
            bandwidth: self.bandwidth(),
            scope: self.scope,
            nodes: self.nodes.load(Ordering::Relaxed),
            lanes: Direction::ALL.map(|direction| (direction, self.lane(direction).figures())),
        }
    }

    /// Rates that this node would use in each direction, if it had room; see
    /// [`shoal_policy::link::Meter::demand`].
    fn demands(&self, equal_part: u64) -> [Demand; 2] {
        Direction::ALL.map(|direction| self.lane(direction).demand(equal_part))
    }

    fn set_shares(&self, shares: [u64; 2]) {
        for (lane, share) in self.lanes.iter().zip(shares) {
            lane.set_bandwidth(share);
        }
    }

    fn set_nodes(&self, nodes: usize) {
        self.nodes.store(nodes as u64, Ordering::Relaxed);
    }

    /// Adds to the bandwidth from the lake that plans reserve, in bytes a second.
    fn reserve(&self, rate: u64) {
        let before = self.reserved.fetch_add(rate, Ordering::Relaxed);
        self.lane(Direction::Down)
            .set_reserved(before.saturating_add(rate));
    }

    fn release(&self, rate: u64) {
        let before = self.reserved.fetch_sub(rate, Ordering::Relaxed);
        self.lane(Direction::Down)
            .set_reserved(before.saturating_sub(rate));
    }

    fn lane(&self, direction: Direction) -> &Arc<Lane> {
        &self.lanes[direction as usize]
    }
}

fn window_bytes(bandwidth: u64) -> u64 {
    let bytes = u128::from(bandwidth) * WINDOW_TIME.as_micros() / 1_000_000;
    (bytes as u64).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
}

/// The time since `began`, which the policies count.
fn since(began: Instant) -> Duration {
    clock::runtime_instant().saturating_duration_since(began)
}

/// The class of a transfer; that of clients without one.
fn class_of(transfer: Option<&Transfer>) -> Class {
    transfer.map_or(Class::Client, Transfer::class)
}

#[cfg(test)]
mod tests;
