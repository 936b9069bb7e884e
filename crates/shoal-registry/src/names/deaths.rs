//! Dirty objects that never had to be flushed, because they were overwritten or removed while they were
//! dirty. The age at which objects are flushed adapts to the ages of these.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::moment::age_of;
use crate::version::{DirtyVersion, Lifetime};

/// Maximum number of deaths that wait to be taken. When it is exceeded, the oldest are forgotten.
const WAITING_MAX: usize = 256;

/// The end of an object while it was dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// The lifetime that was expected of the object.
    pub lifetime: Lifetime,
    /// The age of the object, from its writing, by the clock of its node, to its death, by this node's clock.
    pub age: Duration,
}

/// The deaths that this node has caused and that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Deaths(Mutex<VecDeque<Death>>);

impl Deaths {
    /// Records the death of an object, if there was one. The end of a tombstone is no death.
    pub(crate) fn note(&self, version: Option<&DirtyVersion>) {
        let Some(version) = version.filter(|version| !version.is_tombstone) else {
            return;
        };
        let death = Death {
            lifetime: version.lifetime,
            age: age_of(version.id),
        };
        let mut waiting = self.0.lock();
        if waiting.len() == WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(death);
    }

    pub(crate) fn take(&self) -> VecDeque<Death> {
        std::mem::take(&mut *self.0.lock())
    }
}
