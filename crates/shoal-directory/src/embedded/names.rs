//! The tokens and changes of names, in memory.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_base::clock;
use shoal_policy::{NodeId, ObjectId};

use crate::ENTRY_LIFE;
use crate::names::{CHANGE_LIFE, Change, DirectoryTime, PRESENCE_LIFE, Presence, Roll, SETTLING, Token};

use super::CHANGES_PER_LOOK;

/// The tokens and changes of names, and the presence of nodes.
#[derive(Debug)]
pub(crate) struct KnownNames {
    began: Instant,
    names: Mutex<Entries>,
    present: Mutex<HashMap<NodeId, (Presence, DirectoryTime)>>,
}

#[derive(Debug, Default)]
struct Entries {
    by_name: HashMap<ObjectId, NameEntry, foldhash::fast::RandomState>,
    looks: u32,
}

#[derive(Debug)]
struct NameEntry {
    token: Token,
    settled_at: Instant,
    /// Changes under way, with their expiry.
    changes: Vec<(Change, Instant)>,
    used_at: Instant,
}

impl Default for KnownNames {
    fn default() -> Self {
        Self {
            began: clock::instant(),
            names: Mutex::default(),
            present: Mutex::default(),
        }
    }
}

impl Entries {
    /// Returns the entry of a name without expired changes, creating it with token `fresh` if it is new.
    fn entry(&mut self, name: ObjectId, fresh: Token, now: Instant) -> &mut NameEntry {
        self.looks += 1;
        if self.looks >= CHANGES_PER_LOOK {
            self.looks = 0;
            self.by_name.retain(|_, entry| now < entry.used_at + ENTRY_LIFE);
        }
        let entry = self.by_name.entry(name).or_insert_with(|| NameEntry {
            token: fresh,
            settled_at: now + SETTLING,
            changes: Vec::new(),
            used_at: now,
        });
        entry.changes.retain(|(_, until)| *until > now);
        entry.used_at = now;
        entry
    }
}

impl KnownNames {
    pub(crate) fn token_at(&self, name: ObjectId, fresh: Token, now: Instant) -> Option<Token> {
        let mut names = self.names.lock();
        let entry = names.entry(name, fresh, now);
        (entry.changes.is_empty() && now >= entry.settled_at).then_some(entry.token)
    }

    pub(crate) fn begin_at(&self, name: ObjectId, change: Change, fresh: Token, now: Instant) {
        let mut names = self.names.lock();
        let entry = names.entry(name, fresh, now);
        entry.token = fresh;
        entry.changes.retain(|(other, _)| *other != change);
        entry.changes.push((change, now + CHANGE_LIFE));
    }

    pub(crate) fn end(&self, name: ObjectId, change: Change) {
        if let Some(entry) = self.names.lock().by_name.get_mut(&name) {
            entry.changes.retain(|(other, _)| *other != change);
        }
    }

    pub(crate) fn attend_at(&self, mine: Presence, at: Option<DirectoryTime>, now: Instant) -> Roll {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let time = DirectoryTime(millis(now.saturating_duration_since(self.began)));
        let mut present = self.present.lock();
        if let Some(at) = at.map(|at| at.min(time)) {
            let is_newer = present.get(&mine.node).is_none_or(|(_, known)| *known <= at);
            if is_newer {
                present.insert(mine.node, (mine, at));
            }
        }
        present.retain(|_, (_, at)| at.0 + millis(PRESENCE_LIFE) > time.0);
        Roll {
            at: time,
            present: present.values().map(|(presence, _)| *presence).collect(),
        }
    }

    /// Removes everything, as flushing a server does.
    #[cfg(test)]
    pub(crate) fn forget(&self) {
        self.names.lock().by_name.clear();
        self.present.lock().clear();
    }
}
