//! Connects to an endpoint: name resolution, TCP, and TLS if the URL requires it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper::service::Service;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustls_pki_types::ServerName;
use shoal_base::tls;
use tokio_rustls::TlsConnector;

use super::socket::{CurrentPermit, Socket};
use crate::channel::Dialer;
use crate::endpoint::BoxError;

/// A connection, encrypted or not.
pub(in crate::endpoint) type Stream = Box<dyn Wire>;

pub(in crate::endpoint) trait Wire:
    hyper::rt::Read + hyper::rt::Write + Send + Unpin
{
}

impl<W: hyper::rt::Read + hyper::rt::Write + Send + Unpin> Wire for W {}

pub(in crate::endpoint) enum Connector {
    /// To a store.
    Store(Box<StoreConnector>),
    /// To another node.
    Node(Dialer),
}

pub(in crate::endpoint) struct StoreConnector {
    address: Uri,
    tcp: TowerToHyperService<HttpConnector>,
    /// The TLS configuration and the name expected in the store's certificate; `None` for plain HTTP.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    undelivered_max: Duration,
}

impl Connector {
    /// Creates a connector to a store. For `https`, it trusts the certificates of `ca_file`, or else of the
    /// system ([`tls::roots`]). `window_bytes` limits the bytes that the kernel receives ahead of the node;
    /// `undelivered_max` is how long the kernel keeps unacknowledged bytes of a change.
    pub(in crate::endpoint) fn new(
        address: Uri,
        ca_file: Option<&Path>,
        window_bytes: Option<u64>,
        undelivered_max: Duration,
    ) -> Result<Self, BoxError> {
        let is_tls = address.scheme_str() == Some("https");
        Ok(Self::Store(Box::new(StoreConnector {
            tls: is_tls.then(|| tls(&address, ca_file)).transpose()?,
            address,
            tcp: TowerToHyperService::new(tcp(window_bytes)),
            undelivered_max,
        })))
    }

    /// Connects. Returns the connection, and the permission under which its socket sends, which requests to
    /// other nodes do not need. Fails with [`Elapsed`](tokio::time::error::Elapsed) if name resolution, TCP
    /// and TLS together take longer than `timeout`.
    pub(in crate::endpoint) async fn connect(
        &self,
        timeout: Duration,
    ) -> Result<(Stream, CurrentPermit), BoxError> {
        let connecting = async {
            match self {
                Self::Store(store) => store.connect().await,
                Self::Node(dialer) => {
                    let stream: Stream = Box::new(TokioIo::new(dialer.dial().await?));
                    Ok((stream, CurrentPermit::default()))
                }
            }
        };
        tokio::time::timeout(timeout, connecting).await?
    }
}

impl StoreConnector {
    async fn connect(&self) -> Result<(Stream, CurrentPermit), BoxError> {
        let socket = Socket::new(self.tcp.call(self.address.clone()).await?, self.undelivered_max)?;
        let permit = socket.permit();
        let stream: Stream = match &self.tls {
            None => Box::new(socket),
            Some((tls, name)) => {
                // The socket is below TLS, which has a buffer of its own.
                let socket = TokioIo::new(socket);
                Box::new(TokioIo::new(tls.connect(name.clone(), socket).await?))
            }
        };
        Ok((stream, permit))
    }
}

fn tls(address: &Uri, ca_file: Option<&Path>) -> Result<(TlsConnector, ServerName<'static>), BoxError> {
    let config = tls::client(tls::roots(ca_file)?, None)?;
    let host = address.host().unwrap_or_default();
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

fn tcp(window_bytes: Option<u64>) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    // Linux doubles the size for its own use, and may offer nearly all of that to the sender.
    tcp.set_recv_buffer_size(window_bytes.map(|bytes| (bytes / 2) as usize));
    tcp.enforce_http(false);
    // Otherwise a request in two segments waits 40 ms for the peer's delayed acknowledgement.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    tcp
}
