//! Stories of eviction: the blocks that leave a full node.

use shoal_policy::eviction::PolicyName;

use crate::lake::{Content, Object};
use crate::node::{BLOCK, Node};

/// Room for some 380 blocks, of which a third are read again and again.
const CAPACITY: u64 = 24 << 20;
const HOT: u64 = 128 * BLOCK;
const SCANNED: u64 = 100 * BLOCK;

/// Reads an object three times, then half as much again as the node has room for, once, and so on.
async fn scan_and_read(node: &Node, rounds: std::ops::Range<u32>) {
    for round in rounds {
        for _ in 0..3 {
            read(node, "hot").await;
        }
        for number in 0..6 {
            let key = format!("scan-{round}-{number}");
            put(node, &key, SCANNED);
            read(node, &key).await;
        }
    }
}

fn put(node: &Node, key: &str, size: u64) {
    node.lake
        .put("b", key, Object::new(Content::synthetic(size, size)));
}

async fn read(node: &Node, key: &str) {
    let reply = node.client().get(&format!("/b/{key}")).send().await;
    assert!(reply.status.is_success());
    node.settle().await;
}

/// Bytes of the hot object that the lake has to send again after the scans.
async fn fetched_again(policy: PolicyName) -> u64 {
    let node = Node::start_with(|config| {
        config.store.capacity_bytes = CAPACITY;
        config.store.policy = Some(policy);
    })
    .await;
    put(&node, "hot", HOT);
    scan_and_read(&node, 0..3).await;
    node.lake.forget_requests();
    read(&node, "hot").await;
    let bytes = node.lake.body_bytes_sent();
    node.stop().await;
    bytes
}

#[tokio::test]
async fn by_default_a_hot_object_survives_scans_that_would_wash_it_out_under_lru() {
    assert_eq!(
        fetched_again(PolicyName::Lru).await,
        HOT,
        "the scans are long enough"
    );
    let bytes = fetched_again(PolicyName::default()).await;
    assert!(bytes < HOT / 10, "{bytes} of {HOT}");
}
