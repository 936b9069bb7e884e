//! One transfer of a plan, and its rate.

use crate::plan::Cached;

/// Cap on the catch-up rate, as a multiple of the planned rate.
pub const CATCH_UP: f64 = 2.0;

/// Times that differ by less count as equal.
const EDGE_S: f64 = 1e-6;

/// A transfer of a plan, with its progress.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// The file, by its position in the request.
    pub file: usize,
    /// The first byte of the file that it fetches.
    pub first_byte: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The planned start.
    pub start_s: f64,
    /// The planned end.
    pub end_s: f64,
    /// The planned rate.
    pub bytes_per_second: f64,
    /// The time until which its bytes are kept.
    pub keep_until_s: f64,
    pub(super) state: State,
    pub(super) done_bytes: u64,
}

/// State of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    /// Not begun, or to be retried.
    Waiting { not_before_s: f64 },
    /// Under way.
    Running,
    /// Complete.
    Done,
    /// No longer useful.
    Dropped,
}

impl Transfer {
    /// Returns the bytes of it that have been fetched, or were in the cache already.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes
    }

    /// Returns the bytes of it that are left to fetch.
    pub fn left_bytes(&self) -> u64 {
        self.bytes - self.done_bytes
    }

    /// Returns true if it is waiting or running.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Waiting { .. } | State::Running)
    }

    /// Returns true if it is no longer useful.
    pub fn is_dropped(&self) -> bool {
        self.state == State::Dropped
    }

    /// Returns true if it is under way.
    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// Returns the bytes that it should have fetched by a time: all of them from its planned end on.
    pub fn expected_bytes(&self, now_s: f64) -> f64 {
        let elapsed_s = (now_s.min(self.end_s) - self.start_s).max(0.0);
        if now_s >= self.end_s {
            return self.bytes as f64;
        }
        (elapsed_s * self.bytes_per_second).min(self.bytes as f64)
    }

    /// Returns the expected end at the planned rate.
    pub fn expected_end_s(&self, now_s: f64) -> f64 {
        let begins_s = match self.state {
            State::Waiting { not_before_s } => not_before_s.max(self.start_s).max(now_s),
            _ => self.start_s.max(now_s),
        };
        begins_s + self.left_bytes() as f64 / self.bytes_per_second
    }
}

/// Returns the rate of a transfer. One that is behind goes just fast enough to end in time, at most
/// [`CATCH_UP`] times as fast as planned, and never faster than the link. In the last tenth of a slot, and
/// after its planned end, it may use the maximum.
pub fn rate(transfer: &Transfer, now_s: f64, slot_s: f64, link: f64) -> f64 {
    let (planned, left_s) = (transfer.bytes_per_second, transfer.end_s - now_s);
    let most = planned * CATCH_UP;
    let needed = if left_s > slot_s / 10.0 {
        transfer.left_bytes() as f64 / left_s
    } else if transfer.left_bytes() as f64 <= planned * left_s.max(0.0) * (1.0 + EDGE_S) {
        planned
    } else {
        most
    };
    needed.clamp(planned, most).min(link.max(1.0))
}

/// Returns the time until which bytes from `first_byte` on are kept if they are fetched from `start_s` on.
/// `None` if they are not kept at all.
pub(super) fn kept_until(cached: &[Cached], start_s: f64, first_byte: f64) -> Option<f64> {
    let mut until: Option<f64> = None;
    for interval in cached
        .iter()
        .filter(|interval| interval.until_s > start_s + EDGE_S)
    {
        let follows = until.is_none_or(|until_s| interval.from_s <= until_s + EDGE_S);
        match (interval.bytes > first_byte, until) {
            (true, _) if follows => until = Some(interval.until_s),
            (false, None) => {}
            _ => break,
        }
    }
    until
}

#[cfg(test)]
mod tests {
    use super::{State, Transfer, kept_until, rate};
    use crate::plan::Cached;

    fn transfer(done_bytes: u64) -> Transfer {
        Transfer {
            file: 0,
            first_byte: 0,
            bytes: 1000,
            start_s: 100.0,
            end_s: 200.0,
            bytes_per_second: 10.0,
            keep_until_s: 300.0,
            state: State::Running,
            done_bytes,
        }
    }

    #[test]
    fn a_transfer_that_is_behind_catches_up_as_far_as_it_may() {
        // (now, done, link) → rate
        for (now_s, done, link, expected) in [
            (100.0, 0, 100.0, 10.0),
            (150.0, 500, 100.0, 10.0),
            (150.0, 800, 100.0, 10.0),
            (150.0, 250, 100.0, 15.0),
            (150.0, 250, 12.0, 12.0),
            (190.0, 100, 100.0, 20.0),
            (195.0, 950, 100.0, 10.0),
            (195.0, 900, 100.0, 20.0),
            (250.0, 900, 100.0, 20.0),
            (250.0, 900, 4.0, 4.0),
        ] {
            let found = rate(&transfer(done), now_s, 60.0, link);
            assert!((found - expected).abs() < 1e-9, "{now_s} {done} {link}: {found}");
        }
    }

    #[test]
    fn what_is_expected_grows_with_time_and_ends_with_the_plan() {
        for (now_s, expected) in [
            (50.0, 0.0),
            (100.0, 0.0),
            (130.0, 300.0),
            (200.0, 1000.0),
            (900.0, 1000.0),
        ] {
            let found = transfer(0).expected_bytes(now_s);
            assert!((found - expected).abs() < 1e-9, "{now_s}: {found}");
        }
        assert!((transfer(400).expected_end_s(150.0) - 210.0).abs() < 1e-9);
        let waiting = Transfer {
            state: State::Waiting { not_before_s: 180.0 },
            ..transfer(0)
        };
        assert!((waiting.expected_end_s(150.0) - 280.0).abs() < 1e-9);
    }

    #[test]
    fn bytes_are_kept_as_long_as_the_level_covers_them() {
        let cached = |from_s, until_s, bytes| Cached {
            from_s,
            until_s,
            bytes,
        };
        let intervals = [
            cached(0.0, 10.0, 50.0),
            cached(10.0, 20.0, 100.0),
            cached(20.0, 30.0, 40.0),
            cached(40.0, 50.0, 100.0),
        ];
        for (start_s, first_byte, expected) in [
            (0.0, 0.0, Some(30.0)),
            (5.0, 60.0, Some(20.0)),
            (12.0, 45.0, Some(20.0)),
            (31.0, 0.0, Some(50.0)),
            (60.0, 0.0, None),
            (0.0, 100.0, None),
        ] {
            assert_eq!(
                kept_until(&intervals, start_s, first_byte),
                expected,
                "{start_s} {first_byte}"
            );
        }
    }
}
