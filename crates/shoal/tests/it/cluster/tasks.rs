//! Stories about tasks of a cluster: spread over its nodes, known to all of them, and surviving each.

use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use shoal_net::clock;
use shoal_node::config::CooperationMode;
use shoal_orders::Moment;

use super::Cluster;
use crate::lake::ACCESS_KEY;
use crate::lake::Request;
use crate::node::{BLOCK, Node};
use crate::tasks::{begin, carry_out, is_over, manifest, order, task, until};
use crate::waiting::{self, value};

fn gets(request: &Request) -> bool {
    request.is_get() && request.is_of_object()
}

/// The node that runs a task.
fn runner(cluster: &Cluster, task: &Value) -> usize {
    let name = task["runner"].as_str().unwrap();
    (0..cluster.nodes.len())
        .find(|node| format!("n{node}") == name)
        .unwrap()
}

/// The number of blocks that the store of each node holds.
async fn blocks(cluster: &Cluster) -> Vec<u64> {
    let blocks = async |node: &Node| node.status().await["store"]["blocks"].as_u64().unwrap();
    join_all(cluster.nodes.iter().map(blocks)).await
}

/// Waits until a node lists a task.
async fn wait_for_task(node: &Node, id: &str) -> Value {
    let page = async || node.admin(&format!("/tasks/{id}")).await.status;
    value("the node lists the task", page, |status| {
        *status == StatusCode::OK
    })
    .await;
    task(node, id).await
}

#[tokio::test]
async fn a_task_fetches_each_block_once_and_spreads_it_over_the_nodes() {
    for mode in [CooperationMode::Hierarchy, CooperationMode::Directory] {
        let cluster = Cluster::start_with(3, |_, config| config.cooperation.mode = mode).await;
        for object in 0..6 {
            cluster.put(&format!("p/{object}"), 5);
        }
        let task = carry_out(&cluster.nodes[0], &order("prefetch", "s3://b/p/")).await;
        assert_eq!(
            (&task["state"], &task["objects"]["done"]),
            (&"done".into(), &6.into()),
            "{task:#}"
        );
        assert_eq!(cluster.lake.count(gets), 30, "each block once, {mode:?}");
        let held = blocks(&cluster).await;
        assert!(
            held.iter().sum::<u64>() == 30 && held.iter().all(|held| *held > 0),
            "{held:?}, {mode:?}"
        );

        cluster.lake.forget_requests();
        for object in 0..6 {
            let key = format!("p/{object}");
            let bytes = cluster.lake.object("b", &key).unwrap().content.all();
            cluster.read(object % 3, &key, &bytes).await;
        }
        assert_eq!(cluster.lake.count(gets), 0, "{mode:?}");
        let again = carry_out(&cluster.nodes[1], &order("prefetch", "s3://b/p/")).await;
        assert_eq!(again["objects"]["unchanged"], 6, "{again:#}");
        assert_eq!(cluster.lake.count(gets), 0, "{mode:?}");
        cluster.stop().await;
    }
}

#[tokio::test]
async fn every_node_answers_for_all_tasks_and_ends_them() {
    let cluster = Cluster::start(3).await;
    cluster.put("p/a", 3);
    let gate = cluster.lake.hold(gets);
    let id = begin(&cluster.nodes[0], &order("prefetch", "s3://b/p/")).await;
    for node in &cluster.nodes {
        wait_for_task(node, &id).await;
        until(node, &id, |task| task["state"] == "running").await;
    }
    let reply = cluster.nodes[2].order(&format!("/tasks/{id}/cancel")).await;
    assert_eq!(reply.status, StatusCode::OK);
    for node in &cluster.nodes {
        until(node, &id, |task| task["state"] == "cancelled").await;
    }
    gate.open();
    // A restarted node receives it, too.
    let mut cluster = cluster;
    cluster.restart(1, |_| ()).await;
    cluster.sees(3).await;
    until(&cluster.nodes[1], &id, |task| task["state"] == "cancelled").await;
    cluster.stop().await;
}

