//! Stories of traces: the spans that a collector gets, and the header `traceparent` that the lake gets.

mod guarded;
mod receiver;

use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use shoal_node::config::{Config, FreshnessMode, Share, UnknownIdentities, WriteMode, WriteRule};

use self::receiver::{Collector, SERVER, Span};
use crate::client::{Call, Client};
use crate::cluster::Cluster;
use crate::lake::{ACCESS_KEY, SECRET_KEY};
use crate::node::{BLOCK, Node, lake};
use crate::waiting::{until, value};

/// The trace and the span of a client.
const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
const SPAN: u64 = 0x00f0_67aa_0ba9_02b7;

fn header(trace: u128, flags: u8) -> String {
    format!("00-{trace:032x}-{SPAN:016x}-{flags:02x}")
}

/// The header by which a request belongs to a span.
fn header_of(span: &Span) -> String {
    format!("00-{:032x}-{:016x}-01", span.trace, span.id)
}

/// Adds a header that the client does not sign.
fn unsigned(call: Call, value: &str) -> Call {
    let value = HeaderValue::from_str(value).unwrap();
    call.tampered(move |request| _ = request.headers_mut().insert("traceparent", value))
}

async fn node(collector: &Collector, sample: f64) -> Node {
    node_with(collector, sample, |_| ()).await
}

async fn node_with(collector: &Collector, sample: f64, change: impl FnOnce(&mut Config)) -> Node {
    let url = collector.url();
    let node = Node::start_with(|config| {
        config.node.name = "n0".into();
        config.trace.endpoint = Some(url);
        config.trace.sample = Share(sample);
        change(config);
    });
    node.await
}

#[tokio::test]
async fn a_miss_at_one_of_two_nodes_is_one_trace_of_client_peer_and_lake() {
    let collector = Collector::start().await;
    let cluster = Cluster::start_with(2, |_, config| {
        config.trace.endpoint = Some(collector.url());
        config.trace.sample = Share(0.0);
    })
    .await;
    // The home of a block is one of both nodes, and the address of the lake decides about it.
    let mut keys = (0..64_u128).map(|number| (format!("k{number}"), TRACE + number));
    let (trace, spans) = loop {
        let (key, trace) = keys.next().expect("an object whose block is at home at n1");
        cluster.put(&key, 1);
        cluster.lake.forget_requests();
        let reader = cluster.nodes[0].client();
        let read = reader
            .get(&format!("/b/{key}"))
            .header("traceparent", header(trace, 1));
        assert_eq!(read.send().await.status, StatusCode::OK);
        cluster.settle().await;
        let spans = collector.of_trace(trace, |spans| {
            let has = |name: &str| spans.iter().any(|span| span.name == name);
            spans.iter().any(Span::is_root)
                && spans
                    .iter()
                    .any(|span| span.is_at_lake(&cluster.lake, "get_object"))
                && has("get_block") == has("serve_block")
        });
        let spans = spans.await;
        if spans.iter().any(|span| span.name == "get_block") {
            break (trace, spans);
        }
    };
    assert!(spans.iter().all(|span| span.trace == trace));
    let named = |name: &str, node: &str| {
        let mut found = spans.iter().filter(|span| span.name == name && span.node == node);
        let span = found
            .next()
            .unwrap_or_else(|| panic!("{name} of {node}: {spans:#?}"));
        assert!(found.next().is_none(), "one {name} of {node}: {spans:#?}");
        span
    };
    let client = named("get_object", "n0");
    let [question, asking] = ["head_object", "get_block"].map(|name| named(name, "n0"));
    let [serving, at_lake] = ["serve_block", "get_object"].map(|name| named(name, "n1"));
    assert_eq!((client.parent, client.kind), (SPAN, SERVER));
    for (span, parent) in [
        (question, client),
        (asking, client),
        (serving, asking),
        (at_lake, serving),
    ] {
        assert_eq!(
            span.parent, parent.id,
            "{} descends from {}",
            span.name, parent.name
        );
        assert!(span.begin_ns <= span.end_ns && !span.is_error, "{span:?}");
    }
    let seen = cluster.lake.requests();
    let of_lake: Vec<_> = seen
        .iter()
        .filter_map(|request| request.header("traceparent"))
        .collect();
    assert_eq!(of_lake, [header_of(question), header_of(at_lake)]);
    for (name, expected) in [
        ("http.request.method", "GET"),
        ("aws.s3.bucket", "b"),
        ("http.response.status_code", "200"),
        ("http.response.body.size", &BLOCK.to_string()),
        ("shoal.bytes.peer", &BLOCK.to_string()),
        ("shoal.cache", "MISS"),
    ] {
        assert_eq!(client.attribute(name), Some(expected), "{name}");
    }
    assert_eq!(
        at_lake.attribute("http.response.body.size"),
        Some(&*BLOCK.to_string())
    );
    cluster.stop().await;
}

