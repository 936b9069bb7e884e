//! `/readyz` says what readers will meet.

use http::StatusCode;
use serde_json::Value;
use shoal_base::secret::Secret;
use shoal_s3::identity::Account;

use crate::cluster::Cluster;
use crate::lake::{ACCESS_KEY, Fault, SECRET_KEY};
use crate::node::{Node, lake};
use crate::waiting::value;

/// The status of `/readyz`, and the conditions that hold.
async fn readiness(node: &Node) -> (StatusCode, Vec<String>) {
    let reply = node.admin("/readyz").await;
    let page: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(page["ready"], reply.status == StatusCode::OK);
    let conditions = page["conditions"].as_array().unwrap().iter();
    let names = conditions.map(|held| held["condition"].as_str().unwrap().to_owned());
    (reply.status, names.collect())
}

/// Waits until that is what `/readyz` says.
async fn becomes(node: &Node, status: StatusCode, conditions: &[&str]) {
    let what = format!("/readyz returns {status} {conditions:?}");
    let is_right = |(now, held): &(StatusCode, Vec<String>)| *now == status && held == conditions;
    value(&what, async || readiness(node).await, is_right).await;
}

#[tokio::test]
async fn a_node_that_has_never_reached_the_lake_is_not_ready_until_it_does() {
    let lake = lake().await;
    lake.stop().await;
    let node = Node::in_front_of(&lake, |_| ()).await;
    becomes(&node, StatusCode::SERVICE_UNAVAILABLE, &["lake-never-answered"]).await;
    lake.resume().await;
    becomes(&node, StatusCode::OK, &[]).await;
    node.stop().await;
}

