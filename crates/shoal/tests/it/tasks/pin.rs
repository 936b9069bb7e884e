//! Stories about objects that stay in the cache until a time.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use shoal_net::clock;
use shoal_orders::Moment;
use shoal_policy::eviction::PolicyName;

use super::{begin, carry_out, is_over, manifest, order, post, put_objects, until};
use crate::lake::{Content, Object, Request};
use crate::node::{BLOCK, Node};
use crate::waiting::{self, value};

fn pin(uri: &str, seconds: u64) -> Value {
    let until = Moment::from(clock::utc_now() + Duration::from_secs(seconds));
    let mut pin = order("pin", uri);
    pin["until"] = json!(until.to_string());
    pin
}

/// Returns the number of objects that a node has pinned.
async fn pinned(node: &Node) -> u64 {
    node.status().await["store"]["pins"]["objects"].as_u64().unwrap()
}

/// A node with room for about `blocks` blocks.
async fn node(blocks: u64, policy: PolicyName) -> Node {
    Node::start_with(|config| {
        config.freshness.default = shoal_node::config::FreshnessMode::Immutable;
        config.store.capacity_bytes = (2 << 20) + blocks * (BLOCK + 4096);
        config.store.policy = Some(policy);
    })
    .await
}

/// Reads an object of this many blocks, which displaces others.
async fn scan(node: &Node, blocks: u64) {
    let key = format!("scan-{blocks}");
    node.lake
        .put("b", &key, Object::new(Content::synthetic(blocks * BLOCK, 77)));
    let reply = node.client().get(&format!("/b/{key}")).send().await;
    assert_eq!(reply.status, StatusCode::OK);
    node.settle().await;
}

fn gets(request: &Request) -> bool {
    request.is_get() && request.is_of_object()
}

#[tokio::test]
async fn a_pinned_object_survives_a_scan_of_ten_times_the_room_under_every_policy() {
    // GWF needs a directory: nodes with one have their own story.
    for policy in PolicyName::ALL
        .into_iter()
        .filter(|policy| *policy != PolicyName::Gwf)
    {
        let node = node(24, policy).await;
        put_objects(&node, ["kept/a".into(), "kept/b".into(), "other".into()]);
        node.client().get("/b/other").send().await;
        let task = carry_out(&node, &pin("s3://b/kept/", 600)).await;
        assert_eq!(
            (&task["state"], &task["objects"]["done"]),
            (&"done".into(), &2.into()),
            "{task:#}"
        );
        assert!(task["bytes"]["pinned"].as_u64().unwrap() >= 3 * BLOCK, "{task:#}");
        scan(&node, 240).await;
        node.lake.forget_requests();
        for key in ["kept/a", "kept/b"] {
            let reply = node.client().get(&format!("/b/{key}")).send().await;
            assert_eq!(reply.header("x-cache"), Some("HIT"), "{policy} {key}");
        }
        assert_eq!(node.lake.count(gets), 0);
        if policy == PolicyName::Lru {
            let reply = node.client().get("/b/other").send().await;
            assert_ne!(reply.header("x-cache"), Some("HIT"), "it is not pinned");
        }
        node.stop().await;
    }
}

#[tokio::test]
async fn pins_beyond_their_share_are_refused_by_name_and_cost_the_lake_nothing() {
    let node = Node::start_with(|config| {
        config.store.capacity_bytes = (2 << 20) + 40 * (BLOCK + 4096);
        config.store.pinned_percent = 25;
    })
    .await;
    put_objects(&node, (0..20).map(|number| format!("kept/{number:02}")));
    let task = carry_out(&node, &pin("s3://b/kept/", 600)).await;
    assert_eq!(task["state"], "failed", "{task:#}");
    let (done, failed) = (
        task["objects"]["done"].as_u64().unwrap(),
        task["objects"]["failed"].as_u64().unwrap(),
    );
    assert!((3..16).contains(&done) && done + failed == 20, "{task:#}");
    assert!(
        task["errors"][0]["error"].as_str().unwrap().contains("pins-full"),
        "{task:#}"
    );
    let status = node.status().await;
    let room = status["store"]["pins"]["bytes_max"].as_u64().unwrap();
    let requests = node.lake.requests().into_iter();
    let fetched: u64 = requests.filter(gets).map(|request| request.body_sent).sum();
    assert!(
        fetched <= room,
        "{fetched} bytes from the lake, with room for {room}"
    );
    let refused = task["errors"][0]["object"].as_str().unwrap();
    let page = node.admin(&format!("/explain?object={refused}")).await;
    assert!(
        page.text().contains("\"reason\":\"pins-full\""),
        "{}",
        page.text()
    );
    assert!(status["store"]["refusals"]["pins-full"].as_u64().unwrap() > 0);
    let pinned = status["store"]["pins"]["bytes"].as_u64().unwrap();
    assert!(pinned > 0 && pinned <= status["store"]["pins"]["bytes_max"].as_u64().unwrap());
    node.stop().await;
}

