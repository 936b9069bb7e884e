//! Conditions of removals and completions, and the version `null` in a bucket without versions.

use http::StatusCode;

use super::multipart::{begin, complete, list, put};
use super::{back, bytes, flush, reads, texts, write_back};
use crate::lake::{Access, Request};
use crate::node::{Node, OTHER_KEY};

const LONG_AGO: &str = "Thu, 01 Jan 2015 00:00:00 GMT";

async fn written(node: &Node, key: &str) -> (String, String) {
    let reply = write_back(&node.client(), key, &bytes(1)).await;
    let head = node.client().head(&format!("/b/{key}")).send().await;
    let modified = head.header("last-modified").unwrap().to_owned();
    (reply.header("etag").unwrap().to_owned(), modified)
}

#[tokio::test]
async fn a_dirty_object_is_removed_only_if_it_is_what_the_client_believes() {
    let node = Node::start_with(back).await;
    let size = bytes(1).len().to_string();
    for (name, wrong) in [
        ("if-match", "\"wrong\""),
        ("if-match", "\"\""),
        ("x-amz-if-match-size", "9999"),
        ("x-amz-if-match-last-modified-time", LONG_AGO),
    ] {
        let (etag, modified) = written(&node, "tmp/k").await;
        let right = match (name, wrong) {
            ("if-match", "\"\"") => "*",
            ("if-match", _) => &*etag,
            ("x-amz-if-match-size", _) => &*size,
            _ => &*modified,
        };
        let delete = |value| node.client().delete("/b/tmp/k").header(name, value).send();
        let refused = delete(wrong).await;
        assert_eq!(
            (refused.status, refused.code()),
            (StatusCode::PRECONDITION_FAILED, "PreconditionFailed"),
            "{name}"
        );
        reads(&node.client(), "tmp/k", &bytes(1)).await;
        assert!(
            node.lake.object("b", "tmp/k").is_none(),
            "{name}: a no costs no flush"
        );
        let deleted = delete(right).await;
        assert_eq!(
            deleted.status,
            StatusCode::NO_CONTENT,
            "{name}: {}",
            deleted.text()
        );
        let read = node.client().get("/b/tmp/k").send().await;
        assert_eq!(read.status, StatusCode::NOT_FOUND);
        assert!(node.lake.object("b", "tmp/k").is_none(), "{name}");
    }
    flush(&node, "").await;
    assert!(node.lake.object("b", "tmp/k").is_none());
    let odd = node
        .client()
        .delete("/b/tmp/k")
        .header("x-amz-if-match-size", "many");
    assert_eq!(
        odd.send().await.status,
        StatusCode::NO_CONTENT,
        "what is not dirty is the lake's"
    );
    node.stop().await;
}

