//! What becomes of the objects that this node is home to: when each is flushed, who keeps it from that, what failed, what is lost. Pure:
//! time is an argument.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shoal_policy::ObjectId;
use tokio::sync::watch;

use super::upload::Cancel;

/// Somebody who holds an object and is not heard of again keeps it from its flush for no longer.
const HOLD: Duration = Duration::from_secs(90);

/// A flush that failed is tried again after a pause that doubles.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(5);

/// What is to happen to one object.
#[derive(Debug)]
struct Fate {
    due: Instant,
    failures: u32,
    error: Option<Arc<str>>,
    held_until: Option<Instant>,
    lost: bool,
    flight: Option<Flight>,
}

/// A flush under way.
#[derive(Debug)]
struct Flight {
    cancel: Cancel,
    ended: watch::Receiver<()>,
}

/// The objects of which this node is the home.
#[derive(Debug, Default)]
pub(super) struct Fates(HashMap<ObjectId, Fate>);

/// What who wants an object flushed is to do.
pub(super) enum Begin {
    /// Flush it, heed the word, and drop the sender when it is over.
    Lead(Cancel, watch::Sender<()>),
    /// Somebody does: wait for the sender to be dropped.
    Join(watch::Receiver<()>),
    /// Not now: somebody is about to write or remove it.
    Held,
    /// It cannot be.
    Lost,
}

/// How it stands, for those who look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Flushes that failed in a row.
    pub failures: u32,
    /// How the last one did.
    pub error: Option<Arc<str>>,
    /// A node that held a part of it is gone, or has lost that part.
    pub lost: bool,
}

impl Standing {
    /// Whether an operator should know of it.
    pub fn is_troubled(&self) -> bool {
        self.lost || self.failures > 0
    }
}

impl Fates {
    /// The object is to be flushed at `due`, whatever was true of an earlier write of it.
    pub(super) fn expect(&mut self, object: ObjectId, due: Instant) {
        let flight = self.0.remove(&object).and_then(|fate| fate.flight);
        self.0.insert(object, Fate::due(due, flight));
    }

    /// The object is dirty no more.
    pub(super) fn forget(&mut self, object: ObjectId) {
        self.0.remove(&object);
    }

    /// Who wants to flush it at `now` begins, or waits for who has begun.
    pub(super) fn begin(&mut self, object: ObjectId, now: Instant) -> Begin {
        let fate = self.0.entry(object).or_insert_with(|| Fate::due(now, None));
        if let Some(flight) = &fate.flight {
            return Begin::Join(flight.ended.clone());
        }
        if fate.lost {
            return Begin::Lost;
        }
        if fate.is_held(now) {
            return Begin::Held;
        }
        let (cancel, (over, ended)) = (Cancel::default(), watch::channel(()));
        fate.flight = Some(Flight {
            cancel: cancel.clone(),
            ended,
        });
        Begin::Lead(cancel, over)
    }

    /// The flush has ended; `error` says why the object is dirty yet.
    pub(super) fn ended(&mut self, object: ObjectId, error: Option<Arc<str>>, now: Instant) {
        let Some(fate) = self.0.get_mut(&object) else {
            return;
        };
        fate.flight = None;
        if let Some(error) = error {
            let pause = PAUSE_MIN * 2_u32.pow(fate.failures.min(16));
            fate.failures += 1;
            fate.due = now + pause.min(PAUSE_MAX);
            fate.error = Some(error);
        }
    }

    /// Forgets what becomes of objects that have another home now, and tells the flushes of them that are under way to break off. Whether there
    /// are any.
    pub(super) fn leave_to_others(&mut self, is_home: impl Fn(ObjectId) -> bool) -> bool {
        self.0
            .retain(|object, fate| fate.flight.is_some() || is_home(*object));
        let left = self.0.iter().filter(|(object, _)| !is_home(**object));
        let mut is_any = false;
        for flight in left.filter_map(|(_, fate)| fate.flight.as_ref()) {
            flight.cancel.cancel();
            is_any = true;
        }
        is_any
    }

    /// Keeps the object from being flushed, for a while. What is to be waited for when a flush is under way; it is told to break off.
    pub(super) fn hold(&mut self, object: ObjectId, now: Instant) -> Option<watch::Receiver<()>> {
        let fate = self.0.entry(object).or_insert_with(|| Fate::due(now, None));
        fate.held_until = Some(now + HOLD);
        let flight = fate.flight.as_ref()?;
        flight.cancel.cancel();
        Some(flight.ended.clone())
    }

    /// Whether it still is kept from being flushed.
    pub(super) fn is_held(&self, object: ObjectId, now: Instant) -> bool {
        self.0.get(&object).is_some_and(|fate| fate.is_held(now))
    }

    /// It is held no more.
    pub(super) fn free(&mut self, object: ObjectId) {
        if let Some(fate) = self.0.get_mut(&object) {
            fate.held_until = None;
        }
    }

    /// Whether all of it can be had.
    pub(super) fn set_lost(&mut self, object: ObjectId, lost: bool, now: Instant) -> bool {
        let fate = self.0.entry(object).or_insert_with(|| Fate::due(now, None));
        std::mem::replace(&mut fate.lost, lost) != lost
    }

