//! When each dirty object is flushed: which are due, which are held, which flushes failed, which objects are
//! lost. Pure: time is an argument.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shoal_policy::ObjectId;
use tokio::sync::watch;

use super::lake_writer::Cancel;

/// A hold that its node does not release ends after this time.
const HOLD: Duration = Duration::from_secs(90);

/// A flush that failed is tried again after a pause, which doubles with every failure in a row.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(5);

/// The schedule of one object.
#[derive(Debug)]
struct ScheduledFlush {
    due: Instant,
    failures: u32,
    error: Option<Arc<str>>,
    held_until: Option<Instant>,
    lost: bool,
    running: Option<RunningFlush>,
}

/// A flush under way.
#[derive(Debug)]
struct RunningFlush {
    cancel: Cancel,
    ended: watch::Receiver<()>,
}

/// The objects that this node flushes.
#[derive(Debug, Default)]
pub(super) struct FlushSchedule(HashMap<ObjectId, ScheduledFlush>);

/// The outcome of trying to start a flush.
pub(super) enum FlushStart {
    /// The caller flushes the object. It breaks off when cancelled, and drops the sender when the flush has
    /// ended.
    Lead(Cancel, watch::Sender<()>),
    /// A flush is under way: it has ended when the sender is dropped.
    Join(watch::Receiver<()>),
    /// The object is about to be overwritten or removed.
    Held,
    /// The object is lost.
    Lost,
}

/// The state of an object's flushes, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushStatus {
    /// The number of flushes that failed in a row.
    pub failures: u32,
    /// The reason why the last flush failed.
    pub error: Option<Arc<str>>,
    /// Whether the object is lost: a node that held a part of it is gone, or has lost that part.
    pub lost: bool,
}

impl FlushStatus {
    /// Whether an operator should look at the object.
    pub fn is_troubled(&self) -> bool {
        self.lost || self.failures > 0
    }
}

impl FlushSchedule {
    /// Schedules a flush of the object at `due`. The record of an earlier write is discarded, except for a
    /// flush in progress.
    pub(super) fn expect(&mut self, object: ObjectId, due: Instant) {
        let running = self.0.remove(&object).and_then(|flush| flush.running);
        self.0.insert(object, ScheduledFlush::due(due, running));
    }

    /// Removes an object that is no longer dirty.
    pub(super) fn forget(&mut self, object: ObjectId) {
        self.0.remove(&object);
    }

    /// Tries to start a flush of the object at `now`.
    pub(super) fn begin(&mut self, object: ObjectId, now: Instant) -> FlushStart {
        let flush = self
            .0
            .entry(object)
            .or_insert_with(|| ScheduledFlush::due(now, None));
        if let Some(running) = &flush.running {
            return FlushStart::Join(running.ended.clone());
        }
        if flush.lost {
            return FlushStart::Lost;
        }
        if flush.is_held(now) {
            return FlushStart::Held;
        }
        let (cancel, (over, ended)) = (Cancel::default(), watch::channel(()));
        flush.running = Some(RunningFlush {
            cancel: cancel.clone(),
            ended,
        });
        FlushStart::Lead(cancel, over)
    }

    /// Notes that a flush has ended. `error` is the reason if the object is still dirty because the flush
    /// failed.
    pub(super) fn ended(&mut self, object: ObjectId, error: Option<Arc<str>>, now: Instant) {
        let Some(flush) = self.0.get_mut(&object) else {
            return;
        };
        flush.running = None;
        if let Some(error) = error {
            let pause = PAUSE_MIN * 2_u32.pow(flush.failures.min(16));
            flush.failures += 1;
            flush.due = now + pause.min(PAUSE_MAX);
            flush.error = Some(error);
        }
    }

    /// Removes objects that another node flushes now, and cancels their flushes under way. Returns whether
    /// there are such flushes.
    pub(super) fn leave_to_others(&mut self, is_home: impl Fn(ObjectId) -> bool) -> bool {
        self.0
            .retain(|object, flush| flush.running.is_some() || is_home(*object));
        let left = self.0.iter().filter(|(object, _)| !is_home(**object));
        let mut is_any = false;
        for running in left.filter_map(|(_, flush)| flush.running.as_ref()) {
            running.cancel.cancel();
            is_any = true;
        }
        is_any
    }

    /// Holds the object: it is not flushed for a while. If a flush is under way, it is cancelled, and the
    /// returned receiver tells when it has ended.
    pub(super) fn hold(&mut self, object: ObjectId, now: Instant) -> Option<watch::Receiver<()>> {
        let flush = self
            .0
            .entry(object)
            .or_insert_with(|| ScheduledFlush::due(now, None));
        flush.held_until = Some(now + HOLD);
        let running = flush.running.as_ref()?;
        running.cancel.cancel();
        Some(running.ended.clone())
    }

    /// Whether the object is held.
    pub(super) fn is_held(&self, object: ObjectId, now: Instant) -> bool {
        self.0.get(&object).is_some_and(|flush| flush.is_held(now))
    }

    /// Releases the hold.
    pub(super) fn release(&mut self, object: ObjectId) {
        if let Some(flush) = self.0.get_mut(&object) {
            flush.held_until = None;
        }
    }

    /// Notes whether the object is lost. Returns whether that is new.
    pub(super) fn set_lost(&mut self, object: ObjectId, lost: bool, now: Instant) -> bool {
        let flush = self
            .0
            .entry(object)
            .or_insert_with(|| ScheduledFlush::due(now, None));
        std::mem::replace(&mut flush.lost, lost) != lost
    }

