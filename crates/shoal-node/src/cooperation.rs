//! Knows which nodes are home to a block, and how other nodes are reached.
//!
//! Gossip says which nodes are alive ([`crate::membership`]). From that each node arranges its own view of
//! the rings of its layers, and asks [`shoal_policy::route`] where a block may be found. Nodes that have
//! heard different news disagree about homes for a moment; the requests between them stay right, see there.

mod config;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use shoal_policy::eviction::gwf::Worth;
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::nearest::shared_levels;
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};
use shoal_policy::route::{Hierarchy, Neighbourhood, Stop};
use shoal_policy::{BlockId, Layer, NodeId};
use shoal_s3::object::Version;
use tokio::sync::watch;

pub use self::config::{CooperationConfig, CooperationMode};

use crate::channel::Channel;
use crate::clock;
use crate::membership::{Member, Members, Notices, State};
use crate::peer::{BlockRequest, Peer, PeerConnector, PeerError};
use crate::shutdown::Shutdown;

/// A node that has been a member for less than this asks the node that would be home without it. The time is
/// long enough for a block that is read now and then to be read once more.
const NEWCOMER: Duration = Duration::from_mins(10);

/// How nodes work together, from this node's current point of view.
#[derive(Debug)]
pub struct Cooperation {
    me: NodeId,
    topology: String,
    /// The number of layers beyond the node's own.
    rings: usize,
    peers: PeerConnector,
    view: ArcSwap<View>,
    notices: Arc<Notices>,
}

#[derive(Debug)]
struct View {
    hierarchy: Arc<Hierarchy>,
    peers: HashMap<NodeId, Arc<Peer>>,
    members: Members,
}

impl Cooperation {
    /// A node that knows no other node yet. `layers` counts the node's own; a node of one layer caches alone.
    pub fn new(name: &str, topology: &str, layers: usize, peers: PeerConnector) -> Self {
        let me = crate::membership::node_id(name);
        let rings = layers.saturating_sub(1);
        let alone = || Neighbourhood {
            ring: Ring::new(BTreeMap::from([(me, ORDINARY_WEIGHT)])),
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
            peers,
            view: ArcSwap::from_pointee(view),
            notices: Notices::new(),
        }
    }

    /// The notices for operators about this node among others.
    pub fn notices(&self) -> &Arc<Notices> {
        &self.notices
    }

    /// Whether there is no other node to exchange requests with.
    pub fn is_alone(&self) -> bool {
        self.view.load().peers.is_empty()
    }

    /// Where to look for a block, best first, when this node is asked for it in layer `asked` and has tried
    /// `tried` in vain.
    pub fn route(&self, block: BlockId, asked: Layer, tried: &[NodeId]) -> Vec<Stop> {
        let view = self.view.load();
        let reachable = |node| {
            let peer: Option<&Arc<Peer>> = view.peers.get(&node);
            !tried.contains(&node) && peer.is_some_and(|peer| peer.is_reachable())
        };
        view.hierarchy.route(block.place(), asked, reachable)
    }