#[tokio::test]
async fn of_many_objects_each_is_removed_only_if_it_is_what_the_client_believes() {
    let node = Node::start_with(back).await;
    for key in ["tmp/a", "tmp/b", "tmp/c", "tmp/d", "tmp/e"] {
        written(&node, key).await;
    }
    let (etag, _) = written(&node, "tmp/f").await;
    let body = format!(
        "<Delete><Object><Key>tmp/a</Key><ETag>\"wrong\"</ETag></Object><Object><Key>tmp/b</Key><Size>9999</Size></Object>\
         <Object><Key>tmp/c</Key><LastModifiedTime>{LONG_AGO}</LastModifiedTime></Object>\
         <Object><Key>tmp/d</Key><Size>many</Size></Object>\
         <Object><Key>tmp/e</Key></Object><Object><Key>tmp/f</Key><ETag>{}</ETag></Object></Delete>",
        etag.replace('"', "&quot;")
    );
    let reply = node.client().post("/b?delete", body).send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    let of = |element: &str, name: &str| -> Vec<String> {
        let all = texts(&reply, element).into_iter();
        all.map(|text| {
            text.split(&format!("{name}>"))
                .nth(1)
                .unwrap()
                .trim_end_matches("</")
                .to_owned()
        })
        .collect()
    };
    assert_eq!(of("Deleted", "Key"), ["tmp/e", "tmp/f"]);
    assert_eq!(of("Error", "Key"), ["tmp/a", "tmp/b", "tmp/c", "tmp/d"]);
    let failed = "PreconditionFailed";
    assert_eq!(of("Error", "Code"), [failed, failed, failed, "InvalidArgument"]);
    flush(&node, "").await;
    let list = node.client().get("/b?list-type=2").send().await;
    assert_eq!(texts(&list, "Key"), ["tmp/a", "tmp/b", "tmp/c", "tmp/d"]);
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_may_not_read_an_object_learns_nothing_by_conditions() {
    let node = Node::start_with(back).await;
    let (etag, _) = written(&node, "tmp/k").await;
    node.lake.deny(OTHER_KEY, Access::Read, "b");
    for tag in [&*etag, "\"other\""] {
        let delete = node
            .other()
            .delete("/b/tmp/k")
            .header("if-match", tag)
            .send()
            .await;
        assert_eq!(
            (delete.status, delete.code()),
            (StatusCode::FORBIDDEN, "AccessDenied")
        );
        let body = format!("<Delete><Object><Key>tmp/k</Key><ETag>{tag}</ETag></Object></Delete>");
        let many = node.other().post("/b?delete", body).send().await;
        assert!(
            many.text().contains("<Code>AccessDenied</Code>"),
            "{}",
            many.text()
        );
    }
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    assert!(node.lake.object("b", "tmp/k").is_none());
    node.stop().await;
}

#[tokio::test]
async fn the_null_version_is_the_dirty_object() {
    let node = Node::start_with(back).await;
    let target = "/b/tmp/k?versionId=null";
    written(&node, "tmp/k").await;
    let read = node.client().get(target).send().await;
    assert_eq!(read.status, StatusCode::OK, "{}", read.code());
    assert!(read.body == bytes(1));
    assert_eq!(node.client().head(target).send().await.status, StatusCode::OK);
    assert!(node.lake.object("b", "tmp/k").is_none(), "read where it is");
    assert_eq!(
        node.client().delete(target).send().await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        node.client().get(target).send().await.status,
        StatusCode::NOT_FOUND
    );
    flush(&node, "").await;
    assert!(node.lake.object("b", "tmp/k").is_none());
    written(&node, "tmp/k").await;
    let copy = node.client().put("/b/copy", "");
    let copied = copy
        .header("x-amz-copy-source", "/b/tmp/k?versionId=null")
        .send()
        .await;
    assert_eq!(copied.status, StatusCode::OK, "{}", copied.text());
    reads(&node.client(), "copy", &bytes(1)).await;
    let other = node.client().delete("/b/tmp/k?versionId=other").send().await;
    assert_eq!(other.status, StatusCode::NO_CONTENT);
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_completion_that_is_to_overwrite_nothing_hears_what_the_lake_says() {
    let node = Node::start_with(back).await;
    let client = node.client();
    let part = bytes(1);
    let completed = async |key: &str, etag: &'static str| {
        let id = begin(&client, key).await;
        let reply = put(&client, key, &id, 1, &part).await;
        let list = list([(1, reply.header("etag").unwrap().to_owned())]);
        let call = client.post(&format!("/b/{key}?uploadId={id}"), list.clone());
        let refused = call.header("if-match", etag).send().await;
        assert_eq!(
            complete(&client, key, &id, &list).await.status,
            StatusCode::OK,
            "the upload stays"
        );
        (refused.status, refused.code().to_owned())
    };
    let absent = (StatusCode::NOT_FOUND, "NoSuchKey".to_owned());
    assert_eq!(completed("tmp/absent", "\"e\"").await, absent);
    node.lake.put("b", "tmp/there", "bytes");
    let other = (StatusCode::PRECONDITION_FAILED, "PreconditionFailed".to_owned());
    assert_eq!(completed("tmp/there", "\"e\"").await, other);
    assert_eq!(node.lake.count(|request: &Request| request.is_put()), 0);
    node.stop().await;
}
