//! Notices about seeds: names without an address, and a node that finds no other.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a node may find no other before it warns. Nodes that start together find each other in a second.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which a persisting problem is logged again.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The notices about the seeds.
#[derive(Debug, Default)]
pub struct Seeds(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Seeds without an address, and when that was last logged.
    unknown: BTreeMap<String, Instant>,
    /// Since when this node has seen no other, although it has seeds.
    alone: Option<Instant>,
    alone_logged: Option<Instant>,
}

/// A log line that is due: no other node found, or found at last.
#[derive(Debug, PartialEq, Eq)]
enum SeedContact {
    /// No seed has answered for this long.
    Alone(Duration),
    /// A node has answered, after the warning.
    Found,
}

impl Seeds {
    /// Records that a seed has no address.
    pub(in crate::membership) fn has_no_address(&self, seed: &str, error: &std::io::Error, now: Instant) {
        if self.0.lock().is_unknown(seed, now) {
            tracing::warn!(
                seed,
                %error,
                hint = "check [cooperation] seeds and the name service; the node keeps trying",
                "a seed has no address",
            );
        }
    }

    /// Records that a seed has an address.
    pub(in crate::membership) fn has_an_address(&self, seed: &str) {
        if self.0.lock().unknown.remove(seed).is_some() {
            tracing::info!(seed, "a seed has an address now");
        }
    }

    /// Records whether a node with seeds sees other nodes at `now`.
    pub(in crate::membership) fn look_around(&self, sees_others: bool, seeds: &[String], now: Instant) {
        match self.0.lock().seed_contact(sees_others, now) {
            Some(SeedContact::Alone(time)) => tracing::warn!(
                ?seeds,
                hint = "check that a seed runs, that UDP passes in both directions, and that secrets and clocks agree",
                "no seed has answered for {} s; this node is alone",
                time.as_secs(),
            ),
            Some(SeedContact::Found) => tracing::info!("a node has answered; this node is no longer alone"),
            None => {}
        }
    }

    /// Returns true if this node has been alone long enough for a warning.
    pub fn is_alone(&self) -> bool {
        self.0.lock().alone_logged.is_some()
    }

    /// Returns the seeds without an address.
    pub fn unknown(&self) -> Vec<String> {
        self.0.lock().unknown.keys().cloned().collect()
    }
}

impl Inner {
    /// Records the seed. Returns true if it should be logged.
    fn is_unknown(&mut self, seed: &str, now: Instant) -> bool {
        let last_logged = self.unknown.get(seed);
        let is_due =
            last_logged.is_none_or(|last_logged| now.saturating_duration_since(*last_logged) >= LOG_INTERVAL);
        if is_due {
            self.unknown.insert(seed.to_owned(), now);
        }
        is_due
    }

    fn seed_contact(&mut self, sees_others: bool, now: Instant) -> Option<SeedContact> {
        if sees_others {
            self.alone = None;
            return self.alone_logged.take().map(|_| SeedContact::Found);
        }
        let alone = now.saturating_duration_since(*self.alone.get_or_insert(now));
        let last_logged = self.alone_logged;
        let is_due =
            last_logged.is_none_or(|last_logged| now.saturating_duration_since(last_logged) >= LOG_INTERVAL);
        (alone >= TIMEOUT && is_due).then(|| {
            self.alone_logged = Some(now);
            SeedContact::Alone(alone)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Inner, SeedContact};
    use crate::time::clock;

    #[test]
    fn a_node_without_company_is_told_after_ten_seconds_and_then_each_minute() {
        let (mut inner, start) = (Inner::default(), clock::runtime_instant());
        let mut look =
            |sees_others, seconds| inner.seed_contact(sees_others, start + Duration::from_secs(seconds));
        assert_eq!(look(false, 0), None);
        assert_eq!(look(false, 9), None);
        assert_eq!(look(false, 10), Some(SeedContact::Alone(Duration::from_secs(10))));
        assert_eq!(look(false, 60), None);
        assert_eq!(look(false, 70), Some(SeedContact::Alone(Duration::from_secs(70))));
        assert_eq!(look(true, 71), Some(SeedContact::Found));
        assert_eq!(look(true, 72), None);
        assert_eq!(look(false, 73), None, "it has just lost its company");
        assert_eq!(look(false, 83), Some(SeedContact::Alone(Duration::from_secs(10))));
    }

    #[test]
    fn a_seed_without_an_address_is_told_once_a_minute() {
        let (mut inner, start) = (Inner::default(), clock::runtime_instant());
        let mut tells = |seed, seconds| inner.is_unknown(seed, start + Duration::from_secs(seconds));
        assert!(tells("a:1", 0));
        assert!(!tells("a:1", 1) && !tells("a:1", 59));
        assert!(tells("b:1", 2), "another seed");
        assert!(tells("a:1", 60));
    }
}