    /// The nodes that are to take a block over from this node. `before` says what this node was home to.
    pub fn successors(&self, before: &Hierarchy, block: BlockId) -> Vec<Arc<Peer>> {
        let view = self.view.load();
        // A node that leaves as well has no weight any more.
        let stays = |node: &NodeId| {
            let mut rings = view.hierarchy.layers.iter().map(|layer| layer.ring.weights());
            rings.any(|weights| weights.get(node).is_some_and(|weight| *weight > 0))
        };
        let peer = |node| {
            view.peers
                .get(&node)
                .filter(|peer| stays(&node) && peer.is_reachable())
        };
        let successors = before.successors(block.place(), |node| peer(node).is_some());
        successors
            .into_iter()
            .filter_map(|node| peer(node).cloned())
            .collect()
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Whether a node can be asked; this one always can.
    pub fn can_be_asked(&self, node: NodeId) -> bool {
        node == self.me || self.peer(node).is_some_and(|peer| peer.is_reachable())
    }

    /// Whether another node can be asked to keep a block: it answers, and is not about to leave.
    pub fn can_keep_blocks(&self, node: NodeId) -> bool {
        let view = self.view.load();
        let member = view.members.iter().find(|member| member.id() == node);
        let stays = member.is_some_and(|member| member.state == State::Serving);
        stays && view.peers.get(&node).is_some_and(|peer| peer.is_reachable())
    }

    /// Offers a block that is here to a node, and waits until the node has all of it. Returns whether the
    /// node took it.
    pub async fn offer(&self, version: &Version, index: u32, node: NodeId) -> bool {
        let Some(peer) = self.peer(node) else {
            return false;
        };
        let offered = peer.offer(&BlockRequest::offer(version, index, self.me)).await;
        if let Err(error) = &offered {
            tracing::debug!(peer = peer.name(), %error, "the home of a written block did not store it");
        }
        offered.is_ok()
    }

    /// Gives a block that is here to a node that does not ask for it, with its worth there, and waits until
    /// the node has all of it. Returns `None` if there is no such node any more.
    ///
    /// # Errors
    ///
    /// The node does not take the block, or does not have all of it in time.
    pub async fn push(
        &self,
        version: &Version,
        index: u32,
        node: NodeId,
        worth: Worth,
    ) -> Option<Result<(), PeerError>> {
        let peer = self.peer(node)?;
        Some(
            peer.offer(&BlockRequest::push(version, index, self.me, worth))
                .await,
        )
    }

    /// The nearest of some nodes that hold a block, other than those that were tried: one of those that share
    /// most of this node's topology, at random. `None` if none of them can be asked.
    pub fn nearest(&self, holders: &[NodeId], tried: &[NodeId]) -> Option<NodeId> {
        let view = self.view.load();
        let candidates = view.members.iter().filter(|member| {
            let id = member.id();
            let can_be_asked = || view.peers.get(&id).is_some_and(|peer| peer.is_reachable());
            holders.contains(&id) && !tried.contains(&id) && can_be_asked()
        });
        let near = candidates.map(|member| {
            let levels = shared_levels(&self.topology, &member.topology);
            (levels, shoal_base::chance::bits(), member.id())
        });
        near.max().map(|(_, _, node)| node)
    }

    /// The nodes among these that are no members, so that no request reaches them.
    pub fn strangers(&self, nodes: &[NodeId]) -> impl Iterator<Item = NodeId> {
        let view = self.view.load();
        nodes
            .iter()
            .copied()
            .filter(move |node| *node != self.me && !view.peers.contains_key(node))
    }

    /// The node of a route's stop; `None` when it has left since.
    pub fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        self.view.load().peers.get(&node).cloned()
    }

    /// All members that are known to be alive, this node included.
    pub fn members(&self) -> Members {
        Arc::clone(&self.view.load().members)
    }

    /// The layers around this node and all members that are known to be alive, as of one moment.
    pub fn arrangement(&self) -> (Arc<Hierarchy>, Members) {
        let view = self.view.load();
        (Arc::clone(&view.hierarchy), Arc::clone(&view.members))
    }

    /// The channel on which nodes prove their identity to each other.
    pub fn channel(&self) -> &Arc<Channel> {
        self.peers.channel()
    }

    /// Every peer.
    pub fn peers(&self) -> Vec<Arc<Peer>> {
        let mut peers: Vec<_> = self.view.load().peers.values().cloned().collect();
        peers.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        peers
    }

    /// Follows the news about `members` until the node stops; `place` gets every arrangement in which blocks
    /// have other homes.
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

    /// The names of the nodes that are home to a block, from L2 outwards; this node may be among them.
    pub fn homes(&self, block: BlockId) -> Vec<String> {
        let homes = self.view.load().hierarchy.homes(block.place());
        homes.into_iter().filter_map(|node| self.name_of(node)).collect()
    }

