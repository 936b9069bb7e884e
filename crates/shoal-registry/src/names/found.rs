//! Entries as they were found, and changes that have begun in them.

use ulid::Ulid;

use super::{BegunChange, Found, StoredEntry};
use crate::engine::{Condition, EngineError, Revision, Stored};
use crate::entry::Entry;
use crate::keys::Name;
use crate::moment::Moment;
use crate::receipts::Receipts;

impl BegunChange {
    /// Returns the revision of the entry that has the change.
    pub(crate) fn revision(&self) -> Revision {
        self.found.revision.expect("an entry with a change is stored")
    }

    /// Notes that the receipts up to the version that the change is about are removed.
    pub(crate) fn receipts_are_gone(&mut self) {
        if let Some(of) = self.busy.of {
            self.found.receipts = self.found.receipts.after(of);
        }
    }

    /// Returns the change with this `token`, if the entry has it.
    pub(crate) fn in_entry(name: &Name, found: &Found, token: Ulid) -> Option<Self> {
        let busy = found.entry.busy.filter(|busy| busy.token == token)?;
        Some(Self {
            name: name.clone(),
            busy,
            found: found.clone(),
            was_nothing: false,
        })
    }
}

impl Found {
    /// Returns true if the registry has the entry, be it an empty one.
    pub fn is_stored(&self) -> bool {
        self.revision.is_some()
    }

    /// Returns the time at which the node began to read the entry.
    pub fn looked(&self) -> Moment {
        self.looked
    }

    /// Returns the entry that is stored, if there is one.
    pub(super) fn of(stored: Option<Stored>, looked: Moment) -> Result<Self, EngineError> {
        let Some(stored) = stored else {
            return Ok(Self::nothing(looked));
        };
        let StoredEntry { entry, receipts } = StoredEntry::decoded(&stored.value)?;
        Ok(Self {
            entry,
            receipts,
            revision: Some(stored.revision),
            looked,
        })
    }

    pub(super) fn nothing(looked: Moment) -> Self {
        Self {
            entry: Entry::default(),
            receipts: Receipts::default(),
            revision: None,
            looked,
        }
    }

    pub(crate) fn condition(&self, name: &Name) -> Condition {
        Condition {
            key: name.entry_key(),
            revision: self.revision,
        }
    }
}
