//! Stories of trust between nodes: a node accepts nothing without proof.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::ETAG;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use shoal_cache::{BlockRequest, Peer};
use shoal_net::endpoint::{Endpoint, EndpointRequest, LakeAccount, RequestBody};
use shoal_net::{AuthFailure, Channel, node_id};
use shoal_policy::ObjectId;
use shoal_s3::identity::NODE;
use shoal_s3::object::Version;
use shoal_s3::sigv4::PayloadHash;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::wire::Way;
use super::{Cluster, SECRET};

#[tokio::test]
async fn no_byte_that_was_altered_between_nodes_is_kept_or_served() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 24);
    cluster.read(1, "k", &bytes).await;
    cluster.settle().await;
    cluster.ways.iter().for_each(|way| way.alters_answers(true));
    for node in [0, 2, 0] {
        cluster.read(node, "k", &bytes).await;
        cluster.settle().await;
    }
    let altered: u64 = cluster.ways.iter().map(Way::altered).sum();
    assert!(altered > 0, "the story has to alter something");
    assert!(mistrusted(&cluster).await > 0, "it is counted");
    cluster.ways.iter().for_each(|way| way.alters_answers(false));
    for node in 0..3 {
        cluster.read(node, "k", &bytes).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn an_eavesdropper_between_nodes_reads_no_block() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 12);
    for node in 0..3 {
        cluster.read(node, "k", &bytes).await;
        cluster.settle().await;
    }
    let mut heard = Vec::new();
    for way in &cluster.ways {
        heard.extend(way.recorded().into_iter().map(|recording| recording.answered));
    }
    assert!(heard.iter().map(Vec::len).sum::<usize>() > bytes.len() / 2);
    for block in 0..12 {
        let excerpt = &bytes[block * crate::node::BLOCK as usize..][100..164];
        let is_heard = |bytes: &Vec<u8>| bytes.windows(64).any(|window| window == excerpt);
        assert!(!heard.iter().any(is_heard), "block {block}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_nodes_recorded_request_is_not_answered_when_a_stranger_replays_it() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 12);
    for _ in 0..2 {
        cluster.read(0, "k", &bytes).await;
    }
    cluster.settle().await;
    let served = r#"shoal_peer_answers_total{result="served"}"#;
    let mut recordings = Vec::new();
    for way in &cluster.ways {
        recordings.extend(way.recorded().into_iter().take(3));
    }
    let sum = async || {
        let each = (0..3).map(|node| cluster.metric(node, served));
        join_all(each).await.iter().sum::<u64>()
    };
    let before = sum().await;
    assert!(
        before > 0 && !recordings.is_empty(),
        "the story has to replay something"
    );
    // At the node to which it was said, and at each other one.
    let replays = recordings.iter().flat_map(|recording| {
        let ports = cluster.ways.iter().map(Way::address);
        ports.map(|port| says(port, &recording.asked))
    });
    for answer in join_all(replays).await {
        assert!(answer.len() < 4_000, "{} bytes in answer", answer.len());
        assert!(!String::from_utf8_lossy(&answer).contains("HTTP"));
    }
    assert_eq!(sum().await, before);
    cluster.stop().await;
}

#[tokio::test]
async fn a_request_for_a_block_is_sent_again_when_its_connection_was_kept_and_breaks() {
    let (peer, asked) = peer_that_answers_once().await;
    let request = BlockRequest::offer(
        &Version::from_response(
            ObjectId([1; 16]),
            &HeaderMap::from_iter([(ETAG, HeaderValue::from_static("\"e\""))]),
            5,
            4,
        )
        .unwrap(),
        1,
        node_id("n0"),
    );
    for expected in [1, 3] {
        let body = peer.get_block(&request, None).await.unwrap().body;
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 0);
        assert_eq!(asked.load(Ordering::Relaxed), expected);
    }
}

