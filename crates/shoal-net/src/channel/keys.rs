//! The keys by which nodes prove themselves. They are computed from the cluster's secret: every node that
//! knows the secret has the same ones, and none is written anywhere.

use std::sync::Arc;

use ring::hkdf;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// The bytes before the 32 bytes of an Ed25519 key in PKCS#8 (RFC 8410).
const PKCS8_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// The prefix of the protocols of nodes. The number increases when nodes of two versions would not understand
/// each other.
const PROTOCOL: &str = "shoal-1-encrypted-";

/// The keys derived from one secret.
#[derive(Debug)]
pub(super) struct Keys {
    root: hkdf::Prk,
    id: String,
}

/// Returns true if nodes of a cluster speak `protocol`.
pub(super) fn is_protocol(protocol: &[u8]) -> bool {
    protocol.starts_with(PROTOCOL.as_bytes())
}

impl Keys {
    /// Derives the keys from `secret`.
    pub(super) fn of(secret: &str) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"shoal cluster");
        let root = salt.extract(secret.as_bytes());
        let digest = expand(&root, &[b"id"]);
        let id = u64::from_be_bytes(*digest.first_chunk().expect("a key has 32 bytes"));
        Self {
            root,
            id: format!("{id:016x}"),
        }
    }

    /// Returns an ID that names the secret without revealing it.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the protocol, as an ALPN name, that nodes with the secret speak with each other.
    pub(super) fn protocol(&self) -> Vec<u8> {
        format!("{PROTOCOL}{}", self.id).into_bytes()
    }

    /// Returns the key by which the node `name` proves its identity.
    pub(super) fn of_node(&self, name: &str) -> Arc<CertifiedKey> {
        pair(&expand(&self.root, &[b"answers as ", name.as_bytes()]))
    }

    /// Returns the key by which any node proves that it may ask.
    pub(super) fn of_asking(&self) -> Arc<CertifiedKey> {
        pair(&expand(&self.root, &[b"asks"]))
    }
}

fn expand(root: &hkdf::Prk, label: &[&[u8]]) -> [u8; 32] {
    let mut key = [0; 32];
    root.expand(label, hkdf::HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut key))
        .expect("HKDF gives 32 bytes");
    key
}

/// Returns the pair of keys with these bytes as its private half.
fn pair(seed: &[u8; 32]) -> Arc<CertifiedKey> {
    let der = [PKCS8_HEAD.as_slice(), seed].concat();
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(der)).expect("any 32 bytes are a key of Ed25519");
    let public = key.public_key().expect("a private key has a public one").to_vec();
    Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key))
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn each_secret_and_each_node_has_keys_of_its_own() {
        let (one, two) = (Keys::of("one"), Keys::of("two"));
        let public = |key: std::sync::Arc<super::CertifiedKey>| key.cert[0].to_vec();
        let all = [
            public(one.of_node("n0")),
            public(one.of_node("n1")),
            public(one.of_asking()),
            public(two.of_node("n0")),
            public(two.of_asking()),
        ];
        for (at, key) in all.iter().enumerate() {
            assert!(!all[..at].contains(key), "{at}");
        }
        assert_eq!(public(Keys::of("one").of_node("n0")), all[0]);
        assert_ne!(one.id(), two.id());
    }
}
