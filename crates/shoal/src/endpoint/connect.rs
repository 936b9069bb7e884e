//! How a connection to an endpoint is made: name, TCP, and TLS when the URL says so.

use std::io;
use std::time::Duration;

use http::Uri;
use hyper::service::Service;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;

use super::error::BoxError;

pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Name, TCP and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Connector {
    address: Uri,
    transport: Transport,
}

enum Transport {
    Plain(TowerToHyperService<HttpConnector>),
    Tls(TowerToHyperService<HttpsConnector<HttpConnector>>),
}

pub(super) enum ConnectError {
    TimedOut,
    Failed(BoxError),
}

impl ConnectError {
    pub(super) fn broken(error: hyper::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl Connector {
    /// For `https` trusts the roots of the system (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured).
    pub(super) fn new(address: Uri) -> io::Result<Self> {
        if address.scheme_str() != Some("https") {
            return Ok(Self {
                address,
                transport: Transport::Plain(TowerToHyperService::new(tcp())),
            });
        }
        let provider = rustls::crypto::ring::default_provider();
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(provider)?
            .https_only()
            .enable_http1()
            .wrap_connector(tcp());
        Ok(Self {
            address,
            transport: Transport::Tls(TowerToHyperService::new(tls)),
        })
    }

    pub(super) async fn connect(&self) -> Result<Stream, ConnectError> {
        let connecting = async {
            match &self.transport {
                Transport::Plain(tcp) => tcp
                    .call(self.address.clone())
                    .await
                    .map(Stream::Http)
                    .map_err(BoxError::from),
                Transport::Tls(tls) => tls.call(self.address.clone()).await,
            }
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(ConnectError::Failed),
            Err(_elapsed) => Err(ConnectError::TimedOut),
        }
    }
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // Without it a request in two segments waits 40 ms for the peer's delayed acknowledgement.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    tcp
}
