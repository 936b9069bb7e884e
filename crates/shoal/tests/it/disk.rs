//! What the disk of a node does to its reads: it makes them fast, and never wrong.

use std::time::Duration;

use http::StatusCode;

use crate::node::{BLOCK, Node};
use crate::read::{cache, get, put};

#[tokio::test]
async fn a_failing_disk_costs_speed_and_is_used_again_when_it_works() {
    let node = Node::start().await;
    let bytes = put(&node, 2 * BLOCK);
    get(&node.client()).await;
    node.settle().await;

    // Where blocks are written aside there is nothing any more: every write fails.
    let (aside, away) = (node.store_path().join("aside"), node.store_path().join("away"));
    std::fs::rename(&aside, &away).unwrap();
    node.lake.put("b", "other", bytes.clone());
    for _ in 0..3 {
        let reply = node.client().get("/b/other").send().await;
        assert_eq!(
            (reply.status, &reply.body),
            (StatusCode::OK, &bytes),
            "from the lake"
        );
        node.settle().await;
    }
    assert_eq!(paused(&node).await, 1, "fills pause");
    let warm = get(&node.client()).await;
    assert_eq!(
        (&warm.body, cache(&warm)),
        (&bytes, "REVALIDATED"),
        "what is there is read"
    );

    std::fs::rename(&away, &aside).unwrap();
    for _ in 0..200 {
        if paused(&node).await == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    node.client().get("/b/other").send().await;
    node.settle().await;
    let healed = node.client().get("/b/other").send().await;
    assert_eq!((&healed.body, cache(&healed)), (&bytes, "REVALIDATED"));
    node.stop().await;
}

/// What the node says about its disk.
async fn paused(node: &Node) -> u64 {
    let metrics = node.admin("/metrics").await;
    let line = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("shoal_store_paused "));
    line.expect("the metric is there").parse().unwrap()
}

#[tokio::test]
async fn a_restart_is_warm() {
    let node = Node::start().await;
    let bytes = put(&node, 3 * BLOCK + 5);
    get(&node.client()).await;
    node.settle().await;
    let node = node.restart_after(|_| ()).await;
    node.lake.forget_requests();
    let reply = get(&node.client()).await;
    assert_eq!((&reply.body, cache(&reply)), (&bytes, "REVALIDATED"));
    assert_eq!(node.lake.body_bytes_sent(), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_flipped_bit_on_disk_is_a_miss_and_heals() {
    let node = Node::start().await;
    let bytes = put(&node, 2 * BLOCK);
    get(&node.client()).await;
    node.settle().await;
    let node = node
        .restart_after(|store| {
            for file in files_below(store)
                .into_iter()
                .filter(|file| file.metadata().unwrap().len() > BLOCK)
            {
                let mut content = std::fs::read(&file).unwrap();
                content[1000] ^= 1;
                std::fs::write(&file, content).unwrap();
            }
        })
        .await;
    assert_eq!(get(&node.client()).await.body, bytes);
    assert_eq!(node.store().counters().corrupt_blocks, 2);
    node.settle().await;
    let healed = get(&node.client()).await;
    assert_eq!((&healed.body, cache(&healed)), (&bytes, "REVALIDATED"));
    node.stop().await;
}

fn files_below(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}
