//! Several nodes: each sees all dirty objects, whichever node wrote them.

use http::StatusCode;

use super::{back, bytes, flush, reads, write_back};
use crate::cluster::Cluster;
use crate::lake::{Content, Fault, Request};
use crate::node::BLOCK;
use crate::tasks::{carry_out, order};

pub(super) async fn cluster(nodes: usize) -> Cluster {
    Cluster::start_with(nodes, |_, config| back(config)).await
}

#[tokio::test]
async fn every_node_sees_what_one_has_acknowledged() {
    let cluster = cluster(3).await;
    for writer in 0..3 {
        let (key, bytes) = (format!("tmp/{writer}"), bytes(writer as u64));
        write_back(&cluster.nodes[writer].client(), &key, &bytes).await;
        for reader in &cluster.nodes {
            reads(&reader.client(), &key, &bytes).await;
            let head = reader.client().head(&format!("/b/{key}")).send().await;
            assert_eq!(head.status, StatusCode::OK);
        }
        assert!(cluster.lake.object("b", &key).is_none());
    }
    cluster.stop().await;
}

#[tokio::test]
async fn homes_get_the_blocks_of_an_object_when_the_lake_has_it_and_not_before() {
    let cluster = cluster(3).await;
    let large = Content::synthetic(12 * BLOCK, 1).all();
    write_back(&cluster.nodes[0].client(), "tmp/k", &large).await;
    cluster.settle().await;
    let blocks = async || {
        let mut blocks = 0;
        for node in &cluster.nodes[1..] {
            blocks += node.status().await["store"]["blocks"].as_u64().unwrap();
        }
        blocks
    };
    assert_eq!(blocks().await, 0);
    flush(&cluster.nodes[0], "").await;
    cluster.settle().await;
    assert!(blocks().await > 0);
    cluster.stop().await;
}

#[tokio::test]
async fn a_prefetch_brings_a_dirty_object_from_its_tier_to_its_homes() {
    let cluster = cluster(3).await;
    let large = Content::synthetic(12 * BLOCK, 1).all();
    write_back(&cluster.nodes[0].client(), "tmp/k", &large).await;
    let task = carry_out(&cluster.nodes[1], &order("prefetch", "s3://b/tmp/")).await;
    assert_eq!(
        (&task["state"], &task["objects"]["done"]),
        (&"done".into(), &1.into()),
        "{task:#}"
    );
    assert!(cluster.lake.object("b", "tmp/k").is_none());
    flush(&cluster.nodes[0], "").await;
    cluster.lake.forget_requests();
    for node in &cluster.nodes {
        reads(&node.client(), "tmp/k", &large).await;
    }
    let gets = |request: &Request| request.is_get() && request.is_of_object();
    assert_eq!(
        cluster.lake.count(gets),
        0,
        "the flush leaves the blocks where they are"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn an_object_removed_through_one_node_is_gone_for_all() {
    let cluster = cluster(3).await;
    for (number, writer) in [0, 1, 2].into_iter().enumerate() {
        let key = format!("tmp/{number}");
        write_back(&cluster.nodes[writer].client(), &key, &bytes(1)).await;
        let remover = cluster.nodes[(writer + 1) % 3].client();
        let delete = remover.delete(&format!("/b/{key}")).send().await;
        assert_eq!(delete.status, StatusCode::NO_CONTENT);
        for node in &cluster.nodes {
            let read = node.client().get(&format!("/b/{key}")).send().await;
            assert_eq!(read.status, StatusCode::NOT_FOUND, "{key}");
        }
    }
    flush(&cluster.nodes[0], "").await;
    for number in 0..3 {
        assert!(cluster.lake.object("b", format!("tmp/{number}")).is_none());
    }
    cluster.stop().await;
}

#[tokio::test]
async fn one_order_flushes_what_all_nodes_hold() {
    let cluster = cluster(3).await;
    for number in 0..12 {
        let writer = cluster.nodes[number as usize % 3].client();
        write_back(&writer, &format!("tmp/{number}"), &bytes(number)).await;
    }
    let report = flush(&cluster.nodes[1], "").await;
    assert_eq!(
        (&report["flush"]["failed"], &report["flush"]["flushed"]),
        (&0.into(), &12.into())
    );
    for number in 0..12 {
        let object = cluster.lake.object("b", format!("tmp/{number}")).unwrap();
        assert!(object.content.all() == bytes(number), "{number}");
    }
    for node in &cluster.nodes {
        assert_eq!(node.status().await["write_back"]["objects"], 0);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn an_object_reads_the_same_while_dirty_and_once_the_lake_has_it() {
    // These nodes never revalidate an object.
    let cluster = cluster(3).await;
    for round in 0..2 {
        let bytes = bytes(round);
        write_back(&cluster.nodes[0].client(), "tmp/k", &bytes).await;
        for _ in 0..2 {
            for node in &cluster.nodes {
                reads(&node.client(), "tmp/k", &bytes).await;
            }
            flush(&cluster.nodes[1], "").await;
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_flushes_and_says_what_it_could_not() {
    let cluster = cluster(2).await;
    for key in ["tmp/a/1", "tmp/a/2", "tmp/b"] {
        write_back(&cluster.nodes[0].client(), key, &bytes(1)).await;
    }
    let url = format!("http://{}", cluster.nodes[1].admin_address());
    let run = async |arguments: &[&str]| {
        let mut command = crate::commands::shoal(arguments);
        command.args(["--node", &url]);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        output.await.unwrap()
    };
    let part = run(&["flush", "s3://b/tmp/a/"]).await;
    assert_eq!(
        String::from_utf8_lossy(&part.stdout),
        "2 objects are at the lake now\n"
    );
    assert!(cluster.lake.object("b", "tmp/a/2").is_some() && cluster.lake.object("b", "tmp/b").is_none());
    cluster.lake.misbehave(Fault::status(503).when(Request::is_put));
    let refused = run(&["flush", "--json"]).await;
    assert_eq!(refused.status.code(), Some(1));
    let progress: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(
        (&progress["failed"], &progress["flushed"]),
        (&1.into(), &0.into())
    );
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("1 object could not be flushed") && said.contains("hint: "),
        "{said}"
    );
    let nothing = run(&["flush", "b/tmp"]).await;
    assert_eq!(nothing.status.code(), Some(2), "that is no name");
    cluster.stop().await;
}

#[tokio::test]
async fn no_web_page_orders_a_flush() {
    let cluster = cluster(1).await;
    let admin = crate::client::Client::anonymous(cluster.nodes[0].admin_address());
    let order = admin
        .post("/flush", Vec::new())
        .header("origin", "http://evil.example");
    assert_eq!(order.send().await.status, StatusCode::FORBIDDEN);
    assert_eq!(
        admin.get("/flush").send().await.status,
        StatusCode::METHOD_NOT_ALLOWED
    );
    let unnamed = admin.post("/flush?below=b", Vec::new()).send().await;
    assert_eq!(unnamed.status, StatusCode::BAD_REQUEST);
    cluster.stop().await;
}
