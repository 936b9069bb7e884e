//! HEAD of a part of a dirty object returns the head of a GET of that part.

use http::{HeaderMap, StatusCode};
use shoal_node::config::FreshnessMode;

use super::{back, bytes, flush, write_back};
use crate::chunks::Checksum;
use crate::client::{Call, Client, Payload, Reply};
use crate::lake::{ACCESS_KEY, Access, Request, SECRET_KEY};
use crate::node::{BLOCK, Node, OTHER_KEY};

type Headers = [(&'static str, &'static str)];

const SIZE: u64 = 3 * BLOCK + 1_000;

/// Headers that differ between two responses about the same object.
const VOLATILE: [&str; 9] = [
    "x-amz-request-id",
    "x-amz-id-2",
    "x-cache",
    "x-cache-reason",
    "server-timing",
    "connection",
    "keep-alive",
    "date",
    "last-modified",
];

fn is_object(request: &Request) -> bool {
    request.key.starts_with(b"tmp/") && request.query.is_empty()
}

/// Returns the status, and the headers that describe the object. The response to a HEAD has neither the type
/// nor the length of an error document.
fn seen(reply: &Reply) -> (StatusCode, HeaderMap) {
    let mut headers = reply.headers.clone();
    for name in VOLATILE {
        headers.remove(name);
    }
    if reply.status.is_client_error() {
        headers.remove("content-type");
        headers.remove("content-length");
    }
    (reply.status, headers)
}

fn with(call: Call, headers: &Headers) -> Call {
    headers
        .iter()
        .fold(call, |call, (name, value)| call.header(name, value))
}

async fn head(client: &Client, key: &str, headers: &Headers) -> Reply {
    let reply = with(client.head(&format!("/b/{key}")), headers).send().await;
    assert!(reply.body.is_empty(), "{headers:?}");
    reply
}

async fn get(client: &Client, key: &str, headers: &Headers) -> Reply {
    with(client.get(&format!("/b/{key}")), headers).send().await
}

#[tokio::test]
async fn a_head_of_a_part_of_a_dirty_object_is_that_of_its_get_and_needs_no_flush() {
    let node = Node::start_with(|config| {
        back(config);
        config.freshness.default = FreshnessMode::Immutable;
    })
    .await;
    let put = node.client().put("/b/tmp/k", bytes(1));
    let put = put.payload(Payload::UnsignedTrailer(BLOCK as usize, Checksum::Crc32));
    let put = put.header("content-type", "text/x-story").send().await;
    assert_eq!(put.header("x-shoal-write"), Some("back"), "{}", put.text());
    let table = [
        ("bytes=0-0", Some((0, 1))),
        ("bytes=65530-65545", Some((65_530, 65_546))),
        ("bytes=100-", Some((100, SIZE))),
        ("bytes=0-", Some((0, SIZE))),
        ("bytes=-7", Some((SIZE - 7, SIZE))),
        ("bytes=-999999999", Some((0, SIZE))),
        ("bytes=5-999999999", Some((5, SIZE))),
        ("bytes=999999998-999999999", None),
        ("bytes=197608-", None),
    ];
    let mut dirty = Vec::new();
    for (range, expected) in table {
        let asked = [("range", range), ("x-amz-checksum-mode", "ENABLED")];
        let reply = head(&node.client(), "tmp/k", &asked).await;
        let (status, length, told) = match expected {
            Some((start, end)) => (
                StatusCode::PARTIAL_CONTENT,
                Some((end - start).to_string()),
                format!("bytes {start}-{}/{SIZE}", end - 1),
            ),
            None => (StatusCode::RANGE_NOT_SATISFIABLE, None, format!("bytes */{SIZE}")),
        };
        assert_eq!(reply.status, status, "{range}");
        assert_eq!(reply.header("content-range"), Some(&*told), "{range}");
        assert_eq!(reply.header("content-length"), length.as_deref(), "{range}");
        assert_eq!(reply.header("x-cache"), Some("HIT"), "{range}");
        let of_get = get(&node.client(), "tmp/k", &asked).await;
        assert_eq!(seen(&reply), seen(&of_get), "{range}");
        dirty.push((asked, reply));
    }
    assert_eq!(node.lake.count(is_object), 0, "the lake hears of no object");
    assert!(node.lake.object("b", "tmp/k").is_none());
    flush(&node, "s3://b/tmp/k").await;
    let lake = Client::signing(node.lake.address(), ACCESS_KEY, SECRET_KEY);
    // In the first round the node has no permission of the lake, in the second one it has.
    for turn in ["clean", "cached"] {
        for (asked, before) in &dirty {
            for client in [node.client(), lake.clone()] {
                let after = head(&client, "tmp/k", asked).await;
                assert_eq!(after.status, before.status, "{turn} {asked:?}");
                if before.status.is_success() {
                    assert_eq!(seen(&after), seen(before), "{turn} {asked:?}");
                }
            }
        }
        let read = get(&node.client(), "tmp/k", &[]).await;
        assert_eq!(read.body, bytes(1));
    }
    node.stop().await;
}