#[tokio::test]
async fn an_unpin_is_remembered_until_the_last_pin_has_ended_and_no_longer() {
    let node = node(24, PolicyName::Lru).await;
    put_objects(&node, ["kept/a".into()]);
    let month = 30 * 86_400;
    let pinned = carry_out(&node, &pin("s3://b/kept/", month)).await;
    for _ in 0..3 {
        let unpinned = carry_out(&node, &order("unpin", "s3://b/other/")).await;
        assert_eq!(unpinned["forgotten"], pinned["forgotten"], "{unpinned:#}");
    }
    node.stop().await;
}

#[tokio::test]
async fn pins_end_at_their_time_and_survive_a_restart_until_then() {
    let node = node(24, PolicyName::Lru).await;
    put_objects(&node, ["kept/a".into(), "brief/a".into()]);
    carry_out(&node, &pin("s3://b/kept/", 600)).await;
    let brief = carry_out(&node, &pin("s3://b/brief/", 2)).await;
    assert_eq!(brief["state"], "done", "{brief:#}");
    let node = node.restart_after(|_| ()).await;
    value(
        "the brief pin ends",
        async || pinned(&node).await,
        |pins| *pins == 1,
    )
    .await;
    scan(&node, 100).await;
    node.lake.forget_requests();
    node.client().get("/b/kept/a").send().await;
    assert_eq!(node.lake.count(gets), 0, "it is still pinned");
    node.client().get("/b/brief/a").send().await;
    assert_ne!(node.lake.count(gets), 0, "its pin has ended");
    node.stop().await;
}

#[tokio::test]
async fn an_unpinned_prefix_is_like_any_other_and_ends_the_orders_below_it() {
    let node = node(30, PolicyName::Lru).await;
    put_objects(&node, ["kept/a/1".into(), "kept/b/1".into()]);
    let order_a = begin(&node, &pin("s3://b/kept/a/", 600)).await;
    let order_all = begin(&node, &pin("s3://b/kept/", 600)).await;
    for id in [&order_a, &order_all] {
        until(&node, id, is_over).await;
    }
    let task = carry_out(&node, &order("unpin", "s3://b/kept/a/")).await;
    assert_eq!(
        (&task["state"], &task["objects"]["done"]),
        (&"done".into(), &1.into()),
        "{task:#}"
    );
    assert_eq!(super::task(&node, &order_a).await["state"], "cancelled");
    assert_eq!(super::task(&node, &order_all).await["state"], "done");
    assert_eq!(pinned(&node).await, 1);
    scan(&node, 100).await;
    node.lake.forget_requests();
    node.client().get("/b/kept/b/1").send().await;
    assert_eq!(node.lake.count(gets), 0);
    node.client().get("/b/kept/a/1").send().await;
    assert_ne!(node.lake.count(gets), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_pin_that_goes_on_leaves_out_what_was_unpinned_by_prefix_or_by_list() {
    let node = node(30, PolicyName::Lru).await;
    put_objects(&node, (1..5).map(|number| format!("kept/{number}")));
    let gate = node
        .lake
        .hold(|request| gets(request) && request.path.ends_with("/4"));
    let id = begin(&node, &pin("s3://b/kept/", 600)).await;
    until(&node, &id, |task| task["objects"]["done"] == 3).await;
    for task in [
        carry_out(&node, &order("unpin", "s3://b/kept/1")).await,
        manifest::carry_out(&node, "unpin", "s3://b/kept/2").await,
    ] {
        assert_eq!(task["kind"], "unpin", "{task:#}");
        assert_eq!(task["objects"]["unchanged"], 0, "{task:#}");
    }
    // The pin begins its page anew, and would bring all of its objects back.
    let node = node.restart_after(|_| ()).await;
    gate.open();
    let task = until(&node, &id, is_over).await;
    assert_eq!(task["state"], "done", "{task:#}");
    assert_eq!(pinned(&node).await, 2);
    // Nothing asks for the list once the pin is gone.
    assert_eq!(manifest::lists(&node), 1);
    let cancelled = node.order(&format!("/tasks/{id}/cancel")).await;
    assert_eq!(cancelled.status, StatusCode::OK, "{}", cancelled.text());
    waiting::until("the list is gone", async || manifest::lists(&node) == 0).await;
    node.stop().await;
}

/// Checks the number of objects that a pin has pinned, and that one was left out because it was unpinned.
async fn leaves_one_unpinned(node: &Node, task: &Value, pinned: u64) {
    let objects = &task["objects"];
    let counts = (&task["state"], &objects["done"], &objects["skipped"]);
    assert_eq!(counts, (&"done".into(), &pinned.into(), &1.into()), "{task:#}");
    assert_eq!(self::pinned(node).await, pinned);
}

#[tokio::test]
async fn an_unpin_holds_for_the_object_that_a_pin_is_bringing() {
    let node = node(30, PolicyName::Lru).await;
    put_objects(&node, (1..5).map(|number| format!("kept/{number}")));
    let gate = node
        .lake
        .hold(|request| gets(request) && request.path.ends_with("/4"));
    let id = begin(&node, &pin("s3://b/kept/", 600)).await;
    until(&node, &id, |task| task["objects"]["done"] == 3).await;
    let unpin = carry_out(&node, &order("unpin", "s3://b/kept/4")).await;
    assert_eq!(unpin["state"], "done", "{unpin:#}");
    gate.open();
    let task = until(&node, &id, is_over).await;
    leaves_one_unpinned(&node, &task, 3).await;
    node.stop().await;
}

#[tokio::test]
async fn an_unpin_holds_for_objects_of_a_page_that_a_pin_has_begun() {
    let node = node(80, PolicyName::Lru).await;
    // More than a task deals with at a time.
    put_objects(&node, (10..30).map(|number| format!("kept/{number}")));
    let gate = node.lake.hold(gets);
    let id = begin(&node, &pin("s3://b/kept/", 600)).await;
    // The page is under way.
    waiting::until("the lake has a request", async || node.lake.count(gets) > 0).await;
    let unpin = manifest::carry_out(&node, "unpin", "s3://b/kept/29").await;
    assert_eq!(unpin["state"], "done", "{unpin:#}");
    gate.open();
    let task = until(&node, &id, is_over).await;
    leaves_one_unpinned(&node, &task, 19).await;
    let of_last = |request: &Request| gets(request) && request.path.ends_with("/29");
    assert_eq!(node.lake.count(of_last), 0, "it is not fetched either");
    node.stop().await;
}

#[tokio::test]
async fn an_unpin_whose_list_has_grown_holds_for_what_was_added() {
    let node = node(30, PolicyName::Lru).await;
    put_objects(&node, (1..5).map(|number| format!("kept/{number}")));
    let hold = |key: &'static str| {
        let is_key = move |request: &Request| gets(request) && request.path.ends_with(key);
        (key, node.lake.hold(is_key))
    };
    let gates = ["/3", "/4"].map(hold);
    let id = begin(&node, &pin("s3://b/kept/", 600)).await;
    until(&node, &id, |task| task["objects"]["done"] == 2).await;
    // Announcements of one moment become one list. The pin looks at it while it has one line.
    for (skipped, (key, gate)) in (1..).zip(gates) {
        let created = manifest::record("ObjectCreated:Put", &format!("kept{key}"));
        let reply = manifest::announce_as(&node, "unpin", &[created]).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text());
        gate.open();
        let task = until(&node, &id, |task| {
            task["objects"]["done"] != 2 || task["objects"]["skipped"] == skipped
        });
        let task = task.await;
        assert_eq!(task["objects"]["done"], 2, "{task:#}");
    }
    let task = until(&node, &id, is_over).await;
    assert_eq!(task["state"], "done", "{task:#}");
    node.stop().await;
}

