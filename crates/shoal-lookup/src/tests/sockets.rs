//! A name server on loopback, nodes that it polls, and clients over UDP and TCP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use parking_lot::Mutex;
use shoal_node::admin::members::{Member, Members};
use shoal_node::config::{Lookup as Config, LookupPlace};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{config, question, short};
use crate::Lookup;
use crate::answer::client::Client;
use crate::live_nodes::tests::member;

/// Longer than any step takes on a busy machine; a test that waits for it has failed.
const TIMEOUT: Duration = Duration::from_mins(2);

/// The admin port of a node that lists some members, until it is dropped.
struct Node {
    url: String,
    listed: Arc<Mutex<Vec<Member>>>,
    serving: JoinHandle<()>,
}

impl Node {
    async fn start(name: &'static str, listed: Vec<Member>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let listed = Arc::new(Mutex::new(listed));
        let members = Arc::clone(&listed);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let members = Members {
                    speaker: name.into(),
                    members: members.lock().clone(),
                };
                // The server gives up now and then, and asks again.
                let _ = say(stream, &members).await;
            }
        });
        Self { url, listed, serving }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Sends one answer, after which the connection ends.
async fn say(mut stream: TcpStream, members: &Members) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    assert!(request.starts_with(b"GET /members HTTP/1.1\r\n"));
    let page = serde_json::to_string(members).unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        page.len()
    );
    stream.write_all((head + &page).as_bytes()).await
}

fn asking(nodes: &[&Node]) -> Config {
    let config = config();
    let mut places = config.places.clone();
    places.push(LookupPlace {
        network: "127.0.0.0/8".parse().unwrap(),
        topology: "dc1/a/r1".into(),
    });
    Config {
        listen: vec!["127.0.0.1:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap()],
        nodes: nodes.iter().map(|node| node.url.clone()).collect(),
        places,
        ..config
    }
}

async fn ask_udp(server: SocketAddr, question: &Message) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&question.to_vec().unwrap(), server).await.unwrap();
    let mut answer = vec![0; 4096];
    let (length, source) = timeout(TIMEOUT, socket.recv_from(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(source, server);
    Message::from_vec(&answer[..length]).unwrap()
}

async fn ask_tcp(stream: &mut TcpStream, question: &Message) -> Message {
    let bytes = question.to_vec().unwrap();
    stream.write_u16(bytes.len() as u16).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let length = timeout(TIMEOUT, stream.read_u16()).await.unwrap().unwrap();
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await.unwrap();
    Message::from_vec(&answer).unwrap()
}

/// Asks until the answer is `expected`.
async fn until(server: SocketAddr, expected: &[&str]) {
    let asking = async {
        while short(&ask_udp(server, &question("s3.example.org.", RecordType::A)).await) != expected {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIMEOUT, asking)
        .await
        .unwrap_or_else(|_| panic!("the answer never became {expected:?}"));
}

async fn stop(server: Lookup) {
    let stopped = timeout(TIMEOUT, server.shutdown()).await;
    stopped.expect("a server that is asked to stop stops");
}

#[tokio::test]
async fn clients_are_led_to_the_nearest_node_and_to_the_next_one_when_it_dies() {
    let near = member("a1", "dc1/a/r1", "10.1.1.1:9000");
    let far = member("b1", "dc1/b/r1", "10.2.0.1:9000");
    let b1 = Node::start("b1", vec![far.clone(), near]).await;
    let server = Lookup::start(&asking(&[&b1])).await.unwrap();
    for &address in server.addresses() {
        until(address, &["10.1.1.1"]).await;
    }
    *b1.listed.lock() = vec![far];
    until(server.addresses()[0], &["10.2.0.1"]).await;
    drop(b1);
    until(server.addresses()[0], &[]).await;
    let nobody = ask_udp(server.addresses()[0], &question("s3.example.org.", RecordType::A)).await;
    assert_eq!(nobody.metadata.response_code, ResponseCode::ServFail);
    stop(server).await;
}

#[tokio::test]
async fn one_polled_node_that_lives_is_enough() {
    let a1 = Node::start("a1", vec![member("a1", "dc1/a/r1", "0.0.0.0:9000")]).await;
    let gone = Node::start("b1", vec![]).await;
    let config = asking(&[&gone, &a1]);
    drop(gone);
    let server = Lookup::start(&config).await.unwrap();
    // The node listens on every address, so its clients reach it where the test does.
    until(server.addresses()[0], &["127.0.0.1"]).await;
    stop(server).await;
}

#[tokio::test]
async fn a_connection_carries_many_questions_and_ends_at_one_that_is_none() {
    let a1 = Node::start("a1", vec![member("a1", "dc1/a/r1", "10.1.1.1:9000")]).await;
    let server = Lookup::start(&asking(&[&a1])).await.unwrap();
    let address = server.addresses()[0];
    until(address, &["10.1.1.1"]).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..3 {
        let answer = ask_tcp(&mut stream, &question("s3.example.org.", RecordType::A)).await;
        assert_eq!(short(&answer), ["10.1.1.1"]);
    }
    stream.write_all(b"\x00\x03abc").await.unwrap();
    let ended = timeout(TIMEOUT, stream.read(&mut [0; 16])).await.unwrap();
    assert_eq!(ended.unwrap(), 0);
    stop(server).await;
    assert!(
        TcpStream::connect(address).await.is_err(),
        "nobody listens any more"
    );
}

#[tokio::test]
async fn its_pages_are_for_those_that_know_its_name_and_not_for_another_sites_page() {
    let a1 = Node::start("a1", vec![member("a1", "dc1/a/r1", "10.1.1.1:9000")]).await;
    let config = Config {
        admin: Some("127.0.0.1:0".parse().unwrap()),
        ..asking(&[&a1])
    };
    let server = Lookup::start(&config).await.unwrap();
    let admin = server.admin_address().unwrap();
    for (path, host, status) in [
        ("/metrics", "127.0.0.1", "200"),
        ("/metrics", "dns.internal:9153", "200"),
        ("/metrics", "evil.example", "421"),
        ("/nothing", "evil.example", "421"),
        ("/healthz", "evil.example", "200"),
    ] {
        let mut stream = TcpStream::connect(admin).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let reading = stream.read_to_string(&mut answer);
        timeout(TIMEOUT, reading).await.unwrap().unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path} at {host}: {answer}"
        );
    }
    stop(server).await;
}

