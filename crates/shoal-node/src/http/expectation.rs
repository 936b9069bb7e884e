//! `Expect: 100-continue`: clients that hold a body back until they are told to go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, Version, header};

/// Whether a client waits for `100 Continue` before it sends the body. HTTP/1.0 does not have this, and
/// HTTP/2 clients do not wait: windows hold their streams back.
pub fn expects_continue(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_11
        && headers
            .get(header::EXPECT)
            .is_some_and(|expectation| expectation.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Whether the client was told to go on. The HTTP library sends `100 Continue` when a body is first polled
/// for bytes, and never when the body is empty.
#[derive(Clone, Debug, Default)]
pub struct Continued(Arc<AtomicBool>);

impl Continued {
    /// Records that the body has been polled for its bytes.
    pub fn say(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the client was ever told to go on.
    pub fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
