//! A signal that wakes or stops one background thread.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Lets a thread sleep until a timeout, a wake-up or a stop.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    woken: bool,
    stopped: bool,
}

impl Signal {
    /// Sleeps for `time` or until woken. Returns `false` if the thread has to stop.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.woken && !state.stopped {
            self.changed.wait_for(&mut state, time);
        }
        state.woken = false;
        !state.stopped
    }

    /// Wakes the thread, or makes its next sleep return at once.
    pub(crate) fn wake(&self) {
        self.state.lock().woken = true;
        self.changed.notify_one();
    }

    /// Signals the thread to stop.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }
}
