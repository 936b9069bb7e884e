//! TLS towards servers: the certificates that a program trusts, and its own.

use std::fmt;
use std::path::{Path, PathBuf};

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::small_file;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct FileError {
    path: PathBuf,
    why: String,
}

impl FileError {
    /// Creates the error of the file at `path`.
    pub fn of(path: &Path, why: impl fmt::Display) -> Self {
        Self {
            path: path.into(),
            why: why.to_string(),
        }
    }
}

/// Returns the certificates in `ca_file` (PEM), or else those that the system trusts (`SSL_CERT_FILE` and
/// `SSL_CERT_DIR` are honoured).
///
/// # Errors
///
/// Fails if the file cannot be used, or the system has no certificates.
pub fn roots(ca_file: Option<&Path>) -> Result<RootCertStore, FileError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        for certificate in certificates(path)? {
            let added = roots.add(certificate);
            added.map_err(|error| FileError::of(path, error))?;
        }
        return Ok(roots);
    }
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        let why = system.errors.first().map_or_else(
            || "there are none; install ca-certificates, or name a ca_file".to_owned(),
            ToString::to_string,
        );
        return Err(FileError::of(Path::new("the certificates of this system"), why));
    }
    Ok(roots)
}

/// A certificate with which a program identifies itself, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    /// The file with the certificate and those of its issuers, in PEM.
    pub certificate: PathBuf,
    /// The file with its key, in PEM.
    pub key: PathBuf,
}

/// Returns the configuration of connections that trust `roots`, and present `own` to servers that require a
/// certificate.
///
/// # Errors
///
/// Fails if a file cannot be used, or the key does not match the certificate.
pub fn client(roots: RootCertStore, own: Option<&OwnCertificate>) -> Result<ClientConfig, FileError> {
    let provider = rustls::crypto::ring::default_provider();
    let config = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .expect("ring speaks the default versions of TLS")
        .with_root_certificates(roots);
    let Some(OwnCertificate { certificate, key }) = own else {
        return Ok(config.with_no_client_auth());
    };
    let pem = small_file::read(key).map_err(|error| FileError::of(key, error))?;
    let private = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| FileError::of(key, error))?;
    let config = config.with_client_auth_cert(certificates(certificate)?, private);
    config.map_err(|error| FileError::of(certificate, error))
}

/// Reads the certificates in a PEM file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let pem = small_file::read(path).map_err(|error| FileError::of(path, error))?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| FileError::of(path, error))?;
    if certificates.is_empty() {
        return Err(FileError::of(path, "it holds no certificate"));
    }
    Ok(certificates)
}
