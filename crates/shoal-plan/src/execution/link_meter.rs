//! Measures which part of its planned rate the link has.

/// Minimum share of the link that a plan counts on.
const SHARE_MIN: f64 = 0.05;

/// Growth of the trusted share of a slow link after each slot without delay.
const RECOVERY: f64 = 1.25;

/// Bytes that were moved over some time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    pub(super) seconds: f64,
    pub(super) bytes: f64,
}

/// Measures the bytes that move in each slot.
#[derive(Clone, Debug)]
pub(super) struct LinkMeter {
    /// The part of the link's rate that is counted on.
    pub(super) share: f64,
    /// The start of the current measurement, and the bytes moved since then.
    since_s: f64,
    bytes: f64,
    /// The measurement before.
    before: Moved,
}

impl LinkMeter {
    pub(super) fn new(now_s: f64) -> Self {
        Self {
            share: 1.0,
            since_s: now_s,
            bytes: 0.0,
            before: Moved::default(),
        }
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes += bytes as f64;
    }

    /// Ends the current measurement if it has lasted a slot. Returns true if it has.
    pub(super) fn end_slot(&mut self, now_s: f64, slot_s: f64) -> bool {
        let seconds = now_s - self.since_s;
        if seconds < slot_s {
            return false;
        }
        let bytes = std::mem::take(&mut self.bytes);
        self.before = Moved { seconds, bytes };
        self.since_s = now_s;
        true
    }

    /// Counts on more of the link after a slot without delay.
    pub(super) fn recover(&mut self) {
        self.share = (self.share * RECOVERY).min(1.0);
    }

    /// Returns the bytes moved lately: in this measurement, and in the one before unless this one has lasted
    /// half a slot.
    pub(super) fn lately(&self, now_s: f64, slot_s: f64) -> Moved {
        let (seconds, bytes) = (now_s - self.since_s, self.bytes);
        if seconds >= slot_s / 2.0 {
            return Moved { seconds, bytes };
        }
        Moved {
            seconds: seconds + self.before.seconds,
            bytes: bytes + self.before.bytes,
        }
    }

    /// Counts on as much of the link as moved `bytes` of the `planned` ones.
    pub(super) fn scale(&mut self, bytes: f64, planned: f64) {
        if planned > 0.0 {
            self.share = (self.share * bytes / planned).clamp(SHARE_MIN, 1.0);
        }
    }
}
