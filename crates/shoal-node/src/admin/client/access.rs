//! How a client authenticates at an admin port, and how it verifies the port's certificate.

use std::path::{Path, PathBuf};

use http::HeaderValue;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::RootCertStore;
use shoal_base::small_file;
use shoal_base::tls::{self, FileError, OwnCertificate};

use super::AdminUrl;

/// A client's credentials for admin ports, and the CA certificates that it trusts.
#[derive(Clone, Debug, Default)]
pub struct AdminAccess {
    /// The `Authorization` header with a line of `[admin] token_file`.
    pub token: Option<HeaderValue>,
    /// CA certificates for admin ports; `None` for the system's.
    pub ca_file: Option<PathBuf>,
    /// Client certificate, if `[admin] client_ca` requires them.
    pub certificate: Option<OwnCertificate>,
}

impl AdminAccess {
    /// Creates the access with the token in a file, its first non-empty line, if there is one.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or holds no token.
    pub fn open(
        token_file: Option<&Path>,
        ca_file: Option<PathBuf>,
        certificate: Option<OwnCertificate>,
    ) -> Result<Self, FileError> {
        let token = token_file.map(read_token).transpose()?;
        Ok(Self {
            token,
            ca_file,
            certificate,
        })
    }

    /// Returns a connector for ports like the one at `url`.
    pub(super) fn connector(
        &self,
        url: &AdminUrl,
        tcp: HttpConnector,
    ) -> Result<HttpsConnector<HttpConnector>, FileError> {
        // The certificates of the system are loaded only for https, because there are hundreds.
        let roots = if self.ca_file.is_some() || url.is_https() {
            tls::roots(self.ca_file.as_deref())?
        } else {
            RootCertStore::empty()
        };
        let config = tls::client(roots, self.certificate.as_ref())?;
        let connector = HttpsConnectorBuilder::new().with_tls_config(config);
        Ok(connector.https_or_http().enable_http1().wrap_connector(tcp))
    }
}

fn read_token(path: &Path) -> Result<HeaderValue, FileError> {
    let text = small_file::read_text(path).map_err(|error| FileError::of(path, error))?;
    let token = text.lines().map(str::trim).find(|line| !line.is_empty());
    let token = token.ok_or_else(|| FileError::of(path, "it holds no token"))?;
    let header = HeaderValue::try_from(format!("Bearer {token}"));
    let mut header = header.map_err(|_| FileError::of(path, "it has control characters"))?;
    header.set_sensitive(true);
    Ok(header)
}
