//! Limits the rate of registry transactions that each payer may cause. All anonymous callers count as one
//! payer.
//!
//! A tier's registry holds the names of all clients, and is small and slow compared with the lake: one client
//! must neither fill it up nor keep it busy at the expense of the others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_net::clock;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::Caller;

/// Average number of changes per second that an identity may begin, for each unit of its share.
const OF_IDENTITY: u32 = 2_000;

/// The same for all anonymous callers together.
const OF_STRANGERS: u32 = 100;

/// Changes worth this much time may begin at once.
const BURST: Duration = Duration::from_secs(10);

/// The longest that a request waits; one that would wait longer is refused.
const PATIENCE: Duration = Duration::from_secs(1);

/// Limits the rate of changes, by caller.
#[derive(Debug, Default)]
pub(super) struct CommitBound {
    /// For each payer, the time at which all its changes are paid for. At most one entry per identity, and
    /// one for anonymous callers.
    paid_at: Mutex<HashMap<u32, Instant>>,
}

impl CommitBound {
    /// Waits until `caller` may begin `changes` more changes.
    ///
    /// # Errors
    ///
    /// The caller would have to wait longer than `PATIENCE`.
    pub(super) async fn pass(&self, caller: &Caller, changes: usize) -> Result<(), S3Error> {
        let wait = self.take(caller, changes, clock::instant()).ok_or_else(|| {
            let message = "Too many changes below rules with mode back; please reduce your rate.";
            S3Error::new(ErrorCode::SlowDown, message)
        })?;
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    /// Returns the time to wait, or `None` if it exceeds `PATIENCE`.
    fn take(&self, caller: &Caller, changes: usize, now: Instant) -> Option<Duration> {
        let payer = caller.payer();
        let rate = match caller {
            Caller::Anonymous | Caller::Unverified => OF_STRANGERS,
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

    use shoal_s3::identity::{Caller, Identity};

    use super::{BURST, CommitBound, PATIENCE};
    use shoal_net::clock;

    fn identity(index: u32) -> Caller {
        Caller::Identity(Arc::new(Identity {
            index,
            ..Identity::new("key", "secret")
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
