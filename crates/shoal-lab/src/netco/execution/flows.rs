//! Flows: parts of inputs to jobs, and fetches into the cache.

/// A rate that bounds nothing.
pub(super) const UNBOUNDED: f64 = 1e18;
/// A flow with less left than this share of its bytes is done.
pub(super) const DONE: f64 = 1e-9;

/// A part of an input that flows to a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) file: usize,
    pub(super) is_remote: bool,
    pub(super) bytes: f64,
    pub(super) left: f64,
    pub(super) rate: f64,
    /// True if the cache fills with it.
    pub(super) fills: bool,
}

/// A job that reads.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) job: usize,
    pub(super) rate_max: f64,
    /// The rate of remote reads that the plan promises.
    pub(super) promised: f64,
    /// The deadline, if it is planned.
    pub(super) planned_to_s: Option<f64>,
    /// True if its remote reads are held to the rate that it needs.
    pub(super) is_metered: bool,
    pub(super) is_ad_hoc: bool,
    pub(super) streams: Vec<Stream>,
}

/// A fetch into the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetch {
    pub(super) file: usize,
    pub(super) left: f64,
    pub(super) bytes: f64,
    pub(super) rate_max: f64,
    pub(super) rate: f64,
}

impl Running {
    /// The rate that the job could read remotely. Sets the greatest rate of each stream, and gives it to
    /// those that read the cache.
    pub(super) fn wants(&mut self, now_s: f64, cache_rate: f64) -> f64 {
        let bytes: f64 = self.streams.iter().map(|stream| stream.bytes).sum();
        let local: f64 = self
            .streams
            .iter()
            .filter(|stream| !stream.is_remote)
            .map(|stream| stream.bytes)
            .sum();
        let mut wants = 0.0;
        for stream in &mut self.streams {
            stream.rate = self.rate_max * stream.bytes / bytes;
            if stream.is_remote {
                wants += stream.rate;
            } else {
                stream.rate = stream.rate.min(cache_rate * stream.bytes / local);
            }
        }
        let needed = self.most(now_s);
        if wants <= needed {
            return wants;
        }
        self.give(needed / wants);
        needed
    }

    /// The rate of remote reads that a planned job gets before all others: the promised one, or the one that
    /// its deadline needs if it is behind; after its deadline, the promised one.
    pub(super) fn first(&self, now_s: f64) -> f64 {
        match self.planned_to_s {
            None => 0.0,
            Some(deadline_s) if deadline_s > now_s => {
                let remote = self.streams.iter().filter(|stream| stream.is_remote);
                let left: f64 = remote.map(|stream| stream.left).sum();
                self.promised.max(left / (deadline_s - now_s))
            }
            Some(_) => self.promised,
        }
    }

    /// The greatest rate of remote reads. A metered job gets no more than [`Running::first`] until its
    /// deadline.
    pub(super) fn most(&self, now_s: f64) -> f64 {
        match self.planned_to_s {
            Some(deadline_s) if self.is_metered && deadline_s > now_s => self.first(now_s),
            _ => UNBOUNDED,
        }
    }

    /// Gives the remote streams this share of the rates that they want.
    pub(super) fn give(&mut self, share: f64) {
        self.streams
            .iter_mut()
            .filter(|stream| stream.is_remote)
            .for_each(|stream| stream.rate *= share);
    }
}

/// Returns true if something is left of a flow: neither its rounding nor less than a nanosecond, which time
/// may not resolve.
pub(super) fn is_left(left: f64, bytes: f64, rate: f64) -> bool {
    left > (DONE * bytes).max(1e-9 * rate)
}
