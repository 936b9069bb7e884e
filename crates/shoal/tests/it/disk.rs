//! Stories of a node's disk: it makes reads fast, and its faults make none wrong.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use shoal_node::config::SplitRule;
use shoal_policy::ObjectId;
use shoal_s3::object::Version;
use shoal_store::{Health, Store, Urgency};

use crate::lake::Request;
use crate::node::{BLOCK, Node};
use crate::read::{cache, get, put};
use crate::waiting::{until, value};

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
    until("fills go on", async || paused(&node).await == 0).await;
    node.client().get("/b/other").send().await;
    node.settle().await;
    let healed = node.client().get("/b/other").send().await;
    assert_eq!((&healed.body, cache(&healed)), (&bytes, "REVALIDATED"));
    node.stop().await;
}

/// Value of the gauge `shoal_store_paused`: 1 while the disk takes no new blocks.
async fn paused(node: &Node) -> u64 {
    metric(node, "shoal_store_paused").await
}

async fn metric(node: &Node, name: &str) -> u64 {
    let metrics = node.admin("/metrics").await;
    let line = metrics.text().lines().find_map(|line| line.strip_prefix(name));
    line.expect("the metric is there").trim().parse().unwrap()
}

/// Waits until this many bytes are counted: a client may have its last byte slightly earlier.
async fn has_sent(node: &Node, from_local: u64, from_lake: u64) {
    let expected = [from_local, from_lake];
    let sent = async || {
        [
            metric(node, "shoal_read_bytes_total{source=\"local\"}").await,
            metric(node, "shoal_read_bytes_total{source=\"lake\"}").await,
        ]
    };
    let what = format!("{expected:?} bytes were sent from this node and the lake");
    value(&what, sent, |sent| *sent == expected).await;
}

#[tokio::test]
async fn a_block_that_waits_for_the_disk_is_this_nodes_already() {
    for (node, expected) in [
        (Node::start().await, "REVALIDATED"),
        (Node::start_immutable().await, "HIT"),
    ] {
        let size = 3 * BLOCK + 5;
        let bytes = put(&node, size);
        let busy = BusyDisk::new(node.store());
        let cold = get(&node.client()).await;
        assert_eq!((&cold.body, cache(&cold)), (&bytes, "MISS"));
        has_sent(&node, 0, size).await;

        let warm = get(&node.client()).await;
        assert_eq!((&warm.body, cache(&warm)), (&bytes, expected));
        let wish = node.client().get("/b/k").range("bytes=7-");
        let part = wish.header("cache-control", "only-if-cached").send().await;
        assert_eq!((&part.body, cache(&part)), (&bytes.slice(7..), expected));
        has_sent(&node, 2 * size - 7, size).await;
        assert_eq!(node.lake.body_bytes_sent(), size);
        assert!(blocks_below(node.store_path()).is_empty(), "all of it was memory");
        busy.release();
        node.settle().await;
        assert_eq!(cache(&get(&node.client()).await), expected);
        node.stop().await;
    }
}

#[tokio::test]
async fn a_block_that_still_arrives_is_the_lakes() {
    let node = Node::start_immutable().await;
    let bytes = put(&node, 2 * BLOCK);
    node.client().head("/b/k").send().await;
    let gate = node.lake.hold(Request::is_get);
    let readers = [0, 1].map(|_| {
        let client = node.client();
        tokio::spawn(async move { get(&client).await })
    });
    // One request for each of the two blocks, shared by both readers.
    gate.arrived(2).await;
    let coalesced = async || metric(&node, "shoal_coalesced_requests_total").await;
    value("both requests are shared", coalesced, |count| *count >= 2).await;
    gate.open();
    for reader in readers {
        let reply = reader.await.unwrap();
        assert_eq!((&reply.body, cache(&reply)), (&bytes, "MISS"));
    }
    has_sent(&node, 0, 4 * BLOCK).await;
    assert_eq!(node.lake.body_bytes_sent(), 2 * BLOCK);
    node.stop().await;
}

/// Keeps every thread of the store that writes busy: no other block reaches the disk before this is dropped.
struct BusyDisk(Vec<mpsc::Sender<()>>);

/// A block whose memory its writer cannot give back before the other end of the channel is gone.
struct Stubborn(mpsc::Receiver<()>);

impl BusyDisk {
    /// No fewer than there are threads.
    const BLOCKS: u8 = 4;

    fn new(store: &Arc<Store>) -> Self {
        Self((0..Self::BLOCKS).map(|number| hand_in(store, number)).collect())
    }

