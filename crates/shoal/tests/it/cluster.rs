//! Nodes that cooperate, in one process, in front of one lake; the wires between them can be cut.

mod coherent;
mod commands;
mod directory;
mod draining;
mod failure;
mod gwf;
mod link;
mod ls;
mod members;
pub(crate) mod plan;
mod redis;
mod rotation;
mod sharing;
mod tasks;
mod trust;
mod whole_objects;
mod wire;
mod writing;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::Value;
use shoal_base::secret::Secret;
use shoal_node::config::{Config, CooperationMode};
use tokio::sync::Mutex;

use crate::client::Reply;
use crate::lake::{Content, Lake, Object};
use crate::node::{BLOCK, Node, lake};
use crate::waiting::value;

pub(crate) use self::wire::Wire;

use self::wire::Way;

/// Secret that the nodes of a cluster share.
pub(crate) const SECRET: &str = "a secret of this cluster";

/// Nodes `n0`, `n1`, …, each in a rack of its own.
pub(crate) struct Cluster {
    pub(crate) lake: Lake,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ways: Vec<Way>,
}

impl Cluster {
    /// Nodes of one cluster that never ask twice whether an object is current.
    pub(crate) async fn start(nodes: usize) -> Self {
        Self::start_with(nodes, |_, _| ()).await
    }

    pub(crate) async fn start_with(nodes: usize, change: impl Fn(usize, &mut Config)) -> Self {
        Self::in_front_of(lake().await, nodes, change).await
    }

    pub(crate) async fn in_front_of(lake: Lake, nodes: usize, change: impl Fn(usize, &mut Config)) -> Self {
        let mut cluster = Self {
            lake,
            nodes: Vec::new(),
            ways: Vec::new(),
        };
        for _ in 0..nodes {
            cluster.add(&change).await;
        }
        cluster.sees(nodes).await;
        cluster
    }

    /// Adds a node. The first node is the seed of all nodes.
    pub(crate) async fn add(&mut self, change: impl Fn(usize, &mut Config)) {
        let index = self.nodes.len();
        let listen = free_address();
        let way = Way::to(listen).await;
        let seed = self.ways.first().map_or(way.address(), Way::address);
        let node = Node::in_front_of(&self.lake, |config| {
            config.node.name = format!("n{index}");
            config.node.topology = format!("dc1/a/r{index}");
            config.freshness.default = shoal_node::config::FreshnessMode::Immutable;
            config.cooperation.mode = CooperationMode::Hierarchy;
            config.cooperation.listen = listen;
            config.cooperation.advertise = Some(way.address());
            config.cooperation.seeds = vec![seed.to_string()];
            config.cooperation.secret_key = Some(Secret::new(SECRET));
            change(index, config);
        });
        self.nodes.push(node.await);
        self.ways.push(way);
    }

    /// Stops a node and starts it again on the same disk, with a changed configuration.
    pub(crate) async fn restart(&mut self, node: usize, change: impl FnOnce(&mut Config)) {
        let stopped = self.nodes.remove(node).halt().await;
        self.nodes.insert(node, stopped.with(change).start().await);
    }

    /// Waits until every connected node sees this many members.
    pub(crate) async fn sees(&self, members: usize) {
        let seen = async || join_all(self.nodes.iter().map(seen)).await;
        let what = format!("every node sees {members} members");
        value(&what, seen, |seen| seen.iter().all(|seen| seen.len() == members)).await;
    }

    /// Waits until every node has learned that `name` is in `state`.
    pub(crate) async fn wait_for_state(&self, name: &str, state: &str) {
        let members = async |node: &Node| {
            let page: Value = serde_json::from_slice(&node.admin("/members").await.body).unwrap();
            page["members"].as_array().unwrap().clone()
        };
        let is_in_state = |member: &Value| member["name"] == name && member["state"] == state;
        let what = format!("every node sees that {name} is {state}");
        let members = async || join_all(self.nodes.iter().map(members)).await;
        value(&what, members, |views| {
            views.iter().all(|view| view.iter().any(is_in_state))
        })
        .await;
    }

