//! Bytes that differ from the acknowledged ones, in the store of a tier, in transit or on a node's disk: no
//! client and no lake gets any of them.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;
use shoal_registry::engine::embedded::Embedded;
use shoal_registry::names::Names;
use shoal_registry::session::new_id;
use shoal_registry::{DirtyVersion, Name};

use super::multipart::{etag, upload};
use super::store::{BUCKET, Beside};
use super::{bytes, flush, reads, write_back};
use crate::client::Client;
use crate::cluster::Cluster;
use crate::lake::{Content, Fault, Object, Request};
use crate::node::{BLOCK, Node};
use crate::waiting::{until, value};

/// Starts two nodes with a tier in a separate store. An object that one node writes is not cached on the
/// other.
async fn two(beside: &Beside) -> Cluster {
    Cluster::start_with(2, |_, config| {
        beside.back(config);
        // Small objects are pieces, too.
        config.tiers[0].inline_bytes = 0;
        config.store.capacity_bytes = 256 << 20;
    })
    .await
}

impl Beside {
    /// Returns the pieces of `size` bytes that were written since the requests were cleared.
    fn pieces(&self, size: usize) -> Vec<String> {
        let prefix = format!("pieces/{size:x}-");
        let puts = self.store.requests().into_iter().filter(Request::is_put);
        let keys = puts.map(|put| String::from_utf8(put.key.clone()).unwrap());
        keys.filter(|key| key.starts_with(&prefix)).collect()
    }

    fn change(&self, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.store.object(BUCKET, key).unwrap().content.all().to_vec();
        change(&mut bytes);
        self.store.put(BUCKET, key, Object::new(bytes));
    }
}

fn conditions(status: &Value) -> Vec<&str> {
    let conditions = status["conditions"].as_array().unwrap();
    conditions
        .iter()
        .map(|condition| condition["condition"].as_str().unwrap())
        .collect()
}

/// Makes the node flush an object, by a read that only the lake can answer.
async fn flush_one(node: &Node, key: &str) -> StatusCode {
    let target = format!("/b/{key}?partNumber=1");
    node.client().get(&target).send().await.status
}