#[tokio::test]
async fn an_unpin_that_was_cancelled_before_it_began_is_not_obeyed() {
    let node = node(30, PolicyName::Lru).await;
    put_objects(&node, ["kept/1".into(), "kept/2".into()]);
    // As many tasks as a node runs at a time.
    let gate = node.lake.hold(|request| request.parameter("list-type").is_some());
    let mut running = vec![begin(&node, &pin("s3://b/kept/", 600)).await];
    for _ in 0..3 {
        running.push(begin(&node, &order("cached", "s3://b/kept/")).await);
    }
    for id in &running {
        until(&node, id, |task| task["state"] == "running").await;
    }
    let unpin = begin(&node, &order("unpin", "s3://b/kept/1")).await;
    let reply = node.order(&format!("/tasks/{unpin}/cancel")).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    gate.open();
    let task = until(&node, &running[0], is_over).await;
    assert_eq!(
        (&task["state"], &task["objects"]["done"]),
        (&"done".into(), &2.into()),
        "{task:#}"
    );
    assert_eq!(pinned(&node).await, 2);
    node.stop().await;
}

#[tokio::test]
async fn the_pins_of_a_cancelled_order_end() {
    let node = node(24, PolicyName::Lru).await;
    put_objects(&node, ["kept/a".into()]);
    let id = begin(&node, &pin("s3://b/kept/", 600)).await;
    until(&node, &id, is_over).await;
    let reply = node.order(&format!("/tasks/{id}/cancel")).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    value("the pins end", async || pinned(&node).await, |pins| *pins == 0).await;
    let again = node.order(&format!("/tasks/{id}/cancel")).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    node.stop().await;
}

#[tokio::test]
async fn a_pin_without_an_end_or_with_one_in_the_past_is_refused() {
    let node = Node::start().await;
    for order in [order("pin", "s3://b/"), pin("s3://b/", 0)] {
        let reply = post(&node, &order).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        assert!(reply.text().contains("\nhint: "), "{}", reply.text());
    }
    node.stop().await;
}
