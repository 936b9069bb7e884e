//! The certificate of a port, reloaded when its files change.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CipherSuite, ProtocolVersion, RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shoal_base::small_file;
use tokio::task::spawn_blocking;
use tokio::time::interval;
use tokio_rustls::TlsAcceptor;
use tracing::{error, info};

use crate::time::shutdown::Shutdown;

/// How often the node checks the files for changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The version and the cipher of a connection that uses TLS, by the names that OpenSSL gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsSession {
    /// The version, such as `TLSv1.3`; empty if it has no such name.
    pub version: &'static str,
    /// The cipher suite, such as `TLS_AES_128_GCM_SHA256`; empty if it has no such name.
    pub cipher: &'static str,
}

impl TlsSession {
    /// Returns what a connection uses whose handshake has ended.
    pub fn of(connection: &rustls::ServerConnection) -> Self {
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "",
        };
        let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
        let cipher = match suite {
            Some(CipherSuite::TLS13_AES_128_GCM_SHA256) => "TLS_AES_128_GCM_SHA256",
            Some(CipherSuite::TLS13_AES_256_GCM_SHA384) => "TLS_AES_256_GCM_SHA384",
            Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => "TLS_CHACHA20_POLY1305_SHA256",
            Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) => "ECDHE-ECDSA-AES128-GCM-SHA256",
            Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384) => "ECDHE-ECDSA-AES256-GCM-SHA384",
            Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256) => {
                "ECDHE-ECDSA-CHACHA20-POLY1305"
            }
            Some(CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) => "ECDHE-RSA-AES128-GCM-SHA256",
            Some(CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384) => "ECDHE-RSA-AES256-GCM-SHA384",
            Some(CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256) => "ECDHE-RSA-CHACHA20-POLY1305",
            _ => "",
        };
        Self { version, cipher }
    }
}

/// A certificate or key that cannot be used: the file, the reason, and a hint.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

/// The current certificate, and the files that it is loaded from.
pub struct TlsReloader {
    paths: Files<PathBuf>,
    current: ArcSwap<Loaded>,
}

/// The paths of the files, or their contents.
#[derive(PartialEq, Eq)]
struct Files<T> {
    certificate: T,
    key: T,
    /// The CA certificates for clients.
    client_ca: Option<T>,
}

/// One certificate, configured for each set of protocols to offer.
struct Loaded {
    any: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
    /// The contents of the files, to detect changes.
    files: Files<Vec<u8>>,
}

impl Loaded {
    fn new(files: Files<Vec<u8>>, paths: &Files<PathBuf>) -> Result<Self, TlsError> {
        let config = files.configuration(paths)?;
        let offering = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self {
            any: offering(&[b"h2", b"http/1.1"]),
            http1: offering(&[b"http/1.1"]),
            files,
        })
    }
}

impl TlsReloader {
    /// Loads a PEM certificate chain and its private key. Accepts client certificates signed by those in
    /// `client_ca`.
    ///
    /// # Errors
    ///
    /// A file cannot be read or parsed, or the key does not match the certificate.
    pub fn load(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        client_ca: Option<PathBuf>,
    ) -> Result<Arc<Self>, TlsError> {
        let paths = Files {
            certificate: certificate.into(),
            key: key.into(),
            client_ca,
        };
        let loaded = Loaded::new(Files::read(&paths)?, &paths)?;
        let current = ArcSwap::from_pointee(loaded);
        Ok(Arc::new(Self { paths, current }))
    }

    /// Returns an acceptor with the current certificate, which offers HTTP/2 if `may_speak_http2`.
    pub fn acceptor(&self, may_speak_http2: bool) -> TlsAcceptor {
        let current = self.current.load();
        let config = if may_speak_http2 {
            &current.any
        } else {
            &current.http1
        };
        TlsAcceptor::from(Arc::clone(config))
    }

    /// Reloads the files if they have changed. Returns true if they had. On an error, the previous
    /// certificate stays in use.
    ///
    /// Reads files, so it blocks.
    ///
    /// # Errors
    ///
    /// Fails as [`load`](Self::load) does.
    pub fn renew(&self) -> Result<bool, TlsError> {
        let files = Files::read(&self.paths)?;
        let is_changed = self.current.load().files != files;
        if is_changed {
            self.current.store(Arc::new(Loaded::new(files, &self.paths)?));
        }
        Ok(is_changed)
    }

