//! The dirty objects whose bytes the lake was spared: another object was written under their name, or they
//! were removed, while they were dirty. The age at which objects go to the lake follows how old they became.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::version::{DirtyVersion, Lifetime};
use crate::worker::age_of;

/// The number of deaths that wait to be taken. Beyond it the oldest are forgotten.
const WAITING_MAX: usize = 256;

/// The end of an object that was dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// How long the object was expected to live.
    pub lifetime: Lifetime,
    /// How old it was. The clock of the node that wrote it says when it was written, that of this node when
    /// it died.
    pub age: Duration,
}

/// The deaths that this node has caused and not yet taken.
#[derive(Debug, Default)]
pub(crate) struct Deaths(Mutex<VecDeque<Death>>);

impl Deaths {
    /// Notes the death of an object, if there was one.
    pub(crate) fn note(&self, version: Option<&DirtyVersion>) {
        let Some(version) = version else { return };
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
