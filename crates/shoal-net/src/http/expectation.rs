//! `Expect: 100-continue`: clients that send a body only after `100 Continue`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, Version, header};

/// Returns true if a client waits for `100 Continue` before it sends the body. HTTP/1.0 does not have this,
/// and HTTP/2 clients do not wait: flow control holds their streams back.
pub fn expects_continue(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_11
        && headers
            .get(header::EXPECT)
            .is_some_and(|expectation| expectation.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Records that a client was sent `100 Continue`. The HTTP library sends it when a body is first polled, and
/// never if the body is empty.
#[derive(Clone, Debug, Default)]
pub struct Continued(Arc<AtomicBool>);

impl Continued {
    /// Records that the body has been polled for its bytes.
    pub fn say(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true if the client was sent `100 Continue`.
    pub fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