#[tokio::test]
async fn the_conditions_of_a_head_of_a_part_come_before_its_range() {
    let node = Node::start_with(back).await;
    let put = write_back(&node.client(), "tmp/k", &bytes(1)).await;
    let etag = put.header("etag").unwrap();
    for (range, part) in [
        ("bytes=0-9", StatusCode::PARTIAL_CONTENT),
        ("bytes=999999999-", StatusCode::RANGE_NOT_SATISFIABLE),
    ] {
        for (name, value, status) in [
            ("if-match", etag, part),
            ("if-none-match", "\"other\"", part),
            ("if-none-match", etag, StatusCode::NOT_MODIFIED),
            ("if-match", "\"other\"", StatusCode::PRECONDITION_FAILED),
        ] {
            let call = node.client().head("/b/tmp/k").range(range).header(name, value);
            let reply = call.send().await;
            assert_eq!(reply.status, status, "{range} {name}: {value}");
            assert_eq!(
                reply.header("content-range").is_some(),
                status == part,
                "{range} {name}: {value}"
            );
        }
    }
    assert!(node.lake.object("b", "tmp/k").is_none());
    node.stop().await;
}

#[tokio::test]
async fn a_range_that_stores_read_differently_is_the_lakes_in_a_head_as_in_a_get() {
    let node = Node::start_with(back).await;
    let lake = Client::signing(node.lake.address(), ACCESS_KEY, SECRET_KEY);
    let questions: [&Headers; 6] = [
        &[("range", "bytes=0-1,4-5")],
        &[("range", "bytes=5-2")],
        &[("range", "bytes=-0")],
        &[("range", "bytes= 0-9")],
        &[("range", "lines=0-3")],
        &[("range", "bytes=0-9"), ("if-range", "\"other\"")],
    ];
    for (number, asked) in questions.into_iter().enumerate() {
        let keys = ["head", "get"].map(|method| format!("tmp/{number}-{method}"));
        for key in &keys {
            write_back(&node.client(), key, &bytes(1)).await;
        }
        let of_head = head(&node.client(), &keys[0], asked).await;
        let of_get = get(&node.client(), &keys[1], asked).await;
        for key in &keys {
            assert!(node.lake.object("b", key).is_some(), "{key} {asked:?}");
        }
        assert_eq!(seen(&of_head), seen(&of_get), "{asked:?}");
        let at_the_lake = head(&lake, &keys[0], asked).await;
        assert_eq!(seen(&of_head), seen(&at_the_lake), "{asked:?}");
    }
    // The same is true of a range of an empty object.
    write_back(&node.client(), "tmp/empty", &bytes::Bytes::new()).await;
    let of_nothing = head(&node.client(), "tmp/empty", &[("range", "bytes=-5")]).await;
    assert!(node.lake.object("b", "tmp/empty").is_some());
    let at_the_lake = head(&lake, "tmp/empty", &[("range", "bytes=-5")]).await;
    assert_eq!(seen(&of_nothing), seen(&at_the_lake));
    node.stop().await;
}

#[tokio::test]
async fn others_see_the_head_of_a_part_when_the_lake_has_it_and_only_if_they_may() {
    let node = Node::start_with(back).await;
    node.lake.deny(OTHER_KEY, Access::Read, "b/tmp/mine");
    for key in ["tmp/shared", "tmp/mine"] {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    let part = [("range", "bytes=0-9")];
    let refused = head(&node.other(), "tmp/mine", &part).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(refused.header("content-range"), None);
    assert!(node.lake.object("b", "tmp/mine").is_none());
    let shared = head(&node.other(), "tmp/shared", &part).await;
    assert_eq!(shared.status, StatusCode::PARTIAL_CONTENT);
    assert!(node.lake.object("b", "tmp/shared").is_some());
    node.stop().await;
}
