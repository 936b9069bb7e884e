//! A signal that wakes or stops one background thread.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Lets a thread sleep until a time has passed, until it is woken, or until it is stopped.
#[derive(Debug, Default)]
pub(super) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    woken: bool,
    stopped: bool,
}

impl Signal {
    /// Sleeps for `time` or until woken. Returns `false` when the thread has to end.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.woken && !state.stopped {
            self.changed.wait_for(&mut state, time);
        }
        state.woken = false;
        !state.stopped
    }

    /// Wakes the thread, or keeps it from its next sleep.
    pub(super) fn wake(&self) {
        self.state.lock().woken = true;
        self.changed.notify_one();
    }

    /// Tells the thread to end.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }
}
