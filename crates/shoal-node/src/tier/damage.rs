//! Dirty objects with other bytes than were acknowledged, in their tier or as the lake says, for operators.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock;
use crate::log_throttle::LogThrottle;

/// An object is shown for this time after the last read that failed. A flush that fails is tried again at
/// least every five minutes.
const SHOWN: Duration = Duration::from_mins(10);

/// The number of objects that are shown.
const OBJECTS_MAX: usize = 1000;

/// Damaged objects that this node has met.
#[derive(Debug, Default)]
pub struct Damages {
    objects: Mutex<BTreeMap<Arc<str>, Damage>>,
    lines: LogThrottle,
}

/// What is wrong with an object.
#[derive(Clone, Debug)]
pub struct Damage {
    /// Where the bytes are wrong.
    pub why: Arc<str>,
    /// What to do.
    pub hint: &'static str,
    last_seen: Instant,
}

/// What to do about wrong bytes in a tier.
pub const MEND_TIER: &str = "let the node that took the write flush it from its cache (`shoal flush`), or restore \
                             the piece in the tier's store, or write or delete the object";

impl Damages {
    /// Notes that an object has other bytes than were acknowledged.
    pub fn note(&self, object: &Arc<str>, why: String, hint: &'static str) {
        let now = clock::instant();
        if let Some(unsaid) = self.lines.admit(now) {
            tracing::error!(
                %object, why, unsaid,
                "an object has other bytes than were acknowledged; it stays dirty\nhint: {hint}"
            );
        }
        let mut objects = self.objects.lock();
        objects.retain(|_, damage| damage.is_shown(now));
        if objects.len() < OBJECTS_MAX || objects.contains_key(object) {
            let damage = Damage {
                why: why.into(),
                hint,
                last_seen: now,
            };
            objects.insert(Arc::clone(object), damage);
        }
    }

    /// Forgets an object that the lake has now.
    pub fn forget(&self, object: &str) {
        self.objects.lock().remove(object);
    }

    /// The damaged objects that this node has met not long ago.
    pub fn objects(&self) -> Vec<(Arc<str>, Damage)> {
        let now = clock::instant();
        let objects = self.objects.lock();
        let shown = objects.iter().filter(|(_, damage)| damage.is_shown(now));
        shown
            .map(|(object, damage)| (Arc::clone(object), damage.clone()))
            .collect()
    }
}

impl Damage {
    fn is_shown(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_seen) < SHOWN
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Damages, MEND_TIER};

    #[test]
    fn a_damaged_object_is_shown_once_until_the_lake_has_it() {
        let damages = Damages::default();
        let object: Arc<str> = "s3://b/k".into();
        damages.note(&object, "first".into(), MEND_TIER);
        damages.note(&object, "second".into(), MEND_TIER);
        let shown = damages.objects();
        assert_eq!((shown.len(), &*shown[0].1.why), (1, "second"));
        damages.forget(&object);
        assert!(damages.objects().is_empty());
    }
}
