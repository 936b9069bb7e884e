//! Stories of what belongs to one caller: headers, CORS, permission. All of it is what the lake says now.

use std::time::Duration;

use http::{Method, StatusCode};
use shoal_node::config::FreshnessMode;

use crate::client::{Call, Client, Reply};
use crate::cluster::Cluster;
use crate::lake::{ANONYMOUS, Access, Fault, Object, Request};
use crate::node::{Node, OTHER_KEY};
use crate::read::cache;

const MODES: [FreshnessMode; 3] = [
    FreshnessMode::Revalidate,
    FreshnessMode::Ttl(Duration::from_hours(1)),
    FreshnessMode::Immutable,
];

const PAGE: &str = "https://page.example";

async fn node(mode: FreshnessMode) -> Node {
    Node::start_with(|config| config.freshness.default = mode).await
}

async fn get(client: &Client) -> Reply {
    client.get("/b/k").send().await
}

/// Headers that S3 shows by permission, or that were meant for one answer.
const OF_ONE_CALLER: [(&str, &str); 6] = [
    ("x-amz-object-lock-mode", "GOVERNANCE"),
    ("x-amz-tagging-count", "3"),
    ("x-amz-restore", "ongoing-request=\"false\""),
    ("x-amz-expiration", "rule-id=\"secret\""),
    ("x-amz-request-charged", "requester"),
    ("set-cookie", "balancer=alice"),
];

fn shown_to_the_owner() -> Fault {
    let to_owner = |request: &Request| request.access_key.as_deref() == Some(crate::lake::ACCESS_KEY);
    OF_ONE_CALLER
        .into_iter()
        .fold(Fault::new(), |fault, (name, value)| {
            fault.with_header(name, value)
        })
        .when(to_owner)
        .always()
}

#[tokio::test]
async fn headers_that_the_lake_shows_one_caller_are_shown_to_no_other() {
    for mode in MODES {
        let node = node(mode).await;
        node.lake
            .put("b", "k", Object::new("text").header("x-amz-meta-colour", "blue"));
        node.lake.allow(ANONYMOUS, Access::Read, "b/k");
        node.lake.misbehave(shown_to_the_owner());
        for turn in ["cold", "warm"] {
            let owner = get(&node.client()).await;
            if owner.header("x-cache") != Some("HIT") {
                for (name, value) in OF_ONE_CALLER {
                    assert_eq!(owner.header(name), Some(value), "{turn} {mode:?}");
                }
            }
            node.settle().await;
            for client in [node.other(), node.stranger()] {
                for reply in [get(&client).await, client.head("/b/k").send().await] {
                    assert_eq!(reply.status, StatusCode::OK);
                    assert_eq!(reply.header("x-amz-meta-colour"), Some("blue"));
                    for (name, _) in OF_ONE_CALLER {
                        assert_eq!(reply.header(name), None, "{name} {turn} {mode:?}");
                    }
                }
            }
        }
        node.stop().await;
    }
}

#[tokio::test]
async fn an_answer_from_memory_has_no_header_that_was_meant_for_one_answer() {
    let node = node(FreshnessMode::Immutable).await;
    node.lake.put("b", "k", "text");
    node.lake.misbehave(shown_to_the_owner());
    get(&node.client()).await;
    node.settle().await;
    let warm = get(&node.client()).await;
    assert_eq!(cache(&warm), "HIT");
    for (name, _) in OF_ONE_CALLER {
        assert_eq!(warm.header(name), None, "{name}");
    }
    node.stop().await;
}

/// Answers as a lake whose rules let pages see a GET, and no HEAD.
fn let_pages_see(page: &'static str, header: &'static str) -> Fault {
    Fault::new()
        .with_header("access-control-allow-origin", page)
        .with_header("access-control-expose-headers", header)
        .with_header("vary", "Origin")
        .when(move |request| request.method == Method::GET && request.header("origin") == Some(page))
        .always()
}

