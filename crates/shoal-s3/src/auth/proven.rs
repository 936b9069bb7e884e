//! Presigned URLs that were verified. A URL may be used many times, and proves the same each time.
//!
//! Only facts that depend on the URL alone are kept. Clock and identity are checked at each use.

use std::collections::HashMap;
use std::time::SystemTime;

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderName, Method};
use parking_lot::RwLock;
use subtle::ConstantTimeEq;

use super::Verified;

/// The most URLs that are remembered. Verifying one again costs microseconds, so a full memory is simply
/// emptied.
const URLS: usize = 4096;

/// The longest target that is remembered, with its host, in bytes.
const NAME_BYTES_MAX: usize = 1024;

const DIGITS: usize = 64;

/// Verified URLs, by their targets without the digits of the signature.
#[derive(Debug, Default)]
pub(super) struct ProvenUrls {
    /// Only a known identity can add one, so the hash need not resist chosen targets.
    urls: RwLock<HashMap<Box<[u8]>, Proven, foldhash::fast::RandomState>>,
}

#[derive(Debug)]
struct Proven {
    method: Method,
    host: Box<[u8]>,
    digits: [u8; DIGITS],
    signed: SystemTime,
    verified: Verified,
}

/// A request whose head, but for method, target and host, has nothing that matters to a presigned URL.
pub(super) struct PlainUrl<'a> {
    method: &'a Method,
    host: &'a [u8],
    /// Looked up by a hash, which takes a time that depends on it; the digits take none, see
    /// [`ProvenUrls::get`].
    target: Box<[u8]>,
    digits: &'a [u8; DIGITS],
}

impl<'a> PlainUrl<'a> {
    /// Returns `None` for any other request, and for one that may not be remembered.
    pub(super) fn of(parts: &'a Parts, host: &'a [u8]) -> Option<Self> {
        const MARK: &[u8] = b"X-Amz-Signature=";
        // Most requests have no query.
        parts.uri.query()?;
        let target = parts.uri.path_and_query()?.as_str().as_bytes();
        let matters = |name: &HeaderName| *name == AUTHORIZATION || name.as_str().starts_with("x-amz-");
        if target.len() + host.len() > NAME_BYTES_MAX || parts.headers.keys().any(matters) {
            return None;
        }
        let (before, rest) = target.split_at(memchr::memmem::find(target, MARK)? + MARK.len());
        let (digits, after) = rest.split_first_chunk()?;
        Some(Self {
            method: &parts.method,
            host,
            target: [before, after].concat().into(),
            digits,
        })
    }
}

impl ProvenUrls {
    /// Returns the proof by this URL, and when it was signed. The caller checks that both still count.
    pub(super) fn get(&self, url: &PlainUrl<'_>) -> Option<(Verified, SystemTime)> {
        let urls = self.urls.read();
        let proven = urls.get(&url.target)?;
        let is_same = proven.method == *url.method && *proven.host == *url.host;
        // In constant time, like every comparison of a signature.
        (is_same && proven.digits.ct_eq(url.digits).into()).then(|| (proven.verified.clone(), proven.signed))
    }

    /// Remembers the proof by a URL that signs its host and no other header.
    pub(super) fn remember(&self, url: PlainUrl<'_>, signed: SystemTime, verified: &Verified) {
        let proven = Proven {
            method: url.method.clone(),
            host: url.host.into(),
            digits: *url.digits,
            signed,
            verified: verified.clone(),
        };
        let mut urls = self.urls.write();
        // Dropped after the lock is released.
        let _full = (urls.len() >= URLS).then(|| std::mem::take(&mut *urls));
        urls.insert(url.target, proven);
        drop(urls);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::Request;
    use http::request::Parts;

    use super::{NAME_BYTES_MAX, PlainUrl, ProvenUrls, URLS};
    use crate::auth::{Credentials, Verified};
    use crate::identity::Caller;
    use crate::payload::Payload;
    use crate::sigv4::PayloadHash;

    fn parts(target: &str) -> Parts {
        Request::get(target).body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_memory_is_bounded_in_urls_and_in_their_length() {
        let verified = Verified {
            caller: Caller::Anonymous,
            named: None,
            credentials: Credentials::None,
            payload: Payload {
                hash: PayloadHash::Unsigned,
                seed: None,
            },
        };
        let urls = ProvenUrls::default();
        let signature = "7".repeat(64);
        for number in 0..URLS + 10 {
            let parts = parts(&format!("/b/{number}?X-Amz-Signature={signature}"));
            let url = || PlainUrl::of(&parts, b"host").unwrap();
            urls.remember(url(), SystemTime::UNIX_EPOCH, &verified);
            assert!(urls.get(&url()).is_some(), "{number}");
        }
        assert!(urls.urls.read().len() <= URLS);
        let long = parts(&format!(
            "/{}?X-Amz-Signature={signature}",
            "k".repeat(NAME_BYTES_MAX)
        ));
        assert!(PlainUrl::of(&long, b"host").is_none());
    }

    #[test]
    fn a_target_without_a_whole_signature_is_no_url_to_remember() {
        for target in [
            "/b/k",
            "/b/k?acl",
            "/b/k?X-Amz-Signature=",
            "/b/k?X-Amz-Signature=77",
        ] {
            assert!(PlainUrl::of(&parts(target), b"host").is_none(), "{target}");
        }
    }
}
