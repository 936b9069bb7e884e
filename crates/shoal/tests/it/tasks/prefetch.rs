//! Stories about objects that are brought into the cache before a client asks for them.

use http::StatusCode;
use serde_json::{Value, json};

use super::{begin, carry_out, is_over, order, post, put_objects, until};
use crate::client::Client;
use crate::lake::{ACCESS_KEY, Access, Fault, Request};
use crate::node::{Node, OTHER_KEY};

#[tokio::test]
async fn a_prefetched_prefix_is_read_without_the_lake() {
    let node = Node::start_immutable().await;
    let bytes = put_objects(&node, (0..5).map(|number| format!("day=1/{number}")));
    put_objects(&node, ["day=2/0".into()]);
    let task = carry_out(&node, &order("prefetch", "s3://b/day=1/")).await;
    assert_eq!(task["state"], "done", "{task:#}");
    assert_eq!(
        (&task["objects"]["done"], &task["objects"]["total"]),
        (&5.into(), &5.into())
    );
    assert_eq!(
        (&task["bytes"]["from_lake"], &task["bytes"]["total"]),
        (&bytes.into(), &bytes.into())
    );
    assert_eq!(
        node.lake
            .count(|request| request.is_get() && request.is_of_object()),
        10
    );

    node.lake.forget_requests();
    for number in 0..5 {
        let reply = node.client().get(&format!("/b/day=1/{number}")).send().await;
        assert_eq!(
            (reply.status, reply.header("x-cache")),
            (StatusCode::OK, Some("HIT"))
        );
    }
    assert_eq!(node.lake.requests().len(), 0);
    let reply = node.client().get("/b/day=2/0").send().await;
    assert_eq!(reply.header("x-cache"), Some("MISS"), "another prefix");
    node.stop().await;
}

#[tokio::test]
async fn what_is_cached_is_not_fetched_again() {
    let node = Node::start_immutable().await;
    put_objects(&node, (0..3).map(|number| format!("p/{number}")));
    carry_out(&node, &order("prefetch", "s3://b/p/")).await;
    node.lake.forget_requests();
    let task = carry_out(&node, &order("prefetch", "s3://b/p/")).await;
    assert_eq!(
        (&task["state"], &task["objects"]["unchanged"]),
        (&"done".into(), &3.into()),
        "{task:#}"
    );
    assert_eq!(task["bytes"]["cached"], task["bytes"]["total"]);
    assert_eq!(
        node.lake.count(Request::is_of_object),
        0,
        "only the listing was asked for"
    );
    node.stop().await;
}

#[tokio::test]
async fn wildcards_choose_among_the_objects_of_a_prefix() {
    let node = Node::start_immutable().await;
    let keys = [
        "t/dt=2026-11-01/a.parquet",
        "t/dt=2026-11-02/b.parquet",
        "t/dt=2026-11-02/b.crc",
        "t/dt=2026-12-01/c.parquet",
    ];
    put_objects(&node, keys.map(String::from));
    let task = carry_out(&node, &order("prefetch", "s3://b/t/dt=2026-11-*/*.parquet")).await;
    assert_eq!(task["objects"]["done"], 2, "{task:#}");
    let listed = node
        .lake
        .requests()
        .into_iter()
        .find(|request| request.parameter("list-type").is_some());
    assert_eq!(listed.unwrap().parameter("prefix").unwrap(), "t/dt=2026-11-");
    node.stop().await;
}

#[tokio::test]
async fn a_task_never_sees_what_the_lake_refuses_its_identity() {
    let node = Node::start().await;
    put_objects(&node, (0..3).map(|number| format!("secret/{number}")));
    put_objects(&node, ["open/a".into(), "open/b".into()]);
    node.lake.deny(OTHER_KEY, Access::Read, "b/open/a");
    let mut as_other = order("prefetch", "s3://b/open/");
    as_other["identity"] = OTHER_KEY.into();
    let task = carry_out(&node, &as_other).await;
    assert_eq!(
        (
            &task["state"],
            &task["objects"]["done"],
            &task["objects"]["failed"]
        ),
        (&"failed".into(), &1.into(), &1.into()),
        "{task:#}"
    );
    assert!(
        task["errors"][0]["object"]
            .as_str()
            .unwrap()
            .ends_with("s3://b/open/a"),
        "{task:#}"
    );
    assert!(
        task["errors"][0]["error"].as_str().unwrap().contains("403"),
        "{task:#}"
    );

    node.lake.deny(OTHER_KEY, Access::Read, "b/");
    as_other["uri"] = "s3://b/secret/".into();
    let task = carry_out(&node, &as_other).await;
    assert_eq!(task["state"], "failed");
    assert!(
        task["detail"]
            .as_str()
            .unwrap()
            .contains("cannot be listed: the lake answered 403"),
        "{task:#}"
    );
    assert_eq!(task["objects"]["failed"], 0, "{task:#}");
    node.stop().await;
}

