//! Messages between nodes over real sockets.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::service::service_fn;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_net::channel::Channel;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener::{self, ConnectionLimits, Handshake};
use shoal_net::limits::Limits;
use shoal_net::membership::{Member, Members, State, node_id};
use shoal_net::metrics::ConnectionMetrics;
use shoal_net::shutdown::{self, Trigger};
use shoal_policy::NodeId;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use super::batch::{BATCH_BYTES, Batch, Queued};
use super::{BatchOutcome, Kind, LIMITS, Message, MessageOutcome, Messages};
use crate::nodes::cooperation::Cooperation;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Text(String);

impl Message for Text {
    const KIND: Kind = Kind::CacheEvent;

    fn importance(&self) -> usize {
        0
    }
}

fn text(words: &str) -> Text {
    Text(words.into())
}

/// A node that stores the messages it receives, or answers every batch with one status.
struct Listening {
    messages: Arc<Messages>,
    received: Arc<Mutex<Vec<(NodeId, Text)>>>,
    batches: Arc<AtomicUsize>,
    members: watch::Sender<Members>,
    member: Member,
    stop: Trigger,
}

impl Listening {
    async fn start(name: &str, answers: Option<StatusCode>) -> Self {
        let channel = Arc::new(Channel::new(name, ["the secret of this cluster"], 8));
        let cooperation = Arc::new(Cooperation::new(name, "dc1/a/r1", 2, Arc::clone(&channel)));
        let messages = Messages::new(&cooperation);
        let received = Arc::<Mutex<Vec<_>>>::default();
        let receiver = Arc::clone(&received);
        messages.on(move |sender, texts: Vec<Text>| {
            receiver
                .lock()
                .extend(texts.into_iter().map(|text| (sender, text)));
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopping) = shutdown::channel();
        let (members, followed) = watch::channel(Members::default());
        tokio::spawn(cooperation.follow(followed, |_| (), stopping.clone()));
        tokio::spawn(Arc::clone(&messages).run(stopping.clone()));
        let batches = Arc::<AtomicUsize>::default();
        let (receiving, counting) = (Arc::clone(&messages), Arc::clone(&batches));
        let service = move |request: Request<ClientBody>| {
            let (receiving, counting) = (Arc::clone(&receiving), Arc::clone(&counting));
            async move {
                counting.fetch_add(1, Ordering::Relaxed);
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let status = answers.unwrap_or_else(|| receiving.receive(&body).status());
                let answer = Response::builder().status(status).body(Empty::<Bytes>::new());
                Ok::<_, Infallible>(answer.unwrap())
            }
        };
        tokio::spawn(listener::serve(
            listener,
            Handshake::Nodes(channel),
            ConnectionLimits::from(&Limits::default()),
            ConnectionMetrics::default(),
            stopping,
            move |_| service_fn(service.clone()),
        ));
        Self {
            messages,
            received,
            batches,
            members,
            member: member(name, address),
            stop,
        }
    }

    fn id(&self) -> NodeId {
        self.member.id()
    }

    fn count(&self, outcome: MessageOutcome) -> u64 {
        self.messages.figures().kinds[Text::KIND.as_str()][outcome.as_str()]
    }

    fn batches(&self, outcome: BatchOutcome) -> u64 {
        self.messages.figures().batches[outcome.as_str()]
    }

    fn received(&self) -> Vec<(NodeId, Text)> {
        self.received.lock().clone()
    }
}

fn member(name: &str, address: SocketAddr) -> Member {
    Member {
        address,
        generation: 1,
        name: name.into(),
        topology: "dc1/a/r1".into(),
        s3: address,
        admin: address,
        weight_percent: 100,
        state: State::Serving,
    }
}

/// Makes nodes members of one cluster.
async fn meet(nodes: &[&Listening], also: &[Member]) {
    let members = nodes.iter().map(|node| node.member.clone());
    let members: Members = members.chain(also.iter().cloned()).collect();
    for node in nodes {
        node.members.send_replace(Arc::clone(&members));
    }
    let is_known = || {
        nodes
            .iter()
            .all(|node| node.messages.cooperation.members().len() == members.len())
    };
    until(is_known).await;
}

async fn until(holds: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it does not become true");
}

#[tokio::test]
async fn messages_go_together_to_the_nodes_that_they_are_told_to_and_no_other() {
    let [a, b, c] = ["a", "b", "c"].map(|name| Listening::start(name, None));
    let (a, b, c) = (a.await, b.await, c.await);
    meet(&[&a, &b, &c], &[]).await;
    a.messages.send([b.id(), c.id()], &text("to both"));
    a.messages.send([b.id()], &text("to one"));
    until(|| a.count(MessageOutcome::Sent) == 3).await;
    assert_eq!(
        b.received(),
        [(a.id(), text("to both")), (a.id(), text("to one"))]
    );
    assert_eq!(c.received(), [(a.id(), text("to both"))]);
    assert_eq!(b.batches.load(Ordering::Relaxed), 1, "both in one request");
    assert_eq!(
        (
            b.count(MessageOutcome::Received),
            b.batches(BatchOutcome::Accepted)
        ),
        (2, 1)
    );
    let (sent, received) = (
        a.messages.figures().bytes_sent,
        b.messages.figures().bytes_received,
    );
    assert!(sent > received && received > 0);
    drop((a.stop, b.stop, c.stop));
}

#[tokio::test]
async fn a_node_that_cannot_be_reached_costs_its_messages_alone() {
    let (a, b) = (
        Listening::start("a", None).await,
        Listening::start("b", None).await,
    );
    // Binds a port without listening. A free port could be taken by another test.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let gone = member("gone", closed.local_addr().unwrap());
    meet(&[&a, &b], &[gone]).await;
    a.messages.send([node_id("gone"), b.id()], &text("hello"));
    a.messages.send([node_id("never was")], &text("hello"));
    until(|| a.count(MessageOutcome::Lost) == 2 && a.count(MessageOutcome::Sent) == 1).await;
    a.messages.send([b.id()], &text("again"));
    until(|| b.received().len() == 2).await;
}

#[tokio::test]
async fn a_node_of_a_build_without_messages_is_asked_once_and_left_alone() {
    let old = Listening::start("old", Some(StatusCode::BAD_REQUEST)).await;
    let a = Listening::start("a", None).await;
    meet(&[&a, &old], &[]).await;
    for round in 1..=3 {
        a.messages.send([old.id()], &text("hello"));
        until(|| a.count(MessageOutcome::Lost) == round).await;
    }
    assert_eq!(old.batches.load(Ordering::Relaxed), 1);
    assert_eq!(a.batches(BatchOutcome::Unsupported), 3);
}

#[tokio::test]
async fn what_waits_for_a_node_is_bounded() {
    let a = Listening::start("a", None).await;
    let long = text(&"x".repeat(1000));
    let fit = LIMITS.waiting_bytes / 1004;
    for _ in 0..2 * fit {
        // The sending task does not run in between.
        a.messages.send([node_id("b")], &long);
    }
    assert_eq!(a.count(MessageOutcome::Dropped), fit as u64);
    a.messages.send([node_id("b")], &text(&"x".repeat(2000)));
    assert_eq!(
        a.count(MessageOutcome::Dropped),
        fit as u64 + 1,
        "too long for a message"
    );
}

#[tokio::test]
async fn what_comes_is_bounded_and_what_is_not_understood_is_passed_over() {
    let (a, b) = (
        Listening::start("a", None).await,
        Listening::start("b", None).await,
    );
    meet(&[&a, &b], &[]).await;
    let full: Vec<_> = (0..BATCH_BYTES / 1003)
        .map(|_| Queued::new(&text(&"x".repeat(998))).unwrap())
        .collect();
    let batch = Batch::of(a.id(), &full).to_bytes();
    let outcomes: Vec<_> = (0..40).map(|_| b.messages.receive(&batch)).collect();
    let taken = outcomes
        .iter()
        .take_while(|outcome| **outcome == BatchOutcome::Accepted);
    assert!((16..30).contains(&taken.count()), "{outcomes:?}");
    assert_eq!(outcomes.last(), Some(&BatchOutcome::RateLimited));
    let stranger = Batch::of(node_id("nobody"), &full).to_bytes();
    assert_eq!(b.messages.receive(&stranger), BatchOutcome::NonMember);
    assert_eq!(b.messages.receive(b"\xff"), BatchOutcome::Malformed);
    assert_eq!(b.messages.receive(&vec![0; 1 << 20]), BatchOutcome::Malformed);
    // From another member: a kind of a later build, and a truncated message.
    meet(&[&a, &b], &[member("c", b.member.address)]).await;
    let received = b.received().len();
    let odd = postcard::to_stdvec(&(
        node_id("c").0,
        vec![
            (200_u8, vec![&b"later"[..]]),
            (1, vec![&b"\x05cut"[..], &b"\x02ok"[..]]),
        ],
    ));
    assert_eq!(b.messages.receive(&odd.unwrap()), BatchOutcome::Accepted);
    assert_eq!(b.received()[received..], [(node_id("c"), text("ok"))]);
    assert_eq!(b.count(MessageOutcome::Malformed), 1);
}