#[tokio::test]
async fn a_piece_with_a_flipped_bit_reaches_no_reader_and_not_the_lake_and_is_shown() {
    let beside = Beside::start().await;
    let cluster = two(&beside).await;
    let [writer, other] = [&cluster.nodes[0], &cluster.nodes[1]];
    let whole = bytes(1);
    write_back(&writer.client(), "tmp/k", &whole).await;
    beside.change(&beside.pieces(whole.len())[0], |bytes| bytes[2] ^= 1);
    for range in ["bytes=0-", "bytes=5-9", "bytes=70000-70001"] {
        let read = other.client().get("/b/tmp/k").range(range).send().await;
        assert_eq!(read.status, StatusCode::SERVICE_UNAVAILABLE, "{range}");
    }
    assert_eq!(flush_one(other, "tmp/k").await, StatusCode::SERVICE_UNAVAILABLE);
    assert!(cluster.lake.object("b", "tmp/k").is_none());
    let status = other.status().await;
    assert_eq!(conditions(&status), ["wrong-bytes"]);
    let detail = status["conditions"][0]["detail"].as_str().unwrap();
    assert!(
        detail.contains("s3://b/tmp/k has other bytes than were acknowledged"),
        "{detail}"
    );
    assert!(
        detail.contains("not those that were acknowledged; let the node"),
        "{detail}"
    );
    let trouble = &status["write_back"]["troubled"][0];
    assert_eq!(trouble["object"], "s3://b/tmp/k");
    let error = trouble["error"].as_str().unwrap();
    assert!(
        error.contains("bytes 0 to 197608 are not those that were acknowledged"),
        "{error}"
    );
    // The node that accepted the write has the bytes on its disk.
    reads(&writer.client(), "tmp/k", &whole).await;
    assert_eq!(flush(writer, "").await["flush"]["failed"], 0);
    assert!(cluster.lake.object("b", "tmp/k").unwrap().content.all() == whole);
    reads(&other.client(), "tmp/k", &whole).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_part_with_a_flipped_bit_is_not_flushed_and_is_once_its_piece_is_restored() {
    let beside = Beside::start().await;
    let cluster = two(&beside).await;
    let parts = super::multipart::parts(1);
    let whole = Bytes::from(parts.concat());
    upload(&[cluster.nodes[0].client()], "tmp/k", &parts).await;
    let piece = beside.pieces(parts[1].len()).remove(0);
    let at = parts[1].len() / 2;
    beside.change(&piece, |bytes| bytes[at] ^= 0x40);
    for node in &cluster.nodes {
        let read = node.client().get("/b/tmp/k").try_send().await;
        assert!(read.is_err() || read.unwrap().status == StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(flush_one(node, "tmp/k").await, StatusCode::SERVICE_UNAVAILABLE);
    }
    assert!(cluster.lake.object("b", "tmp/k").is_none());
    // The chunks next to the damaged one are intact.
    let first = cluster.nodes[1]
        .client()
        .get("/b/tmp/k")
        .range("bytes=0-99")
        .send()
        .await;
    assert!(first.status == StatusCode::PARTIAL_CONTENT && first.body == whole[..100]);
    beside.change(&piece, |bytes| bytes[at] ^= 0x40);
    reads(&cluster.nodes[1].client(), "tmp/k", &whole).await;
    until("it is flushed", async || {
        flush_one(&cluster.nodes[1], "tmp/k").await == StatusCode::PARTIAL_CONTENT
    })
    .await;
    let object = cluster.lake.object("b", "tmp/k").unwrap();
    assert!(object.content.all() == whole && object.etag == etag(&parts));
    cluster.stop().await;
}

#[tokio::test]
async fn a_bit_that_flips_on_its_way_is_read_again() {
    let beside = Beside::start().await;
    let cluster = two(&beside).await;
    let parts = super::multipart::parts(2);
    let whole = Bytes::from(parts.concat());
    upload(&[cluster.nodes[0].client()], "tmp/k", &parts).await;
    beside
        .store
        .misbehave(Fault::new().damaged().when(Request::is_get).times(1));
    reads(&cluster.nodes[1].client(), "tmp/k", &whole).await;
    beside
        .store
        .misbehave(Fault::new().damaged().when(Request::is_get).times(1));
    assert_eq!(
        flush_one(&cluster.nodes[0], "tmp/k").await,
        StatusCode::PARTIAL_CONTENT
    );
    assert!(cluster.lake.object("b", "tmp/k").unwrap().content.all() == whole);
    assert!(conditions(&cluster.nodes[0].status().await).is_empty());
    cluster.stop().await;
}

#[tokio::test]
async fn a_piece_that_its_store_names_by_another_md5_is_not_copied_within_the_tier() {
    let beside = Beside::start().await;
    let cluster = two(&beside).await;
    let whole = bytes(1);
    write_back(&cluster.nodes[0].client(), "tmp/k", &whole).await;
    beside.change(&beside.pieces(whole.len())[0], |bytes| bytes[2] ^= 1);
    let copy = async |node: usize| {
        let copy = cluster.nodes[node].client().put("/b/tmp/copy", "");
        copy.header("x-amz-copy-source", "/b/tmp/k").send().await
    };
    assert_eq!(copy(1).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(cluster.lake.object("b", "tmp/copy").is_none());
    // The node that accepted the write flushes the source, and the lake copies it.
    let copied = copy(0).await;
    assert_eq!(
        (copied.status, copied.header("x-shoal-write")),
        (StatusCode::OK, Some("around"))
    );
    for key in ["tmp/k", "tmp/copy"] {
        assert!(cluster.lake.object("b", key).unwrap().content.all() == whole);
    }
    cluster.stop().await;
}

#[tokio::test]
async fn the_parts_of_an_object_are_read_once_for_their_flush() {
    let beside = Beside::start().await;
    let cluster = Cluster::start_with(2, |_, config| {
        beside.back(config);
        // Smaller blocks share chunks, which are read for each block.
        config.store.block_bytes = 1 << 20;
        config.store.capacity_bytes = 256 << 20;
        config.limits.fill_bytes = 64 << 20;
    })
    .await;
    let parts = super::multipart::parts(3);
    upload(&[cluster.nodes[0].client()], "tmp/k", &parts).await;
    beside.store.forget_requests();
    assert_eq!(
        flush_one(&cluster.nodes[1], "tmp/k").await,
        StatusCode::PARTIAL_CONTENT
    );
    let total: usize = parts.iter().map(Bytes::len).sum();
    let read = beside.store.body_bytes_sent() as usize;
    assert!(read < total + total / 2, "{read} of {total}");
    assert_eq!(cluster.lake.object("b", "tmp/k").unwrap().etag, etag(&parts));
    cluster.stop().await;
}

#[tokio::test]
async fn a_lake_that_says_it_got_other_bytes_does_not_have_the_object() {
    let node = Node::start_with(super::back).await;
    let other = "\"0123456789abcdef0123456789abcdef\"";
    let is_put = |request: &Request| request.is_put() && request.parameter("partNumber").is_none();
    let is_part = |request: &Request| request.parameter("partNumber").as_deref() == Some("2");
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    let parts = [&Content::synthetic(5 << 20, 1).all(), &bytes(2)].map(Bytes::clone);
    upload(&[node.client()], "tmp/parts", &parts).await;
    node.lake
        .misbehave(Fault::new().with_header("etag", other).when(is_put));
    node.lake
        .misbehave(Fault::new().with_header("etag", other).when(is_part));
    let report = flush(&node, "").await;
    assert_eq!(
        (&report["flush"]["failed"], &report["outcomes"]["renamed"]),
        (&2.into(), &0.into())
    );
    assert!(
        node.lake.object("b", "tmp/parts").is_none(),
        "it was not completed"
    );
    let error = report["troubled"][0]["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("got other bytes than were acknowledged"),
        "{error}"
    );
    assert_eq!(conditions(&node.status().await), ["wrong-bytes"]);
    until("both are flushed", async || {
        node.status().await["write_back"]["objects"] == 0
    })
    .await;
    assert!(node.lake.object("b", "tmp/k").unwrap().content.all() == bytes(1));
    assert_eq!(node.lake.object("b", "tmp/parts").unwrap().etag, etag(&parts));
    assert!(conditions(&node.status().await).is_empty());
    node.stop().await;
}

#[tokio::test]
async fn a_lake_that_finds_another_digest_is_sent_the_object_again() {
    let node = Node::start_with(super::back).await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    let xml = "<Error><Code>BadDigest</Code><Message>m</Message></Error>";
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\n\r\n{xml}",
        xml.len()
    );
    node.lake.misbehave(Fault::raw(answer).when(Request::is_put));
    let report = flush(&node, "").await;
    assert_eq!(report["flush"]["failed"], 1);
    let error = report["troubled"][0]["error"].as_str().unwrap();
    assert!(error.contains("it answered BadDigest"), "{error}");
    assert_eq!(conditions(&node.status().await), ["wrong-bytes"]);
    until("it is flushed", async || node.lake.object("b", "tmp/k").is_some()).await;
    node.stop().await;
}

#[tokio::test]
async fn a_lake_whose_etags_are_no_md5s_names_what_it_has() {
    let node = Node::start_with(super::back).await;
    // An ETag that has the form of an MD5 but never is one.
    let name = "\"0123456789abcdef0123456789abcdef\"";
    node.lake.misbehave(
        Fault::new()
            .with_header("etag", name)
            .when(|request| request.method == "PUT")
            .always(),
    );
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    let report = flush(&node, "").await;
    assert_eq!(
        (&report["flush"]["failed"], &report["outcomes"]["flushed"]),
        (&0.into(), &1.into()),
        "{report}"
    );
    assert_eq!(report["outcomes"]["renamed"], 1);
    assert_eq!(
        node.lake.uploads(),
        0,
        "what showed how it names bytes is aborted"
    );
    node.stop().await;
}

#[tokio::test]
async fn an_object_whose_record_another_build_wrote_is_not_taken_for_absent_and_not_lost() {
    let beside = Beside::start().await;
    let node = Node::start_with(|config| beside.back(config)).await;
    for number in 1..=2 {
        write_back(&node.client(), &format!("tmp/{number}"), &bytes(number)).await;
    }
    let stopped = node.halt().await;
    // The node may still have it open.
    let open = async || Embedded::open(beside.registry.path());
    let engine = value("the registry is free", open, Result::is_ok).await.unwrap();
    // A separate node, whose trash list nobody processes.
    let names = Names::new(Arc::new(engine), 99, Duration::from_hours(1));
    let name = Name::new("b", b"tmp/1");
    let written = names.find(&name).await.unwrap().entry.current.unwrap();
    // Earlier builds began a record with the length of an access key.
    let record = [&20_u32.to_le_bytes(), &written.record[1..]].concat().into();
    let id = new_id();
    let of_other = DirtyVersion {
        id,
        record,
        ..written
    };
    names.write(&name, of_other.clone()).await.unwrap();
    drop(names);
    let node = stopped.start().await;
    let client = node.client();
    assert_eq!(
        client.get("/b/tmp/1").send().await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(
        client.delete("/b/tmp/1").send().await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
    let list = client.get("/b?list-type=2&prefix=tmp/").send().await;
    assert_eq!(list.status, StatusCode::SERVICE_UNAVAILABLE);
    let around = client.put("/b/tmp/1", bytes(9)).header("x-shoal-write", "around");
    assert_eq!(around.send().await.status, StatusCode::SERVICE_UNAVAILABLE);
    reads(&client, "tmp/2", &bytes(2)).await;
    assert_eq!(flush_one(&node, "tmp/2").await, StatusCode::PARTIAL_CONTENT);
    assert!(node.lake.object("b", "tmp/1").is_none());
    let stopped = node.halt().await;
    let engine = value("the registry is free", open, Result::is_ok).await.unwrap();
    let names = Names::new(Arc::new(engine), 99, Duration::from_hours(1));
    assert_eq!(names.find(&name).await.unwrap().entry.current, Some(of_other));
    drop((names, stopped));
}

/// Returns the files of blocks on a node's disk.
pub(crate) fn block_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| {
        if path.is_dir() {
            block_files(&path)
        } else {
            vec![path]
        }
    };
    let files = entries.flat_map(below);
    files
        .filter(|path| path.metadata().unwrap().len() > 1_000)
        .collect()
}

pub(crate) fn flip(file: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[tokio::test]
async fn a_bit_that_flips_on_the_disk_of_a_node_does_not_reach_the_lake() {
    let node = Node::start_with(super::back).await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    node.settle().await;
    let files = block_files(node.store_path());
    assert!(files.len() >= 4, "{files:?}");
    // The blocks are memory-mapped, so changing the file changes the node's memory.
    for file in &files {
        flip(file, 100);
    }
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    assert!(node.lake.object("b", "tmp/k").unwrap().content.all() == bytes(1));
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    let node = node
        .restart_after(|folder| block_files(folder).iter().for_each(|file| flip(file, 200)))
        .await;
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    node.stop().await;
}

/// A seeded random generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Damages a piece. Returns true if the damage happens in transit from the store.
fn damage(beside: &Beside, piece: &str, chance: &mut Chance) -> bool {
    let kind = chance.below(6);
    if kind == 0 {
        let (key, is_get) = (piece.to_owned(), Request::is_get);
        let of_piece = move |request: &Request| is_get(request) && request.key == key.as_bytes();
        beside
            .store
            .misbehave(Fault::new().damaged().when(of_piece).always());
        return true;
    }
    beside.change(piece, |bytes| {
        let at = chance.below(bytes.len());
        match kind {
            1 | 2 => bytes[at] ^= 1 << chance.below(8),
            3 => bytes.truncate(at),
            4 => bytes[at..].iter_mut().for_each(|byte| *byte = !*byte),
            // Another piece of the same length.
            _ => *bytes = Content::synthetic(bytes.len() as u64, 1 << 40).all().to_vec(),
        }
    });
    false
}

/// Reads a range. Returns true if the response was complete. Fails if a response has wrong bytes.
async fn read_of(client: &Client, key: &str, whole: &Bytes, range: Option<(usize, usize)>) -> bool {
    let mut get = client.get(&format!("/b/{key}"));
    if let Some((start, end)) = range {
        get = get.range(&format!("bytes={start}-{}", end - 1));
    }
    let (start, end) = range.unwrap_or((0, whole.len()));
    // A response that breaks off does not count.
    let Ok(reply) = get.try_send().await else {
        return false;
    };
    if reply.status.is_success() {
        assert!(
            reply.body == whole[start..end],
            "{key}: {range:?} has wrong bytes"
        );
        return true;
    }
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{key}");
    false
}

/// Objects of one piece and of one or two parts, and copies of them, read and flushed by a node that has none
/// of their blocks cached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_damaged_pieces_no_wrong_byte_reaches_a_client_or_the_lake() {
    let beside = Beside::start().await;
    let cluster = two(&beside).await;
    let [writer, other] = [0, 1].map(|node| cluster.nodes[node].client());
    let (mut chance, mut is_mended) = (Chance(0x5ead), 0);
    for round in 0..1_000 {
        let mut key = format!("tmp/{round}");
        let size = 1 + chance.below(if round % 10 == 0 { 12 } else { 2 } * BLOCK as usize);
        let last = Content::synthetic(size as u64, round).all();
        beside.store.forget_requests();
        let in_parts = chance.below(2) == 1;
        let whole = if round % 200 == 0 {
            let first = Content::synthetic(5 << 20, round).all();
            upload(
                std::slice::from_ref(&writer),
                &key,
                &[first.clone(), last.clone()],
            )
            .await;
            Bytes::from([first, last].concat())
        } else if in_parts {
            upload(std::slice::from_ref(&writer), &key, std::slice::from_ref(&last)).await;
            last
        } else {
            write_back(&writer, &key, &last).await;
            last
        };
        if chance.below(8) == 0 {
            let copy = writer.put(&format!("/b/{key}-copy"), "");
            let copied = copy.header("x-amz-copy-source", format!("/b/{key}")).send().await;
            assert_eq!(copied.status, StatusCode::OK, "{}", copied.text());
            key += "-copy";
        }
        let piece = beside.pieces(size).pop().unwrap();
        let right = beside.store.object(BUCKET, &piece).unwrap();
        damage(&beside, &piece, &mut chance);
        let start = chance.below(whole.len());
        let end = start + 1 + chance.below(whole.len() - start);
        read_of(&other, &key, &whole, Some((start, end))).await;
        assert!(!read_of(&other, &key, &whole, None).await, "{key}");
        assert_eq!(
            flush_one(&cluster.nodes[1], &key).await,
            StatusCode::SERVICE_UNAVAILABLE,
            "{key}"
        );
        assert!(cluster.lake.object("b", &key).is_none(), "{key}");
        beside.store.behave();
        if round % 20 == 0 {
            beside.store.put(BUCKET, &piece, right);
            assert!(read_of(&other, &key, &whole, None).await, "{key}");
            flush_one(&cluster.nodes[1], &key).await;
            let at_lake = cluster.lake.object("b", &key);
            assert!(
                at_lake.is_some_and(|object| object.content.all() == whole),
                "{key}"
            );
            assert!(read_of(&other, &key, &whole, None).await, "{key}");
            is_mended += 1;
        } else {
            let gone = writer.delete(&format!("/b/{key}")).send().await;
            assert_eq!(gone.status, StatusCode::NO_CONTENT, "{key}");
        }
    }
    assert_eq!(is_mended, 50);
    cluster.stop().await;
}
