//! Nodes that share the bandwidth of their cluster, and pass on the purpose of blocks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::header::ETAG;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use shoal_cache::{BlockRequest, CallerName, Obtain, Peer};
use shoal_net::Channel;
use shoal_net::link::{PlannedRate, Purpose};
use shoal_node::config::{BandwidthScope, Config};
use shoal_policy::{Layer, ObjectId};
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::range::ByteRange;
use tokio::task::JoinHandle;

use super::{Cluster, SECRET};
use crate::lake::{ACCESS_KEY, Content};
use crate::link::{class, metered, moved};
use crate::node::{BLOCK, Node};
use crate::waiting::until;

const MB: u64 = 1_000_000;
const BANDWIDTH: u64 = 6 * MB;

fn shared(_: usize, config: &mut Config) {
    metered(config, BANDWIDTH);
    let bandwidth = config.lake.bandwidth.as_mut().unwrap();
    bandwidth.scope = BandwidthScope::Cluster;
}

/// The share of a node in the direction to the lake.
async fn share(node: &Node) -> u64 {
    node.status().await["link"]["up"]["share_bytes_per_second"]
        .as_u64()
        .unwrap()
}

async fn shares(cluster: &Cluster) -> Vec<u64> {
    join_all(cluster.nodes.iter().map(share)).await
}

/// Clients that write through a node without a pause, until they are aborted.
fn writers(node: &Node, count: usize) -> Vec<JoinHandle<()>> {
    let object = Content::synthetic(MB, 7).all();
    (0..count)
        .map(|number| {
            let (client, object) = (node.client(), object.clone());
            tokio::spawn(async move {
                loop {
                    let put = client.put(&format!("/b/w{number}"), object.clone());
                    // A node that stops refuses.
                    if put.try_send().await.is_err() {
                        return;
                    }
                }
            })
        })
        .collect()
}

