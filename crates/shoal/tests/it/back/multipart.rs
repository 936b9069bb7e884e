//! Multipart uploads whose objects are dirty when they are complete.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use md5::{Digest, Md5};
use shoal_node::config::Config;

use super::{assert_back, back, flush, reads, write_back};
use crate::chunks::Checksum;
use crate::client::{Client, Payload, Reply};
use crate::cluster::Cluster;
use crate::lake::{Content, Fault, Gate, Request, hex};
use crate::node::{BLOCK, Node};
use crate::waiting::until;

/// Slightly more than S3's minimum for a part that is not the last one, and not a multiple of a block.
const PART: u64 = (5 << 20) + 100;

/// Configures room for a few uploads.
fn roomy(config: &mut Config) {
    back(config);
    config.store.capacity_bytes = 512 << 20;
}

async fn node() -> Node {
    Node::start_with(roomy).await
}

/// Returns two large parts and a small one.
pub(super) fn parts(seed: u64) -> Vec<Bytes> {
    let sizes = [PART, PART + BLOCK, 1_000].into_iter();
    let parts = sizes
        .zip(seed..)
        .map(|(size, seed)| Content::synthetic(size, seed).all());
    parts.collect()
}

/// Returns the ETag that S3 gives to an object of these parts.
pub(super) fn etag(parts: &[Bytes]) -> String {
    let digests: Vec<u8> = parts.iter().flat_map(Md5::digest).collect();
    format!("\"{}-{}\"", hex(&Md5::digest(digests)), parts.len())
}

fn between(xml: &str, name: &str) -> String {
    let (_, rest) = xml
        .split_once(&format!("<{name}>"))
        .unwrap_or_else(|| panic!("no {name} in {xml}"));
    rest.split_once(&format!("</{name}>")).unwrap().0.into()
}

pub(super) async fn begin(client: &Client, key: &str) -> String {
    let begun = client.post(&format!("/b/{key}?uploads="), "").send().await;
    assert_eq!(begun.status, StatusCode::OK, "{}", begun.text());
    assert_eq!(
        begun.header("x-shoal-write"),
        Some("back"),
        "{:?}",
        begun.header("x-cache-reason")
    );
    between(begun.text(), "UploadId")
}

pub(super) async fn put(client: &Client, key: &str, id: &str, number: usize, part: &Bytes) -> Reply {
    let target = format!("/b/{key}?partNumber={number}&uploadId={id}");
    client.put(&target, part.clone()).send().await
}

/// Returns the XML list of parts that completes an upload, from their numbers and ETags.
pub(super) fn list(parts: impl IntoIterator<Item = (usize, String)>) -> String {
    let parts = parts.into_iter().map(|(number, etag)| {
        format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>",
            etag.replace('"', "&quot;")
        )
    });
    let parts: String = parts.collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

pub(super) async fn complete(client: &Client, key: &str, id: &str, list: &str) -> Reply {
    client
        .post(&format!("/b/{key}?uploadId={id}"), list.to_owned())
        .send()
        .await
}

/// Uploads each part through the client at the same position. Returns the input of `list`.
pub(super) async fn put_all(
    clients: impl IntoIterator<Item = &Client>,
    key: &str,
    id: &str,
    parts: &[Bytes],
) -> Vec<(usize, String)> {
    let mut listed = Vec::new();
    for ((part, client), number) in parts.iter().zip(clients).zip(1..) {
        let reply = put(client, key, id, number, part).await;
        assert_eq!(reply.status, StatusCode::OK, "part {number}: {}", reply.text());
        assert_eq!(reply.header("x-shoal-write"), Some("back"));
        listed.push((number, reply.header("etag").unwrap().to_owned()));
    }
    listed
}

/// Uploads the parts in turn through `clients`, and completes the upload.
pub(super) async fn upload(clients: &[Client], key: &str, parts: &[Bytes]) -> Reply {
    let mut turns = clients.iter().cycle();
    let id = begin(turns.next().unwrap(), key).await;
    let listed = put_all(turns.by_ref(), key, &id, parts).await;
    let reply = complete(turns.next().unwrap(), key, &id, &list(listed)).await;
    assert_back(&reply);
    reply
}

pub(super) fn is_upload(request: &Request) -> bool {
    request.parameter("uploadId").is_some() && request.method != "DELETE"
}

