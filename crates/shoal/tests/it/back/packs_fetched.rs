//! Packed objects that tasks bring: many of a pack by its blocks, few of them alone. Plans bring all alone.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::Value;
use shoal_policy::ObjectId;
use shoal_s3::object::ObjectName;

use super::packs::{is_of_pack, pack, packed, packs, small};
use super::packs_seen::cold_node;
use super::{flush, reads, write_back};
use crate::cluster::Cluster;
use crate::cluster::plan::{Planned, document, start, until as until_plan};
use crate::lake::{ACCESS_KEY, Access, Content, Lake, Object, Request};
use crate::link::{metered, moved};
use crate::node::{BLOCK, Node, OTHER_KEY};
use crate::tasks::{begin, carry_out, is_over, manifest, order, task, until};
use crate::waiting::value;

/// Many in one pack of several blocks.
const OBJECTS: u64 = 300;

fn keys() -> Vec<String> {
    (0..OBJECTS).map(|number| format!("tmp/{number:03}")).collect()
}

fn bytes_of_all() -> u64 {
    (0..OBJECTS).map(|seed| small(seed).len() as u64).sum()
}

async fn node() -> Node {
    let keys = keys();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    Box::pin(cold_node(&keys, |_| ())).await
}

/// The only pack: its key and its size in bytes.
async fn the_pack(lake: &Lake) -> (String, u64) {
    let mut packs = packs(lake).await;
    assert_eq!(packs.len(), 1, "{packs:?}");
    let pack = packs.remove(0);
    let size_bytes = lake.object("b", &pack).unwrap().content.size();
    (pack, size_bytes)
}

fn id(lake: &Lake, key: &str) -> ObjectId {
    let name = ObjectName {
        bucket: "b".into(),
        key: key.as_bytes().into(),
        version: None,
    };
    name.id(&lake.url())
}

async fn has_blocks_of(node: &Node, object: ObjectId) -> bool {
    node.store().describe(object).await.is_some()
}

async fn blocks(node: &Node) -> u64 {
    node.status().await["store"]["blocks"].as_u64().unwrap()
}

fn is_read(request: &Request) -> bool {
    request.is_get() && request.key.ends_with(b".zip")
}

