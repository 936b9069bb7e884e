//! Metrics and `/status` describe the lake.

use std::time::Duration;

use crate::lake::{Cut, Fault, Request};
use crate::node::{BLOCK, Node};
use crate::read::{get, put};

async fn metric(node: &Node, name: &str) -> Option<f64> {
    let page = node.admin("/metrics").await;
    let value = page.text().lines().find_map(|line| line.strip_prefix(name));
    value.map(|value| value.trim().parse().unwrap())
}

#[tokio::test]
async fn answers_are_counted_by_operation_and_status_and_timed_by_class() {
    let node = Node::start().await;
    put(&node, BLOCK);
    let client = node.client();
    get(&client).await;
    client.get("/b/none").send().await;
    client.put("/b/new", "x").send().await;
    node.lake
        .misbehave(Fault::status(503).when(Request::is_head).times(3));
    client.head("/b/k").send().await;
    for (name, count) in [
        (
            r#"shoal_lake_answers_total{operation="get_object",status="2xx"}"#,
            1.0,
        ),
        (
            r#"shoal_lake_answers_total{operation="get_object",status="404"}"#,
            1.0,
        ),
        (
            r#"shoal_lake_answers_total{operation="put_object",status="2xx"}"#,
            1.0,
        ),
        (
            r#"shoal_lake_answers_total{operation="head_object",status="503"}"#,
            3.0,
        ),
        (r#"shoal_lake_first_byte_seconds_count{class="write"}"#, 1.0),
        ("shoal_lake_up", 1.0),
        ("shoal_retries_total", 2.0),
    ] {
        // Asked twice: a counter does not count the same failure twice.
        metric(&node, name).await;
        assert_eq!(metric(&node, name).await, Some(count), "{name}");
    }
    // The node itself has asked, too.
    let reads = metric(&node, r#"shoal_lake_first_byte_seconds_count{class="read"}"#).await;
    assert!(reads.is_some_and(|reads| reads >= 5.0), "{reads:?}");
    let lake = &node.status().await["lake"];
    assert_eq!(lake["answers"]["503"], 3);
    assert!(
        lake["first_byte_ms"]["read"]["p99"]
            .as_f64()
            .is_some_and(|p99| p99 > 0.0)
    );
    node.stop().await;
}

#[tokio::test]
async fn a_lake_that_does_not_answer_is_down_until_it_answers() {
    let node = Node::start_with(|config| {
        config.lake.answer_timeout = Duration::from_millis(200);
        config.limits.retry_budget_percent = 0;
    })
    .await;
    put(&node, BLOCK);
    let gate = node.lake.hold(|_| true);
    for _ in 0..3 {
        get(&node.client()).await;
    }
    assert_eq!(metric(&node, "shoal_lake_up").await, Some(0.0));
    let failures = r#"shoal_lake_failures_total{failure="timeout"}"#;
    assert!(metric(&node, failures).await.is_some_and(|count| count >= 3.0));
    assert_eq!(node.status().await["lake"]["answering"], false);

    gate.open();
    node.lake.behave();
    get(&node.client()).await;
    assert_eq!(metric(&node, "shoal_lake_up").await, Some(1.0));

    node.lake.stop().await;
    get(&node.client()).await;
    let failures = r#"shoal_lake_failures_total{failure="unreachable"}"#;
    assert!(metric(&node, failures).await.is_some_and(|count| count >= 1.0));
    node.stop().await;
}

#[tokio::test]
async fn a_body_that_broke_off_is_counted_as_a_failure_and_as_a_resume() {
    let node = Node::start().await;
    put(&node, 4 * BLOCK);
    node.lake
        .misbehave(Fault::cut(BLOCK, Cut::Close).when(Request::is_get));
    get(&node.client()).await;
    let failures = r#"shoal_lake_failures_total{failure="truncated"}"#;
    assert_eq!(metric(&node, failures).await, Some(1.0));
    assert_eq!(metric(&node, "shoal_lake_resumes_total").await, Some(1.0));
    assert_eq!(metric(&node, "shoal_lake_up").await, Some(1.0), "it does answer");
    node.stop().await;
}

#[tokio::test]
async fn metrics_name_every_source_that_a_node_reads_from() {
    let node = Node::start().await;
    let page = node.admin("/metrics").await;
    for source in ["local", "peer", "tier", "lake"] {
        assert!(page.text().contains(&format!("source=\"{source}\"")), "{source}");
    }
    node.stop().await;
}
