//! The error of a tier that does not answer.

use std::fmt::Display;

use shoal_net::clock;
use shoal_net::log_throttle::LogThrottle;
use shoal_registry::engine::EngineError;

/// The registry or the store of a tier does not answer. The cause is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tier that keeps objects of this name does not answer now")]
pub struct TierUnavailable(());

impl TierUnavailable {
    /// Logs the cause, at most once a second.
    pub fn because(cause: &impl Display) -> Self {
        static LINES: LogThrottle = LogThrottle::new();
        if let Some(unsaid) = LINES.admit(clock::instant()) {
            tracing::warn!(%cause, unsaid, "a tier does not answer");
        }
        Self(())
    }
}

impl From<EngineError> for TierUnavailable {
    fn from(error: EngineError) -> Self {
        Self::because(&error)
    }
}
