//! A run: clients ask, nodes decide, bytes move, jobs end.
//!
//! One loop takes the next event or the next end of a flow until every job is done. Time advances in no other
//! way.

mod clients;
mod topology;

use std::time::Duration;

use shoal_policy::hash::KeyMap;
use shoal_sim::Time;
use shoal_sim::block::{Block, Granularity};
use shoal_sim::cluster::{Arrival, NodeIndex, Push, Route, Wanted};
use shoal_sim::sources::Served;

pub use self::clients::ClientSettings;
use self::clients::{BlockRead, Clients, Request, RequestId};
pub use self::topology::LinkSettings;
use self::topology::{LinkPath, Topology};
use crate::cluster::Simulated;
use crate::network::Network;
use crate::network::events::Events;
pub use crate::network::links::{LinkKind, NamedLink};
use crate::report::{Recorder, Report};
use crate::workload::Workload;

/// A change of a link's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkChange {
    /// The ends of the link.
    pub kind: LinkKind,
    /// The node of the link; `None` for all nodes.
    pub node: Option<NodeIndex>,
    /// The time of the change, counted from the first request after the warm-up.
    pub after: Duration,
    /// The rate after the change.
    pub bytes_per_second: f64,
}

/// A move of demand: the clients of one node take over the blocks that the clients of another have not
/// requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemandMove {
    /// The node that was asked before.
    pub from: NodeIndex,
    /// The node that is asked after the move.
    pub to: NodeIndex,
    /// The time of the move, counted from the first request after the warm-up.
    pub after: Duration,
}

/// All the parameters of a run except its workload and its nodes.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The number of nodes.
    pub nodes: usize,
    /// Rates and latencies.
    pub links: LinkSettings,
    /// Rates that change.
    pub changes: Vec<LinkChange>,
    /// Demand that moves.
    pub moves: Vec<DemandMove>,
    /// The limits of a client.
    pub clients: ClientSettings,
    /// How objects are divided.
    pub granularity: Granularity,
    /// See [`crate::network::TOLERANCE`].
    pub tolerance: f64,
    /// The share of the block requests before counting begins.
    pub warmup: f64,
    /// The interval at which the state of the nodes is recorded.
    pub sample: Option<Duration>,
}

/// A planned event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Submitted(u32),
    Computed(u32),
    /// The first byte of a transfer leaves.
    Flows(Transfer),
    Changed(u32),
    Moved(u32),
    Adapt,
    Sample,
}

/// Bytes on their way.
#[derive(Clone, Copy, Debug)]
enum Transfer {
    /// To the node that wants it.
    Fetch {
        request: RequestId,
        route: Route,
    },
    /// From the lake to the home that forwards it.
    Fill {
        request: RequestId,
        home: NodeIndex,
    },
    /// To the client that wants it.
    Deliver {
        request: RequestId,
        route: Route,
    },
    Push(Push),
    Write {
        job: u32,
        node: NodeIndex,
        bytes: u64,
    },
}

impl Transfer {
    /// Returns true if a node sends it to another.
    const fn is_between_nodes(self) -> bool {
        match self {
            Self::Fetch { route, .. } => {
                matches!(route, Route::Peer { .. } | Route::Lake { through: Some(_) })
            }
            Self::Push(push) => push.from.is_some(),
            Self::Fill { .. } | Self::Deliver { .. } | Self::Write { .. } => false,
        }
    }
}

struct Simulation<'run> {
    setup: &'run Setup,
    workload: &'run Workload,
    cooperation: &'run mut dyn Simulated,
    now: Time,
    events: Events<Event>,
    network: Network<Transfer>,
    topology: Topology,
    clients: Clients,
    /// Blocks on their way to a node, and the requests that wait for them.
    flights: KeyMap<(NodeIndex, Block), Vec<RequestId>>,
    recorder: Recorder,
    /// The bytes that the links had carried when counting began.
    uncounted_bytes: Vec<u64>,
}