#[tokio::test]
async fn a_writer_that_names_the_bucket_in_the_host_is_told_its_place_in_the_same_way() {
    let node = Node::start_with(|config| {
        roomy(config);
        config.s3.domain = Some("s3.example.org".into());
    })
    .await;
    let parts = parts(1);
    let client = node.client();
    let id = begin(&client, "tmp/a%20k").await;
    let listed = put_all([&client; 3], "tmp/a%20k", &id, &parts).await;
    let target = format!("/tmp/a%20k?uploadId={id}");
    let complete = client
        .post(&target, list(listed))
        .header("host", "b.s3.example.org");
    let reply = complete.send().await;
    assert_back(&reply);
    assert_eq!(
        between(reply.text(), "Location"),
        "http://b.s3.example.org/tmp/a%20k"
    );
    node.stop().await;
}

#[tokio::test]
async fn an_object_that_came_in_parts_is_read_before_the_lake_has_it_and_is_the_same_afterwards() {
    let node = node().await;
    let parts = parts(1);
    let whole = Bytes::from(parts.concat());
    let completed = upload(&[node.client()], "tmp/k", &parts).await;
    assert_eq!(
        between(completed.text(), "ETag").replace("&quot;", "\""),
        etag(&parts)
    );
    let location = between(completed.text(), "Location");
    assert!(
        location.starts_with("http://") && location.ends_with("/b/tmp/k"),
        "{location}"
    );
    let before = reads(&node.client(), "tmp/k", &whole).await;
    assert_eq!(before.header("etag"), Some(etag(&parts).as_str()));
    assert_eq!(node.lake.count(is_upload), 0, "the lake hears of no part");
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    let object = node.lake.object("b", "tmp/k").unwrap();
    assert!(object.content.all() == whole);
    assert_eq!(object.etag, etag(&parts));
    let sizes: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
    assert_eq!(object.parts, sizes, "its parts are those that were uploaded");
    let after = reads(&node.client(), "tmp/k", &whole).await;
    assert_eq!(after.header("etag"), before.header("etag"));
    let second = node.client().get("/b/tmp/k?partNumber=2").send().await;
    assert!(second.body == parts[1]);
    node.stop().await;
}

#[tokio::test]
async fn a_lake_that_names_no_etag_of_what_it_completes_has_the_one_that_follows_from_its_parts() {
    let node = node().await;
    upload(&[node.client()], "tmp/k", &parts(1)).await;
    let xml = "<CompleteMultipartUploadResult><ETag></ETag></CompleteMultipartUploadResult>";
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{xml}", xml.len());
    let completes = |request: &Request| is_upload(request) && request.method == "POST";
    node.lake.misbehave(Fault::raw(answer).when(completes));
    let report = flush(&node, "").await;
    assert_eq!(
        (&report["outcomes"]["flushed"], &report["outcomes"]["renamed"]),
        (&1.into(), &0.into())
    );
    assert_eq!(node.lake.object("b", "tmp/k").unwrap().etag, etag(&parts(1)));
    node.stop().await;
}

#[tokio::test]
async fn the_checksum_of_an_upload_is_the_same_before_and_after_the_flush() {
    let node = node().await;
    let (parts, client) = (parts(2), node.client());
    let begun = client
        .post("/b/tmp/k?uploads", "")
        .header("x-amz-checksum-algorithm", "CRC32")
        .header("x-amz-meta-colour", "blue")
        .send()
        .await;
    let id = between(begun.text(), "UploadId");
    let mut listed = Vec::new();
    for (part, number) in parts.iter().zip(1..) {
        let target = format!("/b/tmp/k?partNumber={number}&uploadId={id}");
        let put = client.put(&target, part.clone());
        let put = put
            .payload(Payload::UnsignedTrailer(64 << 10, Checksum::Crc32))
            .send()
            .await;
        let (etag, checksum) = (put.header("etag").unwrap(), Checksum::Crc32.of(part));
        assert_eq!(put.header("x-amz-checksum-crc32"), Some(checksum.as_str()));
        listed.push(format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag><ChecksumCRC32>{checksum}</ChecksumCRC32></Part>"
        ));
    }
    let listed = listed.concat();
    let wrong = listed.replace(&Checksum::Crc32.of(&parts[0]), "AAAAAA==");
    let wrong = complete(
        &client,
        "tmp/k",
        &id,
        &format!("<CompleteMultipartUpload>{wrong}</CompleteMultipartUpload>"),
    )
    .await;
    assert_eq!(wrong.code(), "InvalidPart");
    let list = format!("<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>");
    let completed = complete(&client, "tmp/k", &id, &list).await;
    assert_eq!(completed.status, StatusCode::OK, "{}", completed.text());
    let seen = async || {
        let head = client
            .head("/b/tmp/k")
            .header("x-amz-checksum-mode", "ENABLED")
            .send()
            .await;
        [
            "etag",
            "x-amz-checksum-crc32",
            "x-amz-checksum-type",
            "x-amz-meta-colour",
        ]
        .map(|name| head.header(name).map(str::to_owned))
    };
    let before = seen().await;
    assert!(before.iter().all(Option::is_some), "{before:?}");
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    assert!(node.lake.object("b", "tmp/k").is_some());
    assert_eq!(seen().await, before);
    node.stop().await;
}

