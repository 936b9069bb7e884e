//! Stories of quotas: what identities and the objects below prefixes may use of the disk and of the link.

use http::StatusCode;
use serde_json::Value;
use shoal_node::config::{
    Bandwidth, BandwidthScope, Config, FreshnessMode, QuotaConfig, QuotaScope, QuotaSize,
};
use shoal_policy::eviction::PolicyName;

use crate::client::{Call, Client};
use crate::cluster::Cluster;
use crate::lake::{ACCESS_KEY, ANONYMOUS, Access, Content, Object};
use crate::node::{BLOCK, Node, OTHER_KEY};
use crate::tasks::{carry_out, order};
use crate::waiting::until;

const GB: u64 = 1_000_000_000;

/// A little more than the room of a block on disk.
const CHARGE: u64 = BLOCK + 3 * 4096;

fn of_identity(name: &str) -> QuotaScope {
    QuotaScope::Identity(name.into())
}

fn of_prefix(prefix: &str) -> QuotaScope {
    QuotaScope::Prefix(prefix.into())
}

fn room(scope: QuotaScope, blocks: u64) -> QuotaConfig {
    QuotaConfig {
        scope,
        room: Some(QuotaSize::Bytes(blocks * CHARGE)),
        bandwidth: None,
    }
}

/// A rate that these stories do not reach.
fn bandwidth(scope: QuotaScope) -> QuotaConfig {
    QuotaConfig {
        scope,
        room: None,
        bandwidth: Some(Bandwidth {
            bytes_per_second: GB,
            scope: BandwidthScope::Node,
        }),
    }
}

/// A node with room for about 120 blocks, and these quotas.
async fn node(quotas: Vec<QuotaConfig>) -> Node {
    Node::start_with(|config| {
        config.freshness.default = FreshnessMode::Immutable;
        config.store.capacity_bytes = (2 << 20) + 120 * CHARGE;
        config.store.policy = Some(PolicyName::Lru);
        config.quotas = quotas;
    })
    .await
}

fn put(node: &Node, key: &str, blocks: u64) {
    let size = blocks * BLOCK;
    node.lake
        .put("b", key, Object::new(Content::synthetic(size, key.len() as u64)));
}

async fn read(node: &Node, client: &Client, key: &str) {
    let reply = client.get(&format!("/b/{key}")).send().await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.body, node.lake.object("b", key).unwrap().content.all());
    node.settle().await;
}

/// Reads an object again. Returns the bytes that the lake has sent for it.
async fn fetched_again(node: &Node, client: &Client, key: &str) -> u64 {
    node.lake.forget_requests();
    read(node, client, key).await;
    node.lake.body_bytes_sent()
}

/// What `/status` shows of a quota.
async fn quota(node: &Node, name: &str) -> Value {
    let status = node.status().await;
    let quotas = status["quotas"].as_array().unwrap().iter();
    let mut named = quotas.filter(|quota| quota["name"] == name);
    named.next().unwrap().clone()
}

async fn used_bytes(node: &Node, name: &str) -> u64 {
    let quota = quota(node, name).await;
    let used = quota["used_bytes"].as_u64().unwrap();
    assert!(used <= quota["room_bytes"].as_u64().unwrap(), "{quota}");
    used
}

async fn lake_bytes(node: &Node, name: &str) -> u64 {
    quota(node, name).await["lake_bytes"].as_u64().unwrap()
}

#[tokio::test]
async fn a_scan_under_a_quota_leaves_the_blocks_of_others_on_the_disk() {
    for quotas in [
        vec![],
        vec![room(of_identity(OTHER_KEY), 16)],
        vec![room(of_prefix("s3://b/scan/"), 16)],
    ] {
        let name = quotas.first().map(|quota| quota.scope.name().to_owned());
        let node = node(quotas).await;
        put(&node, "hot", 40);
        read(&node, &node.client(), "hot").await;
        for number in 0..20 {
            let key = format!("scan/{number}");
            put(&node, &key, 20);
            read(&node, &node.other(), &key).await;
        }
        let fetched = fetched_again(&node, &node.client(), "hot").await;
        let Some(name) = name else {
            assert_eq!(fetched, 40 * BLOCK, "the scan is long enough");
            node.stop().await;
            continue;
        };
        assert_eq!(fetched, 0, "{name}");
        // The last blocks of the scan are there, and only they.
        let used = used_bytes(&node, &name).await;
        assert!((14 * BLOCK..=16 * CHARGE).contains(&used), "{used}");
        let again = fetched_again(&node, &node.other(), "scan/19").await;
        assert!((4 * BLOCK..=20 * BLOCK).contains(&again), "{again}");
        let metrics = node.admin("/metrics").await;
        let used = used_bytes(&node, &name).await;
        for line in [
            format!("shoal_quota_bytes{{quota=\"{name}\"}} {used}"),
            format!("shoal_quota_room_bytes{{quota=\"{name}\"}} {}", 16 * CHARGE),
        ] {
            assert!(metrics.text().contains(&line), "{line}");
        }
        assert!(!metrics.text().contains("shoal_quota_lake_bytes_total{"));
        let status = node.status().await;
        assert!(status["store"]["evictions"]["quota"].as_u64().unwrap() > 300);
        assert_eq!(status["store"]["evictions"]["room"], 0);
        node.stop().await;
    }
}

