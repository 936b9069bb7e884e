//! Stories of GETs: cold, warm, ranged, conditional, shared, interrupted.

use bytes::Bytes;
use http::StatusCode;

use crate::client::{Client, Reply};
use crate::lake::{Access, Content, Cut, Fault, Object, Request};
use crate::node::{BLOCK, Node, OTHER_KEY};

pub(crate) fn cache(reply: &Reply) -> &str {
    reply.header("x-cache").unwrap_or("-")
}

/// An object of `size` pseudo-random bytes, in the lake as `b/k`.
pub(crate) fn put(node: &Node, size: u64) -> Bytes {
    let content = Content::synthetic(size, size);
    let bytes = content.all();
    node.lake.put("b", "k", Object::new(content));
    bytes
}

pub(crate) async fn get(client: &Client) -> Reply {
    client.get("/b/k").send().await
}

#[tokio::test]
async fn a_cold_object_costs_one_request_and_a_warm_one_a_question_without_a_body() {
    let node = Node::start().await;
    let bytes = put(&node, 5 * BLOCK + 17);
    let cold = get(&node.client()).await;
    assert_eq!(
        (cold.status, &cold.body, cache(&cold)),
        (StatusCode::OK, &bytes, "MISS")
    );
    assert_eq!(
        node.lake.requests().len(),
        1,
        "no HEAD before the GET, no range beside it"
    );
    assert_eq!(node.lake.body_bytes_sent(), bytes.len() as u64);

    node.settle().await;
    node.lake.forget_requests();
    let warm = get(&node.client()).await;
    assert_eq!(
        (warm.status, &warm.body, cache(&warm)),
        (StatusCode::OK, &bytes, "REVALIDATED")
    );
    assert_eq!(
        (node.lake.requests().len(), node.lake.count(Request::is_head)),
        (1, 1)
    );
    assert_eq!(node.lake.body_bytes_sent(), 0);
    node.stop().await;
}

#[tokio::test]
async fn an_immutable_object_is_asked_for_once() {
    let node = Node::start_immutable().await;
    let bytes = put(&node, 3 * BLOCK);
    get(&node.client()).await;
    node.settle().await;
    node.lake.forget_requests();
    let warm = get(&node.client()).await;
    assert_eq!((&warm.body, cache(&warm)), (&bytes, "HIT"));
    let head = node.client().head("/b/k").send().await;
    assert_eq!(
        (head.header("content-length"), cache(&head)),
        (Some("196608"), "HIT")
    );
    assert!(node.lake.requests().is_empty());
    node.stop().await;
}