#[tokio::test]
async fn a_network_that_asks_too_much_by_datagrams_is_sent_to_tcp_in_as_few_bytes_as_it_asked() {
    let a1 = Node::start("a1", vec![member("a1", "dc1/a/r1", "10.1.1.1:9000")]).await;
    let server = Lookup::start(&asking(&[&a1])).await.unwrap();
    let address = server.addresses()[0];
    let asked = question("s3.example.org.", RecordType::SRV);
    let answer = loop {
        let answer = ask_udp(address, &asked).await;
        if answer.metadata.truncation {
            break answer;
        }
    };
    assert!(answer.to_vec().unwrap().len() <= asked.to_vec().unwrap().len());
    assert_eq!(answer.queries, asked.queries);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let whole = ask_tcp(&mut stream, &asked).await;
    assert!(!whole.metadata.truncation);
    stop(server).await;
}

#[tokio::test]
async fn silent_connections_of_one_network_leave_room_for_another() {
    let a1 = Node::start("a1", vec![member("a1", "dc1/a/r1", "10.1.1.1:9000")]).await;
    let server = Lookup::start(&asking(&[&a1])).await.unwrap();
    let address = server.addresses()[0];
    until(address, &["10.1.1.1"]).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let elsewhere = tokio::net::TcpSocket::new_v4().unwrap();
    elsewhere.bind("127.0.9.1:0".parse().unwrap()).unwrap();
    let mut stream = elsewhere.connect(address).await.unwrap();
    let answer = ask_tcp(&mut stream, &question("s3.example.org.", RecordType::A)).await;
    assert_eq!(short(&answer), ["10.1.1.1"]);
    let closed = timeout(TIMEOUT, silent[299].read(&mut [0; 1])).await.unwrap();
    assert_eq!(closed.unwrap_or(0), 0, "one too many of its network");
    stop(server).await;
}