/// Runs `workload` on the nodes of `cooperation`.
pub fn run(setup: &Setup, workload: &Workload, cooperation: &mut dyn Simulated) -> Report {
    let mut network = Network::new(setup.tolerance);
    let topology = Topology::new(&setup.links, setup.nodes, &mut network);
    #[expect(clippy::cast_sign_loss, reason = "a share of requests is not negative")]
    let warmup_requests = (workload.block_requests() as f64 * setup.warmup) as u64;
    let mut simulation = Simulation {
        setup,
        workload,
        cooperation,
        now: Time::ZERO,
        events: Events::default(),
        network,
        topology,
        clients: Clients::new(&setup.clients, setup.nodes, workload),
        flights: KeyMap::default(),
        recorder: Recorder::new(warmup_requests, setup.nodes),
        uncounted_bytes: Vec::new(),
    };
    simulation.uncounted_bytes = simulation.link_bytes();
    simulation.plan();
    while !simulation.clients.are_done() {
        simulation.step();
    }
    let carried = simulation.link_bytes();
    let counted = carried
        .iter()
        .zip(&simulation.uncounted_bytes)
        .map(|(all, uncounted)| all - uncounted);
    let links = simulation.topology.links().iter().zip(counted);
    let distinct_bytes = workload.distinct_bytes(setup.granularity);
    simulation.recorder.report(simulation.now, distinct_bytes, links)
}

