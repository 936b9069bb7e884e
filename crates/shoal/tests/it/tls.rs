//! TLS in front of something that does not speak it, with a certificate made for these tests.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// For 127.0.0.1 and localhost; signed by itself, valid until 2126.
pub(crate) const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls/certificate.pem");
pub(crate) const PRIVATE_KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls/private-key.pem");

/// Accepts TLS and passes the bytes on to `target`, until the runtime of the test ends.
pub(crate) async fn in_front_of(target: SocketAddr) -> SocketAddr {
    let certificate = CertificateDer::from_pem_file(CERTIFICATE).unwrap();
    let private_key = PrivateKeyDer::from_pem_file(PRIVATE_KEY).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], private_key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _peer)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust us hangs up; that is its answer.
                let Ok(mut outside) = acceptor.accept(stream).await else {
                    return;
                };
                let mut inside = TcpStream::connect(target).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut outside, &mut inside).await);
            });
        }
    });
    address
}
