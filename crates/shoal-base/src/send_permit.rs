//! The permission to send a change to the lake.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

/// The permission to send the requests of one change to the lake. A registry grants it, and the socket of the
/// connection to the lake checks it before each system call; neither knows the other.
#[derive(Clone)]
pub struct SendPermit(Arc<dyn Fn() -> bool + Send + Sync>);

impl SendPermit {
    /// Creates a permission that is valid while `may_send` returns true. Once it has returned false, it must
    /// not return true again.
    pub fn new(may_send: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(may_send))
    }

    /// Returns true if the node may send now. The result is valid for the next system call, and not for bytes
    /// that wait in a buffer of the node: the node may be suspended before they leave it.
    pub fn may_send(&self) -> bool {
        (self.0)()
    }
}

impl Debug for SendPermit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendPermit").field(&self.may_send()).finish()
    }
}
