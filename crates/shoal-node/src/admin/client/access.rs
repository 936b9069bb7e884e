//! How a client authenticates at an admin port, and how it verifies the port's certificate.

use std::path::{Path, PathBuf};

use http::HeaderValue;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{ClientConfig, RootCertStore};
use shoal_base::secret::Secret;
use shoal_base::small_file;
use shoal_base::tls::{self, FileError};

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

impl AdminAccess {
    /// Reads a token from a file: its first non-empty line.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or holds no token.
    pub fn read_token(&mut self, path: &Path) -> Result<(), FileError> {
        let text = small_file::read_text(path).map_err(|error| FileError::of(path, error))?;
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let token = lines
            .next()
            .ok_or_else(|| FileError::of(path, "it holds no token"))?;
        self.token = Some(Secret::new(token));
        self.header()
            .map_err(|error| FileError::of(path, error.why))
            .map(drop)
    }

    /// Returns the `Authorization` header with the token.
    pub(super) fn header(&self) -> Result<Option<HeaderValue>, FileError> {
        let header = |token: &Secret| {
            let header = HeaderValue::try_from(format!("Bearer {}", token.expose()));
            let mut header =
                header.map_err(|_| FileError::of(Path::new("token"), "it has control characters"))?;
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
    ) -> Result<HttpsConnector<HttpConnector>, FileError> {
        let config = self.tls(url)?;
        let connector = HttpsConnectorBuilder::new().with_tls_config(config);
        Ok(connector.https_or_http().enable_http1().wrap_connector(tcp))
    }

    fn tls(&self, url: &AdminUrl) -> Result<ClientConfig, FileError> {
        // The certificates of the system are loaded only for https, because there are hundreds.
        let roots = if self.ca_file.is_some() || url.is_https() {
            tls::roots(self.ca_file.as_deref())?
        } else {
            RootCertStore::empty()
        };
        let own = self.certificate.as_ref();
        tls::client(
            roots,
            own.map(|(certificate, key)| (certificate.as_path(), key.as_path())),
        )
    }
}