#[tokio::test]
async fn a_node_explains_under_which_quotas_an_object_and_its_blocks_fall() {
    let node = node(vec![
        room(of_identity(ACCESS_KEY), 4),
        room(of_prefix("s3://b/x/"), 60),
    ])
    .await;
    put(&node, "x/k", 8);
    read(&node, &node.client(), "x/k").await;
    let explained = |key: &str| {
        let page = format!("/explain?object=s3://b/{key}");
        let node = &node;
        async move { serde_json::from_slice::<Value>(&node.admin(&page).await.body).unwrap() }
    };
    let page = explained("x/k").await;
    assert_eq!(page["quotas"], serde_json::json!([ACCESS_KEY, "s3://b/x/"]));
    let blocks = page["blocks"].as_array().unwrap();
    let with = |here: &str| blocks.iter().filter(|block| block["here"] == here).count();
    assert_eq!((with("resident"), with("evicted")), (4, 4), "{page:#}");
    let evicted = blocks.iter().find(|block| block["here"] == "evicted").unwrap();
    assert_eq!(evicted["reason"], "quota");
    assert_eq!(explained("x/unknown").await["quotas"][0], "s3://b/x/");
    assert_eq!(explained("y").await["quotas"], Value::Null);
    node.stop().await;
}

#[tokio::test]
async fn a_read_is_served_without_being_cached_if_the_rest_of_its_quota_is_pinned() {
    let node = node(vec![room(of_prefix("s3://b/x/"), 6)]).await;
    put(&node, "x/kept", 6);
    put(&node, "x/more", 5);
    put(&node, "other", 5);
    let end = shoal_net::clock::utc_now() + std::time::Duration::from_hours(1);
    let mut pin = order("pin", "s3://b/x/kept");
    pin["until"] = serde_json::json!(shoal_orders::Moment::from(end).to_string());
    let task = carry_out(&node, &pin).await;
    assert_eq!(task["state"], "done", "{task:#}");
    read(&node, &node.client(), "x/more").await;
    assert_eq!(fetched_again(&node, &node.client(), "x/more").await, 5 * BLOCK);
    assert_eq!(fetched_again(&node, &node.client(), "x/kept").await, 0);
    let refusals = node.status().await["store"]["refusals"]["quota-full"].clone();
    assert_eq!(refusals, 10);
    // What falls under no quota is cached as ever.
    read(&node, &node.client(), "other").await;
    assert_eq!(fetched_again(&node, &node.client(), "other").await, 0);
    node.stop().await;
}

#[tokio::test]
async fn blocks_count_in_their_quotas_after_a_restart() {
    let node = node(vec![
        room(of_identity(ACCESS_KEY), 10),
        room(of_prefix("s3://b/x/"), 60),
    ])
    .await;
    put(&node, "x/k", 20);
    put(&node, "y", 20);
    read(&node, &node.client(), "x/k").await;
    read(&node, &node.other(), "y").await;
    let before = [
        used_bytes(&node, ACCESS_KEY).await,
        used_bytes(&node, "s3://b/x/").await,
    ];
    assert!(before[0] >= 9 * BLOCK && before[0] == before[1], "{before:?}");
    let node = node.restart_after(|_| ()).await;
    let after = [
        used_bytes(&node, ACCESS_KEY).await,
        used_bytes(&node, "s3://b/x/").await,
    ];
    assert_eq!(before, after);
    // A smaller quota holds from the start on, and takes no block of others.
    let stopped = node.halt().await;
    let node = stopped.with(|config| config.quotas[0] = room(of_identity(ACCESS_KEY), 3));
    let node = node.start().await;
    until("the quota fits", async || {
        let quota = quota(&node, ACCESS_KEY).await;
        quota["used_bytes"].as_u64() <= quota["room_bytes"].as_u64()
    })
    .await;
    assert!(used_bytes(&node, ACCESS_KEY).await >= 2 * BLOCK);
    assert_eq!(fetched_again(&node, &node.other(), "y").await, 0);
    node.stop().await;
}