#[tokio::test]
async fn a_message_that_is_no_request_for_a_block_is_refused_and_counted() {
    let cluster = Cluster::start(2).await;
    let endpoint = Endpoint::to_node(channel("n1").to("n0", cluster.ways[0].address()));
    let garbage = Bytes::from_static(b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f");
    let messages = [
        (Method::QUERY, "/blocks", RequestBody::Whole(garbage.clone())),
        (
            Method::QUERY,
            "/blocks",
            RequestBody::Whole(vec![0; 65 << 10].into()),
        ),
        (Method::QUERY, "/blocks", RequestBody::Empty),
        (Method::QUERY, "/blocks/0", RequestBody::Whole(garbage.clone())),
        (Method::POST, "/blocks", RequestBody::Whole(garbage)),
        (Method::GET, "/blocks", RequestBody::Empty),
    ];
    let number = messages.len() as u64;
    for (method, target, body) in messages {
        let answer = endpoint.send(EndpointRequest {
            operation: "get_block",
            method,
            target: PathAndQuery::from_static(target),
            headers: HeaderMap::new(),
            body,
            expects_continue: false,
            payload: PayloadHash::empty(),
            account: LakeAccount::Anonymous,
            payer: NODE,
        });
        assert_eq!(
            answer.await.unwrap().status(),
            StatusCode::BAD_REQUEST,
            "{target}"
        );
    }
    let refused = r#"shoal_peer_answers_total{result="misunderstood"}"#;
    assert_eq!(cluster.metric(0, refused).await, number);
    cluster.stop().await;
}

/// The channel of a node of this cluster.
fn channel(name: &str) -> Arc<Channel> {
    Arc::new(Channel::new(name, [SECRET], 10))
}

/// A peer that [`answers_once`] plays, and the number of requests that it has received.
async fn peer_that_answers_once() -> (Arc<Peer>, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::<AtomicU64>::default();
    tokio::spawn(answers_once(listener, channel("n1"), Arc::clone(&asked)));
    let peer = Peer::new("n1", address, &channel("n0"));
    (Arc::new(peer), asked)
}

/// Answers the first request of each connection; reads the next one, and hangs up.
async fn answers_once(listener: TcpListener, channel: Arc<Channel>, asked: Arc<AtomicU64>) {
    loop {
        let (stream, from) = listener.accept().await.unwrap();
        let mut stream = channel.accept(stream, from).await.unwrap();
        let mut buffer = [0; 4096];
        for answer in [&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..], b""] {
            if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
                break;
            }
            asked.fetch_add(1, Ordering::Relaxed);
            stream.write_all(answer).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_peer_port_says_nothing_to_a_stranger() {
    let cluster = Cluster::start(2).await;
    let bytes = cluster.put("k", 1);
    cluster.read(0, "k", &bytes).await;
    for target in ["/alive", "/b/k", "/blocks", "/messages", "/dirty/find"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: n0\r\n\r\n");
        let answer = says(cluster.ways[0].address(), request.as_bytes()).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.contains("HTTP"), "{target}: {answer}");
    }
    let refused = r#"shoal_peer_mistrusted_total{reason="not-tls"}"#;
    assert_eq!(cluster.metric(0, refused).await, 5);
    cluster.stop().await;
}

/// How many connections all nodes together have rejected.
async fn mistrusted(cluster: &Cluster) -> u64 {
    let mut sum = 0;
    for node in 0..cluster.nodes.len() {
        for reason in AuthFailure::ALL.map(AuthFailure::as_str) {
            let metric = format!("shoal_peer_mistrusted_total{{reason=\"{reason}\"}}");
            sum += cluster.metric(node, &metric).await;
        }
    }
    sum
}

/// Says something to a port, and gives what comes back within a moment.
async fn says(port: SocketAddr, words: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(port).await.unwrap();
    let mut answer = Vec::new();
    let speaking = async {
        // A node that hangs up has answered.
        let _ = stream.write_all(words).await;
        let _ = stream.read_to_end(&mut answer).await;
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), speaking).await;
    answer
}