#[tokio::test]
async fn another_node_goes_on_when_the_runner_of_a_task_dies() {
    let mut cluster = Cluster::start(3).await;
    for object in 0..4 {
        cluster.put(&format!("p/{object}"), 4);
    }
    let gate = cluster
        .lake
        .hold(|request| gets(request) && request.path.ends_with("/3"));
    let id = begin(&cluster.nodes[0], &order("prefetch", "s3://b/p/")).await;
    let running = until(&cluster.nodes[0], &id, |task| task["objects"]["done"] == 3).await;
    let first = runner(&cluster, &running);
    for node in &cluster.nodes {
        until(node, &id, |task| task["state"] == "running").await;
    }
    let dead = cluster.nodes.remove(first).halt().await;
    cluster.ways.remove(first);
    cluster.sees(2).await;
    gate.open();
    let task = until(&cluster.nodes[0], &id, is_over).await;
    assert_eq!(
        (&task["state"], &task["objects"]["done"]),
        (&"done".into(), &4.into()),
        "{task:#}"
    );
    assert_ne!(task["runner"], running["runner"]);
    drop(dead);
    cluster.stop().await;
}

#[tokio::test]
async fn a_place_says_which_nodes_hold_the_objects() {
    let cluster = Cluster::start(3).await;
    cluster.put("p/a", 12);
    let mut order = order("prefetch", "s3://b/p/");
    order["to"] = "n1".into();
    let task = carry_out(&cluster.nodes[0], &order).await;
    assert_eq!(task["state"], "done", "{task:#}");
    assert_eq!(cluster.lake.count(gets), 12);
    let held = blocks(&cluster).await;
    assert_eq!(held[1], 12, "{held:?}");
    order["to"] = "dc1/a/r2".into();
    carry_out(&cluster.nodes[0], &order).await;
    assert_eq!(
        (blocks(&cluster).await[2], cluster.lake.count(gets)),
        (12, 12),
        "nodes give it to each other"
    );
    order["to"] = "dc2".into();
    let reply = crate::tasks::post(&cluster.nodes[0], &order).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert!(
        reply.text().starts_with("no node is at \"dc2\"\nhint: "),
        "{}",
        reply.text()
    );
    cluster.stop().await;
}

#[tokio::test]
async fn what_is_cached_where_is_counted_and_evicted_everywhere() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("p/a", 9);
    for node in 0..3 {
        cluster.read(node, "p/a", &bytes).await;
    }
    cluster.settle().await;
    let held = blocks(&cluster).await;
    let task = carry_out(&cluster.nodes[2], &order("cached", "s3://b/p/")).await;
    assert_eq!(
        (&task["bytes"]["cached"], &task["objects"]["unchanged"]),
        (&(9 * BLOCK).into(), &1.into()),
        "{task:#}"
    );
    for (node, held) in held.iter().enumerate() {
        assert_eq!(task["nodes"][format!("n{node}")]["blocks"], *held, "{task:#}");
    }
    let task = carry_out(&cluster.nodes[1], &order("evict", "s3://b/p/")).await;
    assert_eq!(task["state"], "done", "{task:#}");
    assert_eq!(blocks(&cluster).await, [0, 0, 0]);
    cluster.stop().await;
}

