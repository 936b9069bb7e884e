//! Rejected datagrams: counted by reason, listed by sender, logged at most once a minute.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;

use crate::membership::RejectReason;
use crate::metrics::Counts;
use crate::time::log_throttle::LogThrottle;

/// Minimum time between log lines for one reason, whatever the number of senders.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum number of senders remembered; the one seen longest ago is forgotten first.
const SENDERS_MAX: NonZeroUsize = NonZeroUsize::new(16).expect("16 is not 0");

/// How long after its last datagram a sender is forgotten.
const FORGET: Duration = Duration::from_mins(2);

/// Senders of rejected datagrams. Their addresses can be forged: they are shown to operators and used for
/// nothing else.
#[derive(Debug)]
pub struct RejectedSenders {
    /// The number of rejected datagrams.
    pub counts: Counts<RejectReason>,
    lines: [LogThrottle; RejectReason::ALL.len()],
    seen: Mutex<LruCache<(SocketAddr, RejectReason), RejectedSender>>,
}

impl Default for RejectedSenders {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            lines: [const { LogThrottle::every(LOG_INTERVAL) }; RejectReason::ALL.len()],
            seen: Mutex::new(LruCache::new(SENDERS_MAX)),
        }
    }
}

/// A sender of rejected datagrams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RejectedSender {
    /// Source address, as claimed.
    pub from: SocketAddr,
    /// Why they are rejected.
    pub why: RejectReason,
    /// How far the sender's clock is ahead of this node's, if that is the reason.
    pub clock: Option<ClockDifference>,
    /// The number of datagrams.
    pub count: u64,
    /// When the last one arrived.
    pub last: Instant,
}

/// How far another clock is ahead of this one, in seconds; negative if it is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockDifference(pub i64);

impl fmt::Display for ClockDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (apart, word) = (
            self.0.unsigned_abs(),
            if self.0 < 0 { "behind" } else { "ahead of" },
        );
        match apart {
            0..120 => write!(f, "its clock is {apart} s {word} this node's"),
            120..7_200 => write!(f, "its clock is {} min {word} this node's", apart / 60),
            _ => write!(f, "its clock is {} h {word} this node's", apart / 3_600),
        }
    }
}

impl fmt::Display for RejectedSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.clock {
            Some(clock) => write!(f, "{} is rejected: {clock}", self.from),
            None => write!(f, "{} is rejected: {}", self.from, self.why),
        }
    }
}

impl RejectedSenders {
    /// Records that a datagram from `from` was rejected at `now`. Logs a warning if one is due.
    pub fn note(&self, from: SocketAddr, why: RejectReason, clock: Option<ClockDifference>, now: Instant) {
        if let Some((seen, since)) = self.record(from, why, clock, now) {
            tracing::warn!(
                %from,
                datagrams = since,
                hint = why.hint(),
                "another node {seen}",
            );
        }
    }

    /// Returns the sender, and the number of datagrams rejected for this reason since the last log line, if
    /// one is due.
    fn record(
        &self,
        from: SocketAddr,
        why: RejectReason,
        clock: Option<ClockDifference>,
        now: Instant,
    ) -> Option<(RejectedSender, u64)> {
        self.counts.count(why);
        let mut seen = self.seen.lock();
        let seen = seen.get_or_insert_mut((from, why), || RejectedSender {
            from,
            why,
            clock,
            count: 0,
            last: now,
        });
        (seen.clock, seen.last) = (clock, now);
        seen.count += 1;
        // Anyone can send to an open port; an operator can only fix what a node sends.
        if why == RejectReason::NotOurs {
            return None;
        }
        let suppressed = self.lines[why as usize].admit(now)?;
        Some((*seen, suppressed + 1))
    }

    /// Returns the senders rejected recently, in the order of their addresses. Includes nodes of other
    /// clusters and versions, but not senders that are not Shoal nodes.
    pub fn recent(&self, now: Instant) -> Vec<RejectedSender> {
        let seen = self.seen.lock();
        let recent = seen.iter().map(|(_, seen)| *seen).filter(|seen| {
            seen.why != RejectReason::NotOurs && now.saturating_duration_since(seen.last) < FORGET
        });
        let mut recent: Vec<_> = recent.collect();
        recent.sort_unstable_by_key(|seen| (seen.from, seen.why));
        recent
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::{ClockDifference, RejectedSenders, SENDERS_MAX};
    use crate::membership::RejectReason;
    use crate::time::clock;

    fn from(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 9200))
    }

    #[test]
    fn a_reason_is_told_once_a_minute_with_how_many_came_since() {
        let (rejected, start) = (RejectedSenders::default(), clock::instant());
        let note = |seconds, why| {
            let last_logged = rejected.record(from(7), why, None, start + Duration::from_secs(seconds));
            last_logged.map(|(_, since)| since)
        };
        assert_eq!(note(0, RejectReason::OtherSecret), Some(1));
        assert_eq!(note(1, RejectReason::OtherSecret), None);
        assert_eq!(note(1, RejectReason::OutOfTime), Some(1), "another reason");
        assert_eq!(note(61, RejectReason::OtherSecret), Some(2));
        assert_eq!(
            note(0, RejectReason::NotOurs),
            None,
            "anything may come to an open port"
        );
    }

    #[test]
    fn a_sender_is_shown_with_its_reason_while_it_lasts() {
        let (rejected, start) = (RejectedSenders::default(), clock::instant());
        rejected.note(from(7), RejectReason::OtherSecret, None, start);
        rejected.note(
            from(8),
            RejectReason::OutOfTime,
            Some(ClockDifference(17 * 60 + 5)),
            start,
        );
        rejected.note(from(9), RejectReason::NotOurs, None, start);
        let shown = rejected
            .recent(start)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>();
        assert_eq!(
            shown,
            [
                "10.0.0.7:9200 is rejected: it was sent with another cluster secret",
                "10.0.0.8:9200 is rejected: its clock is 17 min ahead of this node's",
            ]
        );
        assert!(rejected.recent(start + Duration::from_mins(3)).is_empty());
        assert_eq!(
            RejectReason::ALL.map(|why| rejected.counts.get(why)),
            [1, 1, 1, 0]
        );
    }

    #[test]
    fn senders_that_are_made_up_take_no_more_room() {
        let (rejected, start) = (RejectedSenders::default(), clock::instant());
        for host in 0..=255 {
            let now = start + Duration::from_millis(host.into());
            rejected.note(from(host), RejectReason::OtherSecret, None, now);
        }
        let recent = rejected.recent(start);
        assert_eq!(recent.len(), SENDERS_MAX.get());
        assert!(recent.iter().any(|seen| seen.from == from(255)));
    }
}