#[tokio::test]
async fn the_decision_of_a_client_is_followed_and_its_trace_kept() {
    let collector = Collector::start().await;
    let node = node(&collector, 1.0).await;
    node.lake.put("b", "k", "bytes");
    let seen = || node.lake.last_request().header("traceparent").map(str::to_owned);
    let read = |flags| {
        node.client()
            .get("/b/k")
            .header("traceparent", header(TRACE, flags))
    };

    // The client decides against it, and its header passes.
    assert_eq!(read(0).send().await.text(), "bytes");
    assert_eq!(seen(), Some(header(TRACE, 0)));

    assert_eq!(read(1).send().await.text(), "bytes");
    let has_root = |spans: &[Span]| spans.iter().any(Span::is_root);
    let spans = collector.of_trace(TRACE, has_root).await;
    let roots: Vec<_> = spans.iter().filter(|span| span.is_root()).collect();
    assert_eq!((roots.len(), roots[0].parent), (1, SPAN), "{spans:#?}");
    let at_lake = spans.iter().find(|span| span.parent == roots[0].id).unwrap();
    assert_eq!(seen(), Some(header_of(at_lake)));

    // Who does not prove its identity decides nothing; the share of the node holds for it.
    node.lake
        .allow(crate::lake::ANONYMOUS, crate::lake::Access::Read, "b");
    let of_stranger = node
        .stranger()
        .get("/b/k")
        .header("traceparent", header(TRACE + 1, 1));
    assert_eq!(of_stranger.send().await.text(), "bytes");
    let sent = seen().unwrap();
    assert!(
        sent.ends_with("-01") && !sent.contains(&format!("{:032x}", TRACE + 1)),
        "{sent}"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_share_of_nothing_traces_nothing() {
    let collector = Collector::start().await;
    let node = node(&collector, 0.0).await;
    node.lake.put("b", "k", "bytes");
    assert_eq!(node.client().get("/b/k").send().await.text(), "bytes");
    assert_eq!(node.lake.last_request().header("traceparent"), None);
    // A node that stops sends all that it has.
    node.stop().await;
    assert!(collector.spans().is_empty(), "{:#?}", collector.spans());
}

#[tokio::test]
async fn a_client_whom_the_node_refuses_leaves_no_span() {
    let collector = Collector::start().await;
    let node = node(&collector, 1.0).await;
    node.lake.put("b", "k", "bytes");
    let impostor = Client::signing(node.address(), ACCESS_KEY, "guess");
    let refused = impostor
        .get("/b/k")
        .header("traceparent", header(TRACE, 1))
        .send()
        .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    node.stop().await;
    assert!(collector.spans().is_empty(), "{:#?}", collector.spans());
}

#[tokio::test]
async fn the_signature_of_a_client_is_valid_at_the_lake_beside_the_header_of_the_node() {
    const GUEST: &str = "guest-access-key";
    const GUEST_SECRET: &str = "guest-secret-key";
    let collector = Collector::start().await;
    let node = node_with(&collector, 1.0, |config| {
        config.s3.unknown_identities = UnknownIdentities::Lake;
    })
    .await;
    node.lake.add_user(GUEST, GUEST_SECRET);
    node.lake.put("b", "k", "bytes");
    let guest = Client::signing(node.address(), GUEST, GUEST_SECRET);
    let seen = || node.lake.last_request().header("traceparent").unwrap().to_owned();

    // The test's client signs all headers.
    let signed = guest.get("/b/k").header("traceparent", header(TRACE, 1));
    assert_eq!(signed.send().await.text(), "bytes");
    assert_eq!(seen(), header(TRACE, 1));

    for call in [
        guest.get("/b/k"),
        guest.get("/b/k").presigned(Duration::from_mins(1)),
    ] {
        let read = unsigned(call, &header(TRACE, 1)).send().await;
        assert_eq!((read.status, read.text()), (StatusCode::OK, "bytes"));
        assert_ne!(seen(), header(TRACE, 1));
    }
    node.stop().await;
}

#[tokio::test]
async fn a_write_that_is_written_back_shows_its_waits() {
    let collector = Collector::start().await;
    let node = node_with(&collector, 0.0, |config| {
        config.write.rules = vec![WriteRule::new("b/back/", WriteMode::Back)];
    })
    .await;
    let written = node
        .client()
        .put("/b/back/k", "bytes")
        .header("traceparent", header(TRACE, 1));
    let written = written.send().await;
    assert_eq!(
        written.header("x-shoal-write"),
        Some("back"),
        "{}",
        written.text()
    );
    let spans = collector
        .of_trace(TRACE, |spans| spans.iter().any(Span::is_root))
        .await;
    let root = spans.iter().find(|span| span.is_root()).unwrap();
    let wait = spans.iter().find(|span| span.name == "wait_for_permission");
    assert_eq!(wait.map(|span| span.parent), Some(root.id), "{spans:#?}");
    let question = spans
        .iter()
        .find(|span| span.attribute("server.address").is_some());
    assert_eq!(question.map(|span| span.parent), Some(root.id), "{spans:#?}");
    node.stop().await;
}

#[tokio::test]
async fn no_secret_and_no_key_of_an_object_is_in_a_span() {
    let collector = Collector::start().await;
    let node = node_with(&collector, 1.0, |config| {
        config.freshness.default = FreshnessMode::Revalidate;
    })
    .await;
    node.lake.put("b", "private/k", "bytes");
    let mut secrets = vec!["private".to_owned(), SECRET_KEY.to_owned(), ACCESS_KEY.to_owned()];
    let calls = [
        node.client().get("/b/private/k"),
        node.client()
            .get("/b/private/k")
            .presigned(Duration::from_mins(1)),
        node.client().put("/b/private/k", "new"),
        node.client().get("/b/private/missing?x-id=private"),
        node.client().call(Method::GET, "/b?list-type=2&prefix=private"),
    ];
    for call in calls {
        let (sender, receiver) = std::sync::mpsc::channel();
        let call = call.tampered(move |request| {
            let authorization = request.headers().get("authorization");
            let query = request.uri().query().unwrap_or_default().to_owned();
            let text = authorization.map_or(query, |value| value.to_str().unwrap().to_owned());
            sender.send(text).unwrap();
        });
        call.send().await;
        let text = receiver.recv().unwrap();
        let signature = text.rsplit_once("Signature=").unwrap().1;
        secrets.push(signature.split('&').next().unwrap().to_owned());
    }
    node.stop().await;
    let roots = collector.spans().iter().filter(|span| span.is_root()).count();
    assert_eq!(roots, 5, "{:#?}", collector.spans());
    let sent = collector.bytes();
    let found = |secret: &str| memchr::memmem::find(&sent, secret.as_bytes()).is_some();
    assert!(found("aws.s3.bucket"));
    for secret in secrets {
        assert!(!found(&secret), "{secret}");
    }
}

#[tokio::test]
async fn a_collector_that_does_not_answer_costs_no_request_its_answer() {
    for collector in [
        Collector::absent().await,
        Collector::silent().await,
        Collector::refusing().await,
    ] {
        let node = node(&collector, 1.0).await;
        node.lake.put("b", "k", "bytes");
        for _ in 0..3 {
            assert_eq!(node.client().get("/b/k").send().await.text(), "bytes");
        }
        if !collector.is_silent() {
            let failed = async || counted(&node, "failed").await;
            value("spans are lost", failed, |failed| *failed >= 6).await;
            assert_eq!(counted(&node, "sent").await, 0);
        }
        // It does not wait for the collector for long.
        node.stop().await;
    }
}

#[tokio::test]
async fn spans_that_the_collector_accepts_are_counted() {
    let collector = Collector::start().await;
    let node = node(&collector, 1.0).await;
    node.lake.put("b", "k", "bytes");
    assert_eq!(node.client().get("/b/k").send().await.text(), "bytes");
    until("the spans are sent", async || counted(&node, "sent").await >= 2).await;
    assert_eq!(collector.spans().len() as u64, counted(&node, "sent").await);
    node.stop().await;
}

async fn counted(node: &Node, outcome: &str) -> u64 {
    let page = node.admin("/metrics").await;
    let name = format!("shoal_trace_spans_total{{outcome=\"{outcome}\"}} ");
    let value = page.text().lines().find_map(|line| line.strip_prefix(&name));
    value.expect("the metric is there").parse().unwrap()
}

#[tokio::test]
async fn a_node_without_a_collector_passes_the_header_of_a_client() {
    let lake = lake().await;
    let node = Node::in_front_of(&lake, |_| ()).await;
    lake.put("b", "k", "bytes");
    let read = node.client().get("/b/k").header("traceparent", header(TRACE, 1));
    assert_eq!(read.send().await.text(), "bytes");
    assert_eq!(
        lake.last_request().header("traceparent"),
        Some(&*header(TRACE, 1))
    );
}
