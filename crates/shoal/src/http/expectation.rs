//! `Expect: 100-continue`: clients that keep a body back until they are told to go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, Version, header};

/// Whether a client waits for `100 Continue` before it sends the body. HTTP/1.0 knows no such thing, and in HTTP/2
/// nothing waits: its streams are held back by windows.
pub fn expects_continue(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_11
        && headers
            .get(header::EXPECT)
            .is_some_and(|expectation| expectation.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Whether the client was told to go on. The HTTP library says `100 Continue` when a body is first asked for bytes, and
/// never when there are none.
#[derive(Clone, Debug, Default)]
pub struct Continued(Arc<AtomicBool>);

impl Continued {
    /// The body has been asked for its bytes.
    pub fn say(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it ever was.
    pub fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