#[tokio::test]
async fn a_list_that_is_wrong_completes_nothing_and_leaves_the_upload() {
    let node = node().await;
    let (parts, client) = (parts(3), node.client());
    let id = begin(&client, "tmp/k").await;
    let mut etags = Vec::new();
    for (part, number) in [(&parts[0], 1), (&parts[2], 2), (&parts[1], 4)] {
        let reply = put(&client, "tmp/k", &id, number, part).await;
        etags.push((number, reply.header("etag").unwrap().to_owned()));
    }
    let [one, small, four] = etags.try_into().unwrap();
    let other = (4, one.1.clone());
    for (listed, code) in [
        (vec![one.clone(), small, four.clone()], "EntityTooSmall"),
        (vec![four.clone(), one.clone()], "InvalidPartOrder"),
        (vec![one.clone(), (3, one.1.clone())], "InvalidPart"),
        (vec![one.clone(), other], "InvalidPart"),
        (Vec::new(), "MalformedXML"),
    ] {
        let reply = complete(&client, "tmp/k", &id, &list(listed)).await;
        assert_eq!((reply.status, reply.code()), (StatusCode::BAD_REQUEST, code));
    }
    let missing = client.get("/b/tmp/k").send().await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    let shown = client
        .get(&format!("/b/tmp/k?uploadId={id}&max-parts=2"))
        .send()
        .await;
    let numbers: Vec<_> = shown
        .text()
        .split("<PartNumber>")
        .skip(1)
        .map(|rest| rest[..1].to_owned())
        .collect();
    assert_eq!(numbers, ["1", "2"]);
    assert_eq!(between(shown.text(), "IsTruncated"), "true");
    let chosen = complete(&client, "tmp/k", &id, &list([one, four])).await;
    assert_eq!(chosen.status, StatusCode::OK, "{}", chosen.text());
    let whole = Bytes::from([&parts[0][..], &parts[1][..]].concat());
    reads(&client, "tmp/k", &whole).await;
    node.stop().await;
}

#[tokio::test]
async fn a_part_that_is_sent_again_replaces_the_one_before() {
    let node = node().await;
    let (parts, client) = (parts(4), node.client());
    let id = begin(&client, "tmp/k").await;
    let first = put(&client, "tmp/k", &id, 1, &parts[0]).await;
    let again = put(&client, "tmp/k", &id, 1, &parts[1]).await;
    let of = |reply: &Reply| list([(1, reply.header("etag").unwrap().to_owned())]);
    let stale = complete(&client, "tmp/k", &id, &of(&first)).await;
    assert_eq!(stale.code(), "InvalidPart");
    let completed = complete(&client, "tmp/k", &id, &of(&again)).await;
    assert_eq!(completed.status, StatusCode::OK);
    reads(&client, "tmp/k", &parts[1]).await;
    let once_more = complete(&client, "tmp/k", &id, &of(&again)).await;
    assert_eq!(
        once_more.text(),
        completed.text(),
        "who has not heard the answer asks again"
    );
    let late = put(&client, "tmp/k", &id, 1, &parts[0]).await;
    assert_eq!(late.code(), "NoSuchUpload");
    node.stop().await;
}

/// Returns the number of files in which a tier's folder stores bytes.
fn pieces(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder.join("pieces")).unwrap();
    let folders = entries.map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().count());
    folders.sum()
}