    pub(super) fn is_lost(&self, object: ObjectId) -> bool {
        self.0.get(&object).is_some_and(|fate| fate.lost)
    }

    /// Whether it should be flushed now. `soon`: all that have not failed are.
    pub(super) fn is_due(&self, object: ObjectId, now: Instant, soon: bool) -> bool {
        self.0.get(&object).is_none_or(|fate| {
            let is_due = fate.due <= now || soon && fate.failures == 0;
            is_due && !fate.lost && fate.flight.is_none() && !fate.is_held(now)
        })
    }

    /// How it stands.
    pub(super) fn standing(&self, object: ObjectId) -> Standing {
        self.0
            .get(&object)
            .map_or_else(Standing::default, |fate| Standing {
                failures: fate.failures,
                error: fate.error.clone(),
                lost: fate.lost,
            })
    }

    /// Whether this node has thought about the object before.
    pub(super) fn knows(&self, object: ObjectId) -> bool {
        self.0.contains_key(&object)
    }
}

impl Fate {
    fn due(due: Instant, flight: Option<Flight>) -> Self {
        Self {
            due,
            failures: 0,
            error: None,
            held_until: None,
            lost: false,
            flight,
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

    use super::{Begin, Fates, HOLD, PAUSE_MAX};
    use crate::clock;

    const OBJECT: ObjectId = ObjectId([1; 16]);

    fn lead(fates: &mut Fates, now: Instant) -> bool {
        matches!(fates.begin(OBJECT, now), Begin::Lead(..))
    }

    #[test]
    fn one_flushes_and_the_others_wait_for_it() {
        let (mut fates, now) = (Fates::default(), clock::instant());
        let Begin::Lead(_, over) = fates.begin(OBJECT, now) else {
            panic!("nobody flushes it")
        };
        let Begin::Join(mut ended) = fates.begin(OBJECT, now) else {
            panic!("somebody flushes it")
        };
        assert!(!fates.is_due(OBJECT, now, true));
        fates.ended(OBJECT, None, now);
        drop(over);
        assert!(futures_util::FutureExt::now_or_never(ended.changed()).is_some());
        assert!(lead(&mut fates, now));
    }

    #[test]
    fn a_flush_that_failed_is_tried_again_after_a_pause_that_doubles() {
        let (mut fates, mut now) = (Fates::default(), clock::instant());
        fates.expect(OBJECT, now);
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            assert!(fates.is_due(OBJECT, now, false) && lead(&mut fates, now));
            fates.ended(OBJECT, Some("why".into()), now);
            let later = now + Duration::from_secs(seconds);
            assert!(
                !fates.is_due(OBJECT, now + Duration::from_millis(seconds * 1000 - 1), true),
                "{seconds}"
            );
            now = later;
        }
        assert_eq!(fates.standing(OBJECT).failures, 11);
        assert!(fates.is_due(OBJECT, now + PAUSE_MAX, false));
    }

    #[test]
    fn what_is_held_is_not_flushed_until_it_is_free_or_forgotten_by_who_held_it() {
        let (mut fates, now) = (Fates::default(), clock::instant());
        fates.expect(OBJECT, now);
        assert!(fates.hold(OBJECT, now).is_none(), "nothing is under way");
        assert!(matches!(fates.begin(OBJECT, now), Begin::Held));
        assert!(!fates.is_due(OBJECT, now, true));
        assert!(lead(&mut fates, now + HOLD));
        fates.ended(OBJECT, None, now);
        fates.hold(OBJECT, now);
        fates.free(OBJECT);
        assert!(lead(&mut fates, now));
        assert!(
            fates.hold(OBJECT, now).is_some(),
            "what is under way is waited for"
        );
    }

    #[test]
    fn what_is_lost_is_not_flushed_until_it_is_found() {
        let (mut fates, now) = (Fates::default(), clock::instant());
        assert!(fates.set_lost(OBJECT, true, now) && !fates.set_lost(OBJECT, true, now));
        assert!(matches!(fates.begin(OBJECT, now), Begin::Lost) && !fates.is_due(OBJECT, now, true));
        assert!(fates.set_lost(OBJECT, false, now));
        assert!(lead(&mut fates, now));
    }

    #[test]
    fn room_is_made_at_once_by_what_has_not_failed() {
        let (mut fates, now) = (Fates::default(), clock::instant());
        fates.expect(OBJECT, now + Duration::from_secs(9));
        assert!(!fates.is_due(OBJECT, now, false) && fates.is_due(OBJECT, now, true));
    }

    #[test]
    fn what_others_are_home_to_now_is_left_to_them_once_its_flush_has_ended() {
        let (mut fates, now) = (Fates::default(), clock::instant());
        let Begin::Lead(cancel, _over) = fates.begin(OBJECT, now) else {
            panic!("nobody flushes it")
        };
        assert!(!fates.leave_to_others(|_| true) && !cancel.is_cancelled());
        assert!(fates.leave_to_others(|_| false) && cancel.is_cancelled());
        fates.ended(OBJECT, None, now);
        assert!(!fates.leave_to_others(|_| false) && !fates.knows(OBJECT));
    }
}
