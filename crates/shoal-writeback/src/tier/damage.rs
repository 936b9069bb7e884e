//! Records the objects whose bytes, in a tier or at the lake, differ from the acknowledged ones, for
//! operators: dirty ones, or packs and tables.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_net::clock;
use shoal_net::log_throttle::LogThrottle;

/// How long an object is listed after its last failed read. Failed flushes are retried at least every five
/// minutes.
const SHOWN: Duration = Duration::from_mins(10);

/// Maximum number of objects listed.
const OBJECTS_MAX: usize = 1000;

/// The damaged objects that this node has found.
#[derive(Debug, Default)]
pub struct Damages {
    objects: Mutex<BTreeMap<Arc<str>, Damage>>,
    lines: LogThrottle,
}

/// The damage to an object.
#[derive(Clone, Debug)]
pub struct Damage {
    /// The location and kind of the wrong bytes.
    pub why: Arc<str>,
    /// The remedy to show to operators.
    pub hint: &'static str,
    last_seen: Instant,
}

/// The remedy for wrong bytes in a tier.
pub const MEND_TIER: &str = "let the node that took the write flush it from its cache (`shoal flush`), or restore \
                             the piece in the tier's store, or write or delete the object";

impl Damages {
    /// Records that an object's bytes differ from the acknowledged ones.
    pub fn note(&self, object: &Arc<str>, why: String, hint: &'static str) {
        let now = clock::instant();
        if let Some(unsaid) = self.lines.admit(now) {
            tracing::error!(
                %object, why, unsaid,
                "an object does not have the bytes that were acknowledged\nhint: {hint}"
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

    /// Removes an object that has reached the lake.
    pub fn forget(&self, object: &str) {
        self.objects.lock().remove(object);
    }

    /// Returns the damaged objects that this node has found recently.
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
