//! Clusters as operators see and steer them, by the binary.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use shoal_node::config::CooperationMode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::Cluster;
use crate::commands::shoal;
use crate::node::{BLOCK, Node};
use crate::verbs::{err, json, out, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_of_a_cluster_lists_the_nodes_and_the_sources_of_bytes() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 12);
    cluster.read(0, "k", &bytes).await;
    cluster.settle().await;
    cluster.read(1, "k", &bytes).await;
    cluster.settle().await;
    let status = json(&run(&cluster.nodes[1], &["status", "--json"]).await);
    assert_eq!(status["seen_by"], "n1");
    let nodes = status["nodes"].as_array().unwrap();
    let names: Vec<_> = nodes.iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["n1", "n0", "n2"], "the nearest first");
    assert_eq!((&nodes[0]["layer"], &nodes[1]["layer"]), (&1.into(), &2.into()));
    let read = |source: &str| status["total"][source].as_u64().unwrap();
    let sent = ["local_bytes", "peer_bytes", "lake_bytes"].map(read);
    assert_eq!(sent.iter().sum::<u64>(), 2 * 12 * BLOCK);
    assert_eq!(read("from_lake_bytes"), 12 * BLOCK);
    let layers = nodes[0]["numbers"]["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 3);

    let text = run(&cluster.nodes[1], &["status"]).await;
    assert!(
        out(&text).starts_with("3 nodes seen by n1: 3 serving\n"),
        "{}",
        out(&text)
    );
    assert!(out(&text).contains("n1: split L1 "), "{}", out(&text));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_drained_by_a_command_that_says_when_it_may_stop() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 12);
    cluster.read(0, "k", &bytes).await;
    cluster.settle().await;
    let drained = run(&cluster.nodes[0], &["node", "drain"]).await;
    let expected = "n0 is drained: it handed over 12 blocks (768 KiB) and may stop\n";
    assert_eq!((out(&drained), err(&drained)), (expected, ""));
    let status = run(&cluster.nodes[1], &["status"]).await;
    assert!(
        out(&status).contains(": 2 serving, 1 drained\n"),
        "{}",
        out(&status)
    );
    let again = json(&run(&cluster.nodes[0], &["node", "drain", "--json"]).await);
    assert_eq!(
        again["drain"]["blocks_given"], 12,
        "an order given twice changes nothing"
    );
    assert!(
        run(&cluster.nodes[0], &["node", "undrain"])
            .await
            .status
            .success()
    );
    cluster.wait_for_state("n0", "serving").await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_cannot_drain_says_why_and_what_to_do() {
    let alone = Node::start().await;
    let refused = run(&alone, &["node", "drain"]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("caches alone"), "{}", err(&refused));
    assert!(err(&refused).contains("hint: "), "{}", err(&refused));
    let status = json(&run(&alone, &["status", "--json"]).await);
    assert_eq!(
        status["nodes"].as_array().unwrap().len(),
        1,
        "a node alone is a cluster of one"
    );
    alone.stop().await;
    for verb in [&["node", "drain"][..], &["status"], &["explain", "s3://b/k"]] {
        let mut command = shoal(verb);
        command.args(["--node", "http://127.0.0.1:1"]);
        let nobody = tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap();
        assert_eq!(nobody.status.code(), Some(1));
        let told = err(&nobody);
        assert!(
            told.contains("http://127.0.0.1:1") && told.contains("hint: "),
            "{told}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_explained_by_homes_layers_and_holders_without_asking_the_lake() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("a key", 6);
    cluster.nodes[0]
        .client()
        .get("/b/a%20key")
        .range(&format!("bytes=0-{}", 5 * BLOCK - 1))
        .send()
        .await;
    cluster.settle().await;
    let asked = cluster.lake.requests().len();
    // Also by a node that has not been asked for the object by anybody.
    for node in [0, 1, 2] {
        let told = json(&run(&cluster.nodes[node], &["explain", "s3://b/a key", "--json"]).await);
        assert_eq!(told["version"]["size_bytes"], bytes.len() as u64);
        assert_eq!(told["version"]["blocks"], 6);
        let says = |name: &str, index: usize| {
            let nodes = told["nodes"].as_array().unwrap();
            let says = nodes.iter().find(|says| says["node"] == name).unwrap();
            says["blocks"][index].clone()
        };
        for index in 0..5 {
            let block = says("n0", index);
            assert_eq!(block["here"], "resident", "a client read it there");
            let home = block["homes"][0].as_str().unwrap();
            assert_eq!(says(home, index)["here"], "resident", "it came through its home");
            let expected = if home == "n0" { "L3" } else { "L1" };
            assert_eq!(block["layer"], expected);
        }
        assert_eq!(says("n0", 5)["here"], "unasked");
    }
    let text = run(
        &cluster.nodes[0],
        &["explain", "s3://b/a key", "--first", "4", "--blocks", "1"],
    )
    .await;
    let text = out(&text);
    assert!(text.contains("n0: resident in L"), "{text}");
    assert!(text.ends_with("… 1 more: --first 5\n"), "{text}");
    assert_eq!(cluster.lake.requests().len(), asked, "the lake is not asked");
    let unknown = run(&cluster.nodes[0], &["explain", "s3://b/other"]).await;
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        err(&unknown).contains("no node knows a version of s3://b/other"),
        "{}",
        err(&unknown)
    );
    let bucket = run(&cluster.nodes[0], &["explain", "s3://b"]).await;
    assert_eq!(bucket.status.code(), Some(2));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_made_room_for_others_is_explained_as_evicted() {
    let cluster = Cluster::start_with(2, |_, config| config.store.capacity_bytes = 3 << 20).await;
    let first = cluster.put("first", 4);
    cluster.read(0, "first", &first).await;
    cluster.settle().await;
    for other in 0..8 {
        let key = format!("other-{other}");
        let bytes = cluster.put(&key, 16);
        cluster.read(0, &key, &bytes).await;
        cluster.settle().await;
    }
    let told = json(&run(&cluster.nodes[0], &["explain", "s3://b/first", "--json"]).await);
    let block = &told["nodes"][0]["blocks"][0];
    assert_eq!(
        (&block["here"], &block["reason"]),
        (&"evicted".into(), &"room".into()),
        "{told:#}"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_directory_an_object_is_explained_by_holders_worth_and_decisions() {
    let cluster = Cluster::start_with(3, |_, config| {
        config.cooperation.mode = CooperationMode::Directory;
    })
    .await;
    let bytes = cluster.put("k", 2);
    for node in [0, 1] {
        cluster.read(node, "k", &bytes).await;
        cluster.settle_reports().await;
    }
    let asked = cluster.lake.requests().len();
    let told = run(&cluster.nodes[2], &["explain", "s3://b/k"]).await;
    let text = out(&told);
    let [_, _, head, first, second, ..] = &text.lines().collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    assert!(head.starts_with("block  directory"), "{text}");
    for (line, index) in [(first, 0), (second, 1)] {
        assert!(line.starts_with(&format!("{index}      n")), "{text}");
        for part in [
            "n0",
            "n1",
            "(weight 1)",
            "n0: resident in L1, worth 1 since 1",
            "n1: resident in L1, worth 0 since 1",
        ] {
            assert!(line.contains(part), "{part}: {text}");
        }
        assert!(!line.contains("n2"), "it was not asked for: {text}");
    }
    assert_eq!(cluster.lake.requests().len(), asked, "the lake is not asked");
    let told = run(&cluster.nodes[1], &["status"]).await;
    let text = out(&told);
    assert!(text.contains("n1: directory answers in"), "{text}");
    assert!(
        text.contains("128 KiB from other nodes, 0 last copies kept, 0 pushed"),
        "{text}"
    );
    cluster.stop().await;
}

/// Answers as the admin port of `node`, whose members it has made up: one of them is said to be at
/// `elsewhere`.
async fn liar(node: Arc<Node>, elsewhere: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let node = Arc::clone(&node);
            tokio::spawn(async move {
                let mut head = vec![0; 4096];
                let read = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or("/");
                let page = node.admin(path).await;
                let body = if path == "/members" {
                    let mut members: Value = serde_json::from_slice(&page.body).unwrap();
                    let mut other = members["members"][0].clone();
                    other["name"] = "other".into();
                    other["admin"] = elsewhere.to_string().into();
                    members["members"].as_array_mut().unwrap().push(other);
                    members.to_string().into_bytes()
                } else {
                    page.body.to_vec()
                };
                let head = format!(
                    "HTTP/1.1 {} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    page.status.as_u16(),
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                stream.write_all(&body).await.unwrap();
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_goes_to_no_address_that_nodes_tell_of_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "the-token-of-an-operator\n").unwrap();
    let trap = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = Arc::new(Node::start().await);
    let url = format!(
        "http://{}",
        liar(Arc::clone(&node), trap.local_addr().unwrap()).await
    );
    for verb in [&["status"][..], &["explain", "s3://b/k"]] {
        let mut command = shoal(verb);
        command
            .args(["--node", &url])
            .arg("--token-file")
            .arg(&token_file);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = output.await.unwrap();
        let said = format!("{}{}", out(&output), err(&output));
        assert!(said.contains("other") || said.contains("no node knows"), "{said}");
    }
    let caught = tokio::time::timeout(Duration::from_millis(50), trap.accept()).await;
    assert!(caught.is_err(), "a command connected to {caught:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_shows_the_pages_of_the_others_and_says_why_it_cannot() {
    let cluster = Cluster::start(2).await;
    let page = cluster.nodes[0].admin("/nodes/n1/status").await;
    let status: Value = serde_json::from_slice(&page.body).unwrap();
    assert_eq!(status["node"]["name"], "n1");
    let metrics = cluster.nodes[0].admin("/nodes/n1/metrics").await;
    assert!(String::from_utf8_lossy(&metrics.body).contains("shoal_read_bytes_total"));
    let explained = cluster.nodes[0].admin("/nodes/n1/explain?object=s3://b/k").await;
    let explained: Value = serde_json::from_slice(&explained.body).unwrap();
    assert_eq!(explained["node"], "n1");
    for (path, status) in [
        ("/nodes/n7/status", 404),
        ("/nodes/n0/status", 404),
        ("/nodes/n1/drain", 404),
        ("/nodes/n1/explain?object=nothing", 502),
    ] {
        assert_eq!(cluster.nodes[0].admin(path).await.status, status, "{path}");
    }
    cluster.stop().await;
}
