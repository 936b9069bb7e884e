//! Stories of two identities of which one wants more than there is.

use http::StatusCode;

use crate::client::Reply;
use crate::lake::{ANONYMOUS, Access, Request};
use crate::node::{Node, OTHER_KEY};
use crate::waiting::{until, value};

/// Objects `b/hog-0`, `b/hog-1`, … and `b/light`.
async fn node_with(objects: usize, change: impl FnOnce(&mut shoal_node::config::Config)) -> Node {
    let node = Node::start_with(change).await;
    for number in 0..objects {
        node.lake.put("b", format!("hog-{number}"), "x");
    }
    node.lake.put("b", "light", "y");
    node
}

/// So many reads of one identity at a time, each of an object of its own.
fn hog(node: &Node, requests: usize) -> Vec<tokio::task::JoinHandle<Reply>> {
    (0..requests)
        .map(|number| {
            let client = node.client();
            tokio::spawn(async move { client.get(&format!("/b/hog-{number}")).send().await })
        })
        .collect()
}

/// Requests of one identity that wait for the lake, as the node's operator sees it.
async fn waiting_of(node: &Node, identity: &str) -> usize {
    let metrics = node.admin("/metrics").await;
    let name = format!("shoal_lake_waiting_requests{{identity=\"{identity}\"}} ");
    let text = metrics.text();
    let shown = text.lines().find_map(|line| line.strip_prefix(name.as_str()));
    shown.map_or(0, |count| count.parse().unwrap())
}

fn is_of_the_hog(request: &Request) -> bool {
    request.path.contains("hog")
}

#[tokio::test]
async fn a_request_reaches_the_lake_before_the_hundred_that_another_identity_sent_earlier() {
    let node = node_with(100, |config| config.limits.lake_requests = 2).await;
    for client in [OTHER_KEY, ANONYMOUS] {
        node.lake.allow(client, Access::Read, "b");
    }
    let gate = node.lake.hold(|_| true);
    let hogs = hog(&node, 100);
    gate.arrived(2).await;
    let waiting = async || waiting_of(&node, "lake-access-key").await;
    value("half of them wait", waiting, |waiting| *waiting >= 50).await;

    let client = node.other();
    let light = tokio::spawn(async move { client.get("/b/light").send().await });
    until("the other identity's request arrives", async || {
        node.lake.count(|request| !is_of_the_hog(request)) > 0
    })
    .await;
    let before = node.lake.count(is_of_the_hog);
    assert!(before < 60, "{before} of 100 went first");

    gate.open();
    assert_eq!(light.await.unwrap().status, StatusCode::OK);
    for hog in hogs {
        assert_eq!(
            hog.await.unwrap().status,
            StatusCode::OK,
            "those that waited are served, too"
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn a_full_node_refuses_the_identity_that_fills_it_and_serves_the_other() {
    let node = node_with(8, |config| config.limits.requests = 8).await;
    for client in [OTHER_KEY, ANONYMOUS] {
        node.lake.allow(client, Access::Read, "b");
    }
    let gate = node.lake.hold(is_of_the_hog);
    let hogs = hog(&node, 4);
    gate.arrived(4).await;

    let refused = node.client().get("/b/hog-5").send().await;
    assert_eq!(
        (refused.status, refused.code()),
        (StatusCode::SERVICE_UNAVAILABLE, "SlowDown")
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(node.other().get("/b/light").send().await.status, StatusCode::OK);
    let stranger = node.stranger().get("/b/light").send().await;
    assert_eq!(stranger.status, StatusCode::OK);
    let metrics = node.admin("/metrics").await;
    let shown = "shoal_slowed_requests_total{identity=\"lake-access-key\"} 1";
    assert!(metrics.text().contains(shown), "{}", metrics.text());

    gate.open();
    for hog in hogs {
        assert_eq!(hog.await.unwrap().status, StatusCode::OK);
    }
    node.stop().await;
}

#[tokio::test]
async fn a_request_beyond_the_bound_waits_and_is_served_when_a_place_is_free() {
    let node = node_with(8, |config| config.limits.requests_per_identity = Some(2)).await;
    let gate = node.lake.hold(is_of_the_hog);
    let first = hog(&node, 2);
    gate.arrived(2).await;
    let client = node.client();
    let waiting = tokio::spawn(async move { client.get("/b/light").send().await });
    until("it waits", async || {
        assert!(!waiting.is_finished(), "it is neither served nor refused at once");
        let metrics = node.admin("/metrics").await;
        metrics
            .text()
            .contains("shoal_waiting_requests{identity=\"lake-access-key\"} 1\n")
    })
    .await;
    gate.open();
    assert_eq!(waiting.await.unwrap().status, StatusCode::OK);
    for hog in first {
        assert_eq!(hog.await.unwrap().status, StatusCode::OK);
    }
    let metrics = node.admin("/metrics").await;
    let refused = "shoal_slowed_requests_total{identity=\"lake-access-key\"} 0";
    assert!(metrics.text().contains(refused), "{}", metrics.text());
    node.stop().await;
}
