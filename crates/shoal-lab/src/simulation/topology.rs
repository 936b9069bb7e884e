//! The links of a cluster and the paths over them. The `[links]` of an experiment.
//!
//! ```text
//!                     lake-total-in      lake-in          peer-out    peer-in
//!   lake ──────────────────────────────────────────▶ node ───────────────────▶ other node
//!                                                     ▲ │ client
//!                                               disk ─┘ └───────▶ clients of the node
//! ```

use std::time::Duration;

use serde::Deserialize;
use shoal_sim::cluster::{NodeIndex, Push, Route};

use crate::network::links::{LinkKind, NamedLink};
use crate::network::{ClassId, LinkId, Network};
use crate::units::{Rate, Span};

/// Rates and latencies. A link without a rate never limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSettings {
    /// From a node to all its clients.
    pub client: Option<Rate>,
    /// From a node to the others; the same in the other direction.
    pub peer: Option<Rate>,
    /// From the lake to a node; the same in the other direction.
    pub lake: Option<Rate>,
    /// From the lake to all nodes; the same in the other direction.
    pub lake_total: Option<Rate>,
    /// From the disk of a node.
    pub disk: Option<Rate>,
    /// Before the first byte of a block that the node holds.
    pub local_latency: Option<Span>,
    /// Before the first byte from another node.
    pub peer_latency: Option<Span>,
    /// Before the first byte from the lake.
    pub lake_latency: Option<Span>,
}

/// A path for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkPath {
    /// From another node, or the lake, to `node`.
    Fetch { node: NodeIndex, route: Route },
    /// From `node` to one of its clients; from memory if the block has just arrived.
    Deliver { node: NodeIndex, from_disk: bool },
    /// To a node that did not ask.
    Push(Push),
    /// From `node` to the lake.
    Write { node: NodeIndex },
}

/// The links of a cluster.
#[derive(Debug)]
pub(super) struct Topology {
    nodes: usize,
    latencies: [Duration; 3],
    links: Vec<NamedLink>,
    /// By kind of path and the two nodes on it. Created at the first use, since most are never used.
    classes: Vec<Option<ClassId>>,
}

impl Topology {
    pub(super) fn new<F>(settings: &LinkSettings, nodes: usize, network: &mut Network<F>) -> Self {
        let mut links = Vec::new();
        let mut add = |kind, node, rate: Option<Rate>| {
            if let Some(Rate(bytes_per_second)) = rate {
                let id = network.link(bytes_per_second);
                links.push(NamedLink { kind, node, id });
            }
        };
        add(LinkKind::LakeTotalIn, None, settings.lake_total);
        add(LinkKind::LakeTotalOut, None, settings.lake_total);
        for node in (0..nodes).map(Some) {
            add(LinkKind::Client, node, settings.client);
            add(LinkKind::PeerOut, node, settings.peer);
            add(LinkKind::PeerIn, node, settings.peer);
            add(LinkKind::LakeIn, node, settings.lake);
            add(LinkKind::LakeOut, node, settings.lake);
            add(LinkKind::Disk, node, settings.disk);
        }
        let latency = |span: Option<Span>| span.map_or(Duration::ZERO, |Span(latency)| latency);
        Self {
            nodes,
            latencies: [
                settings.local_latency,
                settings.peer_latency,
                settings.lake_latency,
            ]
            .map(latency),
            links,
            classes: vec![None; Self::KINDS * nodes * nodes],
        }
    }

    const KINDS: usize = 7;

    /// The class of the flows on `path`.
    pub(super) fn class<F>(&mut self, path: LinkPath, network: &mut Network<F>) -> ClassId {
        let (kind, a, b) = match path {
            LinkPath::Deliver { node, from_disk } => (usize::from(from_disk), node, node),
            LinkPath::Fetch { node, route } => match route {
                Route::Local => unreachable!("what a node holds is not fetched"),
                Route::Peer { from } => (2, from, node),
                Route::Lake { through } => (3, through.unwrap_or(node), node),
            },
            LinkPath::Push(Push {
                from: Some(from), to, ..
            }) => (4, from, to),
            LinkPath::Push(Push { from: None, to, .. }) => (5, to, to),
            LinkPath::Write { node } => (6, node, node),
        };
        let slot = (kind * self.nodes + a) * self.nodes + b;
        if let Some(class) = self.classes[slot] {
            return class;
        }
        let class = network.class(self.path(path));
        self.classes[slot] = Some(class);
        class
    }

    /// The latency of the first byte.
    pub(super) fn latency(&self, path: LinkPath) -> Duration {
        let [local, peer, lake] = self.latencies;
        match path {
            LinkPath::Deliver { from_disk: true, .. } => local,
            LinkPath::Deliver { from_disk: false, .. } => Duration::ZERO,
            LinkPath::Fetch { route, .. } => match route {
                Route::Local | Route::Peer { .. } => peer,
                Route::Lake { through: None } => lake,
                Route::Lake { through: Some(_) } => lake + peer,
            },
            LinkPath::Push(Push { from: Some(_), .. }) => peer,
            LinkPath::Push(Push { from: None, .. }) | LinkPath::Write { .. } => lake,
        }
    }

    /// All links.
    pub(super) fn links(&self) -> &[NamedLink] {
        &self.links
    }

    /// The links of `kind`; only those of `node` if it is given.
    pub(super) fn find(&self, kind: LinkKind, node: Option<NodeIndex>) -> impl Iterator<Item = LinkId> {
        let wanted = move |link: &&NamedLink| link.kind == kind && (node.is_none() || link.node == node);
        self.links.iter().filter(wanted).map(|link| link.id)
    }

    fn path(&self, path: LinkPath) -> Vec<LinkId> {
        use LinkKind::{Client, Disk, LakeIn, LakeOut, LakeTotalIn, LakeTotalOut, PeerIn, PeerOut};
        let from_peer = |from, to| vec![(Disk, Some(from)), (PeerOut, Some(from)), (PeerIn, Some(to))];
        let from_lake = |to| vec![(LakeTotalIn, None), (LakeIn, Some(to))];
        let hops: Vec<(LinkKind, Option<NodeIndex>)> = match path {
            LinkPath::Deliver {
                node,
                from_disk: true,
            } => vec![(Disk, Some(node)), (Client, Some(node))],
            LinkPath::Deliver {
                node,
                from_disk: false,
            } => vec![(Client, Some(node))],
            LinkPath::Fetch {
                route: Route::Local, ..
            } => Vec::new(),
            LinkPath::Fetch {
                node,
                route: Route::Peer { from },
            } => from_peer(from, node),
            LinkPath::Fetch {
                node,
                route: Route::Lake { through: None },
            } => from_lake(node),
            // A home forwards a block from memory as it arrives; the lake sends it to the home at a separate
            // pace.
            LinkPath::Fetch {
                node,
                route: Route::Lake { through: Some(home) },
            } => vec![(PeerOut, Some(home)), (PeerIn, Some(node))],
            LinkPath::Push(Push {
                from: Some(from), to, ..
            }) => from_peer(from, to),
            LinkPath::Push(Push { from: None, to, .. }) => from_lake(to),
            LinkPath::Write { node } => vec![(LakeOut, Some(node)), (LakeTotalOut, None)],
        };
        hops.into_iter()
            .flat_map(|(kind, node)| self.find(kind, node))
            .collect()
    }
}
