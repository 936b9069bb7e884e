//! Tracks which nodes are home to a block, and connects to them.
//!
//! Gossip maintains the list of living nodes ([`shoal_net::membership`]). From it, each node computes the
//! rings of its layers and asks [`shoal_policy::route`] where a block may be found. Nodes with different
//! lists disagree about homes for a moment; requests between them remain correct, as described there.

mod config;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::nearest::shared_levels;
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};
use shoal_policy::route::{Hierarchy, Neighbourhood, Stop};
use shoal_policy::{BlockId, Layer, NodeId};
use tokio::sync::watch;

pub use self::config::{CooperationConfig, CooperationMode};
use shoal_net::channel::Channel;
use shoal_net::clock;
use shoal_net::membership::{Member, Members, Notices, State};
use shoal_net::shutdown::Shutdown;

use crate::nodes::peer::{BlockRequest, Peer, PeerError, PeerTraffic};

/// A node that has been a member for less than this also asks the node that was home before it joined. Long
/// enough for a block that is read occasionally to be read once more.
const NEWCOMER: Duration = Duration::from_mins(10);

/// This node's current view of the cluster.
pub struct Cooperation {
    /// This node.
    pub me: NodeId,
    topology: String,
    /// Number of layers beyond the node's own.
    rings: usize,
    /// The channel on which nodes authenticate each other.
    pub channel: Arc<Channel>,
    view: ArcSwap<View>,
    /// The traffic with peers that have left or moved, by name: no counter of `/metrics` falls.
    departed: Mutex<BTreeMap<String, PeerTraffic>>,
    /// When nodes were seen last that are no members any more.
    missed: Mutex<HashMap<NodeId, Duration>>,
    /// The notices for operators.
    pub notices: Arc<Notices>,
}

struct View {
    hierarchy: Arc<Hierarchy>,
    peers: HashMap<NodeId, Arc<Peer>>,
    members: Members,
}

impl View {
    /// Returns a peer that can be asked now.
    fn reachable(&self, node: NodeId) -> Option<&Arc<Peer>> {
        self.peers.get(&node).filter(|peer| peer.is_reachable())
    }
}

/// Returns the ring of a node that knows no other.
fn ring_of_one(me: NodeId) -> Ring {
    Ring::new(BTreeMap::from([(me, ORDINARY_WEIGHT)]))
}

impl Cooperation {
    /// Creates the view of a node without peers so far, which will reach them through `channel`. `layers`
    /// includes the node's own; a node with one layer caches alone.
    pub fn new(name: &str, topology: &str, layers: usize, channel: Arc<Channel>) -> Self {
        let me = shoal_net::membership::node_id(name);
        let rings = layers.saturating_sub(1);
        let alone = || Neighbourhood {
            ring: ring_of_one(me),
            former: None,
        };
        let view = View {
            hierarchy: Arc::new(Hierarchy {
                node: me,
                layers: (0..rings).map(|_| alone()).collect(),
            }),
            peers: HashMap::new(),
            members: Members::default(),
        };
        Self {
            me,
            topology: topology.into(),
            rings,
            channel,
            view: ArcSwap::from_pointee(view),
            departed: Mutex::default(),
            missed: Mutex::default(),
            notices: Notices::new(),
        }
    }

    /// Returns true if there is no other node to exchange requests with.
    pub fn is_alone(&self) -> bool {
        self.view.load().peers.is_empty()
    }

    /// Returns where to look for a block, best first, when this node is asked for it in layer `asked` and the
    /// nodes in `tried` have failed.
    pub fn route(&self, block: BlockId, asked: Layer, tried: &[NodeId]) -> Vec<Stop> {
        let view = self.view.load();
        let reachable = |node| !tried.contains(&node) && view.reachable(node).is_some();
        view.hierarchy.route(block.place(), asked, reachable)
    }

    /// Returns the nodes that should take a block over from this node. `before` is the hierarchy that still
    /// contains this node.
    pub fn successors(&self, before: &Hierarchy, block: BlockId) -> Vec<Arc<Peer>> {
        let view = self.view.load();
        // Another draining node has no weight.
        let stays = |node: &NodeId| {
            let mut rings = view.hierarchy.layers.iter().map(|layer| layer.ring.weights());
            rings.any(|weights| weights.get(node).is_some_and(|weight| *weight > 0))
        };
        let peer = |node| view.reachable(node).filter(|_| stays(&node));
        let successors = before.successors(block.place(), |node| peer(node).is_some());
        successors
            .into_iter()
            .filter_map(|node| peer(node).cloned())
            .collect()
    }

    /// Returns true if a node can be asked; this node always can.
    pub fn can_be_asked(&self, node: NodeId) -> bool {
        node == self.me || self.view.load().reachable(node).is_some()
    }

    /// Returns true if another node can be given a block: it is reachable and not draining.
    pub fn can_keep_blocks(&self, node: NodeId) -> bool {
        let view = self.view.load();
        let member = view.members.iter().find(|member| member.id() == node);
        let stays = member.is_some_and(|member| member.state == State::Serving);
        stays && view.reachable(node).is_some()
    }

