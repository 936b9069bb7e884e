//! The states of one name, and the changes between them.
//!
//! An entry says which dirty object a name means, and which change of the name is on its way to the lake: at
//! most one at a time. Every function here is pure. A node reads an entry, computes the next one, and commits
//! it on the condition that the entry has not changed; if it has, the node starts anew.

use serde::{Deserialize, Serialize};
use ulid::Ulid;

/// A node in one of its lives: a node that restarts is another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The id of the node.
    pub node: u64,
    /// Names the life.
    pub life: Ulid,
}

/// The state of a name. Without an entry, and with an empty one, the lake's answer is the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry<V> {
    /// The dirty object that reads find.
    pub current: Option<V>,
    /// The change of the name that is on its way to the lake.
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

/// A change of a name that is on its way to the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Busy {
    /// What is done at the lake.
    pub kind: Kind,
    /// The node that does it.
    pub owner: Owner,
    /// Names this change.
    pub token: Ulid,
    /// The dirty object that the change takes to the lake, removes or overwrites; `None` if there was none
    /// when the change began.
    pub of: Option<Ulid>,
}

/// A kind of change at the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// The dirty object is written.
    Flush,
    /// The name is removed.
    Delete,
    /// Another object is written, or the object is changed: by a write that goes through the cache or around
    /// it.
    Write,
}

/// A dirty object, as far as the order of names needs to know it.
pub trait Versioned {
    /// Names the object. No two objects share an id.
    fn id(&self) -> Ulid;
}

/// A change cannot begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// Another change of the name is on its way to the lake.
    Busy(Busy),
    /// The dirty object is not the expected one.
    Changed,
}

impl<V: Versioned + Clone> Entry<V> {
    /// Whether the entry says nothing. It stays for a while nevertheless: a read that found it so may still
    /// wait for the lake.
    pub fn is_empty(&self) -> bool {
        self.current.is_none() && self.busy.is_none()
    }

    /// The entry once `version` is written. A change that is on its way to the lake goes on: it is older.
    #[must_use]
    pub fn written(&self, version: V) -> Self {
        Self {
            current: Some(version),
            busy: self.busy,
        }
    }

    /// The entry once `busy` has begun.
    ///
    /// # Errors
    ///
    /// Fails while another change is on its way, or if the dirty object is not the one that `busy` is about.
    pub fn begun(&self, busy: Busy) -> Result<Self, NotBegun> {
        if let Some(other) = self.busy {
            return Err(NotBegun::Busy(other));
        }
        if self.current_id() != busy.of {
            return Err(NotBegun::Changed);
        }
        Ok(Self {
            current: self.current.clone(),
            busy: Some(busy),
        })
    }

    /// The entry once the lake has carried out the change that `token` names: the dirty object that the
    /// change was about is no longer needed. A newer one stays. `None` if the change is no longer this
    /// node's.
    pub fn done(&self, token: Ulid) -> Option<Self> {
        let busy = self.busy.filter(|busy| busy.token == token)?;
        let is_newer = self.current_id() != busy.of;
        Some(Self {
            current: self.current.clone().filter(|_| is_newer),
            busy: None,
        })
    }

    /// The entry once it is certain that the change that `token` names is not on its way any more: the lake
    /// refused it, or the time has passed within which the lake may still carry it out. `None` if the change
    /// is no longer this node's.
    pub fn given_up(&self, token: Ulid) -> Option<Self> {
        self.busy.filter(|busy| busy.token == token)?;
        Some(Self {
            current: self.current.clone(),
            busy: None,
        })
    }

    /// The entry once `heir` has taken over the change that `token` names from an owner whose session has
    /// ended. `None` if it is another change by now.
    pub fn taken_over(&self, token: Ulid, heir: Owner) -> Option<Self> {
        let busy = self.busy.filter(|busy| busy.token == token)?;
        Some(Self {
            current: self.current.clone(),
            busy: Some(Busy { owner: heir, ..busy }),
        })
    }

    /// The id of the dirty object.
    pub fn current_id(&self) -> Option<Ulid> {
        self.current.as_ref().map(Versioned::id)
    }
}
