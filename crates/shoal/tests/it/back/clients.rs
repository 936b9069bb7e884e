//! Requests in the forms that clients send and lakes accept: encodings, conditions, parameters and checksums.
//! The expected response is that of the lake after a flush.

use bytes::Bytes;
use http::{Method, StatusCode};
use shoal_node::config::FreshnessMode;

use super::multipart::{begin, list, put_all};
use super::{back, bytes, flush, reads, texts, write_back};
use crate::chunks::Checksum;
use crate::client::{Call, Client, Payload, Reply};
use crate::lake::{ACCESS_KEY, Fault, Request, SECRET_KEY};
use crate::node::Node;

/// The header that Go's HTTP client sends with every request.
fn of_go(call: Call) -> Call {
    call.header("accept-encoding", "gzip")
}

fn deletion(keys: impl IntoIterator<Item = String>) -> String {
    let keys = keys
        .into_iter()
        .map(|key| format!("<Object><Key>{key}</Key></Object>"));
    format!("<Delete>{}</Delete>", keys.collect::<String>())
}

#[tokio::test]
async fn every_answer_that_the_node_reads_is_asked_for_without_an_encoding() {
    let node = Node::start_with(back).await;
    node.lake.encode();
    let client = node.client();
    let names = || (0..40).map(|number| format!("tmp/{number}"));
    for name in names() {
        let put = of_go(client.put(&format!("/b/{name}"), bytes(1))).send().await;
        assert_eq!(put.header("x-shoal-write"), Some("back"), "{}", put.text());
    }
    node.lake.put("b", "tmp/at the lake", "bytes");
    let listed = of_go(client.get("/b?list-type=2&prefix=tmp/")).send().await;
    assert_eq!(texts(&listed, "Key").len(), 41, "{listed:?}");
    let removed = of_go(client.post("/b?delete", deletion(names()))).send().await;
    assert_eq!(removed.status, StatusCode::OK, "{removed:?}");
    assert_eq!(texts(&removed, "Deleted").len(), 40);

    let id = begin(&client, "tmp/parts").await;
    let uploads = of_go(client.get("/b?uploads")).send().await;
    assert_eq!(texts(&uploads, "UploadId"), [&*id]);
    let parts = put_all([&client], "tmp/parts", &id, &[bytes(2)]).await;
    let call = client.post(&format!("/b/tmp/parts?uploadId={id}"), list(parts));
    let completed = of_go(call).header("if-none-match", "*").send().await;
    assert_eq!(completed.status, StatusCode::OK, "{completed:?}");
    assert_eq!(completed.header("x-cache-reason"), Some("condition"));

    let copy = of_go(client.put("/b/tmp/copy", ""));
    let copied = copy.header("x-amz-copy-source", "/b/tmp/parts").send().await;
    assert_eq!(texts(&copied, "ETag").len(), 1, "{copied:?}");
    let head = of_go(client.head("/b/tmp/copy")).send().await;
    assert_eq!(
        (head.status, head.header("content-encoding")),
        (StatusCode::OK, None)
    );
    write_back(&client, "tmp/late", &bytes(3)).await;
    flush(&node, "").await;
    reads(&client, "tmp/late", &bytes(3)).await;

    for request in node.lake.requests() {
        assert_eq!(request.header("accept-encoding"), Some("identity"), "{request:?}");
    }
    node.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_passed_on_unread_has_the_encoding_that_the_client_wants() {
    let node = Node::start_with(back).await;
    node.lake.put("b", "k", "bytes");
    node.lake.encode();
    for (accepted, encoding) in [("gzip", Some("gzip")), ("identity", None)] {
        let call = node.client().get("/b?list-type=2");
        let listed = call.header("accept-encoding", accepted).send().await;
        assert_eq!(listed.header("content-encoding"), encoding);
        assert_eq!(node.lake.last_request().header("accept-encoding"), Some(accepted));
    }
    node.stop().await;
}

/// Uploads two parts as `minio-go` does from a pipe, with a composite checksum.
async fn upload_with_checksums(node: &Node, key: &str) -> (String, String, String) {
    let parts = [Bytes::from(vec![7; 5 << 20]), bytes(1)];
    let begun = node.client().post(&format!("/b/{key}?uploads="), "");
    let begun = begun.header("x-amz-checksum-algorithm", "CRC32C").send().await;
    let id = texts(&begun, "UploadId").remove(0);
    let (mut listed, mut digests) = (String::new(), Vec::new());
    for (number, part) in (1..).zip(&parts) {
        let checksum = Checksum::Crc32c.of(part);
        let target = format!("/b/{key}?partNumber={number}&uploadId={id}");
        let put = node.client().put(&target, part.clone());
        let put = put.header("x-amz-checksum-crc32c", &checksum).send().await;
        let etag = put.header("etag").unwrap();
        listed.extend([format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag><ChecksumCRC32C>{checksum}</ChecksumCRC32C></Part>"
        )]);
        digests.extend(base64(&checksum));
    }
    let list = format!("<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>");
    (id, list, Checksum::Crc32c.of(&digests))
}