#[tokio::test]
async fn a_prefetch_reads_a_pack_by_its_blocks_and_keeps_its_objects_alone() {
    let node = node().await;
    let (_, size_bytes) = the_pack(&node.lake).await;
    node.lake.forget_requests();
    let done = carry_out(&node, &order("prefetch", "s3://b/tmp/")).await;
    assert_eq!(
        (&done["state"], &done["objects"]["done"]),
        (&"done".into(), &OBJECTS.into()),
        "{done:#}"
    );
    let bytes = &done["bytes"];
    assert_eq!(
        (&bytes["from_lake"], &bytes["done"]),
        (&bytes_of_all().into(), &bytes_of_all().into()),
        "{done:#}"
    );
    let (reads_of_it, of_objects) = (node.lake.count(is_read), node.lake.count(Request::is_of_object));
    assert!(
        reads_of_it as u64 <= size_bytes.div_ceil(BLOCK) && of_objects <= reads_of_it + 1,
        "{:#?}",
        node.lake.requests()
    );
    assert_eq!(blocks(&node).await, OBJECTS, "no block of the pack is left");
    node.lake.forget_requests();
    for seed in [0, 7, OBJECTS - 1] {
        let warm = reads(&node.client(), &keys()[seed as usize], &small(seed)).await;
        assert_eq!(warm.header("x-cache"), Some("REVALIDATED"));
    }
    assert_eq!(node.lake.count(is_read), 0);
    let again = carry_out(&node, &order("prefetch", "s3://b/tmp/")).await;
    assert_eq!(again["objects"]["unchanged"], OBJECTS, "{again:#}");
    assert_eq!(node.lake.count(is_read), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_list_of_a_few_objects_of_a_pack_reads_them_alone() {
    let node = node().await;
    let (mut list, seeds) = (String::new(), [3, 100, 101, 250]);
    for seed in seeds {
        writeln!(list, "s3://b/{}", keys()[seed as usize]).unwrap();
    }
    let reply = manifest::send(&node, &format!("kind=prefetch&identity={ACCESS_KEY}"), list).await;
    assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text());
    let begun: Value = serde_json::from_slice(&reply.body).unwrap();
    let done = until(&node, begun["id"].as_str().unwrap(), is_over).await;
    assert_eq!(done["objects"]["done"], seeds.len(), "{done:#}");
    let requests = node.lake.requests();
    let mut sent: Vec<u64> = requests
        .iter()
        .filter(|request| is_read(request))
        .map(|request| request.body_sent)
        .collect();
    sent.sort_unstable();
    assert_eq!(sent, seeds.map(|seed| small(seed).len() as u64), "{requests:#?}");
    assert_eq!(blocks(&node).await, seeds.len() as u64);
    node.stop().await;
}

/// The requests of nodes to other nodes that failed.
async fn lost_hops(cluster: &Cluster) -> u64 {
    let mut lost = 0;
    for node in 0..cluster.nodes.len() {
        for other in (0..cluster.nodes.len()).filter(|other| *other != node) {
            let metric = format!("shoal_peer_failures_total{{peer=\"n{other}\"}}");
            lost += cluster.metric(node, &metric).await;
        }
    }
    lost
}

#[tokio::test]
async fn nodes_read_each_block_of_a_pack_once_and_hold_the_objects_at_their_homes() {
    let cluster = Cluster::start_with(3, |_, config| pack(config)).await;
    let keys = keys();
    packed(
        &cluster.nodes[0],
        &keys.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .await;
    cluster.settle().await;
    carry_out(&cluster.nodes[0], &order("evict", "s3://b/tmp/")).await;
    let (pack, size_bytes) = the_pack(&cluster.lake).await;
    cluster.lake.forget_requests();
    let done = carry_out(&cluster.nodes[1], &order("prefetch", "s3://b/tmp/")).await;
    assert_eq!(
        (&done["state"], &done["objects"]["done"]),
        (&"done".into(), &OBJECTS.into()),
        "{done:#}"
    );
    let reads_of_it = cluster.lake.count(is_read) as u64;
    // Where the machine is starved, nodes do not reach each other in time: each such hop costs a read.
    let lost = lost_hops(&cluster).await;
    assert!(
        reads_of_it <= size_bytes.div_ceil(BLOCK) + lost,
        "{lost} {:#?}",
        cluster.lake.requests()
    );
    // A node may still write a block to its disk that it has sent to another one.
    let pack = id(&cluster.lake, &pack);
    let rest = async || join_all(cluster.nodes.iter().map(|node| has_blocks_of(node, pack))).await;
    value("no node has a block of the pack", rest, |rest| {
        rest.iter().all(|has| !has)
    })
    .await;
    let held = join_all(cluster.nodes.iter().map(blocks)).await;
    assert!(
        held.iter().all(|held| *held > 0) && held.iter().sum::<u64>() == OBJECTS || lost > 0,
        "{held:?}"
    );
    cluster.lake.forget_requests();
    for seed in [0, 1, OBJECTS / 2, OBJECTS - 1] {
        cluster.read(2, &keys[seed as usize], &small(seed)).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_task_that_is_cancelled_leaves_no_block_of_a_pack() {
    let node = node().await;
    let (pack, _) = the_pack(&node.lake).await;
    let pack = id(&node.lake, &pack);
    let before = AtomicUsize::new(0);
    let gate = node
        .lake
        .hold(move |request| is_read(request) && before.fetch_add(1, Ordering::Relaxed) > 0);
    let task = begin(&node, &order("prefetch", "s3://b/tmp/")).await;
    gate.arrived(1).await;
    assert!(has_blocks_of(&node, pack).await, "it has read the first one");
    let cancelled = node.order(&format!("/tasks/{task}/cancel")).await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text());
    gate.open();
    let is_left = async || has_blocks_of(&node, pack).await;
    value("no block of the pack is left", is_left, |is_left| !is_left).await;
    let ended = until(&node, &task, is_over).await;
    assert!(ended["objects"]["done"].as_u64().unwrap() > 0, "{ended:#}");
    assert!(blocks(&node).await > 0, "objects stay");
    node.stop().await;
}

#[tokio::test]
async fn an_object_that_is_damaged_in_its_pack_fails_and_the_others_are_brought() {
    let node = node().await;
    let (pack, _) = the_pack(&node.lake).await;
    let mut bytes = node.lake.object("b", &pack).unwrap().content.all().to_vec();
    let found = bytes.windows(200).position(|part| *part == small(9)[..200]);
    bytes[found.unwrap() + 100] ^= 1;
    node.lake.put("b", &pack, Object::new(bytes));
    node.lake.forget_requests();
    let done = carry_out(&node, &order("prefetch", "s3://b/tmp/")).await;
    let objects = &done["objects"];
    assert_eq!(
        (&done["state"], &objects["done"], &objects["failed"]),
        (&"failed".into(), &(OBJECTS - 1).into(), &1.into()),
        "{done:#}"
    );
    let error = &done["errors"][0];
    assert!(error["object"].as_str().unwrap().contains("tmp/009"), "{done:#}");
    assert!(error["error"].as_str().unwrap().contains("CRC-32"), "{done:#}");
    assert_eq!(blocks(&node).await, OBJECTS - 1);
    assert!(node.lake.count(is_read) < 30, "{:#?}", node.lake.requests());
    node.stop().await;
}

#[tokio::test]
async fn the_objects_of_a_pack_that_is_gone_fail_and_those_of_others_are_brought() {
    let node = Box::pin(Node::start_with(pack)).await;
    let of_pack = |letter: char| (0..20).map(move |number| format!("tmp/{letter}{number:02}"));
    for letter in ['a', 'b'] {
        let keys: Vec<_> = of_pack(letter).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        Box::pin(packed(&node, &keys)).await;
    }
    node.settle().await;
    carry_out(&node, &order("evict", "s3://b/tmp/")).await;
    let gone = packs(&node.lake).await.remove(0);
    node.lake.delete("b", &gone);
    let done = carry_out(&node, &order("prefetch", "s3://b/tmp/")).await;
    let objects = &done["objects"];
    assert_eq!(
        (&objects["done"], &objects["failed"]),
        (&20.into(), &20.into()),
        "{done:#}"
    );
    let error = &done["errors"][0];
    assert!(error["object"].as_str().unwrap().contains("tmp/a"), "{done:#}");
    assert!(
        error["error"]
            .as_str()
            .unwrap()
            .contains("the lake does not have it"),
        "{done:#}"
    );
    assert_eq!(blocks(&node).await, 20);
    assert!(
        node.status().await.to_string().contains(&gone),
        "operators see it"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_task_of_an_identity_that_may_not_read_a_pack_reads_nothing_of_it() {
    let node = node().await;
    node.lake.deny(OTHER_KEY, Access::Read, "b/tmp/.shoal-pack");
    let mut as_other = order("prefetch", "s3://b/tmp/");
    as_other["identity"] = OTHER_KEY.into();
    let done = carry_out(&node, &as_other).await;
    assert_eq!(
        (&done["state"], &done["objects"]["done"]),
        (&"failed".into(), &0.into())
    );
    assert!(
        done["detail"].as_str().unwrap().contains("refused 100 objects"),
        "{done:#}"
    );
    assert_eq!((node.lake.count(is_read), blocks(&node).await), (0, 0));
    node.stop().await;
}

/// One of two tasks removes blocks that the other one reads.
#[tokio::test]
async fn tasks_that_read_a_pack_at_the_same_time_both_bring_their_objects() {
    let node = node().await;
    let (pack, _) = the_pack(&node.lake).await;
    let gate = node.lake.hold(is_of_pack);
    let uris = ["s3://b/tmp/", "s3://b/tmp/0", "s3://b/tmp/1"];
    let mut tasks = Vec::new();
    for uri in uris {
        tasks.push(begin(&node, &order("prefetch", &format!("{uri}*"))).await);
    }
    gate.arrived(1).await;
    gate.open();
    for (id, objects) in tasks.iter().zip([OBJECTS, 100, 100]) {
        let done = until(&node, id, is_over).await;
        assert_eq!(done["objects"]["done"], objects, "{done:#}");
    }
    assert_eq!(task(&node, &tasks[0]).await["state"], "done");
    let pack = id(&node.lake, &pack);
    let is_left = async || has_blocks_of(&node, pack).await;
    value("no block of the pack is left", is_left, |is_left| !is_left).await;
    assert_eq!(blocks(&node).await, OBJECTS);
    node.stop().await;
}

/// A plan promises rates of objects, and blocks of packs have more bytes.
#[tokio::test]
async fn a_plan_reads_packed_objects_alone_in_its_class() {
    let node = Box::pin(Node::start_with(|config| {
        pack(config);
        metered(config, 1 << 30);
    }))
    .await;
    let (count, size_bytes) = (6 * 4, BLOCK / 4);
    for number in 0..count {
        let bytes = Content::synthetic(size_bytes, number).all();
        write_back(&node.client(), &format!("tmp/{number:03}"), &bytes).await;
    }
    flush(&node, "").await;
    // Blocks that are written back are on their way to the disk until then.
    node.settle().await;
    carry_out(&node, &order("evict", "s3://b/tmp/")).await;
    assert_eq!(blocks(&node).await, 0);
    let (pack, _) = the_pack(&node.lake).await;
    node.lake.forget_requests();
    let (planned, prefetched) = (
        moved(&node, "down", "planned").await,
        moved(&node, "down", "prefetch").await,
    );
    let document = document(&[Planned {
        submit_s: 5.0,
        deadline_s: 5.4,
        reads: &[("tmp/", 6)],
    }]);
    start(&node, &document).await;
    let fetched = until_plan(&node, |plan| plan["bytes"]["done"] == 6 * BLOCK).await;
    let bytes = |from: &str| fetched["bytes"][from].as_u64().unwrap();
    // Where the machine is too slow for the plan it is made again, and what came before counts as cached.
    let is_replanned = fetched["plan"]["replans"] != 0;
    let cached = if is_replanned { bytes("cached") } else { 0 };
    assert_eq!(bytes("from_lake") + cached, 6 * BLOCK, "{fetched:#}");
    let requests = node.lake.requests();
    let sent: Vec<u64> = requests
        .iter()
        .filter(|request| is_read(request))
        .map(|request| request.body_sent)
        .collect();
    assert_eq!(sent, vec![size_bytes; count as usize], "{requests:#?}");
    assert!(moved(&node, "down", "planned").await - planned >= 6 * BLOCK);
    assert_eq!(moved(&node, "down", "prefetch").await, prefetched);
    assert!(!has_blocks_of(&node, id(&node.lake, &pack)).await);
    assert_eq!(blocks(&node).await, count);
    node.stop().await;
}
