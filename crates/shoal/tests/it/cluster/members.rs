//! Stories of membership: nodes that join, leave, die, or have another secret.

use shoal_base::secret::Secret;

use super::{Cluster, Wire, seen};
use crate::waiting::value;

#[tokio::test]
async fn nodes_find_each_other_through_one_seed() {
    let cluster = Cluster::start(3).await;
    for node in &cluster.nodes {
        assert_eq!(seen(node).await, ["n0", "n1", "n2"]);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_stops_is_gone_at_once_and_one_that_dies_within_seconds() {
    let mut cluster = Cluster::start(3).await;
    cluster.nodes.pop().unwrap().stop().await;
    cluster.sees(2).await;
    cluster.ways[1].becomes(Wire::Cut);
    // The dead node receives nothing but can still send: it may come back once and be removed again.
    let members = async || seen(&cluster.nodes[0]).await;
    value("n0 sees nobody that is not reached", members, |seen| {
        *seen == ["n0"]
    })
    .await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_with_another_secret_is_no_member_and_gets_no_block() {
    let mut cluster = Cluster::start(2).await;
    cluster
        .add(|_, config| config.cooperation.secret_key = Some(Secret::new("some other secret")))
        .await;
    let bytes = cluster.put("k", 4);
    cluster.read(0, "k", &bytes).await;
    cluster.read(2, "k", &bytes).await;
    assert_eq!(seen(&cluster.nodes[2]).await, ["n2"]);
    assert_eq!(seen(&cluster.nodes[0]).await, ["n0", "n1"]);
    assert_eq!(cluster.sent(2, "peer").await, 0);
    cluster.stop().await;
}