#[tokio::test]
async fn objects_of_every_size_around_a_block_come_back_whole() {
    let node = Node::start().await;
    for size in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 9 * BLOCK - 1] {
        let bytes = put(&node, size);
        for turn in ["cold", "warm"] {
            let reply = get(&node.client()).await;
            assert_eq!(reply.status, StatusCode::OK, "{turn} {size}");
            assert_eq!(reply.body, bytes, "{turn} {size}");
            assert_eq!(reply.header("content-length"), Some(size.to_string().as_str()));
            node.settle().await;
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn many_readers_of_one_cold_object_cost_the_lake_its_bytes_once() {
    let node = Node::start().await;
    let bytes = put(&node, 20 * BLOCK + 1);
    let readers: Vec<_> = (0..64)
        .map(|_| {
            let client = node.client();
            tokio::spawn(async move { get(&client).await })
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.await.unwrap().body, bytes);
    }
    assert_eq!(node.lake.body_bytes_sent(), bytes.len() as u64);
    node.stop().await;
}

#[tokio::test]
async fn the_first_reader_to_hang_up_does_not_stop_the_others() {
    let node = Node::start().await;
    let bytes = put(&node, 8 * BLOCK);
    let gate = node.lake.hold(Request::is_get);
    let first = tokio::spawn({
        let client = node.client();
        async move { get(&client).await }
    });
    gate.arrived(1).await;
    let second = tokio::spawn({
        let client = node.client();
        async move { get(&client).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    first.abort();
    gate.open();
    assert_eq!(second.await.unwrap().body, bytes);
    node.stop().await;
}

#[tokio::test]
async fn a_failed_fetch_is_not_cached_and_the_next_reader_retries() {
    let node = Node::start().await;
    let bytes = put(&node, 2 * BLOCK);
    node.lake
        .misbehave(Fault::status(500).when(Request::is_get).times(20));
    let failed = get(&node.client()).await;
    assert!(failed.status.is_server_error(), "{}", failed.status);
    node.lake.behave();
    assert_eq!(get(&node.client()).await.body, bytes);
    node.stop().await;
}

#[tokio::test]
async fn a_truncated_answer_is_never_taken_for_the_object() {
    let node = Node::start().await;
    let bytes = put(&node, 4 * BLOCK);
    node.lake
        .misbehave(Fault::cut(BLOCK + 7, Cut::Close).when(Request::is_get).times(1));
    let outcome = node.client().get("/b/k").try_send().await;
    assert!(
        outcome.is_err() || outcome.unwrap().body == bytes,
        "broken off, or mended; never short"
    );
    assert_eq!(get(&node.client()).await.body, bytes);
    node.stop().await;
}

#[tokio::test]
async fn an_overwritten_object_is_never_mixed_with_its_successor() {
    let node = Node::start().await;
    let old = put(&node, 10 * BLOCK);
    node.client().get("/b/k").range("bytes=0-99").send().await;
    node.settle().await;
    let new = Content::synthetic(10 * BLOCK, 77);
    let new_bytes = new.all();
    node.lake.put("b", "k", Object::new(new));
    let reply = get(&node.client()).await;
    assert_eq!(reply.body, new_bytes, "revalidation sees the new version");
    assert_ne!(reply.body, old);
    node.stop().await;
}

#[tokio::test]
async fn an_object_replaced_behind_an_immutable_promise_restarts_before_the_first_byte() {
    let node = Node::start_immutable().await;
    put(&node, 10 * BLOCK);
    node.client().get("/b/k").range("bytes=0-99").send().await;
    node.settle().await;
    let new = Content::synthetic(10 * BLOCK, 78);
    let new_bytes = new.all();
    node.lake.put("b", "k", Object::new(new));
    let range = format!("bytes={}-{}", 5 * BLOCK, 6 * BLOCK - 1);
    let reply = node.client().get("/b/k").range(&range).send().await;
    assert_eq!(
        reply.body,
        new_bytes.slice(5 * BLOCK as usize..6 * BLOCK as usize)
    );
    node.stop().await;
}

#[tokio::test]
async fn an_object_replaced_in_the_middle_of_an_answer_ends_in_an_abort_not_in_mixed_bytes() {
    let node = Node::start_immutable().await;
    let old = put(&node, 40 * BLOCK);
    // The first blocks are here; the rest has to come from a lake that holds another version by now.
    node.client().get("/b/k").range("bytes=0-99").send().await;
    node.settle().await;
    node.lake
        .put("b", "k", Object::new(Content::synthetic(40 * BLOCK, 79)));
    let outcome = node.client().get("/b/k").try_send().await;
    assert!(
        outcome.is_err_and(|_| true),
        "the answer began with the old version: it must break off"
    );
    drop(old);
    node.stop().await;
}

#[tokio::test]
async fn a_deleted_object_is_gone_at_once() {
    let node = Node::start().await;
    put(&node, 10);
    get(&node.client()).await;
    node.lake.delete("b", "k");
    let reply = get(&node.client()).await;
    assert_eq!((reply.status, reply.code()), (StatusCode::NOT_FOUND, "NoSuchKey"));
    node.stop().await;
}

#[tokio::test]
async fn a_stranger_is_told_the_same_on_a_warm_object_as_on_a_cold_one() {
    for immutable in [false, true] {
        let node = if immutable {
            Node::start_immutable().await
        } else {
            Node::start().await
        };
        put(&node, 1000);
        node.lake.deny(OTHER_KEY, Access::Read, "b");
        let questions = |client: Client| {
            [
                client.get("/b/k"),
                client.head("/b/k"),
                client.get("/b/k").range("bytes=0-9"),
                client.get("/b/k").range("bytes=5000-"),
                client.get("/b/k").header("if-none-match", "*"),
                client.get("/b/k").header("if-match", "\"no such\""),
                client.get("/b/k").header("cache-control", "only-if-cached"),
            ]
        };
        let mut cold = Vec::new();
        for client in [node.other(), node.stranger()] {
            for question in questions(client) {
                cold.push(question.send().await);
            }
        }
        assert_eq!(get(&node.client()).await.status, StatusCode::OK);
        node.settle().await;
        assert_eq!(get(&node.client()).await.status, StatusCode::OK);
        let mut warm = Vec::new();
        for client in [node.other(), node.stranger()] {
            for question in questions(client) {
                warm.push(question.send().await);
            }
        }
        for (index, (cold, warm)) in cold.iter().zip(&warm).enumerate() {
            assert_eq!(cold.status, StatusCode::FORBIDDEN, "question {index}");
            assert_eq!(
                (warm.status, warm.code()),
                (cold.status, cold.code()),
                "question {index}"
            );
        }
        node.stop().await;
    }
}

#[tokio::test]
async fn a_grant_is_remembered_for_one_identity_and_a_denial_never() {
    let node = Node::start_immutable().await;
    let bytes = put(&node, 1000);
    node.lake.deny(OTHER_KEY, Access::Read, "b");
    get(&node.client()).await;
    assert_eq!(get(&node.other()).await.status, StatusCode::FORBIDDEN);
    node.lake.allow(OTHER_KEY, Access::Read, "b");
    assert_eq!(get(&node.other()).await.body, bytes, "the denial was not kept");
    node.stop().await;
}

#[tokio::test]
async fn a_write_through_the_node_is_seen_by_the_next_read() {
    let node = Node::start_immutable().await;
    put(&node, 1000);
    get(&node.client()).await;
    assert_eq!(
        node.client().put("/b/k", "new bytes").send().await.status,
        StatusCode::OK
    );
    assert_eq!(get(&node.client()).await.body, "new bytes");
    assert!(node.client().delete("/b/k").send().await.status.is_success());
    assert_eq!(get(&node.client()).await.status, StatusCode::NOT_FOUND);
    node.stop().await;
}

#[tokio::test]
async fn conditions_are_judged_on_the_current_version() {
    let node = Node::start().await;
    let bytes = put(&node, 1000);
    let etag = get(&node.client()).await.header("etag").unwrap().to_owned();
    let bare = etag.trim_matches('"').to_owned();
    let ask = |name: &'static str, value: String| {
        let client = node.client();
        async move { client.get("/b/k").header(name, value).send().await }
    };
    assert_eq!(
        ask("if-none-match", etag.clone()).await.status,
        StatusCode::NOT_MODIFIED
    );
    assert_eq!(
        ask("if-none-match", bare.clone()).await.status,
        StatusCode::NOT_MODIFIED
    );
    assert_eq!(ask("if-match", bare).await.body, bytes);
    let weak = ask("if-match", format!("W/{etag}")).await;
    assert_eq!(
        weak.status,
        StatusCode::PRECONDITION_FAILED,
        "a weak tag names nothing"
    );
    let failed = ask("if-match", "\"other\"".into()).await;
    assert_eq!(
        (failed.status, failed.code()),
        (StatusCode::PRECONDITION_FAILED, "PreconditionFailed")
    );
    node.stop().await;
}

#[tokio::test]
async fn metadata_is_what_the_lake_gave_and_overrides_are_the_clients() {
    let node = Node::start().await;
    let object = Object::new("text")
        .header("content-type", "text/x-fish")
        .header("cache-control", "max-age=7")
        .header("x-amz-meta-colour", "blue")
        .header("content-disposition", "inline");
    node.lake.put("b", "k", object);
    for turn in ["cold", "warm"] {
        let reply = get(&node.client()).await;
        assert_eq!(reply.header("content-type"), Some("text/x-fish"), "{turn}");
        assert_eq!(reply.header("x-amz-meta-colour"), Some("blue"), "{turn}");
        assert_eq!(reply.header("cache-control"), Some("max-age=7"), "{turn}");
        let target = "/b/k?response-content-type=text%2Fcsv&response-content-disposition=attachment%3B%20filename%3D%22a%22";
        let reply = node.client().get(target).send().await;
        assert_eq!(reply.header("content-type"), Some("text/csv"), "{turn}");
        assert_eq!(
            reply.header("content-disposition"),
            Some("attachment; filename=\"a\""),
            "{turn}"
        );
        let split = node
            .client()
            .get("/b/k?response-content-type=a%0D%0Ax-evil%3A%201")
            .send()
            .await;
        assert_eq!(
            (split.status, split.code()),
            (StatusCode::BAD_REQUEST, "InvalidArgument"),
            "{turn}"
        );
        node.settle().await;
    }
    node.stop().await;
}

#[tokio::test]
async fn client_directives_are_honoured() {
    let node = Node::start_immutable().await;
    put(&node, 2 * BLOCK);
    let ask = |directive: &'static str| {
        let client = node.client();
        async move { client.get("/b/k").header("cache-control", directive).send().await }
    };
    assert_eq!(ask("only-if-cached").await.status, StatusCode::GATEWAY_TIMEOUT);
    let unstored = ask("no-store").await;
    assert_eq!(
        (cache(&unstored), unstored.header("x-cache-reason")),
        ("BYPASS", Some("no-store"))
    );
    assert_eq!(node.store().counters().blocks, 0);
    get(&node.client()).await;
    node.settle().await;
    assert_eq!(cache(&ask("only-if-cached").await), "HIT");
    node.lake.forget_requests();
    assert_eq!(cache(&ask("no-cache").await), "REVALIDATED");
    assert_eq!(node.lake.count(Request::is_head), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_fetching() {
    let node = Node::start().await;
    node.lake
        .put("b", "k", Object::new(Content::synthetic(1 << 30, 1)));
    let mut response = node.client().get("/b/k").open().await.unwrap();
    http_body_util::BodyExt::frame(response.body_mut())
        .await
        .unwrap()
        .unwrap();
    drop(response);
    node.settle().await;
    assert!(
        node.lake.body_bytes_sent() < 64 << 20,
        "{} bytes were sent",
        node.lake.body_bytes_sent()
    );
    node.stop().await;
}

#[tokio::test]
async fn keys_that_break_others_are_objects_like_any_other() {
    let node = Node::start().await;
    let long = "ü".repeat(512);
    let keys: [&[u8]; 14] = [
        b"_leading",
        b"a#b",
        b"100%",
        b"a b+c",
        b"a//b",
        b"./x",
        b"../x",
        b"a/../b",
        b"a_b",
        b"\x01\x7f",
        "🐟/🦈".as_bytes(),
        long.as_bytes(),
        b"trailing/",
        b"a%2Fb",
    ];
    for (index, key) in keys.iter().enumerate() {
        node.lake.put("b", key, format!("content {index}").as_str());
    }
    for turn in ["cold", "warm"] {
        for (index, key) in keys.iter().enumerate() {
            let target = format!(
                "/b/{}",
                percent_encoding::percent_encode(key, percent_encoding::NON_ALPHANUMERIC)
            );
            let reply = node.client().get(&target).send().await;
            assert_eq!(reply.text(), format!("content {index}"), "{turn} {target}");
        }
        node.settle().await;
    }
    node.stop().await;
}