    /// Offers a block of this node to another one, and waits until that has stored it. Returns `None` if the
    /// node has left.
    ///
    /// # Errors
    ///
    /// Fails if the node refuses the block, or does not have all of it in time.
    pub async fn offer(&self, request: &BlockRequest, to: NodeId) -> Option<Result<(), PeerError>> {
        Some(self.peer(to)?.offer(request).await)
    }

    /// Returns the ring of the nodes at a place (a node's name or a topology prefix), and the widest layer
    /// that they all share, in which they are asked for blocks of that ring. Without a place, returns the
    /// ring of this node's widest layer. `None` if no node at the place keeps blocks.
    pub fn ring_at(&self, place: Option<&str>) -> Option<(Ring, Layer)> {
        let view = self.view.load();
        let Some(place) = place else {
            let widest = view.hierarchy.layers.last().map(|layer| layer.ring.clone());
            let widest = widest.unwrap_or_else(|| ring_of_one(self.me));
            return Some((widest, Layer(self.rings as u8 + 1)));
        };
        let parts: Vec<&str> = place.split('/').collect();
        if view.members.is_empty() {
            let is_here = shoal_net::membership::node_id(place) == self.me || shares(&self.topology, &parts);
            return is_here.then(|| (ring_of_one(self.me), Layer::L1));
        }
        let is_there = |member: &&Member| member.name == place || shares(&member.topology, &parts);
        let there: Vec<&Member> = view.members.iter().filter(is_there).collect();
        let weights = there.iter().filter(|member| member.state == State::Serving);
        let ring = Ring::new(weights.map(|member| (member.id(), weight(member))).collect());
        let depth = there
            .first()
            .map_or(0, |member| member.topology.split('/').count());
        let is_one_node = there.iter().all(|member| member.name == place);
        let within = if is_one_node {
            0
        } else {
            depth.saturating_sub(parts.len()).min(self.rings)
        };
        (ring.weights().values().any(|weight| *weight > 0)).then(|| (ring, Layer(within as u8 + 1)))
    }

    /// Returns the nearest holder of a block that has not been tried: a random one of those that share most
    /// of this node's topology. `None` if none can be asked.
    pub fn nearest(&self, holders: &[NodeId], tried: &[NodeId]) -> Option<NodeId> {
        let view = self.view.load();
        let candidates = view.members.iter().filter(|member| {
            let id = member.id();
            holders.contains(&id) && !tried.contains(&id) && view.reachable(id).is_some()
        });
        let near = candidates.map(|member| {
            let levels = shared_levels(&self.topology, &member.topology);
            (levels, shoal_base::chance::bits(), member.id())
        });
        near.max().map(|(_, _, node)| node)
    }

    /// Returns the nodes that are not members, and therefore cannot be reached.
    pub fn non_members(&self, nodes: &[NodeId]) -> impl Iterator<Item = NodeId> {
        let view = self.view.load();
        nodes
            .iter()
            .copied()
            .filter(move |node| *node != self.me && !view.peers.contains_key(node))
    }