#[tokio::test]
async fn an_identity_must_be_named_if_there_are_several_and_be_one_of_the_nodes() {
    let node = Node::start().await;
    let nobody = json!({ "kind": "prefetch", "uri": "s3://b/" });
    let reply = post(&node, &nobody).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert!(
        reply.text().contains("there are 2") && reply.text().contains("\nhint: "),
        "{}",
        reply.text()
    );
    let stranger = json!({ "kind": "prefetch", "uri": "s3://b/", "identity": "nobody" });
    assert_eq!(post(&node, &stranger).await.status, StatusCode::BAD_REQUEST);
    node.stop().await;

    let node = Node::start_with(|config| config.identities.truncate(1)).await;
    put_objects(&node, ["a".into()]);
    let task = carry_out(&node, &nobody).await;
    assert_eq!(
        (&task["state"], &task["identity"]),
        (&"done".into(), &ACCESS_KEY.into()),
        "{task:#}"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_cancelled_task_stops_and_says_so() {
    let node = Node::start().await;
    put_objects(&node, (0..3).map(|number| format!("p/{number}")));
    let gate = node
        .lake
        .hold(|request| request.is_get() && request.is_of_object());
    let id = begin(&node, &order("prefetch", "s3://b/p/")).await;
    until(&node, &id, |task| task["state"] == "running").await;
    let reply = node.order(&format!("/tasks/{id}/cancel")).await;
    assert_eq!(reply.status, StatusCode::OK);
    let task: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(task["state"], "cancelled");
    assert_eq!(
        node.order(&format!("/tasks/{id}/cancel")).await.status,
        StatusCode::CONFLICT
    );
    gate.open();
    let other = carry_out(&node, &order("prefetch", "s3://b/p/")).await;
    assert_eq!(other["state"], "done", "the node goes on: {other:#}");
    let list: serde_json::Value =
        serde_json::from_slice(&node.admin("/tasks?state=cancelled").await.body).unwrap();
    assert_eq!(
        (list["tasks"].as_array().unwrap().len(), &list["tasks"][0]["id"]),
        (1, &id.into())
    );
    node.stop().await;
}

#[tokio::test]
async fn a_task_goes_on_after_a_restart_of_its_node() {
    let node = Node::start_immutable().await;
    let bytes = put_objects(&node, (0..6).map(|number| format!("p/{number}")));
    let gate = node
        .lake
        .hold(|request| request.is_get() && request.path.ends_with("/5"));
    let id = begin(&node, &order("prefetch", "s3://b/p/")).await;
    until(&node, &id, |task| task["objects"]["done"] == 5).await;
    let stopped = node.halt().await;
    gate.open();
    let node = stopped.start().await;
    let task = until(&node, &id, is_over).await;
    assert_eq!(
        (&task["state"], &task["objects"]["done"]),
        (&"done".into(), &6.into()),
        "{task:#}"
    );
    assert_eq!(task["bytes"]["done"], bytes);
    let fetched = node
        .lake
        .count(|request| request.is_get() && request.is_of_object() && request.path.ends_with("/0"));
    assert_eq!(
        fetched, 2,
        "what was cached is not fetched again: an object has two blocks"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_lake_that_does_not_answer_is_waited_for() {
    let node = Node::start().await;
    put_objects(&node, ["p/a".into()]);
    node.lake.misbehave(
        Fault::status(503)
            .when(|request| request.parameter("list-type").is_some())
            .always(),
    );
    let id = begin(&node, &order("prefetch", "s3://b/p/")).await;
    let waiting = |task: &serde_json::Value| {
        task["detail"]
            .as_str()
            .is_some_and(|detail| detail.starts_with("waits for the lake"))
    };
    until(&node, &id, waiting).await;
    node.lake.behave();
    let task = until(&node, &id, is_over).await;
    assert_eq!(
        (&task["state"], &task["detail"]),
        (&"done".into(), &serde_json::Value::Null),
        "{task:#}"
    );
    node.stop().await;
}

#[tokio::test]
async fn keys_of_any_characters_are_brought() {
    let node = Node::start_immutable().await;
    let keys = [
        "o/a b+c%20",
        "o/é\u{1f41f}",
        "o//x",
        "o/./..",
        "o/q?a=b&c#d",
        "o/*",
        "o/\u{7}bell",
    ];
    put_objects(&node, keys.map(String::from));
    let task = carry_out(&node, &order("prefetch", "s3://b/o/")).await;
    assert_eq!(
        (&task["state"], &task["objects"]["done"]),
        (&"done".into(), &keys.len().into()),
        "{task:#}"
    );
    let task = carry_out(&node, &order("cached", "s3://b/o/\\*")).await;
    assert_eq!(task["objects"]["unchanged"], 1, "{task:#}");
    node.stop().await;
}

#[tokio::test]
async fn tasks_are_listed_in_parts_the_latest_first() {
    let node = Node::start().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let task = carry_out(&node, &order("cached", &format!("s3://b/{number}"))).await;
        ids.insert(0, task["id"].clone());
    }
    let (mut seen, mut query) = (Vec::new(), "limit=2".to_owned());
    loop {
        let page = node.admin(&format!("/tasks?{query}")).await;
        let page: Value = serde_json::from_slice(&page.body).unwrap();
        let tasks = page["tasks"].as_array().unwrap();
        assert!(tasks.len() <= 2);
        seen.extend(tasks.iter().map(|task| task["id"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        query = format!("state=done&limit=2&before={next}");
    }
    seen.sort_by(|one, other| other.as_str().cmp(&one.as_str()));
    ids.sort_by(|one, other| other.as_str().cmp(&one.as_str()));
    assert_eq!(seen, ids);
    for query in ["limit=0", "limit=x", "limit=1001", "state=lost"] {
        let page = node.admin(&format!("/tasks?{query}")).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{query}");
        assert!(page.text().contains("\nhint: "), "{}", page.text());
    }
    node.stop().await;
}

#[tokio::test]
async fn a_task_is_not_faster_than_its_rate() {
    let node = Node::start().await;
    let bytes = put_objects(&node, (0..4).map(|number| format!("p/{number}")));
    let mut slow = order("prefetch", "s3://b/p/");
    slow["rate_bytes_per_second"] = bytes.into();
    let begun = shoal_net::clock::instant();
    carry_out(&node, &slow).await;
    assert!(
        begun.elapsed().as_millis() > 700,
        "the last block waits for most of a second"
    );
    node.stop().await;
}

#[tokio::test]
async fn hostile_orders_and_ids_are_refused_with_a_reason() {
    let node = Node::start().await;
    for order in [
        json!({}),
        json!([]),
        json!({ "kind": "prefetch" }),
        json!({ "kind": "rm", "uri": "s3://b/" }),
        json!({ "kind": "prefetch", "uri": "s3://b/[", "identity": ACCESS_KEY }),
        json!({ "kind": "prefetch", "uri": "s3://b/", "identity": ACCESS_KEY, "extra": 1 }),
        json!({ "kind": "prefetch", "uri": "s3://b/", "identity": ACCESS_KEY, "to": "nowhere" }),
        json!({ "kind": "prefetch", "uri": "s3://b/", "identity": ACCESS_KEY, "until": "2999-01-01T00:00:00Z" }),
    ] {
        let reply = post(&node, &order).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{order}: {}", reply.text());
    }
    let client = Client::anonymous(node.admin_address());
    let long = vec![b' '; 600 << 10];
    let reply = client
        .post("/tasks", long)
        .header("content-type", "application/json")
        .send()
        .await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    let reply = client
        .post("/tasks", "{}")
        .header("content-type", "text/html")
        .send()
        .await;
    assert_eq!(reply.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let reply = client
        .post("/tasks", "{}")
        .header("content-type", "application/json")
        .header("origin", "http://evil")
        .send()
        .await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    for id in [
        "x",
        "..",
        "%2e%2e",
        "0",
        "zzzzzzzzzzzzzzzzzzzzzzzzzz",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    ] {
        assert_eq!(
            node.admin(&format!("/tasks/{id}")).await.status,
            StatusCode::NOT_FOUND,
            "{id}"
        );
        assert_eq!(
            node.order(&format!("/tasks/{id}/cancel")).await.status,
            StatusCode::NOT_FOUND,
            "{id}"
        );
    }
    assert_eq!(
        node.admin("/tasks?state=lost").await.status,
        StatusCode::BAD_REQUEST
    );
    node.stop().await;
}
