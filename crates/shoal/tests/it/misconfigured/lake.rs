//! A lake that this node asks in a wrong way, or that is not there.

use http::StatusCode;

use super::Process;
use crate::client::Client;
use crate::lake::{ACCESS_KEY, Fault, Lake, SECRET_KEY};
use crate::tls;

/// The identity of a client, with a key pair that the lake does not know.
const IDENTITY: &str = "[[identity]]\naccess_key = \"client\"\nsecret_key = \"client-secret\"\n";

async fn lake() -> Lake {
    let lake = Lake::start().await;
    lake.put("b", "k", "bytes");
    lake
}

/// A node with this account of its own.
fn node(endpoint: &str, access_key: &str, secret_key: &str) -> Process {
    Process::start(&format!(
        "[lake]\nendpoint = \"{endpoint}\"\naccess_key = \"{access_key}\"\nsecret_key = \"{secret_key}\"\n{IDENTITY}"
    ))
}

fn client(node: &Process) -> Client {
    Client::signing(node.addresses().0, "client", "client-secret")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_secret_of_the_lake_is_told_at_start_and_a_client_does_not_take_it_for_its_own() {
    let lake = lake().await;
    let node = node(&lake.url(), ACCESS_KEY, "not-its-secret");
    node.logs(&[
        "WARN",
        "the lake has another secret for the access key",
        "[lake] access_key lake-access-key",
        "hint=\"check the secret",
    ]);
    for call in [client(&node).get("/b/k"), client(&node).put("/b/new", "x")] {
        let reply = call.send().await;
        assert_eq!(reply.status, StatusCode::BAD_GATEWAY, "{}", reply.text());
        assert!(
            reply.text().contains("does not accept the account of this node"),
            "{}",
            reply.text()
        );
    }
    let head = client(&node).head("/b/k").send().await;
    assert_eq!(head.status, StatusCode::BAD_GATEWAY, "an answer without a body");
    assert_eq!(node.count("another secret"), 1, "the same is told once a minute");
    node.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_access_key_that_the_lake_does_not_know_is_told_at_start() {
    let lake = lake().await;
    let node = node(&lake.url(), "nobody", "s");
    node.logs(&[
        "WARN",
        "the lake does not know the access key",
        "[lake] access_key nobody",
    ]);
    node.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lake_account_of_each_identity_is_asked_about() {
    let lake = lake().await;
    let node = Process::start(&format!(
        "[lake]\nendpoint = \"{}\"\naccess_key = \"{ACCESS_KEY}\"\nsecret_key = \"{SECRET_KEY}\"\n{IDENTITY}\
         [[identity]]\naccess_key = \"other\"\nsecret_key = \"s\"\nlake_access_key = \"theirs\"\nlake_secret_key = \"t\"",
        lake.url()
    ));
    node.logs(&["WARN", "does not know the access key", "lake_access_key theirs"]);
    assert_eq!(node.count("WARN"), 1);
    let good = client(&node).get("/b/k").send().await;
    assert_eq!(good.status, StatusCode::OK);
    let other = Client::signing(node.addresses().0, "other", "s");
    let reply = other.get("/b/k").send().await;
    assert_eq!(reply.status, StatusCode::BAD_GATEWAY, "{}", reply.text());
    node.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clients_own_key_pair_that_the_lake_does_not_know_is_told_and_answered_as_the_lake_does() {
    let lake = lake().await;
    let node = Process::start(&format!("[lake]\nendpoint = \"{}\"\n{IDENTITY}", lake.url()));
    node.logs(&[
        "WARN",
        "does not know the access key",
        "[[identity]] access_key client",
    ]);
    let reply = client(&node).get("/b/k").send().await;
    assert_eq!(
        (reply.status, reply.code()),
        (StatusCode::FORBIDDEN, "InvalidAccessKeyId")
    );
    node.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_the_lake_ceases_to_accept_is_told_and_a_plain_no_is_not() {
    let lake = lake().await;
    let node = node(&lake.url(), ACCESS_KEY, SECRET_KEY);
    let client = client(&node);
    assert_eq!(client.get("/b/k").send().await.status, StatusCode::OK);
    let no = "<Error><Code>AccessDenied</Code></Error>";
    let skewed = "<Error><Code>RequestTimeTooSkewed</Code><Message>too far</Message></Error>";
    let date = "Thu, 01 Jan 2026 00:00:00 GMT";
    let answer = |body: &str| {
        let length = body.len();
        Fault::raw(format!(
            "HTTP/1.1 403 Forbidden\r\nContent-Length: {length}\r\nDate: {date}\r\n\r\n{body}"
        ))
    };
    lake.misbehave(answer(no));
    let denied = client.get("/b/other").send().await;
    assert_eq!((denied.status, denied.text()), (StatusCode::FORBIDDEN, no));
    assert_eq!(node.count("WARN"), 0);
    assert_eq!(lake.nodes_questions(), 2, "one account, asked about at start");

    lake.misbehave(answer(skewed));
    let refused = client.get("/b/other").send().await;
    assert_eq!(refused.status, StatusCode::BAD_GATEWAY, "{}", refused.text());
    node.logs(&[
        "WARN",
        "clocks of this node and of the lake differ",
        "min ahead of that of the lake",
        "lake_says=\"too far\"",
    ]);
    node.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lake_that_does_not_answer_is_told_with_its_cause_and_when_it_answers() {
    let lake = lake().await;
    lake.stop().await;
    let node = node(&lake.url(), ACCESS_KEY, SECRET_KEY);
    node.logs(&[
        "WARN",
        "the lake does not answer this node",
        "Connection refused",
        "hint=\"check [lake] endpoint",
    ]);
    lake.resume().await;
    node.logs(&["INFO", "the lake answers"]);
    assert_eq!(node.count("does not answer"), 1, "once a minute");
    node.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_for_https_and_https_for_http_are_told_as_that() {
    let lake = lake().await;
    let encrypted = tls::in_front_of(lake.address()).await;
    let node_1 = node(&format!("http://{encrypted}"), ACCESS_KEY, SECRET_KEY);
    node_1.logs(&[
        "WARN",
        "the endpoint speaks https: begin [lake] endpoint with https://",
    ]);
    node_1.stop();
    let node_2 = node(&format!("https://{}", lake.address()), ACCESS_KEY, SECRET_KEY);
    node_2.logs(&[
        "WARN",
        "the endpoint speaks http: begin [lake] endpoint with http://",
    ]);
    node_2.stop();
}