    fn release(self) {
        drop(self.0);
    }
}

/// Puts a block into the queue in front of the disk, and does not wait for it.
fn hand_in(store: &Arc<Store>, number: u8) -> mpsc::Sender<()> {
    let (held, stubborn) = mpsc::channel();
    let piece = Bytes::from_owner(Stubborn(stubborn));
    let (object, etag, size_bytes) = (ObjectId([number; 16]), "\"busy\"", piece.len() as u64);
    let version = Version {
        id: Version::id_of(object, etag, size_bytes),
        object,
        etag: etag.into(),
        size_bytes,
        block_bytes: BLOCK,
        last_modified: None,
        headers: HeaderMap::new(),
    };
    let put = store
        .publisher
        .put(version.block(0), Arc::new(version), vec![piece], Urgency::Late);
    assert!(put.now_or_never().is_none(), "it is in the queue");
    held
}

impl AsRef<[u8]> for Stubborn {
    fn as_ref(&self) -> &[u8] {
        b"busy"
    }
}

impl Drop for Stubborn {
    fn drop(&mut self) {
        // An error means that the other end is gone, which is what this waits for.
        let _ = self.0.recv();
    }
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
            for file in blocks_below(store) {
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

#[tokio::test]
async fn a_block_file_that_is_cut_while_it_is_mapped_is_read_from_the_lake_and_heals() {
    let node = Node::start().await;
    let bytes = put(&node, 2 * BLOCK);
    get(&node.client()).await;
    node.settle().await;
    assert_eq!(cache(&get(&node.client()).await), "REVALIDATED");
    for file in blocks_below(node.store_path()) {
        let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
        file.set_len(0).unwrap();
    }
    // For a moment a block that was seen in memory is taken to be there; a read may be broken off, and no
    // more.
    for _ in 0..1000 {
        if let Ok(reply) = node.client().get("/b/k").try_send().await {
            assert_eq!(reply.body, bytes);
        }
        if node.store().counters().corrupt_blocks == 2 {
            break;
        }
    }
    assert_eq!(node.store().counters().corrupt_blocks, 2);
    assert_eq!(get(&node.client()).await.body, bytes);
    node.settle().await;
    node.lake.forget_requests();
    assert_eq!(get(&node.client()).await.body, bytes);
    assert_eq!(node.lake.body_bytes_sent(), 0, "the blocks are stored again");
    node.stop().await;
}

#[tokio::test]
async fn a_node_whose_blocks_were_taken_away_reads_from_the_lake_and_stores_them_again() {
    let node = Node::start().await;
    let bytes = put(&node, 2 * BLOCK);
    get(&node.client()).await;
    node.settle().await;
    std::fs::remove_dir_all(node.store_path().join("blocks")).unwrap();
    node.lake.put("b", "new", "text");
    let ask = || node.client().get("/b/new").send();
    assert_eq!(ask().await.text(), "text", "what cannot be stored is served");
    node.settle().await;
    assert_eq!(get(&node.client()).await.body, bytes);
    assert_eq!(node.store().probe(), Health::Serving);
    assert_eq!(ask().await.text(), "text");
    node.settle().await;
    node.lake.forget_requests();
    assert_eq!(cache(&ask().await), "REVALIDATED");
    assert_eq!(node.lake.body_bytes_sent(), 0);
    node.stop().await;
}

/// Files of whole blocks.
fn blocks_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = files_below(folder);
    files.retain(|file| file.metadata().unwrap().len() > BLOCK);
    files
}

#[tokio::test]
async fn operators_see_the_room_of_each_layer() {
    let node = Node::start_with(|config| config.cooperation.split = SplitRule::Fixed(vec![30, 70])).await;
    put(&node, 2 * BLOCK);
    get(&node.client()).await;
    node.settle().await;
    let used_bytes = node.store().counters().resident_bytes;
    let status: Value = serde_json::from_slice(&node.admin("/status").await.body).unwrap();
    let l1 = json!({
        "layer": "L1",
        "target_bytes": node.store().layers.room_bytes(),
        "used_bytes": used_bytes,
        "blocks": 2,
        "miss_ratios": [],
    });
    assert_eq!(status["layers"], json!([l1]), "a node alone has no other");
    let metrics = node.admin("/metrics").await;
    let line = format!("shoal_layer_bytes{{layer=\"L1\"}} {used_bytes}");
    assert!(metrics.text().lines().any(|shown| shown == line), "{line}");
    node.stop().await;
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
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
