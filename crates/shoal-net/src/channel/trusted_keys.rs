//! The public keys that a node trusts, and the key that it presents.

use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{ring, verify_tls13_signature_with_raw_key};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};

use super::keys::Keys;

/// Public keys of which the other end has to own one.
#[derive(Debug)]
pub(super) struct TrustedKeys {
    keys: Vec<CertificateDer<'static>>,
    hints: Vec<DistinguishedName>,
}

impl TrustedKeys {
    /// Trusts the node `name` by the key of its name, under any of these secrets.
    pub(super) fn answering(keys: &[Keys], name: &str) -> Self {
        Self {
            keys: keys.iter().map(|keys| public(&keys.of_node(name))).collect(),
            hints: Vec::new(),
        }
    }

    /// Trusts a node that asks by the key that all nodes share, and names the secret to use.
    pub(super) fn asking(keys: &Keys) -> Self {
        Self {
            keys: vec![public(&keys.of_asking())],
            hints: vec![hint(keys)],
        }
    }

    fn verify_key(&self, key: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        if others.is_empty() && self.keys.iter().any(|known| known == key) {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }
}

/// Both sides accept a signature only if it is a TLS 1.3 signature by a raw Ed25519 key.
macro_rules! raw_keys_only {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General(
                "nodes speak TLS 1.3 and nothing older".into(),
            ))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature_with_raw_key(
                message,
                &SubjectPublicKeyInfoDer::from(key.as_ref()),
                signature,
                &ring::default_provider().signature_verification_algorithms,
            )
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for TrustedKeys {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify_key(key, others)
            .map(|()| ServerCertVerified::assertion())
    }

    raw_keys_only!();
}

impl ClientCertVerifier for TrustedKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify_key(key, others)
            .map(|()| ClientCertVerified::assertion())
    }

    raw_keys_only!();
}

/// The keys by which a node proves that it may ask. It uses the key of the secret that the other end names.
#[derive(Debug)]
pub(super) struct ClientKeys(Vec<(DistinguishedName, Arc<CertifiedKey>)>);

impl ClientKeys {
    pub(super) fn new(keys: &[Keys]) -> Self {
        Self(keys.iter().map(|keys| (hint(keys), keys.of_asking())).collect())
    }
}

impl ResolvesClientCert for ClientKeys {
    fn resolve(&self, hints: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let named = self.0.iter().find(|(hint, _)| hints.contains(&hint.as_ref()));
        named.map(|(_, key)| Arc::clone(key))
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Names the secret in the field where TLS names trusted authorities.
fn hint(keys: &Keys) -> DistinguishedName {
    DistinguishedName::in_sequence(keys.id().as_bytes())
}

fn public(key: &CertifiedKey) -> CertificateDer<'static> {
    key.cert[0].clone()
}
