//! The states of one name, and the transitions between them.
//!
//! An entry records the dirty object under a name, and the change of the name that is in flight to the lake:
//! at most one at a time. Every function here is pure. A node reads an entry, computes the next one, and
//! commits it on condition that the entry has not changed; if it has, the node starts over.

use serde::{Deserialize, Serialize};
use ulid::Ulid;

/// A node in one of its lives. A node that restarts is another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The id of the node.
    pub node: u64,
    /// The id of the life.
    pub life: Ulid,
}

/// The state of a name. If it is empty or does not exist, reads go to the lake.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry<V> {
    /// The dirty object that reads find, or the tombstone, where reads find none.
    pub current: Option<V>,
    /// The change of the name that is in flight to the lake.
    pub busy: Option<Busy>,
}

impl<V> Default for Entry<V> {
    fn default() -> Self {
        Self {
            current: None,
            busy: None,
        }
    }
}

/// A change of a name that is in flight to the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Busy {
    /// The kind of change.
    pub kind: Kind,
    /// The node that carries it out.
    pub owner: Owner,
    /// The id of this change.
    pub token: Ulid,
    /// The dirty object that the change flushes, removes or overwrites; `None` if there was none when the
    /// change began.
    pub of: Option<Ulid>,
}

/// A kind of change at the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Writes the dirty object, or removes the name if it is a tombstone.
    Flush,
    /// Removes the name.
    Delete,
    /// Writes another object, or changes the existing one, by a request that goes through the cache or around
    /// it. May begin only while no object is dirty: otherwise a reader that has found no dirty object could
    /// return the lake's new object while the name still means the dirty one.
    Write,
}

/// A dirty object or a tombstone, as far as entries need to know it.
pub trait Versioned {
    /// Returns the unique id of the object.
    fn id(&self) -> Ulid;
}

/// The reason why a change cannot begin at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// Another change of the name is in flight.
    Busy(Busy),
    /// The dirty object is not the expected one.
    Changed,
}

impl<V: Versioned + Clone> Entry<V> {
    /// Returns true if the entry is empty. If the object under the name has changed, an empty entry is kept
    /// for a while, because a read that found no entry before may still be waiting for the lake.
    pub fn is_empty(&self) -> bool {
        self.current.is_none() && self.busy.is_none()
    }

    /// Returns the entry after `version` is written. A change in flight continues: it is older.
    #[must_use]
    pub fn written(&self, version: V) -> Self {
        Self {
            current: Some(version),
            busy: self.busy,
        }
    }

    /// Returns the entry after `busy` has begun.
    ///
    /// # Errors
    ///
    /// Fails while another change is in flight, or if the dirty object is not the one that `busy` is about. A
    /// `Write` fails if there is any dirty object.
    pub fn begun(&self, busy: Busy) -> Result<Self, NotBegun> {
        if let Some(other) = self.busy {
            return Err(NotBegun::Busy(other));
        }
        let is_over_dirty = busy.kind == Kind::Write && self.current.is_some();
        if is_over_dirty || self.current_id() != busy.of {
            return Err(NotBegun::Changed);
        }
        Ok(Self {
            current: self.current.clone(),
            busy: Some(busy),
        })
    }

    /// Returns the entry after the lake has carried out the change with this `token`. The dirty object that
    /// the change was about is no longer needed; a newer one stays. Returns `None` if the entry no longer has
    /// this change.
    pub fn done(&self, token: Ulid) -> Option<Self> {
        let busy = self.busy.filter(|busy| busy.token == token)?;
        let is_newer = self.current_id() != busy.of;
        Some(Self {
            current: self.current.clone().filter(|_| is_newer),
            busy: None,
        })
    }

    /// Returns the entry once the change with this `token` can no longer be carried out: the lake refused it,
    /// or the time has passed within which it still could be. Returns `None` if the entry no longer has this
    /// change. Another node gives a change up in the same way, once the owner's session has ended and that
    /// time has passed.
    pub fn given_up(&self, token: Ulid) -> Option<Self> {
        self.busy.filter(|busy| busy.token == token)?;
        Some(Self {
            current: self.current.clone(),
            busy: None,
        })
    }

    /// Returns the id of the dirty object.
    pub fn current_id(&self) -> Option<Ulid> {
        self.current.as_ref().map(Versioned::id)
    }
}

#[cfg(test)]
mod tests {
    use super::{Busy, Entry, Kind, NotBegun, Owner, Versioned};
    use ulid::Ulid;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Object(u128);

