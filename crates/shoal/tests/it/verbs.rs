//! Verbs of `shoal`, run against the admin port of a node.

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::commands::shoal;
use crate::node::Node;

/// Runs a verb.
pub(crate) async fn run(node: &Node, arguments: &[&str]) -> Output {
    run_with(node, arguments, "").await
}

/// Runs a verb with a text at its stdin.
pub(crate) async fn run_with(node: &Node, arguments: &[&str], stdin: &str) -> Output {
    let mut command = shoal(arguments);
    command.env("SHOAL_ADMIN_URL", format!("http://{}", node.admin_address()));
    command.env("NO_COLOR", "1");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let stdin = stdin.to_owned();
    let run = move || {
        let mut child = command.spawn().unwrap();
        // A verb that reads no stdin may be over by now.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child.wait_with_output().unwrap()
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

pub(crate) fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub(crate) fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// The JSON that a verb prints that succeeds.
pub(crate) fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", err(output));
    serde_json::from_slice(&output.stdout).unwrap()
}
