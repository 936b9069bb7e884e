//! Orders of operators about packs: `shoal unpack`, and `shoal pack rebuild` after a registry was lost.

use http::StatusCode;

use super::packs::{at_lake, pack, small};
use super::{flush, reads, write_back};
use crate::commands::shoal;
use crate::node::Node;

/// Runs a command on this node. Returns what it prints, once it has succeeded.
async fn command(node: &Node, arguments: &[&str]) -> String {
    let url = format!("http://{}", node.admin_address());
    let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let running = tokio::task::spawn_blocking(move || {
        let arguments: Vec<_> = arguments
            .iter()
            .map(String::as_str)
            .chain(["--node", &url])
            .collect();
        shoal(&arguments).output().unwrap()
    });
    let output = running.await.unwrap();
    let failure = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{failure}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_are_unpacked_are_as_before_and_nothing_is_packed_again() {
    let node = Node::start_with(pack).await;
    let client = node.client();
    let keys: Vec<_> = (0..300).map(|number| format!("tmp/{number:03}")).collect();
    for (seed, key) in (0..).zip(&keys) {
        write_back(&client, key, &small(seed)).await;
    }
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    let etag = async |key: &str| {
        let head = client.head(&format!("/b/{key}")).send().await;
        head.header("etag").map(str::to_owned)
    };
    let before = etag(&keys[7]).await;
    // One is dirty, and is flushed on the way.
    write_back(&client, &keys[0], &small(999)).await;
    let said = command(&node, &["unpack", "s3://b/tmp/"]).await;
    assert!(said.ends_with("objects unpacked\n"), "{said}");
    assert_eq!(at_lake(&node.lake).await, keys, "no pack and no table is left");
    assert_eq!(etag(&keys[7]).await, before);
    assert_eq!(
        node.lake.object("b", "tmp/000").unwrap().content.all(),
        small(999)
    );

    write_back(&client, "tmp/late", &small(1)).await;
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    assert!(node.lake.object("b", "tmp/late").is_some());
    assert_eq!(at_lake(&node.lake).await.len(), 301);
    // Now the rule may go.
    let node = node
        .halt()
        .await
        .with(|config| config.write.rules[0].pack = None)
        .start()
        .await;
    reads(&node.client(), "tmp/007", &small(7)).await;
    let stopped = node.halt().await.with(pack);
    // The rule is still there when the node starts again: it packs again.
    let node = stopped.start().await;
    write_back(&node.client(), "tmp/later", &small(2)).await;
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    assert!(node.lake.object("b", "tmp/later").is_none());
    reads(&node.client(), "tmp/later", &small(2)).await;
    reads(&node.client(), "tmp/007", &small(7)).await;
    // Without the rule, reads would not find what is in packs.
    let stopped = node.halt().await.with(|config| config.write.rules[0].pack = None);
    let refused = tokio::spawn(stopped.start())
        .await
        .map(drop)
        .unwrap_err()
        .into_panic();
    let why = refused.downcast_ref::<String>().unwrap();
    assert!(why.contains("shoal unpack s3://b/tmp/"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_that_the_registry_has_lost_comes_back_from_the_lake() {
    for more in [&[][..], &["--from-packs"]] {
        let node = Node::start_with(pack).await;
        for (seed, key) in [(1, "tmp/a"), (2, "tmp/b")] {
            write_back(&node.client(), key, &small(seed)).await;
            assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
        }
        assert_eq!(
            node.client().delete("/b/tmp/b").send().await.status,
            StatusCode::NO_CONTENT
        );
        assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
        let tier = node.lake.tier_folder();
        let node = node
            .restart_after(|store| {
                std::fs::remove_dir_all(&tier).unwrap();
                std::fs::remove_dir_all(store).unwrap();
            })
            .await;
        let lost = node.client().get("/b/tmp/a").send().await;
        assert_eq!(lost.status, StatusCode::SERVICE_UNAVAILABLE, "{}", lost.text());
        let arguments = [&["pack", "rebuild", "s3://b/tmp/"], more].concat();
        command(&node, &arguments).await;
        reads(&node.client(), "tmp/a", &small(1)).await;
        let removed = node.client().get("/b/tmp/b").send().await;
        let expected = if more.is_empty() {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::OK
        };
        assert_eq!(removed.status, expected, "{more:?}");
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_gone_is_named_and_the_map_is_made_of_packs() {
    let node = Node::start_with(pack).await;
    for (seed, key) in [(1, "tmp/a"), (2, "tmp/b")] {
        write_back(&node.client(), key, &small(seed)).await;
        assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    }
    let keys = at_lake(&node.lake).await;
    let table = keys.iter().find(|key| key.contains("/map/")).unwrap();
    node.lake.delete("b", table);
    // This node has it.
    reads(&node.client(), "tmp/a", &small(1)).await;
    let node = node
        .restart_after(|store| std::fs::remove_dir_all(store).unwrap())
        .await;
    for key in ["tmp/a", "tmp/b", "tmp/none"] {
        let reply = node.client().get(&format!("/b/{key}")).send().await;
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{key}");
    }
    let status = node.status().await.to_string();
    assert!(status.contains(table.as_str()), "{status}");
    write_back(&node.client(), "tmp/c", &small(3)).await;
    reads(&node.client(), "tmp/c", &small(3)).await;
    command(&node, &["pack", "rebuild", "s3://b/tmp/", "--from-packs"]).await;
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    for (seed, key) in [(1, "tmp/a"), (2, "tmp/b"), (3, "tmp/c")] {
        reads(&node.client(), key, &small(seed)).await;
    }
    let none = node.client().get("/b/tmp/none").send().await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    node.stop().await;
}

#[tokio::test]
async fn an_order_for_no_rule_that_packs_says_which_do() {
    let node = Node::start_with(pack).await;
    let reply = node.order("/unpack?below=s3://b/other/").await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert!(reply.text().contains("s3://b/tmp/"), "{}", reply.text());
    node.stop().await;
}
