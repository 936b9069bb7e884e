//! Signing keys: derived from a secret once per day and region, then kept.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use parking_lot::RwLock;
use sha2::Sha256;
use shoal_base::secret::Secret;

use super::{SERVICE, Signature, Timestamp};

/// The key of one secret for one day and region.
///
/// Kept as the state of an HMAC that has absorbed it, so that two of the six blocks that a signature takes
/// are hashed only once a day.
#[derive(Clone)]
pub struct SigningKey(Arc<Hmac<Sha256>>);

impl SigningKey {
    /// Derives the key: four HMACs.
    pub fn derive(secret: &Secret, day: &Timestamp, region: &str, service: &str) -> Self {
        let first = keyed(format!("AWS4{}", secret.expose()).as_bytes());
        let scope = [day.day(), region, service, "aws4_request"];
        let key = scope.into_iter().fold(first, |mut mac, part| {
            mac.update(part.as_bytes());
            keyed(&mac.finalize().into_bytes())
        });
        Self(Arc::new(key))
    }

    /// The signature of `text`.
    pub fn sign(&self, text: &[u8]) -> Signature {
        let mut mac = (*self.0).clone();
        mac.update(text);
        Signature::from_mac(&mac.finalize().into_bytes().into())
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// Signing keys of one service, by access key. An access key has one secret and, nearly always, one day and
/// region at a time.
#[derive(Debug)]
pub struct KeyCache {
    service: &'static str,
    /// The names are those of known identities and accounts: no client chooses one.
    keys: RwLock<HashMap<Box<str>, Derived, foldhash::fast::RandomState>>,
}

#[derive(Debug)]
struct Derived {
    secret: Secret,
    day: Timestamp,
    region: Box<str>,
    key: SigningKey,
}

impl Default for KeyCache {
    fn default() -> Self {
        Self::of(SERVICE)
    }
}

impl KeyCache {
    /// The most access keys that are remembered. Deriving a key again costs microseconds, so a full cache is
    /// simply emptied.
    const CAPACITY: usize = 32 << 10;

    /// Creates a cache for a service.
    pub fn of(service: &'static str) -> Self {
        Self {
            service,
            keys: RwLock::default(),
        }
    }

    /// The service.
    pub fn service(&self) -> &'static str {
        self.service
    }

    /// The key for the day of `timestamp`.
    pub fn key(&self, access_key: &str, secret: &Secret, timestamp: &Timestamp, region: &str) -> SigningKey {
        let fits = |derived: &&Derived| {
            derived.day.is_same_day(timestamp) && &*derived.region == region && derived.secret == *secret
        };
        if let Some(derived) = self.keys.read().get(access_key).filter(fits) {
            return derived.key.clone();
        }
        let key = SigningKey::derive(secret, timestamp, region, self.service);
        let derived = Derived {
            secret: secret.clone(),
            day: *timestamp,
            region: region.into(),
            key: key.clone(),
        };
        let mut keys = self.keys.write();
        if keys.len() >= Self::CAPACITY {
            keys.clear();
        }
        keys.insert(access_key.into(), derived);
        key
    }
}

#[cfg(test)]
mod tests {
    use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
    use proptest::prelude::{any, proptest};
    use shoal_base::secret::Secret;

    use super::{KeyCache, SERVICE, SigningKey};
    use crate::sigv4::Timestamp;

    fn day(text: &str) -> Timestamp {
        Timestamp::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_cached_key_is_the_derived_key_whatever_was_asked_before() {
        let (one, two) = (Secret::new("one"), Secret::new("two"));
        let (today, tonight) = (day("20130524T000000Z"), day("20130524T235959Z"));
        let tomorrow = day("20130525T000000Z");
        let (here, there) = ("us-east-1", "eu-west-1");
        let cache = KeyCache::default();
        // Each lookup differs from the previous one in one thing only.
        for (secret, day, region) in [
            (&one, today, here),
            (&one, tonight, here),
            (&one, tomorrow, here),
            (&one, tomorrow, there),
            (&two, tomorrow, there),
            (&two, tomorrow, there),
        ] {
            let signature = cache.key("AK", secret, &day, region).sign(b"text");
            let derived = SigningKey::derive(secret, &day, region, SERVICE).sign(b"text");
            assert_eq!(signature.as_str(), derived.as_str());
        }
    }

    #[test]
    fn the_cache_is_bounded_in_access_keys() {
        let cache = KeyCache::default();
        let (secret, day) = (Secret::new("secret"), day("20130524T000000Z"));
        for n in 0..KeyCache::CAPACITY + 10 {
            cache.key(&n.to_string(), &secret, &day, "us-east-1");
        }
        assert!(cache.keys.read().len() <= KeyCache::CAPACITY);
    }

    #[test]
    fn neither_key_nor_secret_shows_itself() {
        let cache = KeyCache::default();
        let key = cache.key("AK", &Secret::new("hush"), &day("20130524T000000Z"), "us-east-1");
        assert!(!format!("{cache:?}").contains("hush"));
        assert_eq!(format!("{key:?}"), "[hidden]");
    }

    proptest! {
        #[test]
        fn a_kept_state_signs_each_text_as_aws_does(texts in proptest::collection::vec(any::<Vec<u8>>(), 1..4)) {
            let (secret, day) = (Secret::new("secret"), day("20130524T000000Z"));
            let key = SigningKey::derive(&secret, &day, "us-east-1", SERVICE);
            let raw = generate_signing_key(secret.expose(), day.time(), "us-east-1", SERVICE);
            for text in texts {
                assert_eq!(key.sign(&text).as_str(), calculate_signature(raw.as_ref(), &text));
            }
        }
    }
}
