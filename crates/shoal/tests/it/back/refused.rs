//! A caller that the lake refuses leaves nothing behind. A caller to whom the lake refuses one thing can
//! still do others.

use std::fs;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Method, StatusCode};
use shoal_base::secret::Secret;
use shoal_node::config::Config;

use super::multipart::begin;
use super::slow::Slow;
use super::{back, bytes, flush, reads, texts, write_back};
use crate::client::{Call, Client, Reply};
use crate::lake::{ACCESS_KEY, ANONYMOUS, Access, Fault, Gate, Request};
use crate::node::{Node, OTHER_KEY};
use crate::waiting::until;

/// The access key of an identity that the lake does not know.
const UNKNOWN_KEY: &str = "unknown-access-key";
const UNKNOWN_SECRET: &str = "unknown-secret-key";

/// Returns the number of commits to the registry so far.
fn commits(node: &Node) -> u64 {
    let newest = fs::read(node.lake.tier_folder().join("registry/registry.newest")).unwrap();
    let slots = newest
        .chunks(4096)
        .map(|slot| u64::from_be_bytes(slot[..8].try_into().unwrap()));
    slots.max().unwrap()
}

/// Returns the same, once the node has done what every node does at its start: it has opened its session and
/// recorded the registry's creation time.
async fn commits_after_start(node: &Node) -> u64 {
    until("the node has begun its work", async || commits(node) >= 2).await;
    commits(node)
}

/// Returns the number of pieces in the tier's store.
fn pieces(node: &Node) -> usize {
    let folders = fs::read_dir(node.lake.tier_folder().join("pieces")).unwrap();
    folders
        .map(|folder| fs::read_dir(folder.unwrap().path()).unwrap().count())
        .sum()
}

fn with_unknown_identity(config: &mut Config) {
    back(config);
    let mut unknown = config.identities[0].clone();
    unknown.access_key = UNKNOWN_KEY.into();
    unknown.secret_key = Secret::new(UNKNOWN_SECRET);
    config.identities.push(unknown);
}

fn unknown(node: &Node) -> Client {
    Client::signing(node.address(), UNKNOWN_KEY, UNKNOWN_SECRET)
}

fn keys(number: usize) -> String {
    let key = |at| format!("<Object><Key>tmp/{at}{}</Key></Object>", "x".repeat(900));
    let keys: Vec<_> = (0..number).map(key).collect();
    format!("<Delete>{}</Delete>", keys.concat())
}

/// Returns requests of every kind that would change names below the rule, each with a name.
fn changes(client: &Client, at: usize) -> Vec<(&'static str, Call)> {
    let key = format!("/b/tmp/{at}");
    let form = "--x\r\ncontent-disposition: form-data; name=\"key\"\r\n\r\ntmp/form\r\n--x--\r\n";
    let form = |target: &str| {
        let call = client.post(target, form);
        call.header("content-type", "multipart/form-data; boundary=x")
    };
    let put = || client.put(&key, bytes(1));
    let tags = "<Tagging><TagSet/></Tagging>";
    vec![
        ("PUT", put()),
        ("PUT through", put().header("x-shoal-write", "through")),
        ("PUT around", put().header("x-shoal-write", "around")),
        ("PUT if absent", put().header("if-none-match", "*")),
        ("PUT with an ACL", put().header("x-amz-acl", "public-read")),
        ("PUT of nothing", client.put(&key, "")),
        (
            "COPY",
            client.put(&key, "").header("x-amz-copy-source", "/b/source"),
        ),
        ("DELETE", client.delete(&key)),
        ("DELETE if it is so", client.delete(&key).header("if-match", "*")),
        (
            "DELETE without versions",
            client.delete(&format!("{key}?versionId=null")),
        ),
        (
            "?acl",
            client
                .put(&format!("{key}?acl"), "")
                .header("x-amz-acl", "private"),
        ),
        ("PUT ?tagging", client.put(&format!("{key}?tagging"), tags)),
        ("DELETE ?tagging", client.delete(&format!("{key}?tagging"))),
        (
            "?restore",
            client.post(&format!("{key}?restore"), "<RestoreRequest/>"),
        ),
        ("POST form", form("/b")),
        ("POST form to a name", form(&key)),
        ("DeleteObjects", client.post("/b?delete", keys(50))),
        (
            "CreateMultipartUpload",
            client.post(&format!("{key}?uploads"), ""),
        ),
        (
            "UploadPart",
            client.put(&format!("{key}?partNumber=1&uploadId=u"), bytes(1)),
        ),
        (
            "Complete",
            client.post(&format!("{key}?uploadId=u"), "<CompleteMultipartUpload/>"),
        ),
        ("Abort", client.delete(&format!("{key}?uploadId=u"))),
        ("unknown", client.post(&format!("{key}?never-heard-of"), "")),
    ]
}