    /// The name of a member; `None` if no member has this id.
    pub fn name_of(&self, node: NodeId) -> Option<String> {
        let view = self.view.load();
        let known = view.members.iter().find(|member| member.id() == node);
        known.map(|member| member.name.clone())
    }

    /// The current layers around this node.
    pub fn hierarchy(&self) -> Arc<Hierarchy> {
        Arc::clone(&self.view.load().hierarchy)
    }

    /// Arranges the rings anew for these members.
    fn update(&self, members: Members, now: SystemTime) {
        let rings = self.arrange(&members, |member| match member.state {
            State::Draining => 0,
            State::Serving => weight(member),
        });
        // Only current members count: a node that has left cannot be asked, and a draining node can.
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
        self.view.store(Arc::new(view));
    }

    /// The rings around this node, from L2 outwards: the first has the members that share all parts of its
    /// topology except the last one, the second those that share all except the last two, and so on.
    fn arrange(&self, members: &[Member], weight: impl Fn(&Member) -> u32) -> Vec<Ring> {
        let mine: Vec<&str> = self.topology.split('/').collect();
        let ring = |layer: usize| {
            let shared = &mine[..mine.len().saturating_sub(layer)];
            let near = members.iter().filter(|member| shares(&member.topology, shared));
            Ring::new(near.map(|member| (member.id(), weight(member))).collect())
        };
        (1..=self.rings).map(ring).collect()
    }

    /// The peers: every member except this node.
    fn reach(&self, members: &Members, known: &HashMap<NodeId, Arc<Peer>>) -> HashMap<NodeId, Arc<Peer>> {
        let mut peers = HashMap::new();
        for member in members.iter().filter(|member| member.id() != self.me) {
            let peer = self.peers.at(member.id(), &member.name, member.address, known);
            if peers.insert(member.id(), peer).is_some() {
                tracing::error!(
                    node = member.name,
                    "two nodes have this name; requests go to only one of them"
                );
            }
        }
        peers
    }
}

fn same_homes(before: &Hierarchy, after: &Hierarchy) -> bool {
    let mut layers = before.layers.iter().zip(&after.layers);
    layers.all(|(before, after)| before.ring == after.ring)
}

fn shares(topology: &str, parts: &[&str]) -> bool {
    let mut theirs = topology.split('/');
    parts.iter().all(|part| theirs.next() == Some(part))
}

/// The weight of a member in a ring, in points. Points are fine enough for a hundredth of an ordinary node's
/// weight.
fn weight(member: &Member) -> u32 {
    (ORDINARY_WEIGHT * member.weight_percent).div_ceil(100)
}

/// Whether a member is old enough to hold the blocks that newer members are home to now. All members except
/// the newcomers are; in a cluster of newcomers all except the latest.
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

