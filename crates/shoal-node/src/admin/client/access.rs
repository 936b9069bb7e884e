//! How a client authenticates at an admin port, and how it verifies the port's certificate.

use std::fmt;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use shoal_base::secret::Secret;
use shoal_base::small_file;

use super::AdminUrl;

/// A client's credentials for admin ports, and the CA certificates that it trusts.
#[derive(Clone, Debug, Default)]
pub struct AdminAccess {
    /// A line of `[admin] token_file`.
    pub token: Option<Secret>,
    /// CA certificates for admin ports; `None` for the system's.
    pub ca_file: Option<PathBuf>,
    /// Client certificate and key, if `[admin] client_ca` requires them.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// A file that a client cannot use.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct AccessError {
    path: PathBuf,
    why: String,
}

impl AccessError {
    fn of(path: &Path, why: impl fmt::Display) -> Self {
        Self {
            path: path.into(),
            why: why.to_string(),
        }
    }
}

impl AdminAccess {
    /// Reads a token from a file: its first non-empty line.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or holds no token.
    pub fn read_token(&mut self, path: &Path) -> Result<(), AccessError> {
        let text = small_file::read_text(path).map_err(|error| AccessError::of(path, error))?;
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let token = lines
            .next()
            .ok_or_else(|| AccessError::of(path, "it holds no token"))?;
        self.token = Some(Secret::new(token));
        self.header()
            .map_err(|error| AccessError::of(path, error.why))
            .map(drop)
    }

    /// Returns the `Authorization` header with the token.
    pub(super) fn header(&self) -> Result<Option<HeaderValue>, AccessError> {
        let header = |token: &Secret| {
            let header = HeaderValue::try_from(format!("Bearer {}", token.expose()));
            let mut header =
                header.map_err(|_| AccessError::of(Path::new("token"), "it has control characters"))?;
            header.set_sensitive(true);
            Ok(header)
        };
        self.token.as_ref().map(header).transpose()
    }

    /// Returns a connector for ports like the one at `url`.
    pub(super) fn connector(
        &self,
        url: &AdminUrl,
        tcp: HttpConnector,
    ) -> Result<HttpsConnector<HttpConnector>, AccessError> {
        let config = self.tls(url)?;
        let connector = HttpsConnectorBuilder::new().with_tls_config(config);
        Ok(connector.https_or_http().enable_http1().wrap_connector(tcp))
    }

    fn tls(&self, url: &AdminUrl) -> Result<ClientConfig, AccessError> {
        let system = Path::new("the certificates of the system");
        let config = ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into());
        let config = config.with_safe_default_protocol_versions();
        let config = config.map_err(|error| AccessError::of(system, error))?;
        let config = match &self.ca_file {
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots
                        .add(certificate)
                        .map_err(|error| AccessError::of(path, error))?;
                }
                config.with_root_certificates(roots)
            }
            // Loaded only for https, because there are hundreds.
            None if url.is_https() => config
                .with_native_roots()
                .map_err(|error| AccessError::of(system, error))?,
            None => config.with_root_certificates(RootCertStore::empty()),
        };
        let Some((certificate, key)) = &self.certificate else {
            return Ok(config.with_no_client_auth());
        };
        let pem = small_file::read(key).map_err(|error| AccessError::of(key, error))?;
        let private = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| AccessError::of(key, error))?;
        let config = config.with_client_auth_cert(certificates(certificate)?, private);
        config.map_err(|error| AccessError::of(certificate, error))
    }
}

/// Reads the certificates in a PEM file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let pem = small_file::read(path).map_err(|error| AccessError::of(path, error))?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| AccessError::of(path, error))?;
    if certificates.is_empty() {
        return Err(AccessError::of(path, "it holds no certificate"));
    }
    Ok(certificates)
}
