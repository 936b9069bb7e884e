//! Datagrams that are not heard: counted by reason, remembered by sender, logged once a minute.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::membership::Stranger;

/// Each reason is logged this often at most, whatever the number of senders.
const TELL_AGAIN: Duration = Duration::from_mins(1);

/// The number of senders that are remembered; those heard of longest ago are forgotten first.
const SENDERS_MAX: usize = 16;

/// A sender that has been quiet for this long is no longer a problem.
const FORGET: Duration = Duration::from_mins(2);

/// Senders of datagrams that are not heard. Their addresses can be forged: they are shown, and decide
/// nothing.
#[derive(Debug, Default)]
pub struct Strangers(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counts: [u64; Stranger::ALL.len()],
    told: [Option<Told>; Stranger::ALL.len()],
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    at: Instant,
    count: u64,
}

/// A sender of datagrams that are not heard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// The source address that they claim.
    pub from: SocketAddr,
    /// Why they are not heard.
    pub why: Stranger,
    /// By how much the sender's clock is ahead of this node's, if that is the reason.
    pub clock: Option<ClockDifference>,
    /// The number of datagrams.
    pub count: u64,
    /// When the last one came.
    pub last: Instant,
}

/// By how much another clock is ahead of this one, in seconds; negative if it is behind.
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

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.clock {
            Some(clock) => write!(f, "{} is not heard: {clock}", self.from),
            None => write!(f, "{} is not heard: {}", self.from, self.why),
        }
    }
}

impl Strangers {
    /// Notes that a datagram from `from` was not heard at `now`. Warns when it is time to.
    pub fn note(&self, from: SocketAddr, why: Stranger, clock: Option<ClockDifference>, now: Instant) {
        if let Some((seen, since)) = self.0.lock().note(from, why, clock, now) {
            tracing::warn!(
                %from,
                datagrams = since,
                hint = why.hint(),
                "another node {seen}",
            );
        }
    }

    /// Returns the number of datagrams that were not heard, by reason.
    pub fn counts(&self) -> [(Stranger, u64); Stranger::ALL.len()] {
        let counts = self.0.lock().counts;
        Stranger::ALL.map(|why| (why, counts[why as usize]))
    }

    /// Returns the senders that were not heard lately, nodes of other clusters and versions among them, but
    /// not senders that are not nodes.
    pub fn recent(&self, now: Instant) -> Vec<Seen> {
        let inner = self.0.lock();
        let recent = inner.seen.iter().filter(|seen| {
            seen.why != Stranger::NotOurs && now.saturating_duration_since(seen.last) < FORGET
        });
        recent.copied().collect()
    }
}

impl Inner {
    /// Returns the sender, and the number of datagrams that were not heard for this reason since the last log
    /// line, if it is time to log.
    fn note(
        &mut self,
        from: SocketAddr,
        why: Stranger,
        clock: Option<ClockDifference>,
        now: Instant,
    ) -> Option<(Seen, u64)> {
        self.counts[why as usize] += 1;
        let seen = self.sender(from, why, now);
        (seen.clock, seen.last) = (clock, now);
        seen.count += 1;
        let seen = *seen;
        // Anything may be sent to an open port; an operator can mend only what a node sends.
        if why == Stranger::NotOurs {
            return None;
        }
        let (told, count) = (&mut self.told[why as usize], self.counts[why as usize]);
        let is_due = told.is_none_or(|told| now.saturating_duration_since(told.at) >= TELL_AGAIN);
        is_due.then(|| {
            let since = count - told.map_or(0, |told| told.count);
            *told = Some(Told { at: now, count });
            (seen, since)
        })
    }

    fn sender(&mut self, from: SocketAddr, why: Stranger, now: Instant) -> &mut Seen {
        let is_it = |seen: &Seen| seen.from == from && seen.why == why;
        let place = self.seen.iter().position(is_it).unwrap_or_else(|| {
            let fresh = Seen {
                from,
                why,
                clock: None,
                count: 0,
                last: now,
            };
            if self.seen.len() < SENDERS_MAX {
                self.seen.push(fresh);
                return self.seen.len() - 1;
            }
            let oldest = (0..self.seen.len()).min_by_key(|&place| self.seen[place].last);
            let oldest = oldest.expect("a full list has an oldest entry");
            self.seen[oldest] = fresh;
            oldest
        });
        &mut self.seen[place]
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::{ClockDifference, Inner, SENDERS_MAX, Strangers};
    use crate::clock;
    use crate::membership::Stranger;

    fn from(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 9200))
    }

    #[test]
    fn a_reason_is_told_once_a_minute_with_how_many_came_since() {
        let (mut inner, start) = (Inner::default(), clock::instant());
        let mut note = |seconds, why| {
            let told = inner.note(from(7), why, None, start + Duration::from_secs(seconds));
            told.map(|(_, since)| since)
        };
        assert_eq!(note(0, Stranger::OtherSecret), Some(1));
        assert_eq!(note(1, Stranger::OtherSecret), None);
        assert_eq!(note(1, Stranger::OutOfTime), Some(1), "another reason");
        assert_eq!(note(61, Stranger::OtherSecret), Some(2));
        assert_eq!(
            note(0, Stranger::NotOurs),
            None,
            "anything may come to an open port"
        );
    }

    #[test]
    fn a_sender_is_shown_with_its_reason_while_it_lasts() {
        let (strangers, start) = (Strangers::default(), clock::instant());
        strangers.note(from(7), Stranger::OtherSecret, None, start);
        strangers.note(
            from(8),
            Stranger::OutOfTime,
            Some(ClockDifference(17 * 60 + 5)),
            start,
        );
        strangers.note(from(9), Stranger::NotOurs, None, start);
        let shown = strangers
            .recent(start)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>();
        assert_eq!(
            shown,
            [
                "10.0.0.7:9200 is not heard: it was sent with another cluster secret",
                "10.0.0.8:9200 is not heard: its clock is 17 min ahead of this node's",
            ]
        );
        assert!(strangers.recent(start + Duration::from_mins(3)).is_empty());
        assert_eq!(strangers.counts().map(|(_, count)| count), [1, 1, 1, 0]);
    }

    #[test]
    fn senders_that_are_made_up_take_no_more_room() {
        let (strangers, start) = (Strangers::default(), clock::instant());
        for host in 0..=255 {
            let now = start + Duration::from_millis(host.into());
            strangers.note(from(host), Stranger::OtherSecret, None, now);
        }
        let recent = strangers.recent(start);
        assert_eq!(recent.len(), SENDERS_MAX);
        assert!(recent.iter().any(|seen| seen.from == from(255)));
    }
}