/// How long a member remains a newcomer; `None` if it is none.
fn newcomer_for(member: &Member, now: SystemTime) -> Option<Duration> {
    // A clock that is behind the newcomer's must not make it one for ever.
    let age = now.duration_since(member.since()).unwrap_or_default();
    NEWCOMER.checked_sub(age).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use shoal_policy::fingerprint::Placed as _;
    use shoal_policy::route::Stop;
    use shoal_policy::{BlockId, Layer, VersionId};

    use super::{Cooperation, CooperationConfig, Member, NEWCOMER, State};
    use crate::channel::{Channel, ChannelConfig};
    use crate::limits::Limits;
    use crate::membership::node_id;
    use crate::peer::PeerConnector;

    fn cooperation(name: &str, topology: &str) -> Cooperation {
        let config = ChannelConfig::from(&CooperationConfig::default());
        let channel = Channel::new(name, &config, 8);
        Cooperation::new(
            name,
            topology,
            3,
            PeerConnector::new(Arc::new(channel), &Limits::default()),
        )
    }

    fn member(name: &str, topology: &str, port: u16) -> Member {
        let address = ([127, 0, 0, 1], port).into();
        Member {
            address,
            generation: 1,
            name: name.into(),
            topology: topology.into(),
            s3: address,
            admin: address,
            weight_percent: 100,
            state: State::Serving,
        }
    }

    /// Two nodes in one cluster, one in another.
    fn members() -> Vec<Member> {
        vec![
            member("a1", "dc1/a/1", 1),
            member("a2", "dc1/a/2", 2),
            member("b1", "dc1/b/1", 3),
        ]
    }

    fn block(number: u32) -> BlockId {
        BlockId {
            version: VersionId([7; 16]),
            index: number,
        }
    }

    fn layer_here(node: &Cooperation, number: u32) -> Layer {
        node.hierarchy().layer_here(block(number).place())
    }

    /// A time at which every node of these tests has been there for long.
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + NEWCOMER * 2
    }

    fn names(stops: &[Stop]) -> String {
        let name = |node| {
            ["a1", "a2", "b1"]
                .into_iter()
                .find(|name| node_id(name) == node)
                .unwrap()
        };
        let word = |stop: &Stop| match *stop {
            Stop::Local => "here".to_string(),
            Stop::Home(node, layer) => format!("{layer} {}", name(node)),
            Stop::FormerHome(node) => format!("former {}", name(node)),
            Stop::Lake => "lake".into(),
        };
        stops.iter().map(word).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_node_without_members_asks_the_lake() {
        let alone = cooperation("a1", "dc1/a/1");
        assert!(alone.is_alone());
        assert_eq!(names(&alone.route(block(0), Layer::L1, &[])), "here, lake");
        assert_eq!(layer_here(&alone, 0), Layer(3));
    }

    #[test]
    fn layers_are_the_nodes_that_share_the_topology() {
        let node = cooperation("a1", "dc1/a/1");
        node.update(members().into(), now());
        let routes: std::collections::BTreeSet<String> = (0..200)
            .map(|number| names(&node.route(block(number), Layer::L1, &[])))
            .collect();
        let ways: Vec<&str> = routes
            .iter()
            .map(|route| route.split(", former").next().unwrap())
            .collect();
        for expected in ["here, L2 a2, L3 b1", "here, L3 b1", "here, L2 a2"] {
            assert!(
                ways.iter().any(|way| way.starts_with(expected)),
                "{expected}: {routes:?}"
            );
        }
        assert!(
            !routes.iter().any(|route| route.contains("L2 b1")),
            "b1 is of another cluster"
        );
    }

    #[test]
    fn all_nodes_find_the_same_home() {
        let nodes: Vec<_> = members()
            .iter()
            .map(|member| cooperation(&member.name, &member.topology))
            .collect();
        for node in &nodes {
            node.update(members().into(), now());
        }
        for number in 0..100 {
            let at_home: Vec<bool> = nodes
                .iter()
                .map(|node| layer_here(node, number) == Layer(3))
                .collect();
            assert_eq!(at_home.iter().filter(|home| **home).count(), 1, "block {number}");
        }
    }

    #[test]
    fn a_newcomer_asks_the_previous_home_for_a_while() {
        let node = cooperation("a2", "dc1/a/2");
        let mut known = members();
        known[1].generation = now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
        let asks_former = |node: &Cooperation| {
            (0..200).any(|number| names(&node.route(block(number), Layer::L1, &[])).contains("former"))
        };
        for (age, expected) in [
            (Duration::ZERO, true),
            (NEWCOMER.mul_f64(0.99), true),
            (NEWCOMER, false),
        ] {
            node.update(known.clone().into(), now() + age);
            assert_eq!(asks_former(&node), expected, "{age:?}");
        }
    }

    #[test]
    fn in_a_cluster_of_newcomers_the_latest_asks_the_others() {
        let mut known = members();
        known[2].generation += 1;
        let asks_former = |name: &str, topology: &str| {
            let node = cooperation(name, topology);
            node.update(known.clone().into(), SystemTime::UNIX_EPOCH);
            let route = |number| names(&node.route(block(number), Layer::L1, &[]));
            (0..200).any(|number| route(number).contains("former"))
        };
        assert!(asks_former("b1", "dc1/b/1"));
        assert!(!asks_former("a1", "dc1/a/1"));
    }

    #[test]
    fn a_node_that_failed_is_not_asked_again() {
        let node = cooperation("b1", "dc1/b/1");
        node.update(members().into(), now());
        for number in 0..50 {
            let tried = [node_id("a1")];
            let route = names(&node.route(block(number), Layer::L1, &tried));
            assert!(!route.contains("a1"), "{route}");
            let neither = [node_id("a1"), node_id("a2")];
            assert_eq!(
                names(&node.route(block(number), Layer::L1, &neither)),
                "here, lake"
            );
        }
    }

    #[test]
    fn a_draining_node_is_home_to_nothing() {
        let mut draining = members();
        draining[1].state = State::Draining;
        let node = cooperation("a1", "dc1/a/1");
        node.update(members().into(), now());
        node.update(draining.into(), now());
        for number in 0..200 {
            let route = names(&node.route(block(number), Layer::L1, &[]));
            assert!(!route.contains("L2 a2") && !route.contains("L3 a2"), "{route}");
        }
        let gives_away =
            (0..200).any(|number| names(&node.route(block(number), Layer::L1, &[])).contains("former a2"));
        assert!(gives_away);
    }

    #[test]
    fn a_heavier_node_is_home_to_more() {
        let mut uneven = members();
        uneven[0].weight_percent = 300;
        let node = cooperation("b1", "dc1/b/1");
        node.update(uneven.into(), now());
        let at = |name: &str| {
            let home = format!("L3 {name}");
            (0..1_000)
                .filter(|number| names(&node.route(block(*number), Layer::L1, &[])).contains(&home))
                .count()
        };
        assert!(at("a1") > 2 * at("a2"), "{} and {}", at("a1"), at("a2"));
    }

    #[test]
    fn the_nearest_holder_shares_most_of_the_topology_and_can_be_asked() {
        let node = cooperation("a1", "dc1/a/1");
        node.update(members().into(), now());
        let [here, near, far, gone] = ["a1", "a2", "b1", "left"].map(node_id);
        assert_eq!(node.nearest(&[far, near, gone], &[]), Some(near));
        assert_eq!(node.nearest(&[far, near, gone], &[near]), Some(far));
        assert_eq!(node.nearest(&[gone, here], &[]), None);
        let strangers: Vec<_> = node.strangers(&[here, near, gone, far]).collect();
        assert_eq!(strangers, [gone]);
    }

    #[test]
    fn a_node_that_leaves_or_has_left_keeps_no_blocks_of_others() {
        let mut members = members();
        members[2].state = State::Draining;
        let node = cooperation("a1", "dc1/a/1");
        node.update(members.into(), now());
        let keeps = ["a1", "a2", "b1", "left"].map(|name| node.can_keep_blocks(node_id(name)));
        assert_eq!(keeps, [false, true, false, false]);
    }

    #[test]
    fn peers_are_kept_while_they_stay_where_they_are() {
        let node = cooperation("a1", "dc1/a/1");
        node.update(members().into(), now());
        let before = node.peer(node_id("a2")).unwrap();
        node.update(members().into(), now());
        assert!(Arc::ptr_eq(&before, &node.peer(node_id("a2")).unwrap()));
        let mut moved = members();
        moved[1].address.set_port(9);
        node.update(moved.into(), now());
        assert!(!Arc::ptr_eq(&before, &node.peer(node_id("a2")).unwrap()));
        assert!(node.peer(node_id("a1")).is_none(), "nobody asks itself");
    }
}
