//! The pace of a task, and the work that is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_net::clock;
use shoal_policy::pace::Pace;

use crate::tasks::records::order::Order;
use crate::tasks::records::progress::Progress;

/// Paces a task by the bytes that are left, as far as its objects are counted.
pub(in crate::tasks) struct Estimate {
    progress: Arc<Mutex<Progress>>,
    pace: Mutex<Pace>,
    began: Instant,
    /// True for a hint: a deadline does not make it slower, because its reader reads now.
    is_for_reader: bool,
    /// The number of objects of the list of the task, if it has one.
    listed: Option<u64>,
    /// The bytes of the list of the task, extrapolated from its first pages.
    expected_bytes: Mutex<Option<u64>>,
}

impl Estimate {
    /// Creates the estimate of a run of an order that begins now.
    pub(super) fn new(order: &Order, progress: &Arc<Mutex<Progress>>) -> Self {
        let (now, request) = (clock::utc_now(), &order.request);
        let deadline = request.deadline.map(|deadline| deadline.after(now));
        Self {
            progress: Arc::clone(progress),
            pace: Mutex::new(Pace::new(request.rate_bytes_per_second, deadline)),
            began: clock::instant(),
            is_for_reader: order.hint.is_some(),
            listed: order.manifest.map(|manifest| manifest.objects),
            expected_bytes: Mutex::default(),
        }
    }

    /// Returns true if the task, which is not over, may miss its deadline at this speed in bytes a second.
    pub(in crate::tasks) fn is_at_risk(&self, speed: Option<u64>) -> bool {
        // If nothing of what was counted is left, it is not known what keeps the task.
        let left = self.left_bytes().filter(|left| *left > 0);
        self.pace.lock().is_at_risk(self.elapsed(), left, speed)
    }

    /// Lets the task fetch at most this many bytes a second from now on; `None`: as many as there are.
    pub(in crate::tasks) fn limit(&self, rate: Option<u64>) {
        self.pace.lock().limit(rate);
    }

    /// Returns the rate in bytes a second at which the task is done before its deadline, rounded up so that
    /// it seldom changes. `None` without a deadline, after it, or while it is not known what is left.
    pub(super) fn rate_for_deadline(&self) -> Option<u64> {
        let left = self.left_bytes();
        let rate = self.pace.lock().rate_for_deadline(self.elapsed(), left)?;
        Some(rounded_up(rate))
    }

    /// Returns the time for which the next `bytes` have to wait.
    pub(super) fn wait(&self, bytes: u64) -> Duration {
        let left = self.left_bytes().filter(|_| !self.is_for_reader);
        self.pace.lock().take(self.elapsed(), bytes, left)
    }

    /// Notes the number of objects and bytes of the task, as far as they are counted.
    pub(super) fn note_total(&self, objects: u64, bytes: u64, counting: bool) {
        if self.listed.is_some() {
            return;
        }
        let mut progress = self.progress.lock();
        let tally = &mut progress.tally;
        // A task that goes on, or is quicker than its count, is done with more.
        let least = |total: u64, known: u64| Some(if counting { total.max(known) } else { total });
        tally.objects.total = least(objects, tally.objects.total.unwrap_or_default());
        tally.bytes.total = least(bytes, tally.bytes.total.unwrap_or_default());
        progress.counting = counting;
    }

    /// Notes the sizes of objects of a list, before anything is done with them. The lake sends sizes page by
    /// page: objects on later pages are taken to be as large.
    pub(super) fn expect(&self, sizes: impl ExactSizeIterator<Item = u64>) {
        let Some(listed) = self.listed else { return };
        let mut progress = self.progress.lock();
        let tally = &mut progress.tally;
        let objects = tally.objects.dealt_with() + sizes.len() as u64;
        let bytes = tally.bytes.done + sizes.sum::<u64>();
        if objects >= listed {
            tally.bytes.total = Some(bytes);
        }
        *self.expected_bytes.lock() = extrapolated(objects, bytes, listed);
    }

    fn elapsed(&self) -> Duration {
        clock::instant().saturating_duration_since(self.began)
    }

    /// Returns the bytes that are left, if they are counted or can be extrapolated.
    fn left_bytes(&self) -> Option<u64> {
        let (bytes, counting) = {
            let progress = self.progress.lock();
            (progress.tally.bytes, progress.counting)
        };
        if counting {
            return None;
        }
        let total = bytes.total.or(*self.expected_bytes.lock())?;
        Some(total.saturating_sub(bytes.done))
    }
}

/// Rounds a rate up by less than a quarter.
fn rounded_up(rate: u64) -> u64 {
    let step = 1 << rate.max(4).ilog2().saturating_sub(2);
    rate.div_ceil(step).saturating_mul(step)
}

/// Extrapolates the bytes of `all` objects from a sample of `objects` with `bytes`. `None` without a sample.
fn extrapolated(objects: u64, bytes: u64, all: u64) -> Option<u64> {
    let bytes = (u128::from(bytes) * u128::from(all)).checked_div(objects.into())?;
    Some(u64::try_from(bytes).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::{extrapolated, rounded_up};

    #[test]
    fn a_rate_is_rounded_up_by_less_than_a_quarter() {
        for (rate, rounded) in [
            (0, 0),
            (1, 1),
            (7, 7),
            (9, 10),
            (1000, 1024),
            (1025, 1280),
            (1280, 1280),
        ] {
            assert_eq!(rounded_up(rate), rounded, "{rate}");
        }
        assert_eq!(rounded_up(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_list_is_expected_to_be_as_its_first_pages() {
        for (objects, bytes, all, expected) in [
            (0, 0, 4_000, None),
            (1_000, 5_000, 4_000, Some(20_000)),
            (4_000, 5_000, 4_000, Some(5_000)),
            (1, u64::MAX, 4_000, Some(u64::MAX)),
        ] {
            assert_eq!(extrapolated(objects, bytes, all), expected, "{objects} of {all}");
        }
    }
}
