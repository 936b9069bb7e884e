//! The addresses of etcd, and how a node authenticates to it.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use rustls::ClientConfig;
use shoal_base::secret::Secret;
use shoal_base::tls::{self, FileError, OwnCertificate};

/// The addresses of etcd, and how a node authenticates to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The client URLs of its members, `https://etcd-1:2379` or `http://…`, separated by commas.
    pub endpoints: String,
    /// Keys of this registry begin with this, so that several users can share one etcd.
    pub prefix: String,
    /// Timeout of a request, including retries.
    pub timeout: Duration,
    /// The CA certificates for the members, in PEM; `None` for those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// A client certificate for members that require one. It does not identify the etcd
    /// user, because the gateway accepts only names and passwords.
    pub client_certificate: Option<OwnCertificate>,
    /// The user, if etcd has authentication enabled.
    pub user: Option<User>,
    /// `--quota-backend-bytes` of the members; `None` for the value that they report, or etcd's default.
    pub quota_bytes: Option<u64>,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    /// The name of the user.
    pub name: String,
    /// The password.
    pub password: Secret,
    /// The file that the password was read from, for pages that show the settings.
    pub password_file: PathBuf,
}

impl Settings {
    /// Creates settings for `endpoints`, with the certificates of the system and without a user.
    pub fn at(endpoints: impl Into<String>) -> Self {
        Self {
            endpoints: endpoints.into(),
            prefix: "shoal/".into(),
            timeout: Duration::from_secs(5),
            ca_file: None,
            client_certificate: None,
            user: None,
            quota_bytes: None,
        }
    }
}

/// The settings are not usable.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// An endpoint is not a URL of a server.
    #[error("`{0}` is not an endpoint of etcd\nhint: write https://HOST:PORT, several with commas")]
    Endpoint(String),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Certificate(#[from] FileError),
}

/// The members' URLs.
pub(super) fn endpoints(list: &str) -> Result<Vec<Uri>, SettingsError> {
    list.split(',')
        .map(|endpoint| parse_endpoint(endpoint.trim()))
        .collect()
}

fn parse_endpoint(endpoint: &str) -> Result<Uri, SettingsError> {
    let invalid = || SettingsError::Endpoint(without_user(endpoint).into());
    let uri: Uri = endpoint.parse().map_err(|_| invalid())?;
    let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    let plain = uri
        .authority()
        .is_some_and(|authority| !authority.as_str().contains('@'));
    let path = matches!(uri.path(), "" | "/") && uri.query().is_none();
    if scheme && plain && path {
        Ok(uri)
    } else {
        Err(invalid())
    }
}

/// Removes the user information of a URL, which may be a password, from messages.
fn without_user(endpoint: &str) -> &str {
    endpoint.rsplit_once('@').map_or(endpoint, |(_, rest)| rest)
}

/// The configuration of TLS.
pub(super) fn tls(settings: &Settings) -> Result<ClientConfig, FileError> {
    let roots = tls::roots(settings.ca_file.as_deref())?;
    tls::client(roots, settings.client_certificate.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_of_servers_and_nothing_else() {
        let found = endpoints("https://etcd-1:2379, http://[::1]:2379/").unwrap();
        assert_eq!(found.len(), 2);
        for wrong in [
            "",
            "etcd-1:2379",
            "ftp://etcd-1",
            "https://etcd-1/v3",
            "https://etcd-1,",
            "https://",
        ] {
            assert!(endpoints(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_certificate_without_an_end_is_refused() {
        let settings = Settings {
            ca_file: Some("/dev/zero".into()),
            ..Settings::at("https://etcd-1")
        };
        let refused = tls(&settings).unwrap_err().to_string();
        assert!(
            refused.contains("/dev/zero") && refused.contains("no end"),
            "{refused}"
        );
    }

    #[test]
    fn neither_debug_nor_errors_tell_a_password() {
        let mut settings = Settings::at("https://etcd-1");
        settings.user = Some(User {
            name: "shoal".into(),
            password: Secret::new("hunter2"),
            password_file: PathBuf::new(),
        });
        assert!(!format!("{settings:?}").contains("hunter2"));
        let error = endpoints("https://shoal:hunter2@etcd-1").unwrap_err();
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }

    #[test]
    fn a_missing_or_empty_certificate_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let settings = Settings {
            ca_file: Some(file.clone()),
            ..Settings::at("https://etcd-1")
        };
        for content in [None, Some("")] {
            if let Some(content) = content {
                std::fs::write(&file, content).unwrap();
            }
            let error = tls(&settings).unwrap_err();
            assert!(error.to_string().contains("ca.pem"), "{error}");
        }
    }
}