#[tokio::test]
async fn a_page_is_told_what_the_lakes_cors_rules_say_of_it_and_nothing_of_another() {
    for mode in MODES {
        let node = node(mode).await;
        node.lake.put("b", "k", "text");
        node.lake.put("b", "empty", "");
        node.lake.misbehave(let_pages_see(PAGE, "etag"));
        node.lake
            .misbehave(let_pages_see("https://other.example", "x-amz-meta-colour"));
        let from = |page: &'static str, target: &str| node.client().get(target).header("origin", page);
        let cors = |reply: &Reply| {
            let names = [
                "access-control-allow-origin",
                "access-control-expose-headers",
                "vary",
            ];
            names.map(|name| reply.header(name).map(str::to_owned))
        };
        let seen = |page: &str, header: &str| [page, header, "Origin"].map(|text| Some(text.to_owned()));
        for turn in ["cold", "warm", "warmer"] {
            let page = from(PAGE, "/b/k").send().await;
            assert_eq!(
                (page.text(), cors(&page)),
                ("text", seen(PAGE, "etag")),
                "{turn} {mode:?}"
            );
            node.settle().await;
            let other = from("https://other.example", "/b/k").send().await;
            assert_eq!(
                cors(&other),
                seen("https://other.example", "x-amz-meta-colour"),
                "{turn} {mode:?}"
            );
            let refused = from("https://third.example", "/b/k").send().await;
            assert_eq!(cors(&refused), [None, None, None], "{turn} {mode:?}");
            let no_page = get(&node.client()).await;
            assert_eq!(cors(&no_page), [None, None, None], "{turn} {mode:?}");
            let empty = from(PAGE, "/b/empty").send().await;
            assert_eq!(
                (empty.text(), cors(&empty)),
                ("", seen(PAGE, "etag")),
                "{turn} {mode:?}"
            );
            // Answers without an object, too.
            let unchanged = from(PAGE, "/b/k").header("if-none-match", page.header("etag").unwrap());
            let unchanged = unchanged.send().await;
            assert_eq!(unchanged.status, StatusCode::NOT_MODIFIED);
            assert_eq!(cors(&unchanged), seen(PAGE, "etag"), "{turn} {mode:?}");
            let beyond = from(PAGE, "/b/k").range("bytes=100-").send().await;
            assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE);
            assert_eq!(cors(&beyond), seen(PAGE, "etag"), "{turn} {mode:?}");
        }
        node.stop().await;
    }
}

#[tokio::test]
async fn a_warm_read_by_a_page_costs_the_lake_one_request_of_one_byte() {
    let node = node(FreshnessMode::Immutable).await;
    node.lake.put(
        "b",
        "k",
        Object::new("text").header("x-amz-checksum-crc32", "d2CTqw=="),
    );
    let ask = || node.client().get("/b/k").header("origin", PAGE);
    assert_eq!(ask().send().await.text(), "text");
    node.settle().await;
    node.lake.forget_requests();
    let warm = ask().send().await;
    assert_eq!((warm.text(), cache(&warm)), ("text", "REVALIDATED"));
    assert_eq!((node.lake.requests().len(), node.lake.body_bytes_sent()), (1, 1));
    let checksummed = ask().header("x-amz-checksum-mode", "ENABLED").send().await;
    assert_eq!(
        (checksummed.text(), checksummed.header("x-amz-checksum-crc32")),
        ("text", Some("d2CTqw=="))
    );
    node.stop().await;
}

#[tokio::test]
async fn metadata_that_changes_without_the_etag_is_seen_by_the_next_read() {
    let node = node(FreshnessMode::Revalidate).await;
    let second = Object::new("same bytes").last_modified;
    for colour in ["blue", "green", "red"] {
        // Within one second: neither ETag nor date shows it.
        let object = Object::new("same bytes").modified_at(second);
        let object = object
            .header("x-amz-meta-colour", colour)
            .header("x-amz-tagging-count", colour);
        node.lake.put("b", "k", object);
        for turn in 0..2 {
            let reply = get(&node.client()).await;
            assert_eq!(reply.header("x-amz-meta-colour"), Some(colour), "{turn}");
            assert_eq!(reply.header("x-amz-tagging-count"), Some(colour), "{turn}");
            node.settle().await;
        }
    }
    // Removed at the lake, gone in the answer; for one question a read.
    node.lake
        .put("b", "k", Object::new("same bytes").modified_at(second));
    node.lake.forget_requests();
    let reply = get(&node.client()).await;
    assert_eq!(reply.header("x-amz-tagging-count"), None);
    assert_eq!(reply.header("x-amz-meta-colour"), None);
    assert_eq!(cache(&reply), "REVALIDATED");
    assert_eq!(
        (node.lake.requests().len(), node.lake.count(Request::is_head)),
        (1, 1)
    );
    node.stop().await;
}

