//! Nodes that meet over real sockets, and strangers that pretend to be nodes.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{AuthFailure, Channel, Keys, NodeStream, answering, asking};

const SECRET: &str = "the secret of this cluster";

fn node(name: &str, secret: &str) -> Channel {
    Channel::new(name, [secret], 100)
}

/// Starts a listening node that echoes what it receives.
async fn listens(channel: Arc<Channel>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, from)) = listener.accept().await {
            let channel = Arc::clone(&channel);
            tokio::spawn(async move {
                let Ok(stream) = channel.accept(stream, from).await else {
                    return;
                };
                let (mut heard, mut said) = tokio::io::split(stream);
                let _ = tokio::io::copy(&mut heard, &mut said).await;
            });
        }
    });
    address
}

/// Starts a proxy in front of the node at `address` that alters one byte of the node's answers.
async fn altering(address: SocketAddr, at: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let between = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let far = TcpStream::connect(address).await.unwrap();
        let (mut asks, mut hears) = near.into_split();
        let (mut says, mut is_asked) = far.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut asks, &mut is_asked).await });
        let mut before = (&mut says).take(at);
        tokio::io::copy(&mut before, &mut hears).await.unwrap();
        let byte = says.read_u8().await.unwrap();
        hears.write_u8(byte ^ 1).await.unwrap();
        let _ = tokio::io::copy(&mut says, &mut hears).await;
    });
    between
}

/// Sends bytes, and checks that they come back.
async fn exchange(stream: NodeStream) {
    let sent: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 253) as u8).collect();
    let (mut heard, mut said) = tokio::io::split(stream);
    let mut received = vec![0; sent.len()];
    let (written, read) = tokio::join!(said.write_all(&sent), heard.read_exact(&mut received));
    written.unwrap();
    read.unwrap();
    assert!(received == sent);
}

fn count(channel: &Channel, failure: AuthFailure) -> u64 {
    channel.auth_failures.counts.get(failure)
}

#[tokio::test]
async fn nodes_that_know_the_secret_speak() {
    let address = listens(Arc::new(node("n1", SECRET))).await;
    let near = node("n0", SECRET);
    exchange(near.to("n1", address).dial().await.unwrap()).await;
}

#[tokio::test]
async fn bytes_altered_on_the_way_end_the_connection_and_those_before_them_arrive() {
    const ALTERED_AT: u64 = 300_000;
    let address = altering(listens(Arc::new(node("n1", SECRET))).await, ALTERED_AT).await;
    let near = node("n0", SECRET);
    let stream = near.to("n1", address).dial().await.unwrap();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 253) as u8).collect();
    let (mut heard, mut said) = tokio::io::split(stream);
    let mut received = Vec::new();
    let ended = tokio::select! {
        ended = heard.read_to_end(&mut received) => ended,
        Err(error) = said.write_all(&sent) => Err(error),
    };
    assert!(ended.is_err());
    assert_eq!(count(&near, AuthFailure::Altered), 1);
    assert!(heard.read_u8().await.is_err());
    // A record has 16 KiB at most; heads and the handshake are less than 2 KiB.
    let before = ALTERED_AT - (18 << 10)..ALTERED_AT;
    assert!(before.contains(&(received.len() as u64)), "{}", received.len());
    assert!(sent.starts_with(&received));
}

#[tokio::test]
async fn a_node_with_the_address_of_another_is_not_believed_to_be_it() {
    let address = listens(Arc::new(node("n2", SECRET))).await;
    let near = node("n0", SECRET);
    assert!(near.to("n1", address).dial().await.is_err());
    assert_eq!(count(&near, AuthFailure::HandshakeLimit), 1);
    near.to("n2", address).dial().await.unwrap();
}

#[tokio::test]
async fn a_node_with_another_secret_is_refused_and_both_ends_say_why() {
    let far = Arc::new(node("n1", "some other secret"));
    let address = listens(Arc::clone(&far)).await;
    let near = node("n0", SECRET);
    assert!(near.to("n1", address).dial().await.is_err());
    assert_eq!(count(&near, AuthFailure::OtherSecret), 1);
    assert_eq!(count(&far, AuthFailure::OtherSecret), 1);
}

#[tokio::test]
async fn an_answer_without_the_secret_is_rejected_under_any_name() {
    // The stranger has seen the protocol name of the nodes, and derives keys from another secret.
    let (seen, own) = (Keys::of(SECRET), Keys::of("some other secret"));
    let mut config: ServerConfig = answering(&seen, "n1");
    config.cert_resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(own.of_node("n1")));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let _ = TlsAcceptor::from(Arc::new(config)).accept(stream).await;
    });
    let near = node("n0", SECRET);
    assert!(near.to("n1", address).dial().await.is_err());
    assert_eq!(count(&near, AuthFailure::HandshakeLimit), 1);
}

#[tokio::test]
async fn a_request_without_the_secret_is_rejected_under_any_name() {
    let far = Arc::new(node("n1", SECRET));
    let address = listens(Arc::clone(&far)).await;
    let (seen, own) = ([Keys::of(SECRET)], Keys::of("some other secret"));
    let mut config = asking(&seen, "n1");
    config.client_auth_cert_resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(own.of_asking()));
    let name = rustls_pki_types::ServerName::from(address.ip());
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    // The handshake of TLS 1.3 ends at this end before the other end has checked the key.
    let mut stream = connector.connect(name, stream).await.unwrap();
    let _ = stream.write_all(b"a question").await;
    let mut answer = Vec::new();
    assert!(stream.read_to_end(&mut answer).await.is_err());
    assert!(answer.is_empty());
    assert_eq!(count(&far, AuthFailure::HandshakeLimit), 1);
}

#[tokio::test]
async fn strangers_that_say_nothing_do_not_keep_nodes_out() {
    let far = Arc::new(Channel::new("n1", [SECRET], 8));
    let address = listens(Arc::clone(&far)).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let near = node("n0", SECRET);
    exchange(near.to("n1", address).dial().await.unwrap()).await;
    // Four may be unproven at a time; the oldest are closed at once.
    let mut byte = [0];
    assert_eq!(silent[0].read(&mut byte).await.unwrap(), 0);
    assert!(count(&far, AuthFailure::Unfinished) >= 16);
}

#[tokio::test]
async fn a_node_that_knows_two_secrets_speaks_with_those_that_know_either() {
    let both = Arc::new(Channel::new("both", [SECRET, "the secret of yesterday"], 100));
    let in_the_middle = listens(Arc::clone(&both)).await;
    for secret in [SECRET, "the secret of yesterday"] {
        let one = Arc::new(node("one", secret));
        exchange(one.to("both", in_the_middle).dial().await.unwrap()).await;
        let address = listens(one).await;
        exchange(both.to("one", address).dial().await.unwrap()).await;
    }
    let neither = node("neither", "some other secret");
    assert!(neither.to("both", in_the_middle).dial().await.is_err());
}