    /// Puts an object of this many blocks, each with different bytes.
    pub(crate) fn put(&self, key: &str, blocks: u64) -> bytes::Bytes {
        self.put_bytes(key, blocks * BLOCK)
    }

    /// As [`put`](Self::put), of this many bytes.
    pub(crate) fn put_bytes(&self, key: &str, len: u64) -> bytes::Bytes {
        let object = Object::new(Content::synthetic(len, key.len() as u64 + len / BLOCK));
        let bytes = object.content.all();
        self.lake.put("b", key, object);
        bytes
    }

    /// Reads an object through a node, and compares.
    pub(crate) async fn read(&self, node: usize, key: &str, expected: &[u8]) -> Reply {
        let reply = self.nodes[node].client().get(&format!("/b/{key}")).send().await;
        assert_eq!(reply.status, StatusCode::OK, "{key} through n{node}");
        assert!(reply.body == expected, "{key} through n{node} has other bytes");
        reply
    }

    /// Lets many readers on these nodes read an object at once. Nodes give each other a second to answer, so
    /// two stories' crowds at a time would be too many for two processors.
    pub(crate) async fn crowd(&self, readers: usize, nodes: Range<usize>, key: &str, bytes: &[u8]) {
        static CROWD: Mutex<()> = Mutex::const_new(());
        let _alone = CROWD.lock().await;
        let reads = (0..readers).map(|reader| self.read(nodes.start + reader % nodes.len(), key, bytes));
        join_all(reads).await;
    }

    /// Waits until nothing is on its way to any node.
    pub(crate) async fn settle(&self) {
        // A node that settles late may have sent something to a node that settled before.
        for _ in 0..2 {
            join_all(self.nodes.iter().map(Node::settle)).await;
        }
    }

    /// Bytes that a node sent to clients, from `source`.
    pub(crate) async fn sent(&self, node: usize, source: &str) -> u64 {
        self.metric(node, &format!("shoal_read_bytes_total{{source=\"{source}\"}}"))
            .await
    }

    /// A metric of a node, by its name with labels.
    pub(crate) async fn metric(&self, node: usize, name: &str) -> u64 {
        let metrics = self.nodes[node].admin("/metrics").await;
        let value = |line| str::strip_prefix(line, name);
        let value = metrics
            .text()
            .lines()
            .find_map(value)
            .expect("the metric is there");
        value.trim().parse().unwrap()
    }

    /// How many blocks each layer of a node holds.
    pub(crate) async fn blocks(&self, node: usize) -> BTreeMap<String, u64> {
        let status: Value = serde_json::from_slice(&self.nodes[node].admin("/status").await.body).unwrap();
        let layers = status["layers"].as_array().unwrap().iter();
        let blocks = layers.map(|layer| {
            let name = layer["layer"].as_str().unwrap().to_owned();
            (name, layer["blocks"].as_u64().unwrap())
        });
        blocks.collect()
    }

    pub(crate) async fn stop(self) {
        for node in self.nodes {
            node.stop().await;
        }
        self.ways.into_iter().for_each(Way::ends);
    }
}

/// The names of the members that a node sees.
pub(crate) async fn seen(node: &Node) -> Vec<String> {
    let page: Value = serde_json::from_slice(&node.admin("/members").await.body).unwrap();
    let members = page["members"].as_array().unwrap();
    members
        .iter()
        .map(|member| member["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Ports below those that the kernel gives to connections, which could take one before its node listens, or
/// while it is away.
const PORTS: std::ops::Range<u32> = 10_000..32_000;

/// An address that is free for TCP and UDP, and that no other node of these stories gets.
pub(crate) fn free_address() -> SocketAddr {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Stories of another checkout begin elsewhere.
    let first = std::process::id().wrapping_mul(997);
    loop {
        let number = first.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + number % (PORTS.end - PORTS.start);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16));
        if std::net::TcpListener::bind(address).is_ok() && std::net::UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}