#[tokio::test]
async fn a_lake_that_goes_away_leaves_a_node_ready_and_says_so() {
    let node = Node::start().await;
    becomes(&node, StatusCode::OK, &[]).await;
    node.lake.stop().await;
    let reply = node.client().get("/b/k").send().await;
    assert_eq!(reply.status, StatusCode::BAD_GATEWAY);
    becomes(&node, StatusCode::OK, &["lake-silent"]).await;
    let metrics = node.admin("/metrics").await;
    assert!(
        metrics
            .text()
            .contains("shoal_condition{condition=\"lake-silent\"} 1")
            && metrics
                .text()
                .contains("shoal_condition{condition=\"draining\"} 0"),
        "{}",
        metrics.text()
    );
    node.lake.resume().await;
    becomes(&node, StatusCode::OK, &[]).await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_whose_account_the_lake_has_never_accepted_is_not_ready() {
    let node = Node::start_with(|config| {
        config.lake.access_key = Some(ACCESS_KEY.into());
        config.lake.secret_key = Some(Secret::new("not its secret"));
    })
    .await;
    let unready = StatusCode::SERVICE_UNAVAILABLE;
    becomes(&node, unready, &["lake-never-answered", "lake-account-refused"]).await;
    let metrics = node.admin("/metrics").await;
    let counted = "shoal_lake_account_refusals_total{reason=\"wrong-secret\"} 1";
    assert!(metrics.text().contains(counted), "{}", metrics.text());
    node.stop().await;
}

/// Identities without an account of their own at the lake sign there with the key pair that clients have.
#[tokio::test]
async fn a_node_of_whose_identities_the_lake_accepts_none_is_not_ready_until_it_accepts_one() {
    let node = Node::start_with(|config| {
        for identity in &mut config.identities {
            identity.secret_key = Secret::new("not its secret at the lake");
        }
    })
    .await;
    let unready = StatusCode::SERVICE_UNAVAILABLE;
    let refused = "lake-account-refused";
    becomes(&node, unready, &["lake-never-answered", refused, refused]).await;
    node.stop().await;
    let node = Node::start_with(|config| {
        config.identities[0].secret_key = Secret::new("not its secret at the lake");
    })
    .await;
    // The other one is served as well as by any node.
    becomes(&node, StatusCode::OK, &[refused]).await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_of_whose_lake_accounts_for_identities_none_is_known_is_not_ready() {
    let node = Node::start_with(|config| {
        for (number, identity) in config.identities.iter_mut().enumerate() {
            let account = Account::new(&format!("unknown-{number}"), "secret");
            identity.lake_account = Some(account.into());
        }
    })
    .await;
    let refused = "lake-account-refused";
    let unready = StatusCode::SERVICE_UNAVAILABLE;
    becomes(&node, unready, &["lake-never-answered", refused, refused]).await;
    node.stop().await;
}

/// Some lakes check the region only of requests that name a bucket, and not of the list of buckets.
#[tokio::test]
async fn a_node_that_signs_for_another_region_than_the_lakes_is_not_ready_and_says_so() {
    let node = Node::start_with(|config| {
        config.lake.region = "eu-west-9".into();
        config.lake.access_key = Some(ACCESS_KEY.into());
        config.lake.secret_key = Some(Secret::new(SECRET_KEY));
    })
    .await;
    let unready = StatusCode::SERVICE_UNAVAILABLE;
    becomes(&node, unready, &["lake-never-answered", "lake-account-refused"]).await;
    let page = node.admin("/readyz").await.text().to_owned();
    assert!(page.contains("set [lake] region"), "{page}");
    node.stop().await;
}

#[tokio::test]
async fn an_account_that_was_accepted_and_no_longer_is_leaves_a_node_ready_and_says_so() {
    let node = Node::start_with(|config| {
        config.lake.access_key = Some(ACCESS_KEY.into());
        config.lake.secret_key = Some(Secret::new(SECRET_KEY));
    })
    .await;
    becomes(&node, StatusCode::OK, &[]).await;
    let body = "<Error><Code>InvalidAccessKeyId</Code></Error>";
    let head = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n", body.len());
    node.lake.misbehave(Fault::raw(format!("{head}{body}")));
    let reply = node.client().get("/b/k").send().await;
    assert_eq!(reply.status, StatusCode::BAD_GATEWAY, "{}", reply.text());
    becomes(&node, StatusCode::OK, &["lake-account-refused"]).await;
    // The next request is accepted.
    node.client().get("/b/k").send().await;
    becomes(&node, StatusCode::OK, &[]).await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_drains_is_not_ready_until_it_serves_again() {
    let cluster = Cluster::start(2).await;
    becomes(&cluster.nodes[1], StatusCode::OK, &[]).await;
    cluster.nodes[1].order("/drain").await;
    becomes(&cluster.nodes[1], StatusCode::SERVICE_UNAVAILABLE, &["draining"]).await;
    becomes(&cluster.nodes[0], StatusCode::OK, &[]).await;
    cluster.nodes[1].order("/undrain").await;
    becomes(&cluster.nodes[1], StatusCode::OK, &[]).await;
    cluster.stop().await;
}

#[tokio::test]
async fn nodes_that_are_configured_alike_say_nothing_and_one_that_is_not_is_named() {
    let cluster = Cluster::start_with(3, |index, config| {
        config.store.capacity_bytes = (64 + index as u64) << 20;
        if index == 2 {
            config.store.block_bytes *= 2;
        }
    })
    .await;
    for node in &cluster.nodes[..2] {
        becomes(node, StatusCode::OK, &["configured-differently"]).await;
    }
    let different = ["configured-differently"; 2];
    becomes(&cluster.nodes[2], StatusCode::OK, &different).await;
    let status = cluster.nodes[0].status().await;
    let peers = status["cooperation"]["peers"].as_array().unwrap();
    let differs: Vec<_> = peers
        .iter()
        .map(|peer| (&peer["name"], &peer["differs"]))
        .collect();
    assert_eq!(
        differs,
        [
            (&"n1".into(), &serde_json::json!([])),
            (&"n2".into(), &serde_json::json!(["block-size"])),
        ]
    );
    cluster.stop().await;
}