    impl Versioned for Object {
        fn id(&self) -> Ulid {
            Ulid(self.0)
        }
    }

    const OLD: Option<Object> = Some(Object(1));
    const NEW: Option<Object> = Some(Object(2));
    const TOKEN: Ulid = Ulid(7);

    fn busy(kind: Kind, of: Option<Object>) -> Busy {
        let owner = Owner {
            node: 3,
            life: Ulid(5),
        };
        Busy {
            kind,
            owner,
            token: TOKEN,
            of: of.as_ref().map(Versioned::id),
        }
    }

    fn entry(current: Option<Object>, busy: Option<Busy>) -> Entry<Object> {
        Entry { current, busy }
    }

    #[test]
    fn an_entry_is_empty_without_an_object_and_a_change() {
        assert!(Entry::<Object>::default().is_empty());
        assert!(!entry(OLD, None).is_empty());
        assert!(!entry(None, Some(busy(Kind::Delete, None))).is_empty());
    }

    #[test]
    fn a_write_replaces_the_dirty_object_and_leaves_the_change_on_its_way() {
        for current in [None, OLD] {
            for change in [None, Some(busy(Kind::Flush, OLD))] {
                assert_eq!(entry(current, change).written(Object(2)), entry(NEW, change));
            }
        }
    }

    #[test]
    fn a_change_begins_if_none_is_on_its_way_and_the_dirty_object_is_the_expected_one() {
        let other = Busy {
            token: Ulid(8),
            ..busy(Kind::Flush, OLD)
        };
        let table = [
            (Kind::Flush, entry(OLD, None), OLD, Ok(())),
            (Kind::Flush, entry(NEW, None), OLD, Err(NotBegun::Changed)),
            (Kind::Flush, entry(None, None), OLD, Err(NotBegun::Changed)),
            (
                Kind::Flush,
                entry(OLD, Some(other)),
                OLD,
                Err(NotBegun::Busy(other)),
            ),
            (Kind::Delete, entry(OLD, None), OLD, Ok(())),
            (Kind::Delete, entry(None, None), None, Ok(())),
            (Kind::Delete, entry(OLD, None), None, Err(NotBegun::Changed)),
            (
                Kind::Delete,
                entry(None, Some(other)),
                None,
                Err(NotBegun::Busy(other)),
            ),
            (Kind::Write, entry(None, None), None, Ok(())),
            (Kind::Write, entry(OLD, None), None, Err(NotBegun::Changed)),
            (Kind::Write, entry(OLD, None), OLD, Err(NotBegun::Changed)),
            (Kind::Write, entry(None, None), OLD, Err(NotBegun::Changed)),
            (
                Kind::Write,
                entry(NEW, Some(other)),
                None,
                Err(NotBegun::Busy(other)),
            ),
        ];
        for (kind, before, of, expected) in table {
            let change = busy(kind, of);
            let begun = before.begun(change);
            assert_eq!(
                begun,
                expected.map(|()| entry(before.current, Some(change))),
                "{kind:?} of {of:?}"
            );
        }
    }

    #[test]
    fn a_change_that_is_done_takes_its_object_along_but_no_newer_one() {
        let table = [
            (Kind::Flush, OLD, OLD, None),
            (Kind::Flush, OLD, NEW, NEW),
            (Kind::Delete, OLD, OLD, None),
            (Kind::Delete, OLD, NEW, NEW),
            (Kind::Delete, None, None, None),
            (Kind::Delete, None, NEW, NEW),
            (Kind::Write, None, None, None),
            (Kind::Write, None, NEW, NEW),
        ];
        for (kind, of, current, left) in table {
            let before = entry(current, Some(busy(kind, of)));
            assert_eq!(before.done(TOKEN), Some(entry(left, None)), "{kind:?} of {of:?}");
        }
    }

    #[test]
    fn a_change_that_is_given_up_leaves_the_dirty_object() {
        for (of, current) in [(OLD, OLD), (OLD, NEW), (None, NEW), (None, None)] {
            let before = entry(current, Some(busy(Kind::Delete, of)));
            assert_eq!(before.given_up(TOKEN), Some(entry(current, None)));
        }
    }

    #[test]
    fn no_token_but_its_own_ends_a_change() {
        for before in [entry(OLD, Some(busy(Kind::Flush, OLD))), entry(OLD, None)] {
            assert_eq!(before.done(Ulid(8)), None);
            assert_eq!(before.given_up(Ulid(8)), None);
        }
    }
}
