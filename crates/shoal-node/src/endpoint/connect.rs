//! How a connection to an endpoint is made: name resolution, TCP, and TLS if the URL says so.

use std::path::Path;
use std::time::Duration;

use http::Uri;
use hyper::service::Service;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use shoal_base::small_file;

use super::error::BoxError;
use crate::channel::Dialer;

/// A connection, encrypted or not.
pub(super) type Stream = Box<dyn Wire>;

pub(super) trait Wire: hyper::rt::Read + hyper::rt::Write + Send + Unpin {}

impl<W: hyper::rt::Read + hyper::rt::Write + Send + Unpin> Wire for W {}

pub(super) enum Connector {
    Plain(Uri, TowerToHyperService<HttpConnector>),
    Tls(Uri, TowerToHyperService<HttpsConnector<HttpConnector>>),
    /// To another node.
    Node(Dialer),
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
    /// Creates a connector. For `https` it trusts the certificates in `ca_file`, else the roots of the system
    /// (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured). The system takes in at most `window_bytes` that the
    /// node has not read, if that is given.
    pub(super) fn new(
        address: Uri,
        ca_file: Option<&Path>,
        window_bytes: Option<u64>,
    ) -> Result<Self, BoxError> {
        let tcp = tcp(window_bytes);
        if address.scheme_str() != Some("https") {
            return Ok(Self::Plain(address, TowerToHyperService::new(tcp)));
        }
        let provider = rustls::crypto::ring::default_provider();
        let builder = HttpsConnectorBuilder::new();
        let builder = match ca_file {
            Some(ca_file) => {
                let config = ClientConfig::builder_with_provider(provider.into());
                let config = config.with_safe_default_protocol_versions()?;
                let roots = config.with_root_certificates(roots_in(ca_file)?);
                builder.with_tls_config(roots.with_no_client_auth())
            }
            None => builder.with_provider_and_native_roots(provider)?,
        };
        let tls = builder.https_only().enable_http1().wrap_connector(tcp);
        Ok(Self::Tls(address, TowerToHyperService::new(tls)))
    }

    /// Connects. Name resolution, TCP and TLS together take no longer than `timeout`.
    pub(super) async fn connect(&self, timeout: Duration) -> Result<Stream, ConnectError> {
        let connecting = async {
            match self {
                Self::Plain(address, tcp) => Ok(boxed(tcp.call(address.clone()).await?)),
                Self::Tls(address, tls) => Ok(boxed(tls.call(address.clone()).await?)),
                Self::Node(dialer) => Ok(boxed(TokioIo::new(dialer.dial().await?))),
            }
        };
        match tokio::time::timeout(timeout, connecting).await {
            Ok(connected) => connected.map_err(ConnectError::Failed),
            Err(_elapsed) => Err(ConnectError::TimedOut),
        }
    }
}

/// The certificates in a file of PEM.
fn roots_in(ca_file: &Path) -> Result<RootCertStore, BoxError> {
    let mut roots = RootCertStore::empty();
    let unread = |error: &dyn std::fmt::Display| format!("{}: {error}", ca_file.display());
    let pem = small_file::read(ca_file).map_err(|error| unread(&error))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.map_err(|error| unread(&error))?)?;
    }
    if roots.is_empty() {
        return Err(format!("{} holds no certificate", ca_file.display()).into());
    }
    Ok(roots)
}

fn boxed(wire: impl Wire + 'static) -> Stream {
    Box::new(wire)
}

fn tcp(window_bytes: Option<u64>) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    // Linux doubles the size for its own use, and may offer nearly all of that to the sender.
    tcp.set_recv_buffer_size(window_bytes.map(|bytes| (bytes / 2) as usize));
    tcp.enforce_http(false);
    // Without it a request in two segments waits 40 ms for the peer's delayed acknowledgement.
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(Duration::from_secs(30)));
    tcp
}
