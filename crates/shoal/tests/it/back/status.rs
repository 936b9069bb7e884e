//! The state of a tier that a node shows to operators.

use bytes::Bytes;
use http::StatusCode;

use super::store::{BUCKET, Beside};
use super::{back, bytes, texts, write_back};
use crate::lake::Fault;
use crate::node::Node;
use crate::waiting::until;

async fn condition(node: &Node, name: &str) -> Option<String> {
    let status = node.status().await;
    let conditions = status["conditions"].as_array().unwrap().clone();
    let named = conditions
        .into_iter()
        .find(|condition| condition["condition"] == name);
    named.map(|condition| condition["detail"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn dirty_objects_without_a_rule_are_counted_in_a_condition() {
    let node = Node::start_with(back).await;
    for key in ["tmp/1", "tmp/2"] {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    assert_eq!(condition(&node, "dirty-without-rule").await, None);
    let tiers = vec![crate::node::tier(node.lake.tier_folder())];
    let node = node.halt().await;
    let node = node.with(|config| (config.write.rules, config.tiers) = (Vec::new(), tiers));
    let node = node.start().await;
    until("the registry was surveyed", async || {
        condition(&node, "dirty-without-rule").await.is_some()
    })
    .await;
    let told = condition(&node, "dirty-without-rule").await.unwrap();
    assert!(
        told.contains("2 dirty objects") && told.contains("s3://b/tmp/1"),
        "{told}"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_tier_that_uploads_fill_says_so() {
    let node = Node::start_with(|config| {
        back(config);
        config.tiers = vec![crate::node::tier(config.store.path.with_file_name("tier"))];
        config.tiers[0].capacity_bytes = 2 << 20;
    })
    .await;
    let client = node.client();
    let begun = client.post("/b/tmp/upload?uploads", "").send().await;
    let id = texts(&begun, "UploadId").remove(0);
    for number in [1, 2] {
        let target = format!("/b/tmp/upload?partNumber={number}&uploadId={id}");
        let part = client.put(&target, Bytes::from(vec![0; 1 << 20])).send().await;
        assert_eq!(part.status, StatusCode::OK, "{}", part.text());
    }
    let put = client.put("/b/tmp/k", bytes(1)).send().await;
    assert_eq!(put.header("x-cache-reason"), Some("too-dirty"));
    until("the parts are counted", async || {
        let told = condition(&node, "tier-full").await.unwrap_or_default();
        told.contains("2.00 MiB of 2.00 MiB, 2.00 MiB of them parts of uploads")
    })
    .await;
    let metrics = node.admin("/metrics").await;
    let metric = "shoal_tier_upload_bytes{tier=\"t\"} 2097152";
    assert!(metrics.text().contains(metric), "{}", metrics.text());
    let abort = client.delete(&format!("/b/tmp/upload?uploadId={id}"));
    assert_eq!(abort.send().await.status, StatusCode::NO_CONTENT);
    node.stop().await;
}

#[tokio::test]
async fn a_store_that_fails_is_a_condition_until_it_is_back() {
    let beside = Beside::start().await;
    let node = Node::start_with(|config| beside.back(config)).await;
    assert_eq!(condition(&node, "tier-store-unusable").await, None);
    beside.store.misbehave(Fault::status(503).when(|_| true).always());
    until("the store has failed a probe", async || {
        let shown = condition(&node, "tier-store-unusable").await.unwrap_or_default();
        shown.contains("the store of tier t cannot be used") && shown.contains(BUCKET)
    })
    .await;
    assert!(
        node.admin("/readyz").await.status.is_success(),
        "all nodes have the same store"
    );
    beside.store.behave();
    until("the condition ends", async || {
        condition(&node, "tier-store-unusable").await.is_none()
    })
    .await;
    node.stop().await;
}
