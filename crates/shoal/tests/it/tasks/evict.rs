//! Stories about objects that are removed from the cache, and about what is cached.

use super::{carry_out, order, put_objects};
use crate::lake::Request;
use crate::node::{BLOCK, Node};

#[tokio::test]
async fn an_evicted_prefix_is_read_from_the_lake_again() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["gone/a".into(), "gone/b".into(), "stays".into()]);
    for key in ["gone/a", "gone/b", "stays"] {
        node.client().get(&format!("/b/{key}")).send().await;
    }
    node.settle().await;
    let task = carry_out(&node, &order("evict", "s3://b/gone/")).await;
    assert_eq!(
        (&task["state"], &task["objects"]["done"]),
        (&"done".into(), &2.into()),
        "{task:#}"
    );
    assert!(
        task["bytes"]["removed"].as_u64().unwrap() >= 3 * BLOCK,
        "{task:#}"
    );
    assert_eq!(task["nodes"]["node-1"]["blocks"], 4);
    node.lake.forget_requests();
    node.client().get("/b/stays").send().await;
    assert_eq!(node.lake.count(Request::is_get), 0);
    node.client().get("/b/gone/a").send().await;
    assert_ne!(node.lake.count(Request::is_get), 0);
    let again = carry_out(&node, &order("evict", "s3://b/gone/b")).await;
    assert_eq!(
        again["objects"]["unchanged"], 1,
        "there was nothing of it: {again:#}"
    );
    node.stop().await;
}

#[tokio::test]
async fn what_is_cached_is_counted_with_its_node() {
    let node = Node::start_immutable().await;
    let bytes = put_objects(&node, ["day/a".into(), "day/b".into()]);
    node.client().get("/b/day/a").send().await;
    node.settle().await;
    let task = carry_out(&node, &order("cached", "s3://b/day/")).await;
    assert_eq!(task["state"], "done");
    assert_eq!(
        (&task["objects"]["done"], &task["objects"]["unchanged"]),
        (&2.into(), &1.into())
    );
    assert_eq!(
        (&task["bytes"]["total"], &task["bytes"]["cached"]),
        (&bytes.into(), &(bytes / 2).into())
    );
    assert_eq!(task["nodes"]["node-1"]["bytes"], bytes / 2);

    let mut dry = order("prefetch", "s3://b/day/");
    dry["dry_run"] = true.into();
    node.lake.forget_requests();
    let task = carry_out(&node, &dry).await;
    assert_eq!(
        (&task["bytes"]["total"], &task["bytes"]["cached"]),
        (&bytes.into(), &(bytes / 2).into())
    );
    assert_eq!(
        node.lake.count(Request::is_of_object),
        0,
        "only the listing was asked for"
    );
    node.stop().await;
}
