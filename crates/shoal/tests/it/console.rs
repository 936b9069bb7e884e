//! Stories of the console, as a browser without JavaScript sees it. `tests/console` has a real one.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use serde_json::Value;

use crate::client::Client;
use crate::lake::Access;
use crate::node::{Node, OTHER_KEY};

/// The files that a file of the console names: behind `src=`, `href=` and `from`.
fn named_in(text: &str) -> BTreeSet<String> {
    let quoted = |mark: &'static str| {
        let behind = text.split(mark).skip(1);
        behind
            .filter_map(|rest| rest.split('"').next())
            .map(|name| format!("/{}", name.trim_start_matches(['.', '/'])))
    };
    ["src=\"", "href=\"", "from \""]
        .into_iter()
        .flat_map(quoted)
        .filter(|name| name != "/data:,")
        .collect()
}

#[tokio::test]
async fn the_console_comes_with_all_its_files_and_names_no_other_host() {
    let node = Node::start().await;
    let client = Client::anonymous(node.admin_address());
    let (mut known, mut next) = (BTreeSet::new(), vec!["/".to_owned()]);
    while let Some(path) = next.pop() {
        let reply = client.get(&path).send().await;
        assert_eq!(reply.status, StatusCode::OK, "{path}");
        let policy = reply.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        let text = reply.text();
        let hosts = text.matches("://").count() - text.matches("s3://").count();
        assert_eq!(
            hosts,
            text.matches("http://www.w3.org/2000/svg").count(),
            "{path}"
        );
        known.insert(path);
        next.extend(named_in(text).into_iter().filter(|name| !known.contains(name)));
    }
    let files = ["/", "/charts.js", "/cluster.js", "/console.css", "/console.js"];
    assert_eq!(known.iter().map(String::as_str).collect::<Vec<_>>(), files);
    let order = client.call(Method::POST, "/").send().await;
    assert_eq!(order.status, StatusCode::METHOD_NOT_ALLOWED);
    node.stop().await;
}

async fn top_folders(node: &Node) -> Value {
    let status: Value = serde_json::from_slice(&node.admin("/status").await.body).unwrap();
    status["reads"]["top_folders"].clone()
}

#[tokio::test]
async fn folders_are_counted_by_the_bytes_that_clients_got() {
    let node = Node::start().await;
    node.lake.put("b", "sales/2026/a", vec![b'x'; 1000]);
    for _ in 0..2 {
        assert_eq!(
            node.client().get("/b/sales/2026/a").send().await.status,
            StatusCode::OK
        );
    }
    node.lake.deny(OTHER_KEY, Access::Read, "b/sales/2026/a");
    let refused = node.other().get("/b/sales/2026/a").send().await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_ne!(
        node.client().get("/b/none/such/key").send().await.status,
        StatusCode::OK
    );
    let folders = top_folders(&node).await;
    assert_eq!(folders.as_array().unwrap().len(), 1, "{folders:#}");
    assert_eq!(folders[0]["folder"], "s3://b/sales/2026/");
    assert_eq!(
        (&folders[0]["bytes"], &folders[0]["lake_bytes"]),
        (&2000.into(), &1000.into())
    );
    node.stop().await;
}
