//! Stories of listings with what of them is cached, on one node.

use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::put_objects;
use crate::lake::{ACCESS_KEY, Access, Fault};
use crate::node::{BLOCK, Node, OTHER_KEY};
use crate::verbs::{err, out, run};

/// The objects that a node lists, on pages of at most `limit`.
pub(crate) async fn objects(node: &Node, uri: &str, limit: usize) -> Vec<Value> {
    let (mut objects, mut after) = (Vec::new(), String::new());
    for _ in 0..100 {
        let parameters = [
            ("uri", uri),
            ("identity", ACCESS_KEY),
            ("limit", &limit.to_string()),
        ];
        let parameters = parameters.map(|(name, value)| encoded(name, value)).join("&");
        let reply = node.order(&format!("/cached?{parameters}{after}")).await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        let page: Value = serde_json::from_slice(&reply.body).unwrap();
        let listed = page["objects"].as_array().unwrap();
        assert!(listed.len() <= limit, "{page:#}");
        objects.extend(listed.iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&{}", encoded("after", next)),
            None => return objects,
        }
    }
    panic!("the pages do not end: {objects:?}");
}

fn encoded(name: &str, value: &str) -> String {
    format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC))
}

fn keys(listed: &Value) -> Vec<&str> {
    let entries = listed.as_array().unwrap().iter();
    entries.map(|entry| entry["key"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_any_characters_are_listed_and_control_no_terminal() {
    let node = Node::start_immutable().await;
    let named = [
        "p/ a+b%2F c",
        "p/%7A",
        "p/*",
        "p/\u{1b}[31mred\nline",
        "p/ä\u{202e}/x",
        "p/ä\u{202e}/y",
    ];
    put_objects(&node, named.iter().map(ToString::to_string));
    let listed = run(
        &node,
        &["ls", "s3://b/p/", "--as", ACCESS_KEY, "--json", "--recursive"],
    )
    .await;
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let mut expected = named.to_vec();
    expected.sort_unstable();
    assert_eq!(keys(&listed["entries"]), expected);
    // Each page goes on behind the one before, whatever its last key is.
    for limit in [1, 2, 1000] {
        let objects = Value::from(objects(&node, "s3://b/p/", limit).await);
        assert_eq!(keys(&objects), expected, "{limit}");
    }
    let shown = run(&node, &["ls", "s3://b/p/", "--as", ACCESS_KEY]).await;
    let text = out(&shown);
    assert!(!text.contains('\x1b') && !text.contains('\u{202e}'), "{text}");
    let last: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last, ["192", "KiB", "0%", "2", "ä\\u202e/"], "{text}");
    assert_eq!(text.lines().count(), 6, "a head, four objects, a folder: {text}");
    // A wildcard is a character like others.
    let star = run(&node, &["ls", "s3://b/p/*", "--as", ACCESS_KEY, "--json"]).await;
    let star: Value = serde_json::from_slice(&star.stdout).unwrap();
    assert_eq!(keys(&star["entries"]), ["p/*"]);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_sees_nothing_that_the_lake_refuses_it() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["secret/plans".into(), "open/a".into()]);
    node.lake.deny(OTHER_KEY, Access::Read, "b");
    assert_eq!(
        node.client().get("/b/secret/plans").send().await.status,
        StatusCode::OK
    );
    node.settle().await;
    let allowed = run(&node, &["ls", "s3://b/", "--as", ACCESS_KEY]).await;
    assert!(out(&allowed).contains("100%"), "{}", out(&allowed));
    let refused = run(&node, &["ls", "s3://b/", "--as", OTHER_KEY]).await;
    assert_eq!((refused.status.code(), out(&refused)), (Some(2), ""));
    let said = err(&refused);
    assert!(
        said.contains("s3://b/ cannot be listed") && said.contains("AccessDenied"),
        "{said}"
    );
    assert!(said.contains("hint: ") && !said.contains("plans"), "{said}");
    for (identity, why) in [(None, "names no identity"), (Some("nobody"), "nobody")] {
        let mut arguments = vec!["ls", "s3://b/"];
        arguments.extend(identity.iter().flat_map(|identity| ["--as", identity]));
        let unknown = run(&node, &arguments).await;
        assert_eq!((unknown.status.code(), out(&unknown)), (Some(2), ""));
        assert!(err(&unknown).contains(why), "{}", err(&unknown));
    }
    node.lake.misbehave(Fault::status(503).when(|_| true).always());
    let silent = run(&node, &["ls", "s3://b/", "--as", ACCESS_KEY]).await;
    assert_eq!(
        (silent.status.code(), out(&silent)),
        (Some(1), ""),
        "it may answer later"
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_says_where_it_was_cut_off_and_when_there_is_nothing() {
    let node = Node::start_immutable().await;
    let bytes = put_objects(&node, (0..3).map(|number| format!("p/q/{number}")));
    let ls = async |arguments: &[&str]| {
        let arguments = [&["ls", "--as", ACCESS_KEY, "--json"], arguments].concat();
        let listed = run(&node, &arguments).await;
        assert!(listed.status.success(), "{}", err(&listed));
        let json: Value = serde_json::from_slice(&listed.stdout).unwrap();
        (json, err(&listed).to_owned())
    };
    let (cut, said) = ls(&["s3://b/p/", "--limit", "2"]).await;
    assert_eq!(
        (keys(&cut["entries"]), &cut["cut_off"]),
        (vec!["p/q/"], &true.into())
    );
    assert_eq!(
        (&cut["entries"][0]["objects"], &cut["entries"][0]["folder"]),
        (&2.into(), &true.into())
    );
    assert!(said.contains("cut off after 2 objects"), "{said}");
    let (whole, said) = ls(&["s3://b/p/", "--limit", "3"]).await;
    assert_eq!((&whole["cut_off"], &*said), (&false.into(), ""));
    assert_eq!(whole["entries"][0]["size_bytes"], bytes);
    assert_eq!(bytes, 3 * (BLOCK + BLOCK / 2));
    let (nothing, said) = ls(&["s3://b/r"]).await;
    assert_eq!(keys(&nothing["entries"]), [""; 0]);
    assert!(said.contains("no key begins with s3://b/r"), "{said}");
    node.stop().await;
}
