//! The cluster's secret is exchanged for another one, node by node, and no reader notices.

use futures_util::future::join_all;
use http::StatusCode;
use shoal_base::secret::Secret;
use shoal_node::config::Config;
use tokio::sync::watch;

use super::{Cluster, SECRET};
use crate::client::Client;

const NEW: &str = "the secret of tomorrow";

#[tokio::test]
async fn a_secret_is_exchanged_node_by_node_and_no_read_fails() {
    let mut cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 8);
    let both = |config: &mut Config| {
        config.cooperation.secret_key = Some(Secret::new(NEW));
        config.cooperation.previous_secret_key = Some(Secret::new(SECRET));
    };
    let new_alone = |config: &mut Config| config.cooperation.previous_secret_key = None;
    let steps: [&dyn Fn(&mut Config); 2] = [&both, &new_alone];
    for (step, change) in steps.into_iter().enumerate() {
        for node in 0..3 {
            let others = (0..3).filter(|other| *other != node);
            let readers: Vec<_> = others.map(|other| cluster.nodes[other].client()).collect();
            let (done, is_done) = watch::channel(false);
            let restarts = async {
                cluster.restart(node, change).await;
                cluster.sees(3).await;
                done.send_replace(true);
            };
            let reads = join_all(readers.iter().map(|client| reads_until(client, &bytes, &is_done)));
            let ((), reads) = tokio::join!(restarts, reads);
            assert!(reads.iter().all(|reads| *reads > 0), "{reads:?}");
            comes_from_the_lake_once(&cluster, &format!("fresh-{step}-{node}")).await;
        }
    }
    cluster.stop().await;
}

/// Reads one object repeatedly until stopped; returns how often.
async fn reads_until(client: &Client, bytes: &[u8], is_done: &watch::Receiver<bool>) -> u64 {
    let mut reads = 0;
    while !*is_done.borrow() {
        let reply = client.get("/b/k").send().await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        assert!(reply.body == bytes);
        reads += 1;
    }
    reads
}

/// All nodes read an object, and give it to each other: whichever secrets they know now.
async fn comes_from_the_lake_once(cluster: &Cluster, key: &str) {
    let bytes = cluster.put(key, 12);
    let before = cluster.lake.body_bytes_sent();
    for node in 0..3 {
        cluster.read(node, key, &bytes).await;
        cluster.settle().await;
    }
    assert_eq!(
        cluster.lake.body_bytes_sent() - before,
        bytes.len() as u64,
        "{key}"
    );
}
