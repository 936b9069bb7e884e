//! Packed objects where nodes cooperate: they share the blocks, and the lake sends each object once.

use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use http::header::ETAG;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use shoal_cache::obtain::InPack;
use shoal_cache::peer::PeerError;
use shoal_cache::{BlockRequest, CallerName, Obtain, Peer};
use shoal_net::Channel;
use shoal_net::endpoint::LakeBody;
use shoal_node::config::{Config, CooperationMode};
use shoal_policy::Layer;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::range::ByteRange;

use super::digests::{block_files, flip};
use super::packs::{FOLDER, is_of_pack, pack, packed, packs, small};
use super::{flush, reads, write_back};
use crate::cluster::{Cluster, SECRET};
use crate::lake::{ACCESS_KEY, Access, Content, Fault, Request};
use crate::node::{BLOCK, Node, OTHER_KEY};
use crate::tasks::{carry_out, order};
use crate::waiting::value;

/// Names of objects. The lake has another port each time, so they have other homes; some have each node.
const KEYS: [&str; 20] = [
    "tmp/a", "tmp/b", "tmp/c", "tmp/d", "tmp/e", "tmp/f", "tmp/g", "tmp/h", "tmp/i", "tmp/j", "tmp/k",
    "tmp/l", "tmp/m", "tmp/n", "tmp/o", "tmp/p", "tmp/q", "tmp/r", "tmp/s", "tmp/t",
];

/// Nodes that have packed [`KEYS`] and hold no block.
async fn cold(nodes: usize, change: impl Fn(&mut Config)) -> Cluster {
    let started = Cluster::start_with(nodes, |_, config| {
        pack(config);
        change(config);
    });
    let cluster = started.await;
    packed(&cluster.nodes[0], &KEYS).await;
    forget(&cluster).await;
    cluster
}

/// Removes all blocks of the nodes.
async fn forget(cluster: &Cluster) {
    cluster.settle().await;
    carry_out(&cluster.nodes[0], &order("evict", "s3://b/tmp/")).await;
    for node in &cluster.nodes {
        let blocks = async || blocks(node).await;
        value("the node holds no block", blocks, |blocks| *blocks == 0).await;
    }
    cluster.lake.forget_requests();
}

/// Returns an object, with its seed, that `n0` gets from the other node. Nobody holds it afterwards.
async fn at_home_elsewhere(cluster: &Cluster) -> (u64, &'static str) {
    for (seed, key) in (0..).zip(KEYS) {
        reads(&cluster.nodes[0].client(), key, &small(seed)).await;
        cluster.settle().await;
        let is_elsewhere = blocks(&cluster.nodes[1]).await == 1;
        forget(cluster).await;
        if is_elsewhere {
            return (seed, key);
        }
    }
    panic!("each object is at home at n0");
}

async fn blocks(node: &Node) -> u64 {
    node.status().await["store"]["blocks"].as_u64().unwrap()
}

async fn read_all(node: &Node) {
    for (seed, key) in (0..).zip(KEYS) {
        reads(&node.client(), key, &small(seed)).await;
    }
}

fn is_read(request: &Request) -> bool {
    request.is_get() && is_of_pack(request) && request.key.ends_with(b".zip")
}

async fn is_refused(node: &Node, key: &str) {
    let refused = node.other().get(&format!("/b/{key}")).send().await;
    assert_eq!(
        (refused.status, refused.code()),
        (StatusCode::FORBIDDEN, "AccessDenied")
    );
    assert!(!refused.text().contains("shoal-pack"), "{}", refused.text());
}

/// Changes all bytes of the pack at the lake.
async fn damage_pack(cluster: &Cluster) {
    let name = packs(&cluster.lake).await.remove(0);
    let pack = cluster.lake.object("b", &name).unwrap().content.all();
    let damaged: Vec<u8> = pack.iter().map(|byte| !byte).collect();
    cluster.lake.put("b", &name, Bytes::from(damaged));
    cluster.lake.forget_requests();
}

