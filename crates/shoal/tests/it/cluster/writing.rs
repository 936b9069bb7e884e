//! Stories of objects that are written through one node and read through the others.

use std::time::Duration;

use http::StatusCode;

use super::{Cluster, Wire};
use crate::lake::Content;
use crate::node::BLOCK;

async fn write_through(cluster: &Cluster, node: usize, key: &str, seed: u64) -> bytes::Bytes {
    let bytes = Content::synthetic(8 * BLOCK + 1_000, seed).all();
    let put = cluster.nodes[node]
        .client()
        .put(&format!("/b/{key}"), bytes.clone())
        .header("x-shoal-write", "through");
    assert_eq!(put.send().await.status, StatusCode::OK);
    cluster.settle().await;
    bytes
}

#[tokio::test]
async fn an_object_written_by_one_node_is_read_by_all_without_the_lakes_bytes() {
    let cluster = Cluster::start(3).await;
    let bytes = write_through(&cluster, 0, "k", 1).await;
    for node in 0..3 {
        cluster.read(node, "k", &bytes).await;
    }
    assert_eq!(cluster.lake.body_bytes_sent(), 0);
    cluster.stop().await;
}

#[tokio::test]
async fn written_blocks_lie_at_their_homes_also_when_the_writer_is_gone() {
    let mut cluster = Cluster::start(3).await;
    let blocks = |cluster: &Cluster| {
        let nodes = cluster.nodes.iter();
        nodes
            .map(|node| node.store().counters().blocks)
            .collect::<Vec<_>>()
    };
    // A home that is slow for a moment takes nothing, and that is no error.
    let mut shared = None;
    for attempt in 0..5 {
        let (key, before) = (format!("k{attempt}"), blocks(&cluster));
        let bytes = write_through(&cluster, 0, &key, 2).await;
        let held: Vec<u64> = blocks(&cluster)
            .iter()
            .zip(before)
            .map(|(now, before)| now - before)
            .collect();
        assert_eq!(held[0], 9, "the writer has what its reader would have");
        assert!(held[1] + held[2] < 18, "not every block is everybody's: {held:?}");
        if held[1] > 0 && held[2] > 0 {
            shared = Some((key, bytes, held));
            break;
        }
    }
    let (key, bytes, held) = shared.expect("homes have their share");
    cluster.nodes.remove(0).stop().await;
    cluster.sees(2).await;
    let before = cluster.lake.body_bytes_sent();
    cluster.read(0, &key, &bytes).await;
    cluster.read(1, &key, &bytes).await;
    let missed = 9 - held[1] - held[2];
    let again = cluster.lake.body_bytes_sent() - before;
    assert!(
        again <= missed * BLOCK,
        "only what was at home at the writer alone is read again: {again} bytes, {held:?}"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn homes_have_a_block_before_it_is_on_the_disk_of_its_writer() {
    let cluster = Cluster::start(2).await;
    let stored = |node: usize| cluster.nodes[node].store().counters().stored_blocks;
    // Half of the blocks are at home at their writer; and this process may be stopped for as long as a block
    // waits for the disk.
    for number in 0..40 {
        cluster.settle().await;
        let before = [stored(0), stored(1)];
        let put = cluster.nodes[0]
            .client()
            .put(&format!("/b/k{number}"), vec![number; 1_000])
            .header("x-shoal-write", "through");
        assert_eq!(put.send().await.status, StatusCode::OK);
        while stored(0) == before[0] {
            if stored(1) > before[1] && stored(0) == before[0] {
                return cluster.stop().await;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    panic!("homes had to wait for the disk of the writer");
}

#[tokio::test]
async fn an_unreachable_home_fails_no_write() {
    let cluster = Cluster::start(2).await;
    cluster.ways[1].becomes(Wire::Cut);
    let bytes = write_through(&cluster, 0, "k", 3).await;
    cluster.read(0, "k", &bytes).await;
    assert_eq!(cluster.lake.body_bytes_sent(), 0);
    cluster.ways[1].becomes(Wire::Whole);
    cluster.read(1, "k", &bytes).await;
    cluster.stop().await;
}