#[tokio::test]
async fn an_upload_that_is_given_up_leaves_nothing() {
    let node = node().await;
    let (part, client) = (parts(5).remove(0), node.client());
    let id = begin(&client, "tmp/k").await;
    put(&client, "tmp/k", &id, 1, &part).await;
    let kept = node.status().await["write_back"].clone();
    assert_eq!(
        (&kept["uploads"]["kept"], &kept["bytes"]),
        (&1.into(), &part.len().into())
    );
    let target = format!("/b/tmp/k?uploadId={id}");
    assert_eq!(client.delete(&target).send().await.status, StatusCode::NO_CONTENT);
    let again = client.delete(&target).send().await;
    assert_eq!(
        (again.status, again.code()),
        (StatusCode::NOT_FOUND, "NoSuchUpload")
    );
    until("its bytes are gone", async || {
        node.status().await["write_back"]["bytes"] == 0
    })
    .await;
    assert_eq!(pieces(&node.lake.tier_folder()), 0);
    node.stop().await;
}

#[tokio::test]
async fn only_the_client_that_began_an_upload_continues_it() {
    let node = node().await;
    let part = parts(6).remove(0);
    let id = begin(&node.client(), "tmp/k").await;
    for client in [node.other(), node.stranger()] {
        assert_eq!(
            put(&client, "tmp/k", &id, 1, &part).await.status,
            StatusCode::FORBIDDEN
        );
        let target = format!("/b/tmp/k?uploadId={id}");
        assert_eq!(client.get(&target).send().await.status, StatusCode::FORBIDDEN);
        assert_eq!(client.delete(&target).send().await.status, StatusCode::FORBIDDEN);
    }
    let elsewhere = put(&node.client(), "tmp/other", &id, 1, &part).await;
    assert_eq!(elsewhere.code(), "NoSuchUpload", "it is of another object");
    node.stop().await;
}

#[tokio::test]
async fn a_condition_on_a_completion_is_the_lakes_to_judge() {
    let node = node().await;
    let (part, client) = (parts(7).remove(0), node.client());
    let mut replies = Vec::new();
    for _ in 0..2 {
        let id = begin(&client, "tmp/k").await;
        let etag = put(&client, "tmp/k", &id, 1, &part).await;
        let list = list([(1, etag.header("etag").unwrap().to_owned())]);
        let complete = client.post(&format!("/b/tmp/k?uploadId={id}"), list);
        replies.push(complete.header("if-none-match", "*").send().await);
    }
    let [first, second] = replies.try_into().ok().unwrap();
    assert_eq!(
        (first.status, first.header("x-cache-reason")),
        (StatusCode::OK, Some("condition"))
    );
    assert_eq!(
        second.status,
        StatusCode::PRECONDITION_FAILED,
        "{}",
        second.text()
    );
    assert!(node.lake.object("b", "tmp/k").unwrap().etag.ends_with("-1\""));
    node.stop().await;
}

#[tokio::test]
async fn an_upload_survives_a_restart() {
    let node = node().await;
    let parts = parts(8);
    let id = begin(&node.client(), "tmp/k").await;
    let listed = put_all([&node.client(); 3], "tmp/k", &id, &parts).await;
    let node = node.restart_after(|_| ()).await;
    let completed = complete(&node.client(), "tmp/k", &id, &list(listed)).await;
    assert_eq!(completed.status, StatusCode::OK, "{}", completed.text());
    let whole = Bytes::from(parts.concat());
    reads(&node.client(), "tmp/k", &whole).await;
    let node = node.restart_after(|_| ()).await;
    reads(&node.client(), "tmp/k", &whole).await;
    node.stop().await;
}

pub(super) async fn cluster(nodes: usize) -> Cluster {
    Cluster::start_with(nodes, |_, config| roomy(config)).await
}