#[tokio::test]
async fn what_is_written_through_the_cache_counts_in_the_quota_of_its_writer() {
    let node = node(vec![room(of_identity(ACCESS_KEY), 8)]).await;
    put(&node, "hot", 40);
    read(&node, &node.other(), "hot").await;
    for number in 0..20 {
        let body = Content::synthetic(10 * BLOCK, number).all();
        let call: Call = node.client().put(&format!("/b/w{number}"), body);
        let reply = call.header("x-shoal-write", "through").send().await;
        assert_eq!(reply.status, StatusCode::OK);
        node.settle().await;
        used_bytes(&node, ACCESS_KEY).await;
    }
    assert!(used_bytes(&node, ACCESS_KEY).await >= 6 * BLOCK);
    assert_eq!(fetched_again(&node, &node.other(), "hot").await, 0);
    node.stop().await;
}

#[tokio::test]
async fn all_clients_without_credentials_may_have_a_quota_together() {
    let node = node(vec![room(of_identity("anonymous"), 8)]).await;
    node.lake.allow(ANONYMOUS, Access::Read, "b");
    put(&node, "k", 30);
    read(&node, &node.stranger(), "k").await;
    assert!(used_bytes(&node, "anonymous").await >= 6 * BLOCK);
    node.stop().await;
}

#[tokio::test]
async fn only_bytes_from_the_lake_are_charged_and_only_to_the_reader_who_brings_them() {
    let node = node(vec![
        bandwidth(of_identity(OTHER_KEY)),
        bandwidth(of_prefix("s3://b/x/")),
    ])
    .await;
    for key in ["x/k", "y", "x/uncached"] {
        put(&node, key, 10);
    }
    read(&node, &node.other(), "x/k").await;
    for name in [OTHER_KEY, "s3://b/x/"] {
        assert_eq!(lake_bytes(&node, name).await, 10 * BLOCK, "{name}");
    }
    // Hits cost nothing, and neither do bytes that other readers bring.
    read(&node, &node.other(), "x/k").await;
    read(&node, &node.client(), "y").await;
    read(&node, &node.other(), "y").await;
    assert_eq!(lake_bytes(&node, OTHER_KEY).await, 10 * BLOCK);
    // A read past the cache is no way around.
    let uncached = node.other().get("/b/x/uncached");
    let reply = uncached.header("cache-control", "no-store").send().await;
    assert_eq!(reply.body.len() as u64, 10 * BLOCK);
    for name in [OTHER_KEY, "s3://b/x/"] {
        assert_eq!(lake_bytes(&node, name).await, 20 * BLOCK, "{name}");
    }
    let metrics = node.admin("/metrics").await;
    for line in [
        format!(
            "shoal_quota_lake_bytes_total{{quota=\"{OTHER_KEY}\"}} {}",
            20 * BLOCK
        ),
        format!("shoal_quota_lake_waits_total{{quota=\"{OTHER_KEY}\"}} 0"),
        format!("shoal_quota_bandwidth_bytes_per_second{{quota=\"s3://b/x/\"}} {GB}"),
    ] {
        assert!(metrics.text().contains(&line), "{line}");
    }
    assert!(!metrics.text().contains("shoal_quota_bytes{"));
    node.stop().await;
}

#[tokio::test]
async fn each_node_charges_what_it_reads_from_the_lake_itself() {
    let change = |_, config: &mut Config| config.quotas = vec![bandwidth(of_identity(ACCESS_KEY))];
    let cluster = Cluster::start_with(2, change).await;
    cluster.put("k", 20);
    for node in &cluster.nodes {
        let reply = node.client().get("/b/k").send().await;
        assert_eq!(reply.status, StatusCode::OK);
        node.settle().await;
    }
    let mut charged = Vec::new();
    for node in &cluster.nodes {
        charged.push(lake_bytes(node, ACCESS_KEY).await);
    }
    assert_eq!(charged.iter().sum::<u64>(), cluster.lake.body_bytes_sent());
    assert!(
        charged.iter().all(|bytes| *bytes > 0),
        "both are homes: {charged:?}"
    );
    cluster.stop().await;
}