    /// Whether the object is lost.
    pub(super) fn is_lost(&self, object: ObjectId) -> bool {
        self.0.get(&object).is_some_and(|flush| flush.lost)
    }

    /// Whether the object should be flushed now. With `soon`, objects whose flush has not failed are due at
    /// once.
    pub(super) fn is_due(&self, object: ObjectId, now: Instant, soon: bool) -> bool {
        self.0.get(&object).is_none_or(|flush| {
            let is_due = flush.due <= now || soon && flush.failures == 0;
            is_due && !flush.lost && flush.running.is_none() && !flush.is_held(now)
        })
    }

    /// The state of the object's flushes.
    pub(super) fn standing(&self, object: ObjectId) -> FlushStatus {
        self.0
            .get(&object)
            .map_or_else(FlushStatus::default, |flush| FlushStatus {
                failures: flush.failures,
                error: flush.error.clone(),
                lost: flush.lost,
            })
    }

    /// Whether the object is scheduled.
    pub(super) fn knows(&self, object: ObjectId) -> bool {
        self.0.contains_key(&object)
    }
}

impl ScheduledFlush {
    fn due(due: Instant, running: Option<RunningFlush>) -> Self {
        Self {
            due,
            failures: 0,
            error: None,
            held_until: None,
            lost: false,
            running,
        }
    }

    fn is_held(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use shoal_policy::ObjectId;

    use super::{FlushSchedule, FlushStart, HOLD, PAUSE_MAX};
    use crate::clock;

    const OBJECT: ObjectId = ObjectId([1; 16]);

    fn lead(schedule: &mut FlushSchedule, now: Instant) -> bool {
        matches!(schedule.begin(OBJECT, now), FlushStart::Lead(..))
    }

    #[test]
    fn one_flushes_and_the_others_wait_for_it() {
        let (mut schedule, now) = (FlushSchedule::default(), clock::instant());
        let FlushStart::Lead(_, over) = schedule.begin(OBJECT, now) else {
            panic!("no flush of it is under way")
        };
        let FlushStart::Join(mut ended) = schedule.begin(OBJECT, now) else {
            panic!("a flush of it is under way")
        };
        assert!(!schedule.is_due(OBJECT, now, true));
        schedule.ended(OBJECT, None, now);
        drop(over);
        assert!(futures_util::FutureExt::now_or_never(ended.changed()).is_some());
        assert!(lead(&mut schedule, now));
    }

    #[test]
    fn a_flush_that_failed_is_tried_again_after_a_pause_that_doubles() {
        let (mut schedule, mut now) = (FlushSchedule::default(), clock::instant());
        schedule.expect(OBJECT, now);
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert!(schedule.is_due(OBJECT, now, false) && lead(&mut schedule, now));
            schedule.ended(OBJECT, Some("why".into()), now);
            let later = now + Duration::from_secs(seconds);
            assert!(
                !schedule.is_due(OBJECT, now + Duration::from_millis(seconds * 1000 - 1), true),
                "{seconds}"
            );
            now = later;
        }
        assert_eq!(schedule.standing(OBJECT).failures, 11);
        assert!(schedule.is_due(OBJECT, now + PAUSE_MAX, false));
    }

    #[test]
    fn a_held_object_is_not_flushed_until_its_holder_releases_or_forgets_it() {
        let (mut schedule, now) = (FlushSchedule::default(), clock::instant());
        schedule.expect(OBJECT, now);
        assert!(schedule.hold(OBJECT, now).is_none(), "nothing is under way");
        assert!(matches!(schedule.begin(OBJECT, now), FlushStart::Held));
        assert!(!schedule.is_due(OBJECT, now, true));
        assert!(lead(&mut schedule, now + HOLD));
        schedule.ended(OBJECT, None, now);
        schedule.hold(OBJECT, now);
        schedule.release(OBJECT);
        assert!(lead(&mut schedule, now));
        assert!(
            schedule.hold(OBJECT, now).is_some(),
            "what is under way is waited for"
        );
    }

    #[test]
    fn a_lost_object_is_not_flushed_until_it_is_found() {
        let (mut schedule, now) = (FlushSchedule::default(), clock::instant());
        assert!(schedule.set_lost(OBJECT, true, now) && !schedule.set_lost(OBJECT, true, now));
        assert!(
            matches!(schedule.begin(OBJECT, now), FlushStart::Lost) && !schedule.is_due(OBJECT, now, true)
        );
        assert!(schedule.set_lost(OBJECT, false, now));
        assert!(lead(&mut schedule, now));
    }

    #[test]
    fn room_is_made_at_once_by_what_has_not_failed() {
        let (mut schedule, now) = (FlushSchedule::default(), clock::instant());
        schedule.expect(OBJECT, now + Duration::from_secs(9));
        assert!(!schedule.is_due(OBJECT, now, false) && schedule.is_due(OBJECT, now, true));
    }

    #[test]
    fn an_object_with_a_new_home_is_left_to_it_once_its_flush_has_ended() {
        let (mut schedule, now) = (FlushSchedule::default(), clock::instant());
        let FlushStart::Lead(cancel, _over) = schedule.begin(OBJECT, now) else {
            panic!("no flush of it is under way")
        };
        assert!(!schedule.leave_to_others(|_| true) && !cancel.is_cancelled());
        assert!(schedule.leave_to_others(|_| false) && cancel.is_cancelled());
        schedule.ended(OBJECT, None, now);
        assert!(!schedule.leave_to_others(|_| false) && !schedule.knows(OBJECT));
    }
}
