//! Stories about plans that an operator starts, shows and stops by command.

use std::process::Output;

use serde_json::{Value, json};

use super::{Planned, document, until};
use crate::lake::ACCESS_KEY;
use crate::node::Node;
use crate::verbs::{self, err, out};

/// Runs `shoal plan` against the admin port of a node.
async fn run(node: &Node, arguments: &[&str]) -> Output {
    verbs::run(node, &[&["plan"], arguments].concat()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_are_started_shown_and_stopped_by_command() {
    let node = Node::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan");
    let file_name = file.to_str().unwrap();
    let document = document(&[Planned {
        submit_s: 60.0,
        deadline_s: 60.4,
        reads: &[("a", 4)],
    }]);
    std::fs::write(&file, serde_json::to_vec(&document).unwrap()).unwrap();
    let none = run(&node, &["show"]).await;
    assert!(
        none.status.code() == Some(1) && err(&none).contains("hint: "),
        "{}",
        err(&none)
    );
    let first = run(&node, &["start", file_name, "--as", ACCESS_KEY]).await;
    assert_eq!(first.status.code(), Some(0), "{}", err(&first));
    let second = run(&node, &["start", file_name, "--as", ACCESS_KEY]).await;
    let told = format!("takes the place of the plan {}", out(&first).trim());
    assert!(err(&second).contains(&told), "{}", err(&second));
    let shown = run(&node, &["show", "--json"]).await;
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(
        (&shown["id"], &shown["document"]["jobs"]),
        (&json!(out(&second).trim()), &json!(1))
    );
    until(&node, |plan| {
        plan["state"] == "running" && plan["plan"]["jobs"]["waiting"] == 1
    })
    .await;
    let shown = run(&node, &["show"]).await;
    assert!(out(&shown).contains("1 waiting"), "{}", out(&shown));
    let same = verbs::run(&node, &["task", out(&second).trim()]).await;
    assert_eq!(out(&same), out(&shown), "a plan is a task");
    let tasks = verbs::run(&node, &["tasks"]).await;
    let listed = out(&tasks);
    let row = listed
        .lines()
        .find(|row| row.contains(out(&second).trim()))
        .unwrap();
    assert!(row.contains(" plan ") && row.contains("1 job"), "{listed}");
    let order = json!({ "kind": "plan", "uri": "s3://b/" });
    let refused = crate::tasks::post(&node, &order).await;
    assert!(
        refused.text().contains("`shoal plan start FILE`"),
        "{}",
        refused.text()
    );
    let stopped = run(&node, &["stop"]).await;
    assert!(out(&stopped).contains(" is cancelled"), "{}", out(&stopped));
    let refused = run(&node, &["start", "/dev/null", "--as", ACCESS_KEY]).await;
    assert!(
        refused.status.code() == Some(2) && err(&refused).contains("hint: "),
        "{}",
        err(&refused)
    );
    node.stop().await;
}