    /// Returns the peer with this id; `None` if it has left.
    pub fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        self.view.load().peers.get(&node).cloned()
    }

    /// Returns all living members, this node included.
    pub fn members(&self) -> Members {
        Arc::clone(&self.view.load().members)
    }

    /// Every peer.
    pub fn peers(&self) -> Vec<Arc<Peer>> {
        let mut peers: Vec<_> = self.view.load().peers.values().cloned().collect();
        peers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        peers
    }

    /// Returns true if a node was a member within this time that is none now: it has left, or this node is
    /// cut off from it.
    pub fn misses_a_member(&self, within: Duration) -> bool {
        let (now, view) = (clock::monotonic(), self.view.load());
        let mut missed = self.missed.lock();
        missed.retain(|node, at| !view.peers.contains_key(node) && now.saturating_sub(*at) < within);
        !missed.is_empty()
    }

    /// Returns the traffic with each peer since the node started, by name. Peers that have left are included.
    pub fn traffic(&self) -> BTreeMap<String, PeerTraffic> {
        let departed = self.departed.lock();
        let mut traffic = departed.clone();
        for peer in self.peers() {
            add_traffic(&mut traffic, &peer);
        }
        traffic
    }

    /// Follows changes of `members` until the node stops; calls `place` whenever homes of blocks change.
    pub async fn follow(
        self: Arc<Self>,
        mut members: watch::Receiver<Members>,
        place: impl Fn(Arc<Hierarchy>) + Send,
        stopping: Shutdown,
    ) {
        let mut placed = self.hierarchy();
        place(Arc::clone(&placed));
        loop {
            let now = clock::utc_now();
            let known = members.borrow_and_update().clone();
            let settles = known.iter().filter_map(|member| newcomer_for(member, now)).min();
            self.update(known, now);
            let hierarchy = self.hierarchy();
            if !same_homes(&placed, &hierarchy) {
                place(Arc::clone(&hierarchy));
                placed = hierarchy;
            }
            tokio::select! {
                changed = members.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(settles.unwrap_or(NEWCOMER)) => {}
                () = stopping.begun() => return,
            }
        }
    }

    /// Returns the names of a block's homes, from L2 outwards; this node may be among them.
    pub fn homes(&self, block: BlockId) -> Vec<String> {
        let homes = self.view.load().hierarchy.homes(block.place());
        homes.into_iter().filter_map(|node| self.name_of(node)).collect()
    }

    /// Returns the name of a member; `None` if no member has this id.
    pub fn name_of(&self, node: NodeId) -> Option<String> {
        let view = self.view.load();
        let known = view.members.iter().find(|member| member.id() == node);
        known.map(|member| member.name.clone())
    }

    /// Returns the current layers around this node.
    pub fn hierarchy(&self) -> Arc<Hierarchy> {
        Arc::clone(&self.view.load().hierarchy)
    }

    /// Recomputes the rings for these members.
    fn update(&self, members: Members, now: SystemTime) {
        let rings = self.arrange(&members, |member| match member.state {
            State::Draining => 0,
            State::Serving => weight(member),
        });
        // Only current members are considered: a node that has left cannot be asked, and a draining node can.
        let is_established = established(&members, now);
        let former = self.arrange(
            &members,
            |member| if is_established(member) { weight(member) } else { 0 },
        );
        let layers = rings.into_iter().zip(former).map(|(ring, former)| {
            let former = Some(former).filter(|former| *former != ring);
            Neighbourhood { ring, former }
        });
        let before = self.view.load();
        let view = View {
            hierarchy: Arc::new(Hierarchy {
                node: self.me,
                layers: layers.collect(),
            }),
            peers: self.reach(&members, &before.peers),
            members,
        };
        let mut departed = self.departed.lock();
        for (id, peer) in &before.peers {
            if !view.peers.get(id).is_some_and(|stays| Arc::ptr_eq(stays, peer)) {
                add_traffic(&mut departed, peer);
            }
            if !view.peers.contains_key(id) {
                self.missed.lock().insert(*id, clock::monotonic());
            }
        }
        self.view.store(Arc::new(view));
    }

    /// Computes the rings around this node, from L2 outwards: the first has the members that share all parts
    /// of its topology except the last one, the second those that share all except the last two, and so on.
    fn arrange(&self, members: &[Member], weight: impl Fn(&Member) -> u32) -> Vec<Ring> {
        let mine: Vec<&str> = self.topology.split('/').collect();
        let ring = |layer: usize| {
            let shared = &mine[..mine.len().saturating_sub(layer)];
            let near = members.iter().filter(|member| shares(&member.topology, shared));
            Ring::new(near.map(|member| (member.id(), weight(member))).collect())
        };
        (1..=self.rings).map(ring).collect()
    }

    /// Returns the peers: every member except this node.
    fn reach(&self, members: &Members, known: &HashMap<NodeId, Arc<Peer>>) -> HashMap<NodeId, Arc<Peer>> {
        let mut peers = HashMap::new();
        for member in members.iter().filter(|member| member.id() != self.me) {
            let (id, address) = (member.id(), member.address);
            let known = known.get(&id).filter(|peer| peer.address == address);
            let peer = known.cloned();
            let peer = peer.unwrap_or_else(|| Arc::new(Peer::new(&member.name, address, &self.channel)));
            if peers.insert(id, peer).is_some() {
                tracing::error!(
                    node = member.name,
                    "two nodes have this name; requests go to only one of them"
                );
            }
        }
        peers
    }
}

fn add_traffic(traffic: &mut BTreeMap<String, PeerTraffic>, peer: &Peer) {
    traffic.entry(peer.name.clone()).or_default().add(peer.traffic());
}

fn same_homes(before: &Hierarchy, after: &Hierarchy) -> bool {
    let mut layers = before.layers.iter().zip(&after.layers);
    layers.all(|(before, after)| before.ring == after.ring)
}

fn shares(topology: &str, parts: &[&str]) -> bool {
    let mut theirs = topology.split('/');
    parts.iter().all(|part| theirs.next() == Some(part))
}

/// Returns the weight of a member in a ring, in points, which resolve a hundredth of an ordinary node's
/// weight.
fn weight(member: &Member) -> u32 {
    (ORDINARY_WEIGHT * member.weight_percent).div_ceil(100)
}

/// Returns a predicate that is true for members old enough to hold blocks that newer members are home to now.
/// All members except the newcomers are; in a cluster of newcomers, all except the latest.
fn established(members: &[Member], now: SystemTime) -> impl Fn(&Member) -> bool + use<> {
    let is_new = move |member: &Member| newcomer_for(member, now).is_some();
    let all_are_new = members.iter().all(is_new);
    let latest = members.iter().map(|member| member.generation).max();
    move |member| {
        if all_are_new {
            Some(member.generation) < latest
        } else {
            !is_new(member)
        }
    }
}

/// Returns how long a member remains a newcomer; `None` if it is not one.
fn newcomer_for(member: &Member, now: SystemTime) -> Option<Duration> {
    // If this node's clock is behind the newcomer's, the age is zero.
    let age = now.duration_since(member.since()).unwrap_or_default();
    NEWCOMER.checked_sub(age).filter(|left| !left.is_zero())
}