#[tokio::test]
async fn the_lake_sends_a_packed_object_once_to_all_nodes() {
    let cluster = cold(3, |_| ()).await;
    for node in &cluster.nodes {
        read_all(node).await;
    }
    for node in 0..3 {
        assert_eq!(cluster.sent(node, "tier").await, 0, "n{node}");
    }
    let requests = cluster.lake.requests();
    assert_eq!(cluster.lake.count(is_read), KEYS.len(), "{requests:#?}");
    let sent = requests.iter().filter(|request| is_read(request));
    let sent: u64 = sent.map(|request| request.body_sent).sum();
    let all: usize = (0..).zip(KEYS).map(|(seed, _)| small(seed).len()).sum();
    assert_eq!(sent, all as u64, "no other bytes are sent");
    let permissions = cluster.lake.count(Request::is_head);
    assert!(permissions <= cluster.nodes.len(), "{requests:#?}");
    cluster.stop().await;
}

#[tokio::test]
async fn concurrent_readers_of_all_nodes_cost_the_lake_one_read() {
    let cluster = cold(3, |_| ()).await;
    let gate = cluster.lake.hold(is_read);
    let readers = (0..12).map(|reader| {
        let client = cluster.nodes[reader % 3].client();
        tokio::spawn(async move { client.get("/b/tmp/c").send().await })
    });
    let readers: Vec<_> = readers.collect();
    gate.arrived(1).await;
    gate.open();
    for reader in readers {
        assert!(reader.await.unwrap().body == small(2));
    }
    assert_eq!(cluster.lake.count(is_read), 1);
    cluster.stop().await;
}