fn is_refused(reply: &Reply) -> bool {
    let is_of_keys = reply.status == StatusCode::OK && !texts(reply, "Error").is_empty();
    is_of_keys && texts(reply, "Deleted").is_empty() || reply.status.is_client_error() || reply.status == 501
}

#[tokio::test]
async fn a_request_that_the_lake_refuses_writes_nothing_to_the_registry_or_the_store() {
    let node = Node::start_with(with_unknown_identity).await;
    node.lake.put("b", "source", "text");
    for access in [Access::Read, Access::Write] {
        node.lake.deny(OTHER_KEY, access, "b");
    }
    let before = commits_after_start(&node).await;
    for client in [node.stranger(), unknown(&node), node.other()] {
        for at in 0..5 {
            for (what, call) in changes(&client, at) {
                let reply = call.send().await;
                assert!(is_refused(&reply), "{what}: {reply:?}");
                assert_eq!(commits(&node), before, "{what}");
            }
        }
    }
    until("no bytes are left", async || pieces(&node) == 0).await;
    // Permitted writes do commit, so the count is meaningful.
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    assert!(commits(&node) > before);
    node.stop().await;
}

#[tokio::test]
async fn a_thousand_keys_that_the_lake_refuses_cost_it_few_questions_and_the_registry_nothing() {
    let node = Node::start_with(back).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b");
    let before = commits_after_start(&node).await;
    for client in [node.stranger(), node.other()] {
        node.lake.forget_requests();
        let reply = client.post("/b?delete", keys(1_000)).send().await;
        assert_eq!(texts(&reply, "Error").len(), 1_000, "{}", reply.status);
        assert_eq!(commits(&node), before);
        let asked = node.lake.count(|request| request.method != Method::GET);
        assert!(asked <= 2, "{asked} questions");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_caller_who_may_remove_and_not_write_removes() {
    let node = Node::start_with(back).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b");
    node.lake.allow(OTHER_KEY, Access::Remove, "b/tmp/own");
    for key in ["tmp/own/1", "tmp/own/2", "tmp/own/3", "tmp/theirs"] {
        node.lake.put("b", key, "text");
    }
    write_back(&node.client(), "tmp/own/dirty", &bytes(1)).await;
    let other = node.other();
    // A denial for one name does not apply to another.
    let refused = other.delete("/b/tmp/theirs").send().await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    for key in ["tmp/own/1", "tmp/own/dirty"] {
        let removed = other.delete(&format!("/b/{key}")).send().await;
        assert_eq!(
            removed.status,
            StatusCode::NO_CONTENT,
            "{key}: {}",
            removed.text()
        );
        let read = node.client().get(&format!("/b/{key}")).send().await;
        assert_eq!(read.status, StatusCode::NOT_FOUND, "{key}");
    }
    let list = ["theirs", "own/2", "own/3"].map(|key| format!("<Object><Key>tmp/{key}</Key></Object>"));
    let removed = other
        .post("/b?delete", format!("<Delete>{}</Delete>", list.concat()))
        .send()
        .await;
    assert_eq!(
        (texts(&removed, "Deleted").len(), texts(&removed, "Error").len()),
        (2, 1),
        "{removed:?}"
    );
    assert!(node.lake.object("b", "tmp/theirs").is_some());
    assert_eq!(
        other.put("/b/tmp/own/1", "x").send().await.status,
        StatusCode::FORBIDDEN
    );
    node.stop().await;
}

/// Policies may permit one exact name, to which no question about another name does justice.
#[tokio::test]
async fn a_caller_who_may_remove_one_exact_name_removes_it() {
    let node = Node::start_with(back).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b");
    node.lake.allow(OTHER_KEY, Access::Remove, "b/tmp/one.txt");
    let other = node.other();
    node.lake.put("b", "tmp/one.txt", "text");
    node.lake.put("b", "tmp/theirs.txt", "text");
    let before = commits_after_start(&node).await;
    let removed = other.delete("/b/tmp/one.txt").send().await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{}", removed.text());
    assert!(node.lake.object("b", "tmp/one.txt").is_none());
    node.lake.put("b", "tmp/one.txt", "text");
    let list = ["theirs", "one"].map(|key| format!("<Object><Key>tmp/{key}.txt</Key></Object>"));
    let list = format!("<Delete>{}</Delete>", list.concat());
    let removed = other.post("/b?delete", list).send().await;
    assert_eq!(texts(&removed, "Deleted").len(), 1, "{removed:?}");
    assert!(node.lake.object("b", "tmp/one.txt").is_none());
    assert!(node.lake.object("b", "tmp/theirs.txt").is_some());
    assert_eq!(commits(&node), before, "no change was recorded");
    // While the object is dirty the lake cannot judge by its exact name, and a refused caller flushes
    // nothing.
    write_back(&node.client(), "tmp/one.txt", &bytes(1)).await;
    let refused = other.delete("/b/tmp/one.txt").send().await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text());
    reads(&node.client(), "tmp/one.txt", &bytes(1)).await;
    flush(&node, "").await;
    let removed = other.delete("/b/tmp/one.txt").send().await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{}", removed.text());
    node.stop().await;
}

#[tokio::test]
async fn a_right_that_is_given_after_a_refusal_counts_at_once() {
    let node = Node::start_with(back).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b/tmp");
    write_back(&node.client(), "tmp/dirty", &bytes(1)).await;
    let (other, stranger) = (node.other(), node.stranger());
    let before = commits_after_start(&node).await;
    for client in [&other, &stranger] {
        let refused = client.put("/b/tmp/k", bytes(2)).send().await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
    }
    assert_eq!(commits(&node), before);
    node.lake.allow(OTHER_KEY, Access::Write, "b/tmp");
    node.lake.allow(ANONYMOUS, Access::Write, "b/tmp");
    for client in [&other, &stranger] {
        let written = client.put("/b/tmp/k", bytes(2)).send().await;
        assert_eq!(written.status, StatusCode::OK, "{}", written.text());
    }
    let written = other.put("/b/tmp/dirty", bytes(3)).send().await;
    assert_eq!(written.status, StatusCode::OK, "{}", written.text());
    reads(&node.client(), "tmp/k", &bytes(2)).await;
    reads(&node.client(), "tmp/dirty", &bytes(3)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_caller_who_may_write_below_one_prefix_of_a_rule_writes_there_whatever_was_refused_elsewhere() {
    let node = Node::start_with(back).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b/tmp");
    node.lake.allow(OTHER_KEY, Access::Write, "b/tmp/own");
    let other = node.other();
    let puts = (0..20).map(|at| {
        let place = if at % 2 == 0 { "own" } else { "theirs" };
        other.put(&format!("/b/tmp/{place}/{at}"), bytes(at)).send()
    });
    for (at, reply) in join_all(puts).await.into_iter().enumerate() {
        let expected = if at % 2 == 0 {
            StatusCode::OK
        } else {
            StatusCode::FORBIDDEN
        };
        assert_eq!(reply.status, expected, "{at}: {}", reply.text());
    }
    write_back(&other, "tmp/own/k", &bytes(1)).await;
    node.lake.allow(OTHER_KEY, Access::Write, "b/tmp/theirs/new");
    write_back(&other, "tmp/theirs/new", &bytes(1)).await;
    node.stop().await;
}

#[tokio::test]
async fn requests_of_one_caller_at_the_same_time_share_a_question() {
    let node = Node::start_with(back).await;
    let is_question = |request: &Request| request.parameter("uploads").is_some();
    let gate = node.lake.hold(is_question);
    let client = node.client();
    let puts = (0..20).map(|at| tokio::spawn(client.put(&format!("/b/tmp/{at}"), bytes(at)).send()));
    let puts: Vec<_> = puts.collect();
    gate.arrived(1).await;
    gate.open();
    for put in puts {
        assert_eq!(put.await.unwrap().status, StatusCode::OK);
    }
    assert_eq!(node.lake.count(is_question), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_refusal_of_anything_ends_the_yes_that_is_remembered() {
    let node = Node::start_with(back).await;
    let is_question = |request: &Request| request.parameter("uploads").is_some();
    write_back(&node.client(), "tmp/1", &bytes(1)).await;
    write_back(&node.client(), "tmp/2", &bytes(2)).await;
    assert_eq!(node.lake.count(is_question), 1, "it is remembered");
    node.lake.deny(ACCESS_KEY, Access::Write, "b/elsewhere");
    let refused = node.client().put("/b/elsewhere", "x").send().await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    write_back(&node.client(), "tmp/3", &bytes(3)).await;
    assert_eq!(node.lake.count(is_question), 2, "the lake was asked again");
    // A flush is refused, too.
    node.lake.deny(ACCESS_KEY, Access::Write, "b/tmp");
    assert_eq!(flush(&node, "").await["flush"]["flushed"], 0);
    let refused = node.client().put("/b/tmp/4", bytes(4)).send().await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    node.lake.allow(ACCESS_KEY, Access::Write, "b/tmp");
    node.stop().await;
}

#[tokio::test]
async fn a_slow_writer_whom_the_lake_refuses_holds_no_name() {
    let node = Node::start_with(with_unknown_identity).await;
    let stranger = node.stranger();
    let mut slow = Vec::new();
    for client in [&stranger, &unknown(&node)] {
        slow.push(Slow::begin_as(&node, client, "tmp/k", bytes(9)).await);
    }
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    assert_eq!(flush(&node, "").await["flush"]["flushed"], 1, "it is not held");
    let removed = node.client().delete("/b/tmp/k").send().await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{}", removed.text());
    // The lake takes the stranger's body before it answers, and rejects the unknown account at once.
    let [strangers, unknowns] = slow.try_into().ok().expect("there are two");
    for answer in [Slow::end(strangers).await, Slow::answer(unknowns).await] {
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
    node.stop().await;
}

#[tokio::test]
async fn an_account_that_the_lake_does_not_know_is_asked_about_once_in_a_while() {
    let node = Node::start_with(with_unknown_identity).await;
    let client = unknown(&node);
    for at in 0..10 {
        let reply = client.put(&format!("/b/tmp/{at}"), bytes(at)).send().await;
        assert_eq!(
            (reply.status, reply.code()),
            (StatusCode::FORBIDDEN, "InvalidAccessKeyId")
        );
    }
    let asked = node.lake.count(|request| request.parameter("uploads").is_some());
    assert_eq!(asked, 1);
    node.stop().await;
}

#[tokio::test]
async fn the_bytes_of_a_write_come_while_the_lake_is_asked_and_go_if_it_says_no() {
    let node = Node::start_with(back).await;
    let is_question = |request: &Request| request.parameter("uploads").is_some();
    node.lake.deny(OTHER_KEY, Access::Write, "b");
    for (client, status) in [(node.other(), 403), (node.client(), 200)] {
        let gate = node.lake.hold(is_question);
        let put = tokio::spawn(client.put("/b/tmp/k", bytes(1)).send());
        gate.arrived(1).await;
        until("the store has the bytes", async || pieces(&node) > 0).await;
        let read = node.client().get("/b/tmp/k").send().await;
        assert_eq!(read.status, StatusCode::NOT_FOUND, "nobody finds them yet");
        node.lake.behave();
        gate.open();
        assert_eq!(put.await.unwrap().status, status);
        if status == 403 {
            until("the bytes are gone", async || pieces(&node) == 0).await;
        }
    }
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_write_that_goes_to_the_lake_after_all_has_all_its_bytes() {
    let node = Node::start_with(back).await;
    let is_question = |request: &Request| request.parameter("uploads").is_some();
    // Larger than what is kept while the lake is asked.
    let large = Bytes::from(vec![7; 5 << 20]);
    for (at, object) in [bytes(1), large].into_iter().enumerate() {
        let gate = Gate::new();
        let kms = Fault::new().with_header("x-amz-server-side-encryption", "aws:kms");
        node.lake.misbehave(kms.held_by(&gate).when(is_question));
        let put = tokio::spawn(node.client().put("/b/tmp/k", object.clone()).send());
        gate.arrived(1).await;
        gate.open();
        let put = put.await.unwrap();
        assert_eq!(put.status, StatusCode::OK, "{at}: {}", put.text());
        assert_ne!(put.header("x-shoal-write"), Some("back"), "{at}");
        assert!(node.lake.object("b", "tmp/k").unwrap().content.all() == object);
    }
    node.stop().await;
}

#[tokio::test]
async fn a_writer_with_a_remembered_yes_goes_on_while_the_lake_is_away() {
    let node = Node::start_with(back).await;
    write_back(&node.client(), "tmp/0", &bytes(0)).await;
    node.lake.stop().await;
    for at in 1..20 {
        write_back(&node.client(), &format!("tmp/{at}"), &bytes(at)).await;
    }
    let refused = node.stranger().put("/b/tmp/k", "x").send().await;
    assert!(refused.status.is_server_error(), "{}", refused.status);
    node.lake.resume().await;
    until("the lake has all", async || {
        flush(&node, "").await;
        node.status().await["write_back"]["objects"] == 0
    })
    .await;
    for at in 0..20 {
        let object = node.lake.object("b", format!("tmp/{at}")).unwrap();
        assert!(object.content.all() == bytes(at));
    }
    node.stop().await;
}

#[tokio::test]
async fn a_question_leaves_nothing_in_the_lake() {
    let node = Node::start_with(back).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b");
    node.lake.allow(OTHER_KEY, Access::Remove, "b");
    node.lake.allow(ANONYMOUS, Access::Write, "b/tmp/open");
    let marked = Fault::new()
        .with_header("x-amz-delete-marker", "true")
        .with_header("x-amz-version-id", "v1");
    let is_beside = |request: &Request| String::from_utf8_lossy(&request.key).contains("-shoal-");
    node.lake.misbehave(marked.when(is_beside));
    node.other().delete("/b/tmp/k.txt").send().await;
    until("the marker is removed", async || {
        node.lake
            .count(|request| is_beside(request) && request.query == "versionId=v1")
            == 1
    })
    .await;
    let begun = begin(&node.client(), "tmp/parts").await;
    assert!(begun.starts_with("shoal-"), "{begun}");
    let around = node
        .stranger()
        .put("/b/tmp/open", "x")
        .header("x-shoal-write", "around");
    assert_eq!(around.send().await.status, StatusCode::OK);
    until("no upload is left", async || node.lake.uploads() == 0).await;
    node.stop().await;
}

#[tokio::test]
async fn a_lake_that_finds_no_object_before_it_looks_at_the_caller_has_permitted_nothing() {
    let node = Node::start_with(back).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b");
    let is_of_tags = |request: &Request| request.parameter("tagging").is_some();
    node.lake.misbehave(Fault::status(404).when(is_of_tags).always());
    let before = commits_after_start(&node).await;
    for client in [node.stranger(), node.other()] {
        let reply = client.delete("/b/tmp/k?tagging").send().await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "the lake's own answer");
        assert_eq!(commits(&node), before);
    }
    node.stop().await;
}

#[tokio::test]
async fn a_folder_of_which_the_lake_makes_no_upload_is_written_at_the_lake_by_those_who_may() {
    let node = Node::start_with(back).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b");
    let is_upload_of_folder =
        |request: &Request| request.parameter("uploads").is_some() && request.key.ends_with(b"/");
    node.lake
        .misbehave(Fault::status(400).when(is_upload_of_folder).always());
    let before = commits_after_start(&node).await;
    for client in [node.stranger(), node.other()] {
        let reply = client.put("/b/tmp/folder/", "").send().await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{}", reply.text());
        assert_eq!(commits(&node), before);
    }
    let reply = node.client().put("/b/tmp/folder/", "").send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    assert!(node.lake.object("b", "tmp/folder/").is_some());
    node.stop().await;
}
