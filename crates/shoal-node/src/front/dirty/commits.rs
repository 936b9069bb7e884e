//! Bounds the transactions in the registries of tiers that one payer causes. All strangers are one payer.
//!
//! A registry orders the names of every client. It is small and slow beside the lake, so one client must not
//! fill it up, or keep it busy, for the others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::Caller;

use crate::clock;

/// The changes that an identity begins in a second, on average, for each unit of its share.
const OF_IDENTITY: u32 = 2_000;

/// The same for all strangers together.
const OF_STRANGERS: u32 = 100;

/// The changes of this time may begin at once.
const BURST: Duration = Duration::from_secs(10);

/// A request that would wait for longer is refused.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bounds the changes that callers begin.
#[derive(Debug, Default)]
pub(super) struct CommitBound {
    /// By payer, when all that it has begun is paid for. There are as many as identities, and one.
    paid_at: Mutex<HashMap<u32, Instant>>,
}

impl CommitBound {
    /// Waits until `caller` may begin so many changes.
    ///
    /// # Errors
    ///
    /// It has begun too many.
    pub(super) async fn pass(&self, caller: &Caller, changes: usize) -> Result<(), S3Error> {
        match self.take(caller, changes, clock::instant()) {
            Some(Duration::ZERO) => Ok(()),
            Some(wait) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            None => Err(S3Error::new(
                ErrorCode::SlowDown,
                "Too many changes below rules with mode back; please reduce your rate.",
            )),
        }
    }

    /// The time to wait for; `None` if that is too long.
    fn take(&self, caller: &Caller, changes: usize, now: Instant) -> Option<Duration> {
        let payer = caller.payer();
        let rate = match caller {
            Caller::Anonymous => OF_STRANGERS,
            Caller::Identity(_) => OF_IDENTITY.saturating_mul(payer.share),
        };
        let mut paid_at = self.paid_at.lock();
        let paid_at = paid_at.entry(payer.id).or_insert(now);
        let cost = Duration::from_secs(1) / rate * u32::try_from(changes).unwrap_or(u32::MAX);
        let next = (*paid_at).max(now) + cost;
        let wait = next.saturating_duration_since(now).saturating_sub(BURST);
        if wait > PATIENCE {
            return None;
        }
        *paid_at = next;
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use shoal_base::secret::Secret;
    use shoal_s3::identity::{Caller, Identity};

    use super::{BURST, CommitBound, PATIENCE};
    use crate::clock;

    fn identity(index: u32) -> Caller {
        Caller::Identity(Arc::new(Identity {
            index,
            access_key: "key".into(),
            secret_key: Secret::new("secret"),
            share: 1,
            lake_account: None,
        }))
    }

    #[test]
    fn strangers_are_one_payer_that_slows_no_identity_down() {
        let (bound, now) = (CommitBound::default(), clock::instant());
        assert_eq!(bound.take(&Caller::Anonymous, 1_000, now), Some(Duration::ZERO));
        assert_eq!(
            bound.take(&Caller::Anonymous, 50, now),
            Some(Duration::from_millis(500))
        );
        assert_eq!(bound.take(&Caller::Anonymous, 1_000, now), None);
        for index in [1, 2] {
            assert_eq!(bound.take(&identity(index), 20_000, now), Some(Duration::ZERO));
            assert_eq!(bound.take(&identity(index), 2_000, now), Some(PATIENCE));
            assert_eq!(bound.take(&identity(index), 1, now), None);
        }
        let later = now + BURST + PATIENCE;
        assert_eq!(bound.take(&Caller::Anonymous, 1_000, later), Some(Duration::ZERO));
    }
}