#[tokio::test]
async fn the_lake_sends_a_packed_object_once_to_nodes_that_share_a_directory() {
    let started = Cluster::start_with(3, |_, config| {
        pack(config);
        let pack = config.write.rules[0].pack.as_mut().unwrap();
        pack.below_bytes = 2 * BLOCK;
        config.cooperation.mode = CooperationMode::Directory;
    });
    let cluster = started.await;
    let bytes = Content::synthetic(BLOCK, 7).all();
    write_back(&cluster.nodes[0].client(), "tmp/k", &bytes).await;
    assert_eq!(flush(&cluster.nodes[0], "").await["flush"]["failed"], 0);
    assert!(cluster.lake.object("b", "tmp/k").is_none(), "it is packed");
    forget(&cluster).await;
    for (number, node) in cluster.nodes.iter().enumerate().rev() {
        reads(&node.client(), "tmp/k", &bytes).await;
        assert_eq!(cluster.lake.count(is_read), 1, "n{number}");
    }
    let holders = async || {
        let mut held = Vec::new();
        for node in &cluster.nodes {
            held.push(blocks(node).await);
        }
        held
    };
    value("each reader keeps it", holders, |held| held == &[1, 1, 1]).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_home_serves_what_the_lake_has_lost_meanwhile() {
    let cluster = cold(3, |_| ()).await;
    read_all(&cluster.nodes[0]).await;
    cluster.settle().await;
    damage_pack(&cluster).await;
    for node in &cluster.nodes[1..] {
        read_all(node).await;
    }
    assert_eq!(cluster.lake.count(is_read), 0, "{:#?}", cluster.lake.requests());
    forget(&cluster).await;
    let lost = cluster.nodes[1].client().get("/b/tmp/a").send().await;
    assert_eq!(lost.status, StatusCode::SERVICE_UNAVAILABLE, "{}", lost.text());
    for node in &cluster.nodes {
        assert_eq!(blocks(node).await, 0, "damaged bytes are not kept");
    }
    cluster.stop().await;
}

/// Each byte is proven before it is delivered, so no response breaks off.
#[tokio::test]
async fn a_block_that_is_damaged_at_a_neighbour_is_not_delivered() {
    let cluster = cold(2, |_| ()).await;
    read_all(&cluster.nodes[0]).await;
    cluster.settle().await;
    let mut damaged = 0;
    for file in block_files(cluster.nodes[0].store_path()) {
        let bytes = fs::read(&file).unwrap();
        for (seed, _) in (0..).zip(KEYS) {
            let block = small(seed);
            // The blocks are mapped, so the file is what the node has in memory, and sends.
            if let Some(at) = bytes.windows(block.len()).position(|window| window == block) {
                flip(&file, at as u64 + 999);
                damaged += 1;
            }
        }
    }
    assert_eq!(damaged, KEYS.len());
    read_all(&cluster.nodes[1]).await;
    assert!(
        cluster.lake.count(is_read) > KEYS.len(),
        "the node has asked its neighbour for some"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_home_that_does_not_find_the_object_in_its_pack_costs_a_hop_and_no_read() {
    let cluster = cold(2, |_| ()).await;
    let (seed, key) = at_home_elsewhere(&cluster).await;
    for fault in [404, 416]
        .map(Fault::status)
        .into_iter()
        .chain([Fault::new().damaged()])
    {
        cluster.lake.misbehave(fault.when(is_read));
        reads(&cluster.nodes[0].client(), key, &small(seed)).await;
        assert_eq!(cluster.lake.count(is_read), 2, "{:#?}", cluster.lake.requests());
        cluster.settle().await;
        assert_eq!(blocks(&cluster.nodes[1]).await, 0);
        forget(&cluster).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_waits_for_a_home_is_not_waited_for() {
    let cluster = cold(2, |_| ()).await;
    let (seed, key) = at_home_elsewhere(&cluster).await;
    let asker = Asker::new(&cluster, seed, key).await;
    let gate = cluster.lake.hold(is_read);
    let client = cluster.nodes[0].client();
    let reader = tokio::spawn(async move { client.get(&format!("/b/{key}")).send().await });
    gate.arrived(1).await;
    let asked = asker.begin(ACCESS_KEY, asker.in_pack.clone()).await;
    assert!(matches!(asked, Err(PeerError::Refused { status, .. }) if status == StatusCode::LOOP_DETECTED));
    gate.open();
    assert!(reader.await.unwrap().body == small(seed));
    cluster.stop().await;
}

#[tokio::test]
async fn a_refused_caller_gets_nothing_from_any_node_and_leaves_nothing() {
    let cluster = cold(3, |_| ()).await;
    cluster.lake.deny(OTHER_KEY, Access::Read, "b/tmp/.shoal-pack");
    for node in &cluster.nodes {
        is_refused(node, "tmp/a").await;
    }
    for node in &cluster.nodes {
        assert_eq!(blocks(node).await, 0);
    }
    let requests = cluster.lake.requests();
    let is_sent = |request: &Request| is_read(request) && request.body_sent >= 1_000;
    assert_eq!(cluster.lake.count(is_sent), 0, "{requests:#?}");
    read_all(&cluster.nodes[0]).await;
    cluster.settle().await;
    for node in &cluster.nodes {
        is_refused(node, "tmp/a").await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_grant_ends_when_the_lake_refuses_bytes_to_a_home_and_to_its_reader() {
    let cluster = cold(3, |_| ()).await;
    for node in &cluster.nodes {
        reads(&node.other(), "tmp/a", &small(0)).await;
    }
    cluster.settle().await;
    cluster.lake.deny(OTHER_KEY, Access::Read, "b/tmp/.shoal-pack");
    for node in &cluster.nodes {
        let before = blocks(node).await;
        is_refused(node, "tmp/b").await;
        is_refused(node, "tmp/a").await;
        assert_eq!(blocks(node).await, before);
    }
    read_all(&cluster.nodes[0]).await;
    cluster.stop().await;
}

#[tokio::test]
async fn blocks_of_packed_objects_move_when_their_node_leaves() {
    let mut cluster = cold(3, |_| ()).await;
    read_all(&cluster.nodes[2]).await;
    cluster.settle().await;
    cluster.nodes[2].order("/drain").await;
    let drain = async || cluster.nodes[2].status().await["drain"].clone();
    let drain = value("the node is drained", drain, |drain| drain["state"] == "drained").await;
    assert_eq!(drain["blocks_left"], 0, "{drain}");
    cluster.settle().await;
    cluster.nodes.pop().unwrap().stop().await;
    cluster.sees(2).await;
    cluster.lake.forget_requests();
    for node in &cluster.nodes {
        read_all(node).await;
    }
    assert_eq!(cluster.lake.count(is_read), 0, "the cache is not lost");
    cluster.stop().await;
}

/// A node that is none of the cluster, but knows its secret, and names places in packs.
struct Asker {
    peer: Arc<Peer>,
    request: BlockRequest,
    in_pack: InPack,
}

impl Asker {
    /// Asks `n0` for one of [`KEYS`].
    async fn new(cluster: &Cluster, seed: u64, key: &str) -> Self {
        let channel = Arc::new(Channel::new("asker", [SECRET], 10));
        let name = |key: &str| ObjectName {
            bucket: "b".into(),
            key: key.as_bytes().into(),
            version: None,
        };
        let head = cluster.nodes[0].client().head(&format!("/b/{key}")).send().await;
        let etag = HeaderValue::from_str(head.header("etag").unwrap()).unwrap();
        let (object, bytes) = (name(key), small(seed));
        let of_object = HeaderMap::from_iter([(ETAG, etag)]);
        let id = object.id(&cluster.lake.url());
        let version = Version::from_response(id, &of_object, bytes.len() as u64, BLOCK).unwrap();
        let pack = packs(&cluster.lake).await.remove(0);
        let content = cluster.lake.object("b", &pack).unwrap().content.all();
        let at = content.windows(bytes.len()).position(|window| window == bytes);
        let start = at.unwrap() as u64;
        let in_pack = InPack {
            pack: name(&pack),
            range: ByteRange::new(start, start + bytes.len() as u64),
            crc32: shoal_pack::crc32(&bytes),
        };
        Self {
            peer: Arc::new(Peer::new("n0", cluster.ways[0].address(), &channel)),
            request: BlockRequest {
                index: 0,
                part: ByteRange::new(0, version.size_bytes),
                obtain: Obtain::Locally,
                caller: CallerName::AccessKey(ACCESS_KEY.into()),
                name: Some(object),
                headers: HeaderMap::new(),
                version,
            },
            in_pack,
        }
    }

    /// Asks the node as the block's home in the widest layer, so that it asks the lake.
    async fn begin(&self, caller: &str, in_pack: InPack) -> Result<LakeBody, PeerError> {
        let request = BlockRequest {
            obtain: Obtain::FromPack(Layer(3), Arc::new(in_pack)),
            caller: CallerName::AccessKey(caller.into()),
            ..self.request.clone()
        };
        let sent = self.peer.get_block(&request, None).await?;
        Ok(sent.body)
    }

    async fn ask(&self, caller: &str, change: impl FnOnce(&mut InPack)) -> Option<Bytes> {
        let mut in_pack = self.in_pack.clone();
        change(&mut in_pack);
        let body = self.begin(caller, in_pack).await.unwrap();
        Some(body.collect().await.ok()?.to_bytes())
    }
}

#[tokio::test]
async fn a_home_keeps_and_sends_only_what_it_was_asked_for() {
    let cluster = cold(1, |_| ()).await;
    let asker = Asker::new(&cluster, 1, "tmp/b").await;
    reads(&cluster.nodes[0].other(), "tmp/a", &small(0)).await;
    cluster.settle().await;
    cluster.lake.deny(OTHER_KEY, Access::Read, "b/tmp/.shoal-pack");
    cluster.lake.forget_requests();
    let absent = format!("{FOLDER}absent.zip");
    let nothing = [
        asker.ask(OTHER_KEY, |_| ()).await,
        asker.ask(ACCESS_KEY, |it| it.crc32 ^= 1).await,
        asker
            .ask(ACCESS_KEY, |it| {
                it.range = ByteRange::new(it.range.start - 1, it.range.end - 1);
            })
            .await,
        asker
            .ask(ACCESS_KEY, |it| it.pack.key = absent.as_bytes().into())
            .await,
    ];
    assert_eq!(nothing, [const { None }; 4]);
    assert_eq!(cluster.lake.count(is_read), 4, "each time the lake was asked");
    assert_eq!(blocks(&cluster.nodes[0]).await, 1);
    is_refused(&cluster.nodes[0], "tmp/a").await;
    assert!(asker.ask(ACCESS_KEY, |_| ()).await.unwrap() == small(1));
    cluster.settle().await;
    assert_eq!(blocks(&cluster.nodes[0]).await, 2);
    cluster.lake.forget_requests();
    reads(&cluster.nodes[0].client(), "tmp/b", &small(1)).await;
    assert_eq!(cluster.lake.count(is_read), 0, "it is the object's own block");
    cluster.stop().await;
}
