//! The listener with a certificate: HTTP/1.1 and HTTP/2 over TLS, failed handshakes, renewed certificates.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{GET, Server, TIMEOUT, start, wide};
use crate::http::connection::Timeouts;
use crate::http::listener::{ConnectionLimits, HTTP2_CONNECTIONS};
use crate::http::tls::TlsReloader;

fn data(name: &str) -> String {
    format!("{}/tests/data/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

async fn connect_tls(server: &Server, alpn: &[&[u8]]) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(data("ca.pem")).unwrap())
        .unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, server.connect().await)
        .await
        .unwrap()
}

fn certificate_of(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}

#[tokio::test]
async fn http1_is_spoken_over_tls_and_framed_as_strictly() {
    let tls = TlsReloader::load(data("first.pem"), data("first.key"), None).unwrap();
    let server = start(wide(), Some(tls));
    let mut client = connect_tls(&server, &[]).await;
    client
        .write_all((GET.to_owned() + "GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    timeout(TIMEOUT, client.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.contains("HTTP/1.1 h /1;"), "{answer}");
    assert!(answer.contains("<Code>BadRequest</Code>"), "{answer}");
}

#[tokio::test]
async fn http2_is_spoken_over_tls_and_its_requests_have_one_host() {
    let tls = TlsReloader::load(data("first.pem"), data("first.key"), None).unwrap();
    let server = start(wide(), Some(tls));
    let stream = connect_tls(&server, &[b"h2", b"http/1.1"]).await;
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let request = |host: Option<&str>| {
        let mut request = Request::get("https://localhost/1").version(Version::HTTP_2);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        request.body(Empty::<Bytes>::new()).unwrap()
    };
    let many = (0..20)
        .map(|_| client.send_request(request(None)))
        .collect::<Vec<_>>();
    for answer in many {
        let body = answer
            .await
            .unwrap()
            .into_body()
            .collect()
            .await
            .unwrap()
            .to_bytes();
        assert_eq!(body, "HTTP/2.0 localhost /1;");
    }
    let refused = client.send_request(request(Some("other"))).await.unwrap();
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert!(body.windows(10).any(|window| window == b"BadRequest"), "{body:?}");

    let nap = client.send_request(
        Request::get("https://localhost/nap")
            .body(Empty::<Bytes>::new())
            .unwrap(),
    );
    let nap = tokio::spawn(nap);
    server.comes_to_show("slow", 1).await;
    server.trigger.begin();
    assert_eq!(
        nap.await.unwrap().unwrap().status(),
        StatusCode::OK,
        "in flight when stopping began"
    );
    timeout(TIMEOUT, connection).await.unwrap().unwrap().unwrap();
    timeout(TIMEOUT, server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn clients_beyond_those_that_may_speak_http2_are_offered_http1() {
    let tls = TlsReloader::load(data("first.pem"), data("first.key"), None).unwrap();
    let server = start(wide(), Some(tls));
    let spoken = |stream: &TlsStream<TcpStream>| stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    let connect = || connect_tls(&server, &[b"h2", b"http/1.1"]);
    let mut clients = Vec::new();
    for _ in 0..HTTP2_CONNECTIONS {
        clients.push(connect().await);
    }
    assert!(clients.iter().all(|client| spoken(client).unwrap() == b"h2"));
    let mut beyond = connect().await;
    assert_eq!(spoken(&beyond).unwrap(), b"http/1.1");
    beyond.write_all(GET.as_bytes()).await.unwrap();
    assert!(beyond.read(&mut [0; 16]).await.unwrap() > 0);
    drop(clients);
    while spoken(&connect().await).unwrap() != b"h2" {
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn an_idle_http2_connection_is_closed_with_a_goodbye() {
    let idle = Duration::from_millis(200);
    let tls = TlsReloader::load(data("first.pem"), data("first.key"), None).unwrap();
    let server = start(
        ConnectionLimits {
            timeouts: Timeouts {
                idle,
                ..wide().timeouts
            },
            ..wide()
        },
        Some(tls),
    );
    let stream = connect_tls(&server, &[b"h2"]).await;
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let request = |path: &str| {
        Request::get(format!("https://localhost{path}"))
            .body(Empty::<Bytes>::new())
            .unwrap()
    };
    // Longer than the idle timeout, but not idle.
    client.send_request(request("/nap")).await.unwrap();
    timeout(TIMEOUT, connection)
        .await
        .expect("closed in time")
        .unwrap()
        .expect("GOAWAY, not a broken connection");
    server.comes_to_show("open", 0).await;
}

#[tokio::test]
async fn a_tls_handshake_that_does_not_come_about_is_given_up() {
    let header = Duration::from_millis(200);
    let tls = TlsReloader::load(data("first.pem"), data("first.key"), None).unwrap();
    let limits = ConnectionLimits {
        timeouts: Timeouts {
            header,
            ..wide().timeouts
        },
        ..wide()
    };
    let server = start(limits, Some(tls));
    let mut silent = server.connect().await;
    assert_eq!(silent.read(&mut [0; 16]).await.unwrap_or(0), 0);
    let mut plain = server.connect().await;
    plain.write_all(GET.as_bytes()).await.unwrap();
    let mut alert = Vec::new();
    let _ = timeout(TIMEOUT, plain.read_to_end(&mut alert)).await.unwrap();
    assert!(!alert.starts_with(b"HTTP/"), "no plain answer on a TLS port");
    server.comes_to_show("tls-handshake", 2).await;
}

#[tokio::test]
async fn a_renewed_certificate_is_used_without_restart_and_a_broken_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("tls.pem"), folder.path().join("tls.key"));
    let install = |name: &str| {
        std::fs::copy(data(&format!("{name}.pem")), &certificate).unwrap();
        std::fs::copy(data(&format!("{name}.key")), &key).unwrap();
    };
    let expected = |name: &str| CertificateDer::from_pem_file(data(&format!("{name}.pem"))).unwrap();
    install("first");
    let tls = TlsReloader::load(&certificate, &key, None).unwrap();
    let server = start(wide(), Some(Arc::clone(&tls)));
    let old = connect_tls(&server, &[]).await;
    assert_eq!(certificate_of(&old), expected("first"));

    install("second");
    assert!(tls.renew().unwrap());
    assert_eq!(
        certificate_of(&connect_tls(&server, &[]).await),
        expected("second")
    );
    assert!(!tls.renew().unwrap(), "nothing new");

    std::fs::copy(data("first.pem"), &certificate).unwrap();
    assert!(tls.renew().is_err(), "the key is another's");
    std::fs::write(&certificate, "-----BEGIN CERTIFICATE-----\n").unwrap();
    assert!(tls.renew().is_err());
    std::fs::remove_file(&certificate).unwrap();
    assert!(tls.renew().is_err());
    assert_eq!(
        certificate_of(&connect_tls(&server, &[]).await),
        expected("second"),
        "the old one is kept"
    );
}