#[tokio::test]
async fn pins_hold_on_every_node_and_end_on_every_node() {
    let cluster = Cluster::start(3).await;
    cluster.put("p/a", 9);
    let mut pin = order("pin", "s3://b/p/");
    pin["until"] = json!(Moment::from(clock::utc_now() + Duration::from_mins(10)).to_string());
    let id = begin(&cluster.nodes[0], &pin).await;
    let task = until(&cluster.nodes[0], &id, is_over).await;
    assert_eq!(task["state"], "done", "{task:#}");
    let pinned = async |node: &Node| node.status().await["store"]["pins"]["bytes"].as_u64().unwrap();
    let bytes: u64 = join_all(cluster.nodes.iter().map(pinned)).await.into_iter().sum();
    assert!(
        bytes >= 9 * BLOCK && task["bytes"]["pinned"] == bytes,
        "{bytes} {task:#}"
    );
    let evict = carry_out(&cluster.nodes[1], &order("evict", "s3://b/p/")).await;
    assert_eq!(evict["state"], "failed");
    assert!(
        evict["errors"][0]["error"]
            .as_str()
            .unwrap()
            .starts_with("pinned"),
        "{evict:#}"
    );
    assert_eq!(blocks(&cluster).await.into_iter().sum::<u64>(), 9);
    let unpin = carry_out(&cluster.nodes[2], &order("unpin", "s3://b/p/")).await;
    assert_eq!(unpin["state"], "done", "{unpin:#}");
    for node in &cluster.nodes {
        until(node, &id, |task| task["state"] == "cancelled").await;
        assert_eq!(pinned(node).await, 0);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn the_list_of_a_task_outlives_the_node_that_took_it() {
    let mut cluster = Cluster::start(3).await;
    for object in 0..4 {
        cluster.put(&format!("p/{object}"), 2);
    }
    let gate = cluster
        .lake
        .hold(|request| gets(request) && request.path.ends_with("/3"));
    let list = "s3://b/p/0\ns3://b/p/1\ns3://b/p/2\ns3://b/p/3\n";
    let query = format!("kind=prefetch&identity={ACCESS_KEY}");
    let reply = manifest::send(&cluster.nodes[0], &query, list.to_owned()).await;
    let posted: Value = serde_json::from_slice(&reply.body).unwrap();
    let id = posted["id"].as_str().unwrap();
    let running = until(&cluster.nodes[0], id, |task| task["objects"]["done"] == 3).await;
    let has_list = |node: &Node| node.store_path().join("node/manifests").join(id).exists();
    waiting::until("a second node has the list", async || {
        cluster.nodes.iter().filter(|node| has_list(node)).count() >= 2
    })
    .await;
    // Both the node that took the list and the one that runs the task go, if these are two.
    let runner = runner(&cluster, &running);
    let mut gone = vec![cluster.nodes.remove(runner).halt().await];
    cluster.ways.remove(runner);
    if runner != 0 {
        cluster.sees(2).await;
        until(&cluster.nodes[1], id, |task| task["objects"]["done"] == 3).await;
        // It copies the list as the node that goes on would, or as the one after that.
        waiting::until("another one has it", async || has_list(&cluster.nodes[1])).await;
        gone.push(cluster.nodes.remove(0).halt().await);
        cluster.ways.remove(0);
        cluster.sees(1).await;
    }
    gate.open();
    let task = until(&cluster.nodes[0], id, is_over).await;
    assert_eq!(
        (&task["state"], &task["objects"]["done"]),
        (&"done".into(), &4.into()),
        "{task:#}"
    );
    drop(gone);
    cluster.stop().await;
}

#[tokio::test]
async fn pinned_objects_stay_on_nodes_that_follow_gwf() {
    let cluster = Cluster::start_with(2, |_, config| {
        config.cooperation.mode = CooperationMode::Directory;
        config.store.capacity_bytes = 6 << 20;
    })
    .await;
    let node = &cluster.nodes[0];
    for object in 0..4 {
        cluster.put(&format!("p/{object}"), 4);
    }
    let until = Moment::from(clock::utc_now() + Duration::from_mins(10));
    let mut pin = order("pin", "s3://b/p/");
    pin["until"] = json!(until.to_string());
    let task = carry_out(node, &pin).await;
    assert_eq!(task["state"], "done", "{task:#}");
    for number in 0..100 {
        let key = format!("scan-{number}");
        let bytes = cluster.put(&key, 8);
        cluster.read(number % 2, &key, &bytes).await;
        cluster.nodes[number % 2].settle().await;
    }
    let evicted = |status: &Value| {
        let counts = status["store"]["evictions"].as_object().unwrap();
        counts.values().map(|count| count.as_u64().unwrap()).sum::<u64>()
    };
    for node in &cluster.nodes {
        assert!(
            evicted(&node.status().await) > 100,
            "the scan has displaced blocks"
        );
    }
    cluster.lake.forget_requests();
    for object in 0..4 {
        let key = format!("p/{object}");
        let bytes = cluster.lake.object("b", &key).unwrap().content.all();
        cluster.read(object % 2, &key, &bytes).await;
    }
    assert_eq!(cluster.lake.count(gets), 0);
    cluster.stop().await;
}