#[tokio::test]
async fn parts_may_come_by_way_of_any_node_and_every_node_sees_the_object() {
    let cluster = cluster(3).await;
    let clients: Vec<Client> = cluster.nodes.iter().map(Node::client).collect();
    let parts = parts(9);
    let whole = Bytes::from(parts.concat());
    upload(&clients, "tmp/k", &parts).await;
    for client in &clients {
        let read = reads(client, "tmp/k", &whole).await;
        assert_eq!(read.header("etag"), Some(etag(&parts).as_str()));
        let list = client.get("/b?list-type=2&prefix=tmp/").send().await;
        assert_eq!(between(list.text(), "Key"), "tmp/k");
    }
    assert_eq!(cluster.lake.count(is_upload), 0);
    assert_eq!(flush(&cluster.nodes[1], "").await["flush"]["failed"], 0);
    assert_eq!(cluster.lake.object("b", "tmp/k").unwrap().etag, etag(&parts));
    let folder = cluster.lake.tier_folder();
    until("the tier holds no part", async || pieces(&folder) == 0).await;
    cluster.stop().await;
}

#[tokio::test]
async fn an_object_in_parts_that_is_removed_while_it_is_flushed_is_not_at_the_lake_afterwards() {
    let node = node().await;
    let parts = parts(12);
    upload(&[node.client()], "tmp/k", &parts).await;
    let gate = Gate::new();
    let is_second = |request: &Request| request.parameter("partNumber").as_deref() == Some("2");
    node.lake
        .misbehave(Fault::new().body_held_by(&gate).when(is_second));
    node.order("/flush").await;
    gate.arrived(1).await;
    let client = node.client();
    let delete = tokio::spawn(async move { client.delete("/b/tmp/k").send().await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    gate.open();
    assert_eq!(delete.await.unwrap().status, StatusCode::NO_CONTENT);
    assert!(node.lake.object("b", "tmp/k").is_none());
    assert_eq!(flush(&node, "").await["objects"], 0);
    assert!(node.lake.object("b", "tmp/k").is_none());
    node.stop().await;
}

#[tokio::test]
async fn a_flush_of_parts_that_fails_is_tried_again_from_the_start() {
    let node = node().await;
    let parts = parts(13);
    upload(&[node.client()], "tmp/k", &parts).await;
    for status in [503, 403] {
        let is_part = |request: &Request| request.parameter("partNumber").is_some();
        let fault = Fault::status(status).when(is_part).always();
        node.lake.behave();
        node.lake.misbehave(fault);
        assert_eq!(flush(&node, "").await["flush"]["failed"], 1);
        reads(&node.client(), "tmp/k", &Bytes::from(parts.concat())).await;
    }
    node.lake.behave();
    until("the lake is asked again", async || {
        node.lake.object("b", "tmp/k").is_some()
    })
    .await;
    assert_eq!(node.lake.object("b", "tmp/k").unwrap().etag, etag(&parts));
    node.stop().await;
}

#[tokio::test]
async fn a_part_may_be_copied_from_an_object_that_is_dirty_itself() {
    let node = node().await;
    let (client, source) = (node.client(), parts(14).remove(0));
    write_back(&client, "tmp/source", &source).await;
    let id = begin(&client, "tmp/k").await;
    let copy = async |number: usize, from: &str, range: &str| {
        let copy = client.put(&format!("/b/tmp/k?partNumber={number}&uploadId={id}"), "");
        let copy = copy.header("x-amz-copy-source", from);
        copy.header("x-amz-copy-source-range", range).send().await
    };
    let missing = copy(1, "/b/tmp/none", "bytes=0-9").await;
    assert_eq!(
        (missing.status, missing.code()),
        (StatusCode::NOT_FOUND, "NoSuchKey")
    );
    let beyond = copy(1, "/b/tmp/source", &format!("bytes=5-{}", source.len())).await;
    assert_eq!(
        (beyond.status, beyond.code()),
        (StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange")
    );
    let last = format!("bytes=0-{}", source.len() - 1);
    let whole = copy(1, "/b/tmp/source", &last).await;
    assert_eq!(whole.status, StatusCode::OK, "{}", whole.text());
    let few = copy(2, "b/tmp%2Fsource", "bytes=5-14").await;
    let etag = |reply: &Reply| between(reply.text(), "ETag").replace("&quot;", "\"");
    let listed = list([(1, etag(&whole)), (2, etag(&few))]);
    let completed = complete(&client, "tmp/k", &id, &listed).await;
    assert_eq!(completed.status, StatusCode::OK, "{}", completed.text());
    let expected = Bytes::from([&source[..], &source[5..15]].concat());
    reads(&client, "tmp/k", &expected).await;
    node.stop().await;
}
