//! Replays a trace on a cluster without a network: a block arrives the moment it is requested.

use std::collections::VecDeque;

use shoal_policy::Found;

use crate::block::{Block, Granularity};
use crate::clock::Time;
use crate::cluster::{Arrival, Cooperation, Push, Route, Wanted};
use crate::sources::{Served, Sources, Volume};
use crate::trace::{Access, Operation, Recording, TraceError};

/// The pause between two reads of a trace without times.
const PAUSE_NS: u64 = 10_000_000;

/// The nodes on which ways to cooperate are tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) nodes: u32,
    pub(super) node_bytes: u64,
    pub(super) granularity: Granularity,
}

impl Trial {
    /// Creates a replay on `cluster`, which has these nodes.
    pub(super) fn on(self, cluster: impl Cooperation + 'static) -> Replay {
        Replay {
            cluster: Box::new(cluster),
            trial: self,
            reads: 0,
            now: Time::ZERO,
            adapts_at: Time::ZERO,
            sources: Sources::default(),
            between_nodes: Volume::default(),
            found: [0; Found::ALL.len()],
        }
    }
}

/// Nodes, and the volumes sent and received so far.
pub(super) struct Replay {
    cluster: Box<dyn Cooperation>,
    trial: Trial,
    /// Reads so far.
    reads: u64,
    /// The time of the last read.
    now: Time,
    /// The time at which the cluster adapts next.
    adapts_at: Time,
    /// Volumes by source.
    pub(super) sources: Sources,
    /// Blocks that nodes sent to each other.
    pub(super) between_nodes: Volume,
    /// Reads of several blocks that found all of them where they were answered, some, and none.
    pub(super) found: [u64; Found::ALL.len()],
}

impl Replay {
    /// Replays one request. Clients are distributed over the nodes.
    fn replay(&mut self, access: &Access) {
        let Trial {
            nodes, granularity, ..
        } = self.trial;
        let object_blocks = granularity.count(access.object_bytes);
        if access.operation != Operation::Read {
            let object = access.object;
            (0..object_blocks).for_each(|index| self.cluster.remove(Block { object, index }));
            return;
        }
        self.reads += 1;
        let at = if access.at == Time::ZERO {
            Time(self.reads * PAUSE_NS)
        } else {
            access.at
        };
        // Times that are whole seconds begin with many reads at 0.
        let now = self.now.max(at);
        self.now = now;
        self.adapt(now);
        let (mut blocks, mut local) = (0, 0);
        for (block, bytes) in granularity.blocks_of(access) {
            let wanted = Wanted {
                node: self.cluster.answering((access.client % nodes) as usize, block),
                block,
                bytes,
                object_blocks,
                now,
            };
            let route = self.fetch(wanted);
            self.sources.count(Served::from(route), bytes);
            blocks += 1;
            local += u32::from(route == Route::Local);
        }
        debug_assert!(local <= blocks, "no more blocks are local than were read");
        let found = match local {
            _ if blocks < 2 => return,
            0 => Found::Nothing,
            local if local == blocks => Found::Complete,
            _ => Found::Partial,
        };
        self.found[found as usize] += 1;
    }

    /// Ends a period of the cluster, if it has periods.
    fn adapt(&mut self, now: Time) {
        if let Some(period) = self.cluster.period()
            && now >= self.adapts_at
        {
            self.adapts_at = now + period;
            let pushes = self.cluster.adapt(now);
            self.deliver(pushes, now);
        }
    }

    /// Delivers the requested block to the reader's node, to its home if the home forwards it from the lake,
    /// and every block pushed because of it to its new node.
    fn fetch(&mut self, wanted: Wanted) -> Route {
        let route = self.cluster.route(&wanted);
        let arrival = Arrival {
            wanted,
            route,
            now: wanted.now,
        };
        match route {
            Route::Local => return route,
            Route::Lake { through: None } => {}
            Route::Peer { .. } => self.send(wanted.bytes),
            Route::Lake { through: Some(home) } => {
                self.send(wanted.bytes);
                self.cluster.filled(home, &arrival);
            }
        }
        let pushes = self.cluster.landed(&arrival);
        self.deliver(pushes, wanted.now);
        route
    }

    /// Delivers pushed blocks, and those that are pushed because of them.
    fn deliver(&mut self, pushes: Vec<Push>, now: Time) {
        let mut pushes = VecDeque::from(pushes);
        while let Some(push) = pushes.pop_front() {
            self.send(push.bytes);
            pushes.extend(self.cluster.pushed(&push, now));
        }
    }

    const fn send(&mut self, bytes: u64) {
        self.between_nodes.requests += 1;
        self.between_nodes.bytes += bytes;
    }
}

/// Passes the requests of a trace to each of the clusters that are tried.
pub(super) fn replay_each<T>(
    recording: &Recording<'_>,
    progress: &mut dyn FnMut(u64),
    tried: &mut [(T, Replay)],
) -> Result<(), TraceError> {
    recording.replay(progress, |chunk| {
        for access in chunk {
            for (_, replay) in &mut *tried {
                replay.replay(access);
            }
        }
    })
}
