//! The objects at the head of a list that stay although they are due. They are not read again in each pass.

use std::time::Duration;

use tokio::time::Instant;
use ulid::Ulid;

/// The time after which a list is read from its beginning again: what was held may no longer be.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

/// The head of a list.
#[derive(Default)]
pub(super) struct HeldHead {
    /// The last of the objects that are held one behind the other.
    last: Option<Ulid>,
    /// When the list was read from its beginning.
    looked: Option<Instant>,
    /// False behind the first object that is not held.
    is_head: bool,
}

impl HeldHead {
    /// Begins a pass. Returns the object behind which it begins; `None` for the beginning of the list.
    pub(super) fn begin_pass(&mut self, now: Instant) -> Option<Ulid> {
        self.is_head = true;
        if self.looked.is_none_or(|looked| now >= looked + LOOK_PAUSE) {
            (self.last, self.looked) = (None, Some(now));
        }
        self.last
    }

    /// Returns the last of the objects at the head that are held.
    pub(super) fn last(&self) -> Option<Ulid> {
        self.last
    }

    /// Notes that the next object of the pass is held, or is not. Returns that.
    pub(super) fn has(&mut self, id: Ulid, is_held: bool) -> bool {
        self.is_head &= is_held;
        if self.is_head {
            self.last = Some(id);
        }
        is_held
    }
}