#[tokio::test]
async fn nodes_share_a_bandwidth_by_demand() {
    let mut cluster = Cluster::start_with(3, shared).await;
    let equal = BANDWIDTH / 3;
    until("idle nodes have equal parts", async || {
        shares(&cluster)
            .await
            .iter()
            .all(|share| share.abs_diff(equal) <= 1)
    })
    .await;
    for node in &cluster.nodes {
        assert_eq!(node.status().await["link"]["nodes"], 3);
    }

    let first = writers(&cluster.nodes[0], 4);
    until("a busy node has what the others do not use", async || {
        let shares = shares(&cluster).await;
        shares[0] > BANDWIDTH * 8 / 10 && shares[1..].iter().all(|share| *share < equal / 2)
    })
    .await;
    let second = writers(&cluster.nodes[1], 4);
    until("two busy nodes have equal shares", async || {
        let shares = shares(&cluster).await;
        let sum: u64 = shares.iter().sum();
        let ratio = shares[0] as f64 / shares[1] as f64;
        sum <= BANDWIDTH + 2 && (0.8..1.25).contains(&ratio) && shares[2] < equal / 2
    })
    .await;

    // A node that ends leaves its share to the others.
    first.iter().for_each(JoinHandle::abort);
    let gone = cluster.nodes.remove(0);
    gone.stop().await;
    until("the others have the bandwidth", async || {
        let shares = shares(&cluster).await;
        shares[0] > BANDWIDTH * 8 / 10 && shares[0] + shares[1] <= BANDWIDTH + 2
    })
    .await;
    second.iter().for_each(JoinHandle::abort);
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_with_another_bandwidth_is_named() {
    let cluster = Cluster::start_with(2, |node, config| {
        shared(node, config);
        if node == 1 {
            metered(config, 2 * BANDWIDTH);
        }
    })
    .await;
    until("each node says so", async || {
        let pages = join_all(cluster.nodes.iter().map(|node| node.admin("/members"))).await;
        pages.iter().all(|page| page.text().contains("\"bandwidth\""))
    })
    .await;
    cluster.stop().await;
}

/// Clients that keep the link of a node to the lake busy for eight seconds at 1 MB/s. They are several, so
/// that one of them waits for the link also while another is between two blocks.
async fn keep_busy(node: &Node) -> Vec<JoinHandle<StatusCode>> {
    let readers = (0..8).map(|number| {
        let (client, path) = (node.client(), format!("/b/busy-{number}"));
        node.lake
            .put("b", &path["/b/".len()..], Content::synthetic(MB, number).all());
        tokio::spawn(async move { client.get(&path).send().await.status })
    });
    let readers = readers.collect();
    until("clients wait for the link", async || {
        class(node, "down", "client").await["waits"].as_u64().unwrap() > 0
    })
    .await;
    readers
}

/// A node that is none of the cluster, but knows its secret and asks for blocks.
struct Asker {
    peer: Arc<Peer>,
    version: Version,
    name: ObjectName,
}

impl Asker {
    fn new(cluster: &Cluster, key: &str, blocks: u64) -> Self {
        let channel = Arc::new(Channel::new("asker", [SECRET], 10));
        let etag = cluster.lake.object("b", key).unwrap().etag;
        let headers = HeaderMap::from_iter([(ETAG, HeaderValue::try_from(etag).unwrap())]);
        Self {
            peer: Arc::new(Peer::new("n0", cluster.ways[0].address(), &channel)),
            version: Version::from_response(ObjectId([1; 16]), &headers, blocks * BLOCK, BLOCK).unwrap(),
            name: ObjectName {
                bucket: "b".into(),
                key: key.as_bytes().into(),
                version: None,
            },
        }
    }

    /// Reads a block through the node, as if that were the block's home in L2.
    async fn read(&self, index: u32, purpose: &Purpose) -> bytes::Bytes {
        let request = BlockRequest {
            version: self.version.clone(),
            index,
            part: ByteRange { start: 0, end: BLOCK },
            obtain: Obtain::FromHomes(Layer::L2),
            caller: CallerName::AccessKey(ACCESS_KEY.into()),
            name: Some(self.name.clone()),
            headers: HeaderMap::new(),
        };
        let sent = self
            .peer
            .get_block(&request, purpose.transfer().as_ref())
            .await
            .unwrap();
        sent.body.collect().await.unwrap().to_bytes()
    }
}

#[tokio::test]
async fn a_home_asks_the_lake_in_the_class_that_the_block_is_wanted_for() {
    let cluster = Cluster::start_with(1, |_, config| metered(config, 100 * MB)).await;
    let bytes = cluster.put("k", 4);
    let asker = Asker::new(&cluster, "k", 4);
    let purposes = [
        Purpose::Prefetch,
        Purpose::Client,
        Purpose::Planned(PlannedRate::new(None, MB, 0)),
    ];
    for (index, purpose) in purposes.iter().enumerate() {
        let block = asker.read(index as u32, purpose).await;
        let start = index * BLOCK as usize;
        assert!(block == bytes[start..start + BLOCK as usize], "{purpose:?}");
        assert_eq!(
            moved(&cluster.nodes[0], "down", purpose.class().as_str()).await,
            BLOCK
        );
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_prefetched_block_that_a_client_wants_goes_on_as_the_clients() {
    // So slow that clients use all of it for as long as they like.
    let cluster = Cluster::start_with(1, |_, config| metered(config, MB)).await;
    let node = &cluster.nodes[0];
    cluster.put("k", 1);
    let busy = keep_busy(node).await;
    let asker = Arc::new(Asker::new(&cluster, "k", 1));
    let prefetch = {
        let asker = Arc::clone(&asker);
        tokio::spawn(async move { asker.read(0, &Purpose::Prefetch).await })
    };
    until("the prefetch waits for the link", async || {
        class(node, "down", "prefetch").await["waiting"] == 1
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(moved(node, "down", "prefetch").await, 0, "clients go first");
    assert!(!prefetch.is_finished());
    let wanted = asker.read(0, &Purpose::Client).await;
    assert_eq!(wanted.len() as u64, BLOCK);
    assert_eq!(prefetch.await.unwrap(), wanted);
    assert_eq!(moved(node, "down", "prefetch").await, 0);
    assert!(
        !busy.iter().all(JoinHandle::is_finished),
        "the story has to keep the link busy"
    );
    assert_eq!(cluster.lake.count(|request| request.path.contains("/b/k")), 1);
    for reader in busy {
        assert_eq!(reader.await.unwrap(), StatusCode::OK);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_client_hurries_a_block_that_another_node_fetches() {
    // The clusters `a` and `b` have a node each, and share blocks in L3. The link of the second one is so
    // slow that clients use all of it for as long as they like.
    let cluster = Cluster::start_with(2, |node, config| {
        config.node.topology = ["dc1/a/r0", "dc1/b/r0"][node].into();
        config.cooperation.layers = ["rack", "cluster", "dc"].map(str::to_owned).into();
        if node == 1 {
            metered(config, MB);
        }
    })
    .await;
    cluster.put("k", 16);
    let busy = keep_busy(&cluster.nodes[1]).await;
    let asker = Arc::new(Asker::new(&cluster, "k", 16));
    // Some of sixteen blocks are at home at the other node.
    let prefetches: Vec<_> = (0..16)
        .map(|index| {
            let asker = Arc::clone(&asker);
            tokio::spawn(async move { asker.read(index, &Purpose::Prefetch).await })
        })
        .collect();
    until("a prefetch waits for the link of the other node", async || {
        class(&cluster.nodes[1], "down", "prefetch").await["waiting"]
            .as_u64()
            .unwrap()
            > 0
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let waiting: Vec<u32> = (0..16)
        .filter(|index| !prefetches[*index as usize].is_finished())
        .collect();
    assert!(!waiting.is_empty());
    assert_eq!(moved(&cluster.nodes[1], "down", "prefetch").await, 0);
    let wanted = asker.read(waiting[0], &Purpose::Client).await;
    assert_eq!(wanted.len() as u64, BLOCK);
    assert_eq!(
        moved(&cluster.nodes[1], "down", "prefetch").await,
        0,
        "it came as the client's"
    );
    assert!(
        !busy.iter().all(JoinHandle::is_finished),
        "the story has to keep the link busy"
    );
    prefetches.iter().for_each(JoinHandle::abort);
    busy.iter().for_each(JoinHandle::abort);
    cluster.stop().await;
}