#[tokio::test]
async fn metadata_that_one_node_changes_without_the_etag_is_shown_by_every_node() {
    let cluster = Cluster::start_with(3, |_, config| {
        config.freshness.default = FreshnessMode::Revalidate;
    })
    .await;
    for colour in ["blue", "green"] {
        let put = cluster.nodes[0].client().put("/b/k", "same bytes");
        put.header("x-amz-meta-colour", colour).send().await;
        for node in &cluster.nodes {
            assert_eq!(
                get(&node.client()).await.header("x-amz-meta-colour"),
                Some(colour)
            );
        }
    }
    cluster.stop().await;
}

/// The ways in which a caller can be refused an object.
fn questions(client: &Client) -> [(&'static str, Call); 6] {
    [
        ("GET", client.get("/b/k").header("cache-control", "no-cache")),
        (
            "range",
            client
                .get("/b/k")
                .range("bytes=1-1")
                .header("cache-control", "no-cache"),
        ),
        ("HEAD", client.head("/b/k").header("cache-control", "no-cache")),
        ("no-store", client.get("/b/k").header("cache-control", "no-store")),
        ("part", client.get("/b/k?partNumber=1")),
        (
            "requester pays",
            client.head("/b/k").header("x-amz-request-payer", "requester"),
        ),
    ]
}

/// Another caller's grant, made and taken away by every kind of question.
async fn loses_its_grant(node: &Node, mode: FreshnessMode) {
    for question in 0..6 {
        node.lake.allow(OTHER_KEY, Access::Read, "b/k");
        assert_eq!(get(&node.other()).await.status, StatusCode::OK);
        node.settle().await;
        let warm = get(&node.other()).await;
        let expected = if mode == FreshnessMode::Revalidate {
            "REVALIDATED"
        } else {
            "HIT"
        };
        assert_eq!(cache(&warm), expected);

        node.lake.deny(OTHER_KEY, Access::Read, "b/k");
        let client = node.other();
        let (how, call) = questions(&client).into_iter().nth(question).unwrap();
        assert_eq!(call.send().await.status, StatusCode::FORBIDDEN, "{how} {mode:?}");
        for call in [
            client.get("/b/k"),
            client.head("/b/k"),
            client.get("/b/k").range("bytes=0-1"),
        ] {
            assert_eq!(
                call.send().await.status,
                StatusCode::FORBIDDEN,
                "after {how} {mode:?}"
            );
        }
        let owner = get(&node.client()).await;
        assert_eq!(owner.status, StatusCode::OK, "the others keep theirs");
    }
}

#[tokio::test]
async fn a_no_by_whatever_method_ends_the_callers_grant() {
    for mode in MODES {
        let node = node(mode).await;
        node.lake.put("b", "k", "text");
        loses_its_grant(&node, mode).await;
        node.stop().await;
    }
}

#[tokio::test]
async fn a_no_ends_the_callers_grant_at_each_node_of_a_cluster() {
    for mode in MODES {
        let cluster = Cluster::start_with(3, move |_, config| config.freshness.default = mode).await;
        cluster.lake.put("b", "k", "text");
        for node in &cluster.nodes {
            loses_its_grant(node, mode).await;
        }
        cluster.stop().await;
    }
}

#[tokio::test]
async fn an_object_that_is_gone_for_one_caller_ends_its_grant() {
    let node = node(FreshnessMode::Immutable).await;
    node.lake.put("b", "k", "text");
    get(&node.client()).await;
    node.lake.delete("b", "k");
    assert_eq!(
        node.client()
            .head("/b/k")
            .header("cache-control", "no-cache")
            .send()
            .await
            .status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(get(&node.client()).await.status, StatusCode::NOT_FOUND);
    node.stop().await;
}

#[tokio::test]
async fn a_block_that_the_lake_refuses_ends_the_grant_of_its_reader() {
    let node = node(FreshnessMode::Immutable).await;
    let bytes = crate::read::put(&node, 20 * crate::node::BLOCK);
    let first = node.client().get("/b/k").range("bytes=0-9").send().await;
    assert_eq!(first.body, bytes[..10]);
    node.settle().await;
    node.lake.deny(crate::lake::ACCESS_KEY, Access::Read, "b/k");
    assert!(
        node.client().get("/b/k").try_send().await.is_err(),
        "it begins from the disk and breaks off"
    );
    let next = node.client().get("/b/k").range("bytes=0-9").send().await;
    assert_eq!(next.status, StatusCode::FORBIDDEN);
    node.stop().await;
}

#[tokio::test]
async fn a_yes_to_a_question_of_its_own_kind_is_no_yes_to_a_plain_one() {
    for (name, value) in [
        ("x-amz-request-payer", "requester"),
        ("x-amz-expected-bucket-owner", "123456789012"),
        ("x-forwarded-for", "10.0.0.1"),
        ("referer", "https://page.example/"),
        ("origin", PAGE),
        ("x-never-heard-of", "x"),
    ] {
        let node = node(FreshnessMode::Immutable).await;
        node.lake.put("b", "k", "text");
        node.lake.allow(ANONYMOUS, Access::Read, "b/k");
        // The lake says yes to those who say this, and no to others.
        node.lake.misbehave(
            Fault::status(403)
                .when(move |request| request.header(name).is_none())
                .always(),
        );
        for _ in 0..2 {
            let reply = node.stranger().get("/b/k").header(name, value).send().await;
            assert_eq!(reply.text(), "text", "{name}");
            let head = node.stranger().head("/b/k").header(name, value).send().await;
            assert_eq!(head.status, StatusCode::OK, "{name}");
            node.settle().await;
            assert_eq!(
                get(&node.stranger()).await.status,
                StatusCode::FORBIDDEN,
                "{name}"
            );
            assert_eq!(
                node.stranger().head("/b/k").send().await.status,
                StatusCode::FORBIDDEN,
                "{name}"
            );
        }
        node.stop().await;
    }
}

#[tokio::test]
async fn a_referer_that_a_caller_signs_for_costs_no_question() {
    let node = node(FreshnessMode::Immutable).await;
    node.lake.put("b", "k", "text");
    let ask = |page: &'static str| node.client().get("/b/k").header("referer", page);
    ask("https://audit.example/1").send().await;
    node.settle().await;
    assert_eq!(cache(&ask("https://audit.example/2").send().await), "HIT");
    let presigned = ask("https://audit.example/3").presigned(Duration::from_mins(1));
    assert_eq!(
        cache(&presigned.send().await),
        "REVALIDATED",
        "any page may hold the URL"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_node_among_others_relays_the_lakes_own_error_as_a_node_alone_does() {
    let cluster = Cluster::start(3).await;
    let alone = node(FreshnessMode::Revalidate).await;
    for status in [500, 501, 502, 504] {
        let broken = || {
            Fault::status(status)
                .when(|request| request.bucket == "b")
                .always()
        };
        cluster.lake.misbehave(broken());
        alone.lake.misbehave(broken());
        let expected = get(&alone.client()).await;
        for node in &cluster.nodes {
            let reply = get(&node.client()).await;
            assert_eq!(reply.status, expected.status);
            assert_eq!(reply.text(), expected.text(), "the lake's words");
        }
        cluster.lake.behave();
        alone.lake.behave();
    }
    cluster.stop().await;
    alone.stop().await;
}
