//! The sealed form of a temporary key, in which it is sent to other nodes and kept on disk.
//!
//! ```text
//! | version u8 = 1 | nonce 12 bytes | AES-256-GCM of the key, authenticated with the version | tag 16 bytes
//! |
//! ```
//!
//! The cipher's key comes from the cluster's secret by HKDF-SHA256. Without the secret, the bytes show how
//! long the key is and nothing else; with it, they are a key of a client until it expires.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use shoal_base::moment::millis_since_1970;
use shoal_base::secret::Secret;
use shoal_s3::identity::Account;
use shoal_s3::temporary_key::{Principal, TemporaryKey};

const VERSION: u8 = 1;

/// Seals temporary keys under the first secret of a cluster, and opens those under any of its secrets.
pub(super) struct Sealer {
    keys: Vec<LessSafeKey>,
    random: SystemRandom,
}

/// The content of a sealed key. `expires_ms` counts from 1970.
#[derive(Deserialize, Serialize)]
struct Plain<'a> {
    access_key: &'a str,
    secret_key: &'a str,
    token: &'a str,
    expires_ms: u64,
    principal: &'a str,
}

impl Sealer {
    pub(super) fn new<'s>(secrets: impl IntoIterator<Item = &'s str>) -> Self {
        Self {
            keys: secrets.into_iter().map(cipher_key).collect(),
            random: SystemRandom::new(),
        }
    }

    pub(super) fn seal(&self, key: &TemporaryKey) -> Vec<u8> {
        let plain = Plain {
            access_key: &key.account.access_key,
            secret_key: key.account.secret_key.expose(),
            token: key.token().expose(),
            expires_ms: millis_since_1970(key.expires),
            principal: key.principal.name(),
        };
        let mut bytes = postcard::to_stdvec(&plain).expect("memory takes every key");
        // 2^32 keys could be sealed under one secret before two nonces are likely to be the same.
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).expect("the system has random bytes");
        let sealing = self
            .keys
            .first()
            .expect("a cluster has a secret, if only the empty one");
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        sealing
            .seal_in_place_append_tag(nonce_of, Aad::from([VERSION]), &mut bytes)
            .expect("a key is far shorter than what the cipher takes");
        [&[VERSION], &nonce[..], &bytes].concat()
    }

    /// Opens a sealed key; `None` if it was sealed under another secret, or is damaged.
    pub(super) fn open(&self, sealed: &[u8]) -> Option<TemporaryKey> {
        let (&[VERSION], rest) = sealed.split_first_chunk()? else {
            return None;
        };
        let (nonce, ciphertext) = rest.split_first_chunk::<NONCE_LEN>()?;
        self.keys.iter().find_map(|opening| {
            let mut bytes = ciphertext.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let plain = opening
                .open_in_place(nonce, Aad::from([VERSION]), &mut bytes)
                .ok()?;
            let plain: Plain<'_> = postcard::from_bytes(plain).ok()?;
            Some(TemporaryKey {
                account: Arc::new(Account {
                    session_token: Some(Secret::new(plain.token)),
                    ..Account::new(plain.access_key, plain.secret_key)
                }),
                expires: SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(plain.expires_ms))?,
                principal: Arc::new(Principal::new(plain.principal)),
            })
        })
    }
}

fn cipher_key(secret: &str) -> LessSafeKey {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"shoal temporary keys");
    let key = salt.extract(secret.as_bytes());
    let key = key
        .expand(&[b"AES-256-GCM"], &AES_256_GCM)
        .expect("HKDF gives 32 bytes");
    LessSafeKey::new(UnboundKey::from(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TemporaryKey {
        TemporaryKey {
            account: Arc::new(Account {
                session_token: Some(Secret::new("token ".repeat(300))),
                ..Account::new("ASIA1", "the secret")
            }),
            expires: SystemTime::UNIX_EPOCH + Duration::from_millis(1_414_191_623_456),
            principal: Arc::new(Principal::of_role("arn:x", "s", 7)),
        }
    }

    #[test]
    fn a_sealed_key_is_opened_by_the_nodes_of_its_cluster_also_while_the_secret_changes() {
        let (old, new) = (Sealer::new(["old"]), Sealer::new(["new", "old"]));
        assert_eq!(new.open(&old.seal(&key())), Some(key()));
        assert_eq!(old.open(&new.seal(&key())), None);
        assert_eq!(new.open(&new.seal(&key())), Some(key()));
    }

    #[test]
    fn no_byte_of_a_sealed_key_can_be_changed_and_none_shows_what_it_is() {
        let sealer = Sealer::new(["secret"]);
        let sealed = sealer.seal(&key());
        for shown in ["ASIA1", "the secret", "token", "arn:x"] {
            assert!(
                memchr::memmem::find(&sealed, shown.as_bytes()).is_none(),
                "{shown}"
            );
        }
        assert_ne!(sealed, sealer.seal(&key()), "each has a nonce of its own");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(sealer.open(&changed), None, "{at}");
            assert_eq!(sealer.open(&sealed[..at]), None, "{at}");
        }
    }
}
