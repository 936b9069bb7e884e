//! The extensions of groups, in memory.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::CHANGES_PER_LOOK;
use crate::extensions::{EXTENSIONS_MAX, Extension};
use crate::{ENTRY_LIFE, Group};

/// Extensions, each with its expiry.
type Lasting = Vec<(Extension, Instant)>;

/// The extensions of groups.
#[derive(Debug, Default)]
pub(crate) struct KnownExtensions(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_group: HashMap<Group, Lasting, foldhash::fast::RandomState>,
    changes: u32,
}

impl Entries {
    /// Removes the groups whose extensions have expired, once in many changes.
    fn changed(&mut self, now: Instant) {
        self.changes += 1;
        if self.changes >= CHANGES_PER_LOOK {
            self.changes = 0;
            self.by_group
                .retain(|_, lasting| lasting.iter().any(|(_, until)| *until > now));
        }
    }
}

impl KnownExtensions {
    pub(crate) fn extend_at(
        &self,
        group: Group,
        extension: &Extension,
        life: Duration,
        now: Instant,
    ) -> bool {
        let mut entries = self.0.lock();
        let lasting = entries.by_group.entry(group).or_default();
        lasting.retain(|(known, until)| *until > now && known.name() != extension.name());
        let is_kept = lasting.len() < EXTENSIONS_MAX;
        if is_kept {
            lasting.push((extension.clone(), now + life.min(ENTRY_LIFE)));
        }
        entries.changed(now);
        is_kept
    }

    pub(crate) fn extensions_at(&self, group: Group, now: Instant) -> Vec<Extension> {
        let entries = self.0.lock();
        let lasting = entries.by_group.get(&group).into_iter().flatten();
        lasting
            .filter(|(_, until)| *until > now)
            .map(|(extension, _)| extension.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use shoal_base::clock;
    use shoal_policy::VersionId;

    use super::*;

    #[test]
    fn extensions_that_are_over_are_forgotten() {
        let (known, began) = (KnownExtensions::default(), clock::instant());
        let group = |number| Group {
            version: VersionId([7; 16]),
            number,
        };
        let second = Duration::from_secs(1);
        let short = Extension::new("short", b"").unwrap();
        assert!(known.extend_at(group(0), &short, second, began));
        assert_eq!(known.extensions_at(group(0), began), std::slice::from_ref(&short));
        assert_eq!(known.extensions_at(group(0), began + second), []);
        for number in 1..CHANGES_PER_LOOK {
            known.extend_at(group(number), &short, Duration::from_hours(9), began + second);
        }
        assert_eq!(known.0.lock().by_group.len() as u32, CHANGES_PER_LOOK - 1);
        assert_eq!(known.extensions_at(group(1), began + Duration::from_hours(2)), []);
    }
}