fn base64(text: &str) -> Vec<u8> {
    use base64::Engine as _;

    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

#[tokio::test]
async fn a_completion_names_the_checksum_of_checksums_with_the_number_of_parts_or_without() {
    let node = Node::start_with(back).await;
    for behind in ["", "-2", "-3"] {
        let key = format!("tmp/parts{behind}");
        let (id, list, checksum) = upload_with_checksums(&node, &key).await;
        let call = node.client().post(&format!("/b/{key}?uploadId={id}"), list);
        let named = format!("{checksum}{behind}");
        let completed = call.header("x-amz-checksum-crc32c", named).send().await;
        if behind == "-3" {
            assert_eq!(completed.code(), "BadDigest");
            continue;
        }
        assert_eq!(completed.status, StatusCode::OK, "{behind}: {}", completed.text());
        assert_eq!(texts(&completed, "ChecksumCRC32C"), [format!("{checksum}-2")]);
    }
    node.stop().await;
}

#[tokio::test]
async fn the_type_of_a_checksum_stands_beside_it_before_the_flush_as_after() {
    let node = Node::start_with(back).await;
    let call = node.client().put("/b/tmp/k", bytes(1));
    let put = call
        .payload(Payload::UnsignedTrailer(8192, Checksum::Crc32))
        .send()
        .await;
    assert_eq!(put.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
    let head = node
        .client()
        .head("/b/tmp/k")
        .header("x-amz-checksum-mode", "ENABLED");
    let head = head.send().await;
    assert!(head.header("x-amz-checksum-crc32").is_some());
    assert_eq!(head.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
    write_back(&node.client(), "tmp/plain", &bytes(1)).await;
    let head = node
        .client()
        .head("/b/tmp/plain")
        .header("x-amz-checksum-mode", "ENABLED");
    assert_eq!(head.send().await.header("x-amz-checksum-type"), None);
    node.stop().await;
}

#[tokio::test]
async fn a_listing_tells_the_time_of_a_dirty_object_as_precisely_as_its_lake() {
    let node = Node::start_with(back).await;
    write_back(&node.client(), "tmp/dirty", &bytes(1)).await;
    let listed = async || {
        let listed = node.client().get("/b?list-type=2&prefix=tmp/").send().await;
        let entries = texts(&listed, "Contents").into_iter();
        let mut dirty = entries.filter(|entry| entry.contains("tmp/dirty"));
        let entry = dirty.next().unwrap();
        let (_, time) = entry.split_once("<LastModified>").unwrap();
        time.split('<').next().unwrap().to_owned()
    };
    let alone = listed().await;
    let seconds = alone.split('.').next().unwrap().to_owned();
    let head = node.client().head("/b/tmp/dirty").send().await;
    let told = httpdate::parse_http_date(head.header("last-modified").unwrap()).unwrap();
    assert_eq!(shoal_s3::time::rfc3339(told), format!("{seconds}.000Z"));
    for (of_lake, expected) in [
        ("2026-11-26T14:34:24Z", format!("{seconds}Z")),
        ("2026-11-26T14:34:24.000Z", format!("{seconds}.000Z")),
        ("2026-11-26T14:34:24.839Z", alone.clone()),
    ] {
        let document = format!(
            "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>tmp/a</Key>\
             <LastModified>{of_lake}</LastModified></Contents></ListBucketResult>"
        );
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/xml\r\ncontent-length: {}\r\n\r\n{document}",
            document.len()
        );
        node.lake
            .misbehave(Fault::raw(answer).when(|request| request.parameter("list-type").is_some()));
        assert_eq!(listed().await, expected);
    }
    node.stop().await;
}

/// Reads that lakes answer differently.
const ODD: [(&str, &str, &str); 13] = [
    ("", "if-match", ""),
    ("", "if-none-match", ""),
    ("", "if-modified-since", ""),
    ("", "if-unmodified-since", "yesterday"),
    ("", "if-match", "\"\""),
    ("", "if-match", "*"),
    ("", "if-match", "\"other\", ETAG"),
    ("", "if-match", "ETAG, \"other\""),
    ("", "if-none-match", "\"other\", ETAG"),
    ("", "if-none-match", "W/ETAG"),
    ("?response-content-type=", "accept", "*/*"),
    ("?response-expires", "accept", "*/*"),
    ("?response-cache-control=", "accept", "*/*"),
];

async fn ask(
    client: &Client,
    method: &Method,
    key: &str,
    (query, name, value): (&str, &'static str, &str),
    etag: &str,
) -> Reply {
    let call = client.call(method.clone(), &format!("/b/{key}{query}"));
    call.header(name, value.replace("ETAG", etag)).send().await
}

#[tokio::test]
async fn a_read_that_lakes_answer_in_different_ways_gets_the_lakes_answer_from_a_cold_and_a_warm_cache() {
    let node = Node::start_with(|config| {
        back(config);
        config.freshness.default = FreshnessMode::Immutable;
    })
    .await;
    let lake = Client::signing(node.lake.address(), ACCESS_KEY, SECRET_KEY);
    let etag = node.lake.put("b", "k", bytes(1));
    for (number, odd) in ODD.into_iter().enumerate() {
        for method in [Method::GET, Method::HEAD] {
            let dirty = format!("tmp/{method}{number}");
            write_back(&node.client(), &dirty, &bytes(1)).await;
            for (turn, key) in [("cold", "k"), ("dirty", &*dirty), ("warm", "k")] {
                if turn == "warm" {
                    reads(&node.client(), "k", &bytes(1)).await;
                    node.settle().await;
                }
                let told = ask(&node.client(), &method, key, odd, &etag).await;
                let expected = ask(&lake, &method, key, odd, &etag).await;
                assert_eq!(told.status, expected.status, "{turn} {method} {odd:?}");
                assert_eq!(told.body, expected.body, "{turn} {method} {odd:?}");
                for name in [
                    "content-type",
                    "expires",
                    "cache-control",
                    "etag",
                    "content-length",
                ] {
                    assert_eq!(
                        told.header(name),
                        expected.header(name),
                        "{turn} {method} {odd:?}"
                    );
                }
            }
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn an_empty_condition_of_a_removal_is_none() {
    let node = Node::start_with(back).await;
    for name in [
        "if-match",
        "x-amz-if-match-size",
        "x-amz-if-match-last-modified-time",
    ] {
        write_back(&node.client(), "tmp/k", &bytes(1)).await;
        let removed = node.client().delete("/b/tmp/k").header(name, "").send().await;
        assert_eq!(
            removed.status,
            StatusCode::NO_CONTENT,
            "{name}: {}",
            removed.text()
        );
        let read = node.client().get("/b/tmp/k").send().await;
        assert_eq!(read.status, StatusCode::NOT_FOUND, "{name}");
    }
    assert_eq!(node.lake.count(Request::is_put), 0, "it needs no flush");
    node.stop().await;
}
