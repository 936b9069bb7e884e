//! Stories of what stays for a plan and what leaves.

use http::StatusCode;
use shoal_plan::model::Promise;
use shoal_plan::plan::Outcome;

use super::{Planned, busy, document, document_beside, gets, pinned_bytes, start, until};
use crate::cluster::Cluster;
use crate::lake::{Content, Object};
use crate::node::{BLOCK, Node};
use crate::waiting::value;

/// Returns true if all of an object is in the cache of a node.
async fn is_cached(node: &Node, target: &str) -> bool {
    let read = node
        .client()
        .get(target)
        .header("cache-control", "only-if-cached");
    read.send().await.status == StatusCode::OK
}

#[tokio::test]
async fn what_a_plan_no_longer_needs_leaves_first_when_room_is_needed() {
    let node = Node::start_with(|config| config.store.capacity_bytes = 4 << 20).await;
    for (key, blocks) in [("old", 4), ("a", 8), ("b", 4)] {
        let object = Object::new(Content::synthetic(blocks * BLOCK, 7));
        node.lake.put("b", key, object);
    }
    // By their last use, its blocks would leave first.
    let read = node.client().get("/b/old").send().await;
    assert_eq!(read.status, StatusCode::OK);
    let mut document = document(&[
        Planned {
            submit_s: 5.0,
            deadline_s: 8.0,
            reads: &[("a", 8)],
        },
        Planned {
            submit_s: 14.0,
            deadline_s: 20.0,
            reads: &[("b", 4)],
        },
    ]);
    // A forecast names the run, and all runs of a job.
    document.jobs[0].name = "etl_*".into();
    let is_evicted = |file: &shoal_plan::plan::FilePlan| file.file == "a" && !file.evictions.is_empty();
    assert!(document.plan.files.iter().any(is_evicted), "{:?}", document.plan);
    start(&node, &document).await;
    until(&node, |plan| plan["bytes"]["done"] == 8 * BLOCK).await;
    // A job that names itself reads for itself alone.
    for name in ["another", "etl_2026-11-20"] {
        let read = node.client().get("/b/a").header("x-shoal-job", name).send().await;
        assert_eq!(read.status, StatusCode::OK);
        until(&node, |plan| plan["bytes"]["done"] == 8 * BLOCK).await;
    }
    until(&node, |plan| plan["bytes"]["done"] == 12 * BLOCK).await;
    let read = node.client().get("/b/b").header("x-shoal-job", "j1").send().await;
    assert_eq!(read.status, StatusCode::OK);
    let over = until(&node, |plan| plan["state"] == "done").await;
    assert_eq!(
        (&over["plan"]["jobs"]["met"], &over["bytes"]["done"]),
        (&2.into(), &(12 * BLOCK).into()),
        "{over:#}"
    );
    assert_eq!(
        node.status().await["store"]["blocks"],
        16,
        "there is room for all"
    );
    // A use of it would end the release, so nobody asks before others need its room.
    let mut scanned = 0;
    while node.status().await["store"]["blocks"] == 16 + 4 * scanned {
        let key = format!("scan/{scanned}");
        let object = Object::new(Content::synthetic(4 * BLOCK, scanned));
        node.lake.put("b", &key, object);
        let read = node.client().get(&format!("/b/{key}")).send().await;
        assert_eq!(read.status, StatusCode::OK);
        node.settle().await;
        scanned += 1;
    }
    assert!(!is_cached(&node, "/b/a").await);
    for key in ["/b/old", "/b/b", "/b/scan/0"] {
        assert!(is_cached(&node, key).await, "{key} was not released");
    }
    node.stop().await;
}

#[tokio::test]
async fn what_a_job_reads_for_a_later_one_stays_although_a_scan_needs_room() {
    let node = Node::start_with(|config| config.store.capacity_bytes = 4 << 20).await;
    node.lake
        .put("b", "a", Object::new(Content::synthetic(4 * BLOCK, 7)));
    // The first job reads from the lake, and leaves it to the second one, for which the link has nothing.
    let later = Planned {
        submit_s: 12.0,
        deadline_s: 12.4,
        reads: &[("a", 4)],
    };
    let promised = vec![Promise {
        start_s: 4.0,
        ..busy(&later)
    }];
    let first = Planned {
        submit_s: 0.0,
        deadline_s: 4.0,
        reads: &[("a", 4)],
    };
    let document = document_beside(&[first, later], promised);
    assert!(document.plan.jobs[0].reads[0].keep, "{:?}", document.plan);
    assert_eq!(document.plan.jobs[1].outcome, Outcome::Planned);
    start(&node, &document).await;
    let pinned = async || node.status().await["store"]["pins"]["objects"].clone();
    value("the page is kept", pinned, |objects| *objects == 1).await;
    let job = |name| node.client().get("/b/a").header("x-shoal-job", name);
    assert_eq!(job("j0").send().await.status, StatusCode::OK);
    for scanned in 0..32 {
        let key = format!("scan/{scanned}");
        node.lake
            .put("b", &key, Object::new(Content::synthetic(4 * BLOCK, scanned)));
        let read = node.client().get(&format!("/b/{key}")).send().await;
        assert_eq!(read.status, StatusCode::OK);
    }
    node.lake.forget_requests();
    assert_eq!(job("j1").send().await.status, StatusCode::OK);
    assert_eq!(node.lake.count(gets), 0, "it was kept for this job");
    node.stop().await;
}

#[tokio::test]
async fn the_pins_of_a_plan_hold_on_until_the_next_one_has_set_its_own() {
    let cluster = Cluster::start(2).await;
    cluster.put("a", 4);
    let plan = |fetched_s: f64| {
        let mut document = document(&[Planned {
            submit_s: 240.0,
            deadline_s: 240.4,
            reads: &[("a", 4)],
        }]);
        let files = document.plan.files.iter_mut();
        for transfer in files.flat_map(|file| &mut file.transfers) {
            (transfer.start_s, transfer.end_s) = (fetched_s, fetched_s + 1.0);
            transfer.bytes_per_second = 8.0 * BLOCK as f64;
        }
        document
    };
    start(&cluster.nodes[0], &plan(0.0)).await;
    let pinned = async || pinned_bytes(&cluster).await;
    value("it is pinned", pinned, |bytes| *bytes >= 4 * BLOCK).await;
    // The next one sets its pins later than the former one's end.
    let next = start(&cluster.nodes[1], &plan(230.0)).await;
    for node in &cluster.nodes {
        until(node, |plan| {
            plan["id"] == next["id"] && plan["state"] == "running"
        })
        .await;
    }
    assert!(pinned_bytes(&cluster).await >= 4 * BLOCK);
    value("the former plan's pins are gone", pinned, |bytes| *bytes == 0).await;
    cluster.stop().await;
}