#[tokio::test]
async fn an_explanation_lists_the_answer_the_nodes_left_out_and_the_silent_nodes() {
    let mut leaving = member("a2", "dc1/a/r1", "10.1.1.2:9000");
    leaving.state = shoal_node::admin::members::MemberState::Draining;
    let near = member("a1", "dc1/a/r1", "10.1.1.1:9000");
    let far = member("b1", "dc1/b/r1", "10.2.0.1:9000");
    let b1 = Node::start("b1", vec![near, far, leaving]).await;
    let gone = Node::start("x", vec![]).await;
    let config = asking(&[&b1, &gone]);
    drop(gone);
    let client = Client {
        network: "10.1.1.9/32".parse().unwrap(),
        from_option: true,
    };
    let explanation = crate::explain(&config, client).await.unwrap();
    assert!(explanation.has_answer());
    assert_eq!(explanation.silent[0].url, config.nodes[1]);
    let text = explanation.to_text();
    for line in [
        "client  10.1.1.9",
        "place   dc1/a/r1  ([[lookup.place]] 10.1.1.0/24)",
        "name    s3.example.org, for 5 s",
        "node  topology  shared  load  weight  address        why",
        "a1    dc1/a/r1  3       0.00  1.00    10.1.1.1:9000  answered",
        "b1    dc1/b/r1  1       0.00  1.00    10.2.0.1:9000  farther",
        "a2    dc1/a/r1  3       0.00  1.00    10.1.1.2:9000  draining",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line} in\n{text}");
    }
    let json = serde_json::json!(explanation);
    assert_eq!(
        (&json["nodes"][0]["name"], &json["nodes"][0]["answered"]),
        (&"a1".into(), &true.into())
    );
    assert_eq!(json["topology"], "dc1/a/r1");
}

/// The status and the body of an admin page.
async fn page(server: &Lookup, method: &str, path: &str) -> (u16, String) {
    let address = server.admin_address().expect("it was configured");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(TIMEOUT, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn operators_see_whether_it_can_answer_and_what_it_has_answered() {
    let a1 = Node::start("a1", vec![member("a1", "dc1/a/r1", "10.1.1.1:9000")]).await;
    let gone = Node::start("b1", vec![]).await;
    let config = Config {
        admin: Some("127.0.0.1:0".parse().unwrap()),
        ..asking(&[&a1, &gone])
    };
    let (up, down) = (a1.url.clone(), gone.url.clone());
    drop(gone);
    let server = Lookup::start(&config).await.unwrap();
    until(server.addresses()[0], &["10.1.1.1"]).await;
    assert_eq!(page(&server, "GET", "/healthz").await, (200, "alive\n".into()));
    assert_eq!(page(&server, "GET", "/readyz").await.0, 200);
    assert_eq!(page(&server, "POST", "/readyz").await.0, 405);
    assert_eq!(page(&server, "GET", "/status").await.0, 404);

    let mut stream = TcpStream::connect(server.addresses()[0]).await.unwrap();
    ask_tcp(&mut stream, &question("elsewhere.example.", RecordType::A)).await;
    let (status, metrics) = page(&server, "GET", "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "shoal_lookup_questions_total{transport=\"tcp\",code=\"REFUSED\"} 1",
        "shoal_lookup_questions_total{transport=\"udp\",code=\"NOERROR\"} 1",
        "shoal_lookup_nodes{state=\"serving\"} 1",
        &format!("shoal_lookup_polled_up{{node=\"{up}\"}} 1"),
        &format!("shoal_lookup_polled_up{{node=\"{down}\"}} 0"),
    ] {
        assert!(metrics.lines().any(|said| said == line), "{line}\n{metrics}");
    }

    drop(a1);
    until(server.addresses()[0], &[]).await;
    let (status, said) = page(&server, "GET", "/readyz").await;
    assert_eq!(
        (status, said.as_str()),
        (503, r#"{"missing":["nodes"],"ready":false}"#)
    );
    stop(server).await;
}
