//! The metered link to the lake: decides which transfer may move its next bytes, and what the share of this
//! node is.
//!
//! [`shoal_policy::link`] has the policy; this module implements it. A [`Transfer`] has the purpose of a
//! request to the lake, a [`Flow`] paces one body, a [`Lane`] is one direction of the link, [`Sharing`]
//! tracks the demands of other nodes, [`Promises`] holds the rates that plans promise to jobs' reads, and a
//! [`QuotaRate`] is that of a quota. A node without `[lake] bandwidth` has no link: only the rates of plans
//! and quotas apply there.

mod config;
mod figures;
mod flow;
mod job_rate;
mod lane;
mod planned_rate;
mod promises;
mod quota_rate;
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
pub use self::job_rate::{JobBytes, JobId, JobNames, JobRate, JobRates};
pub use self::planned_rate::PlannedRate;
pub use self::promises::{PromiseToJob, Promises, TooManyPromises};
pub use self::quota_rate::QuotaRate;
pub use self::sharing::{LOOK_EVERY, Sharing};
pub use self::transfer::{Purpose, Transfer};

use self::lane::Lane;
use crate::time::clock;

/// The receive window of a background transfer, as a time at the link's bandwidth. It limits the bytes that
/// the kernel has received and the node has not read, which precede a client's bytes. A larger window would
/// make a single transfer over a long distance faster.
const WINDOW_TIME: Duration = Duration::from_millis(1);

/// Minimum and maximum of such a window.
const WINDOW_BYTES_MIN: u64 = 32 << 10;
const WINDOW_BYTES_MAX: u64 = 1 << 20;

/// The link between this node and the lake.
#[derive(Debug)]
pub struct Link {
    /// Bandwidth of each direction in bytes per second, of this node or of all nodes together.
    bandwidth: AtomicU64,
    scope: BandwidthScope,
    /// The receive window of a connection for background transfers. Fixed when connections are opened, so it
    /// does not follow the node's share: if a flow paid for less than the kernel may receive, the rest would
    /// not be charged.
    pub window_bytes: u64,
    lanes: [Arc<Lane>; 2],
    /// The sum of the rates that plans reserve, in bytes per second.
    reserved: AtomicU64,
    /// The number of nodes that share the bandwidth, for operators.
    nodes: AtomicU64,
}

impl Link {
    /// Creates a link of `bandwidth` in each direction. At first, this node has all of it.
    pub fn new(bandwidth: Bandwidth) -> Arc<Self> {
        let bytes = bandwidth.bytes_per_second;
        let began = clock::runtime_instant();
        Arc::new(Self {
            bandwidth: AtomicU64::new(bytes),
            scope: bandwidth.scope,
            window_bytes: window_bytes(bytes),
            lanes: Direction::ALL.map(|direction| Lane::new(direction, bytes, began)),
            reserved: AtomicU64::new(0),
            nodes: AtomicU64::new(1),
        })
    }

    /// Returns the configured bandwidth of each direction, in bytes per second.
    pub fn bandwidth(&self) -> u64 {
        self.bandwidth.load(Ordering::Relaxed)
    }

    /// Changes the bandwidth. If nodes share it, this node's share is updated with the next exchange of
    /// demands.
    pub fn set_bandwidth(&self, bandwidth: Bandwidth) {
        let bytes = bandwidth.bytes_per_second;
        self.bandwidth.store(bytes, Ordering::Relaxed);
        if self.scope == BandwidthScope::Node {
            self.set_shares([bytes; 2]);
        }
    }

    /// Records that a client's request starts to use a direction.
    pub fn expect_client(&self, direction: Direction) {
        self.lane(direction).expect_client();
    }

    /// Records that the lake answered a read after `took`.
    pub fn answered(&self, took: Duration) {
        self.lane(Direction::Down).answered(took);
    }

    /// Returns the pacing of a response body.
    pub fn down(self: &Arc<Self>, transfer: Option<Transfer>, payer: Payer) -> Flow {
        let lane = Arc::clone(self.lane(Direction::Down));
        Flow::new(Some(lane), transfer, payer).ahead_by(self.window_bytes)
    }

    /// Returns the pacing of a request body.
    pub fn up(self: &Arc<Self>, transfer: Option<Transfer>, payer: Payer) -> Flow {
        Flow::new(Some(Arc::clone(self.lane(Direction::Up))), transfer, payer)
    }

    /// Returns the state and counters of the link, for operators.
    pub fn figures(&self) -> LinkFigures {
        LinkFigures {
            bandwidth_bytes_per_second: self.bandwidth(),
            scope: self.scope,
            nodes: self.nodes.load(Ordering::Relaxed),
            down: self.lane(Direction::Down).figures(),
            up: self.lane(Direction::Up).figures(),
        }
    }

    /// Returns the rates that this node would use in each direction if it had room; see
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

    /// Adds a rate that a plan reserves for reads from the lake, in bytes per second.
    fn reserve(&self, rate: u64) {
        let before = self.reserved.fetch_add(rate, Ordering::Relaxed);
        self.lane(Direction::Down)
            .set_reserved(before.saturating_add(rate));
    }

    fn release(&self, rate: u64) {
        let before = self.reserved.fetch_sub(rate, Ordering::Relaxed);
        debug_assert!(before >= rate, "a plan releases the rate that it reserved");
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

/// Returns the time since `began`, in the form that the policies take.
fn since(began: Instant) -> Duration {
    clock::runtime_instant().saturating_duration_since(began)
}

/// Returns the class of a transfer; a request without a transfer is a client's.
fn class_of(transfer: Option<&Transfer>) -> Class {
    transfer.map_or(Class::Client, Transfer::class)
}

#[cfg(test)]
mod tests;