impl Simulation<'_> {
    fn plan(&mut self) {
        for (job, number) in self.workload.jobs.iter().zip(0..) {
            self.events.plan(job.at, Event::Submitted(number));
        }
        if let Some(period) = self.cooperation.period() {
            self.events.plan(Time::ZERO + period, Event::Adapt);
        }
        if self.setup.sample.is_some() {
            self.events.plan(Time::ZERO, Event::Sample);
        }
    }

    fn step(&mut self) {
        let (event_at, flow_at) = (self.events.next_at(), self.network.next_end());
        match (event_at, flow_at) {
            (None, None) => {
                unreachable!("a job that is not done waits for something: no job comes after itself")
            }
            (Some(event_at), flow_at) if flow_at.is_none_or(|flow_at| event_at < flow_at) => {
                let (at, event) = self.events.take().expect("an event is next");
                self.now = at;
                self.happens(event);
            }
            (_, Some(flow_at)) => {
                self.now = flow_at;
                let transfer = self.network.end_next().expect("a flow is next");
                self.arrived(transfer);
            }
            (Some(_), None) => unreachable!("without flows the event is next"),
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Submitted(job) => {
                self.clients.submitted(job, &self.workload.jobs);
                self.work();
            }
            Event::Computed(job) => {
                let writes = &self.workload.jobs[job as usize].writes;
                let node = self.clients.node(self.workload.jobs[job as usize].client);
                self.clients.computed(job, writes.len() as u32);
                for &(object, bytes) in writes {
                    self.invalidate(object);
                    self.send(Transfer::Write { job, node, bytes });
                }
                self.finish_if_done(job);
                self.work();
            }
            Event::Flows(transfer) => self.flow(transfer),
            Event::Changed(number) => {
                let change = self.setup.changes[number as usize];
                for link in self.topology.find(change.kind, change.node) {
                    self.network.set_rate(self.now, link, change.bytes_per_second);
                }
            }
            Event::Moved(number) => {
                let DemandMove { from, to, .. } = self.setup.moves[number as usize];
                self.clients.moved(from, to);
                self.work();
            }
            Event::Adapt => {
                let pushes = self.cooperation.adapt(self.now);
                self.push(pushes);
                if let Some(period) = self.cooperation.period() {
                    self.events.plan(self.now + period, Event::Adapt);
                }
            }
            Event::Sample => {
                for node in 0..self.setup.nodes {
                    self.recorder.sample(self.now, node, self.cooperation.room(node));
                }
                if let Some(period) = self.setup.sample {
                    self.events.plan(self.now + period, Event::Sample);
                }
            }
        }
    }

    /// Begins to count, at the first request that counts.
    fn count(&mut self) {
        self.uncounted_bytes = self.link_bytes();
        let since = self.now;
        for (change, number) in self.setup.changes.iter().zip(0..) {
            self.events.plan(since + change.after, Event::Changed(number));
        }
        for (demand, number) in self.setup.moves.iter().zip(0..) {
            self.events.plan(since + demand.after, Event::Moved(number));
        }
    }

    /// Lets clients make all the requests that they may make now.
    fn work(&mut self) {
        while let Some(read) = self.clients.next_block(&self.workload.jobs, self.now) {
            self.ask(read);
        }
        while let Some(job) = self.clients.next_read() {
            let compute = self.workload.jobs[job as usize].compute;
            self.events.plan(self.now + compute, Event::Computed(job));
        }
    }

    fn ask(&mut self, read: BlockRead) {
        let node = self
            .cooperation
            .answering(self.clients.node(read.client), read.block);
        let object_bytes = self.workload.objects[read.block.object as usize];
        let granularity = self.setup.granularity;
        let wanted = Wanted {
            node,
            block: read.block,
            bytes: granularity.block_bytes(object_bytes, read.block.index),
            object_blocks: granularity.count(object_bytes),
            now: self.now,
        };
        let request = self.clients.remember(Request {
            client: read.client,
            read: read.read,
            wanted,
            joined: false,
            fills: false,
            fetched: false,
        });
        if self.recorder.asked(self.now) {
            self.count();
        }
        match self.flights.get_mut(&(node, wanted.block)) {
            Some(waiting) => waiting.push(request),
            None => self.fetch(request, &wanted),
        }
    }

    /// Fetches a wanted block that is not on its way to its node.
    fn fetch(&mut self, request: RequestId, wanted: &Wanted) {
        let route = self.cooperation.route(wanted);
        if route != Route::Local {
            self.flights.insert((wanted.node, wanted.block), Vec::new());
        }
        if let Route::Lake { through: Some(home) } = route {
            if let Some(waiting) = self.flights.get_mut(&(home, wanted.block)) {
                waiting.push(request);
                return;
            }
            self.flights.insert((home, wanted.block), Vec::new());
            self.clients.request_mut(request).fills = true;
            self.send(Transfer::Fill { request, home });
        }
        self.send(Self::next_of(request, route));
    }

    /// A block that the node holds goes to the client; any other block must first come to the node.
    fn next_of(request: RequestId, route: Route) -> Transfer {
        match route {
            Route::Local => Transfer::Deliver { request, route },
            route => Transfer::Fetch { request, route },
        }
    }

    fn path(&self, transfer: Transfer) -> (LinkPath, u64) {
        match transfer {
            Transfer::Fetch { request, route } => {
                let Wanted { node, bytes, .. } = self.clients.request(request).wanted;
                (LinkPath::Fetch { node, route }, bytes)
            }
            Transfer::Fill { request, home } => {
                let route = Route::Lake { through: None };
                let path = LinkPath::Fetch { node: home, route };
                (path, self.clients.request(request).wanted.bytes)
            }
            Transfer::Deliver { request, route } => {
                let &Request { wanted, joined, .. } = self.clients.request(request);
                let from_disk = route == Route::Local && !joined;
                let node = wanted.node;
                (LinkPath::Deliver { node, from_disk }, wanted.bytes)
            }
            Transfer::Push(push) => (LinkPath::Push(push), push.bytes),
            Transfer::Write { node, bytes, .. } => (LinkPath::Write { node }, bytes),
        }
    }

    fn send(&mut self, transfer: Transfer) {
        let latency = self.topology.latency(self.path(transfer).0);
        if latency.is_zero() {
            self.flow(transfer);
        } else {
            self.events.plan(self.now + latency, Event::Flows(transfer));
        }
    }

    fn push(&mut self, pushes: Vec<Push>) {
        for push in pushes {
            self.send(Transfer::Push(push));
        }
    }

    fn flow(&mut self, transfer: Transfer) {
        let (path, bytes) = self.path(transfer);
        let class = self.topology.class(path, &mut self.network);
        self.network.start(self.now, class, bytes, transfer);
    }

    fn arrived(&mut self, transfer: Transfer) {
        if transfer.is_between_nodes() {
            self.recorder.sent_between_nodes(self.path(transfer).1);
        }
        match transfer {
            Transfer::Fetch { request, route } => self.fetched(request, route),
            Transfer::Fill { request, home } => self.filled(request, home),
            Transfer::Deliver { request, route } => self.served(request, route),
            Transfer::Push(push) => {
                let pushes = self.cooperation.pushed(&push, self.now);
                self.push(pushes);
            }
            Transfer::Write { job, .. } => {
                self.clients.written(job);
                self.finish_if_done(job);
            }
        }
        self.work();
    }

    /// Records that everything that `request` gets over the links between nodes has arrived. The block is
    /// complete when its home has all of it, too.
    fn fetched(&mut self, request: RequestId, route: Route) {
        let state = self.clients.request_mut(request);
        if std::mem::replace(&mut state.fills, false) {
            state.fetched = true;
        } else {
            self.landed(request, route);
        }
    }

    /// Records that the lake has sent the whole block that `request` gets through `home`.
    fn filled(&mut self, request: RequestId, home: NodeIndex) {
        let &Request { wanted, fetched, .. } = self.clients.request(request);
        let route = Route::Lake { through: Some(home) };
        let arrival = Arrival {
            wanted,
            route,
            now: self.now,
        };
        self.cooperation.filled(home, &arrival);
        self.serve_waiting(home, wanted.block);
        if fetched {
            self.landed(request, route);
        } else {
            self.clients.request_mut(request).fills = false;
        }
    }

    fn landed(&mut self, request: RequestId, route: Route) {
        let wanted = self.clients.request(request).wanted;
        let arrival = Arrival {
            wanted,
            route,
            now: self.now,
        };
        let pushes = self.cooperation.landed(&arrival);
        self.push(pushes);
        self.send(Transfer::Deliver { request, route });
        self.serve_waiting(wanted.node, wanted.block);
    }

    /// Serves the requests that waited for `block` to come to `node`: those of the node's clients, and those
    /// of other nodes whose blocks come through it.
    fn serve_waiting(&mut self, node: NodeIndex, block: Block) {
        for request in self.flights.remove(&(node, block)).into_iter().flatten() {
            let wanted = self.clients.request(request).wanted;
            let route = if wanted.node == node {
                self.clients.request_mut(request).joined = true;
                self.cooperation.joined(&Wanted {
                    now: self.now,
                    ..wanted
                });
                Route::Local
            } else {
                Route::Peer { from: node }
            };
            self.send(Self::next_of(request, route));
        }
    }

    fn served(&mut self, request: RequestId, route: Route) {
        let Request {
            client,
            read,
            wanted,
            joined,
            ..
        } = self.clients.forget(request);
        let by = if joined {
            Served::Joined
        } else {
            Served::from(route)
        };
        self.recorder.served(self.now, &wanted, by);
        let hit = matches!(by, Served::Local | Served::Peer);
        if let Some(read) = self.clients.answered(client, read, hit) {
            self.recorder.read(self.now, &read);
        }
    }

    /// Invalidates the blocks of `object`.
    fn invalidate(&mut self, object: u32) {
        let object_bytes = self.workload.objects[object as usize];
        for index in 0..self.setup.granularity.count(object_bytes) {
            self.cooperation.remove(Block { object, index });
        }
    }

    fn finish_if_done(&mut self, job: u32) {
        if self.clients.finish_if_done(job, &self.workload.jobs) {
            let submitted = self.workload.jobs[job as usize].at;
            self.recorder.job(self.now, submitted);
        }
    }

    fn link_bytes(&self) -> Vec<u64> {
        let links = self.topology.links().iter();
        links.map(|link| self.network.carried_bytes(link.id)).collect()
    }
}

#[cfg(test)]
mod tests;