    /// Checks the files every five seconds, until `shutdown` begins.
    pub async fn watch(self: Arc<Self>, shutdown: Shutdown) {
        let mut looks = interval(LOOK_INTERVAL);
        let mut failures = 0;
        loop {
            tokio::select! {
                _ = looks.tick() => {}
                () = shutdown.begun() => return,
            }
            match self.look().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    if is_worth_reporting(failures) {
                        error!(%error, "new certificate not used, the old one stays in use");
                    }
                }
            }
        }
    }

    /// Checks the files now, and reloads them if they have changed.
    ///
    /// # Errors
    ///
    /// Fails as [`load`](Self::load) does.
    pub async fn look(self: &Arc<Self>) -> Result<(), TlsError> {
        let reloader = Arc::clone(self);
        let renewed = spawn_blocking(move || reloader.renew()).await;
        if renewed.expect("reading files does not panic")? {
            info!(certificate = %self.paths.certificate.display(), "new certificate in use");
        }
        Ok(())
    }
}

/// Returns true if the `failures`-th failure in a row is to be logged. The first is not, because the
/// certificate may have been written before its key. The second is, and then one per hour until an operator
/// intervenes.
fn is_worth_reporting(failures: u32) -> bool {
    failures == 2 || (failures > 2 && failures.is_multiple_of(720))
}

impl Files<Vec<u8>> {
    fn read(paths: &Files<PathBuf>) -> Result<Self, TlsError> {
        let read = |path: &Path| {
            small_file::read(path).map_err(|error| {
                let path = path.display();
                TlsError(format!(
                    "cannot read {path}: {error}\nhint: the node needs to read it; check the path and its permissions"
                ))
            })
        };
        Ok(Self {
            certificate: read(&paths.certificate)?,
            key: read(&paths.key)?,
            client_ca: paths.client_ca.as_deref().map(read).transpose()?,
        })
    }

    fn configuration(&self, paths: &Files<PathBuf>) -> Result<ServerConfig, TlsError> {
        let Files { certificate, key, .. } = paths;
        let chain = certificates(&self.certificate, certificate)?;
        let private = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| match error {
            pem::Error::NoItemsFound => TlsError(format!(
                "{} holds no private key\nhint: PKCS#8, PKCS#1 and SEC1 keys without a passphrase are understood",
                key.display()
            )),
            error => not_pem(key, &error),
        })?;
        let unusable = |error| {
            let (certificate, key) = (certificate.display(), key.display());
            TlsError(format!(
                "the certificate {certificate} and the key {key} cannot be used: {error}\nhint: they must belong together"
            ))
        };
        let provider = Arc::new(ring::default_provider());
        let verifier = self.client_verifier(paths, &provider)?;
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let builder = builder.with_client_cert_verifier(verifier);
                builder.with_single_cert(chain, private)
            })
            .map_err(unusable)
    }

    /// Returns the verifier of client certificates, if clients may present any. They need not.
    fn client_verifier(
        &self,
        paths: &Files<PathBuf>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let (Some(path), Some(pem)) = (&paths.client_ca, &self.client_ca) else {
            return Ok(WebPkiClientVerifier::no_client_auth());
        };
        let unusable = |error: &dyn fmt::Display| {
            let path = path.display();
            TlsError(format!(
                "the certificates in {path} cannot check those of clients: {error}\nhint: name the certificate of the authority that signs them"
            ))
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem, path)? {
            roots.add(certificate).map_err(|error| unusable(&error))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let verifier = verifier.allow_unauthenticated().build();
        verifier.map_err(|error| unusable(&error))
    }
}

/// Parses the certificates in a PEM file, of which there must be at least one.
fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| not_pem(path, &error))?;
    if certificates.is_empty() {
        return Err(TlsError(format!(
            "{} holds no certificate\nhint: put the server's certificate first, then its intermediates",
            path.display()
        )));
    }
    Ok(certificates)
}

fn not_pem(path: &Path, error: &pem::Error) -> TlsError {
    TlsError(format!(
        "{} is not valid PEM: {error}\nhint: expected are blocks between -----BEGIN and -----END lines",
        path.display()
    ))
}
