//! Stories of listings with what of them is cached, and on which nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use shoal_net::clock;
use shoal_orders::Moment;

use super::{Cluster, Wire};
use crate::lake::ACCESS_KEY;
use crate::node::BLOCK;
use crate::tasks::{carry_out, order};
use crate::verbs::{err, json, out, run};

/// The bytes of all objects that each node holds, as it says itself.
async fn stored(cluster: &Cluster) -> BTreeMap<String, u64> {
    let mut stored = BTreeMap::new();
    for (number, node) in cluster.nodes.iter().enumerate() {
        let blocks = node.status().await["store"]["blocks"].as_u64().unwrap();
        if blocks > 0 {
            stored.insert(format!("n{number}"), blocks * BLOCK);
        }
    }
    stored
}

fn entry<'a>(listing: &'a Value, key: &str) -> &'a Value {
    let entries = listing["entries"].as_array().unwrap();
    let found = entries.iter().find(|entry| entry["key"] == key);
    found.unwrap_or_else(|| panic!("{key} is missing in {listing:#}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_lists_what_is_cached_on_which_nodes() {
    let cluster = Cluster::start(3).await;
    let whole = cluster.put("p/whole", 5);
    cluster.put("p/part", 6);
    cluster.put("p/none", 2);
    for object in ["p/kept/a", "p/kept/b", "p/other/a"] {
        cluster.put(object, 2);
    }
    cluster.read(1, "p/whole", &whole).await;
    let part = cluster.nodes[0].client().get("/b/p/part");
    part.range(&format!("bytes=0-{}", 3 * BLOCK - 1)).send().await;
    let mut pin = order("pin", "s3://b/p/kept/a");
    pin["until"] = json!(Moment::from(clock::utc_now() + Duration::from_mins(10)).to_string());
    let pinned = carry_out(&cluster.nodes[2], &pin).await;
    assert_eq!(pinned["state"], "done", "{pinned:#}");
    cluster.settle().await;

    for node in &cluster.nodes {
        let listed = json(&run(node, &["ls", "s3://b/p/", "--as", ACCESS_KEY, "--json"]).await);
        let keys: Vec<_> = listed["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["key"])
            .collect();
        assert_eq!(keys, ["p/kept/", "p/none", "p/other/", "p/part", "p/whole"]);
        for (key, size, cached, pinned) in [
            ("p/kept/", 4, 2, 1),
            ("p/none", 2, 0, 0),
            ("p/other/", 2, 0, 0),
            ("p/part", 6, 3, 0),
            ("p/whole", 5, 5, 0),
        ] {
            let entry = entry(&listed, key);
            let figures = ["size_bytes", "cached_bytes", "pinned"].map(|name| entry[name].as_u64().unwrap());
            assert_eq!(figures, [size * BLOCK, cached * BLOCK, pinned], "{entry:#}");
        }
        assert_eq!(
            entry(&listed, "p/whole")["nodes"]["n1"],
            5 * BLOCK,
            "a client read it there"
        );
        assert_eq!(entry(&listed, "p/part")["nodes"]["n0"], 3 * BLOCK);
        let mut held = BTreeMap::<String, u64>::new();
        for entry in listed["entries"].as_array().unwrap() {
            for (node, bytes) in entry["nodes"].as_object().unwrap() {
                *held.entry(node.clone()).or_default() += bytes.as_u64().unwrap();
            }
        }
        assert_eq!(held, stored(&cluster).await, "each block is listed where it is");
        assert_eq!(
            (&listed["cut_off"], &listed["silent"]),
            (&json!(false), &json!([]))
        );
    }
    let shown = run(&cluster.nodes[0], &["ls", "s3://b/p/", "--as", ACCESS_KEY]).await;
    let text = out(&shown);
    let line = |name: &str| {
        let line = text.lines().find(|line| line.ends_with(&format!("  {name}")));
        let cells = line.unwrap_or_else(|| panic!("no {name} in {text}")).split("  ");
        cells
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .collect::<Vec<_>>()
    };
    assert_eq!(line("none"), ["128 KiB", "0%", "none"]);
    assert_eq!(line("part")[..2], ["384 KiB", "50%"]);
    assert!(line("part")[2].contains("n0"), "{text}");
    assert_eq!(line("whole")[1], "100%");
    assert_eq!(line("kept/")[3..], ["2", "1 pinned", "kept/"]);
    let recursive = run(
        &cluster.nodes[0],
        &["ls", "s3://b/p/kept", "--as", ACCESS_KEY, "--recursive"],
    )
    .await;
    let text = out(&recursive);
    assert_eq!(text.lines().count(), 3, "{text}{}", err(&recursive));
    assert!(text.contains("  pinned  p/kept/a\n"), "{text}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_does_not_answer_is_named_and_what_it_holds_does_not_count() {
    let cluster = Cluster::start(2).await;
    let bytes = cluster.put("k", 8);
    cluster.read(1, "k", &bytes).await;
    cluster.settle().await;
    let ls = ["ls", "s3://b/k", "--as", ACCESS_KEY, "--json"];
    let heard = json(&run(&cluster.nodes[0], &ls).await);
    assert_eq!(entry(&heard, "k")["nodes"]["n1"], 8 * BLOCK, "{heard:#}");
    // Gossip goes on, so that the node stays a member.
    cluster.ways[1].becomes(Wire::Stuck);
    let output = run(&cluster.nodes[0], &ls).await;
    let listed = json(&output);
    assert_eq!(listed["silent"], json!(["n1"]));
    let own = &entry(&heard, "k")["nodes"]["n0"];
    let own_bytes = own.as_u64().unwrap_or_default();
    let shown = entry(&listed, "k");
    assert_eq!(
        (&shown["nodes"]["n0"], &shown["nodes"]["n1"]),
        (own, &Value::Null)
    );
    assert_eq!(shown["cached_bytes"], own_bytes);
    assert!(
        err(&output).contains("n1 did not say what it holds"),
        "{}",
        err(&output)
    );
    cluster.stop().await;
}
