//! A refusal of the lake ends a change at once; only a response that leaves the outcome open blocks a name.

use std::time::Duration;

use http::{Method, StatusCode};

use super::{back, bytes, flush, reads, texts, write_back};
use crate::client::{Call, Reply};
use crate::lake::{Fault, Request};
use crate::node::Node;

/// Starts a node that blocks a name with an unknown outcome for longer than any test lasts.
async fn node() -> Node {
    let node = Node::start_with(|config| {
        back(config);
        config.lake.stall_timeout = Some(Duration::from_mins(1));
    })
    .await;
    node.lake.put("b", "tmp/k", "at the lake");
    node
}

/// Returns requests that change an object and that few lakes support.
fn rare(node: &Node) -> [(&'static str, Call); 3] {
    let client = node.client();
    [
        ("restore", client.post("/b/tmp/k?restore", "<RestoreRequest/>")),
        ("tagging", client.put("/b/tmp/k?tagging", "<Tagging/>")),
        (
            "acl",
            client.put("/b/tmp/k?acl", "").header("x-amz-acl", "private"),
        ),
    ]
}

/// A removal that is a change at the lake.
async fn remove_there(node: &Node, key: &str) -> Reply {
    let delete = node.client().delete(&format!("/b/{key}"));
    delete.header("x-shoal-write", "through").send().await
}

async fn is_free(node: &Node, key: &str, what: &str) {
    let delete = remove_there(node, key).await;
    assert_eq!(delete.status, StatusCode::NO_CONTENT, "{what}: {}", delete.text());
}

async fn is_held(node: &Node, key: &str, what: &str) {
    let delete = remove_there(node, key).await;
    assert_eq!(delete.status, StatusCode::SERVICE_UNAVAILABLE, "{what}");
}

fn has_query(request: &Request) -> bool {
    // The question for permission is an upload that is created and aborted.
    let is_question = ["uploads", "uploadId"]
        .into_iter()
        .any(|name| request.parameter(name).is_some());
    !request.query.is_empty() && request.key == b"tmp/k" && !is_question
}

#[tokio::test]
async fn a_refusal_by_any_status_leaves_the_name_free() {
    let node = node().await;
    for status in [501, 505, 507, 503, 405, 403] {
        for (name, call) in rare(&node) {
            node.lake.put("b", "tmp/k", "at the lake");
            node.lake.misbehave(Fault::status(status).when(has_query));
            let what = format!("{status} to ?{name}");
            let reply = call.send().await;
            assert_eq!(reply.status, status, "{what}");
            is_free(&node, "tmp/k", &what).await;
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn an_answer_that_leaves_the_outcome_open_holds_the_name() {
    for status in [500, 502, 504] {
        let node = node().await;
        node.lake.misbehave(Fault::status(status).when(has_query));
        let [_, (_, call), _] = rare(&node);
        let reply = call.send().await;
        assert_eq!(reply.status, status);
        is_held(&node, "tmp/k", &status.to_string()).await;
        node.stop().await;
    }
}

#[tokio::test]
async fn a_request_that_never_reached_the_lake_holds_no_name() {
    let node = node().await;
    let client = node.client();
    let calls = [
        client.delete("/b/tmp/k"),
        client.put("/b/tmp/k", "x").header("x-shoal-write", "around"),
        client
            .post("/b?delete", "<Delete><Object><Key>tmp/k</Key></Object></Delete>")
            .header("x-shoal-write", "around"),
    ];
    for call in calls {
        node.lake.stop().await;
        let reply = call.send().await;
        assert!(reply.status.is_server_error(), "{reply:?}");
        node.lake.resume().await;
        is_free(&node, "tmp/k", "a lake that takes no connection").await;
    }
    node.stop().await;
}

#[tokio::test]
async fn an_error_behind_an_early_200_is_judged_by_its_code() {
    let node = node().await;
    let is_copy = |request: &Request| request.method == Method::PUT && request.query.is_empty();
    for (code, is_refused) in [("InvalidRequest", true), ("InternalError", false)] {
        let error = format!("<Error><Code>{code}</Code></Error>");
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{error}",
            error.len()
        );
        node.lake.misbehave(Fault::raw(answer).when(is_copy));
        let copy = node.client().put("/b/tmp/copy", "");
        let copy = copy
            .header("x-amz-copy-source", "/b/else")
            .header("x-shoal-write", "around");
        node.lake.put("b", "else", "at the lake");
        let reply = copy.send().await;
        assert!(reply.text().contains(code), "{reply:?}");
        if is_refused {
            is_free(&node, "tmp/copy", code).await;
        } else {
            is_held(&node, "tmp/copy", code).await;
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn of_many_keys_the_refused_ones_are_free_and_those_whose_outcome_is_open_are_held() {
    let node = node().await;
    let result = "<DeleteResult><Error><Key>tmp/refused</Key><Code>AccessDenied</Code></Error>\
                  <Error><Key>tmp/open</Key><Code>InternalError</Code></Error></DeleteResult>";
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{result}",
        result.len()
    );
    let is_deletion = |request: &Request| request.query == "delete";
    node.lake.misbehave(Fault::raw(answer).when(is_deletion));
    let keys = "<Object><Key>tmp/refused</Key></Object><Object><Key>tmp/open</Key></Object>";
    let reply = node
        .client()
        .post("/b?delete", format!("<Delete>{keys}</Delete>"));
    assert_eq!(texts(&reply.send().await, "Error").len(), 2);
    is_free(&node, "tmp/refused", "AccessDenied").await;
    is_held(&node, "tmp/open", "InternalError").await;
    node.stop().await;
}

/// Returns an upload by HTML form of an object with this key, and its length.
fn form(node: &Node, key: &str) -> (Call, u64) {
    let field = |name: &str, value: &str| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let body = field("key", key) + &field("policy", "p") + &field("file", "bytes") + "--x--\r\n";
    let length = body.len() as u64;
    let call = node.stranger().post("/b", body);
    let call = call.header("content-type", "multipart/form-data; boundary=x");
    (call, length)
}

#[tokio::test]
async fn an_object_that_the_lake_refuses_holds_up_no_other_and_is_named_with_what_to_do() {
    let node = Node::start_with(back).await;
    let client = node.client();
    let is_refused = |request: &Request| request.is_put() && request.key == b"tmp/t";
    node.lake.misbehave(Fault::status(409).when(is_refused).always());
    write_back(&client, "tmp/t", &bytes(1)).await;
    write_back(&client, "tmp/other", &bytes(2)).await;

    let versions = client.get("/b?versions").send().await;
    assert_eq!(versions.status, StatusCode::OK, "{}", versions.text());
    assert!(node.lake.object("b", "tmp/other").is_some());
    let policy = r#"{"Statement": []}"#;
    let put = client.put("/b?policy", policy).send().await;
    assert!(put.status.is_success(), "{}", put.text());
    let is_form = |request: &Request| request.method == Method::POST && request.query.is_empty();
    node.lake.misbehave(Fault::status(201).when(is_form).always());
    let (call, length) = form(&node, "tmp/form");
    let uploaded = call.send().await;
    assert_eq!(uploaded.status, StatusCode::CREATED, "{}", uploaded.text());
    assert_eq!(node.lake.last_request().body_received, length);
    for key in ["tmp/t", "tmp/${filename}"] {
        let refused = form(&node, key).0.send().await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{key}");
    }
    let gone = client.delete("/b").send().await;
    assert_eq!(gone.status, StatusCode::SERVICE_UNAVAILABLE, "it holds an object");

    let status = node.status().await;
    let condition = status["conditions"].as_array().unwrap().iter();
    let told = condition
        .filter(|condition| condition["condition"] == "flush-refused")
        .map(|condition| condition["detail"].as_str().unwrap());
    let told = told.collect::<String>();
    for part in ["s3://b/tmp/t", "409", "copy it to another name"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(status["write_back"]["troubled"][0]["refused"], true, "{status}");
    reads(&client, "tmp/t", &bytes(1)).await;

    node.lake.behave();
    flush(&node, "").await;
    let status = node.status().await;
    assert!(
        !status["conditions"].to_string().contains("flush-refused"),
        "{status}"
    );
    node.stop().await;
}

#[tokio::test]
async fn what_may_pass_is_no_lasting_refusal() {
    let node = Node::start_with(back).await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    node.lake
        .misbehave(Fault::status(503).when(Request::is_put).always());
    let versions = node.client().get("/b?versions").send().await;
    assert_eq!(versions.status, StatusCode::SERVICE_UNAVAILABLE);
    let status = node.status().await;
    assert_eq!(status["write_back"]["troubled"][0]["refused"], false, "{status}");
    assert!(
        !status["conditions"].to_string().contains("flush-refused"),
        "{status}"
    );
    node.stop().await;
}
