//! The store's background threads. One keeps room free, expires pins, moves blocks between layers and probes
//! a failed disk; one scrubs; some write ([`crate::blocks::writers`]).

use std::io;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_base::clock;

use super::scrub;
use crate::Store;
use crate::blocks::writers::Writers;
use crate::ground::health::Health;
use crate::ground::signal::Signal;

/// How long the thread sleeps when no other thread wakes it.
const IDLE: Duration = Duration::from_secs(1);

/// How often the thread checks whether readers have released the files that were removed.
const REMOVALS: Duration = Duration::from_millis(50);

/// How long the thread releases the locks between batches of moves from layer to layer.
const MOVES: Duration = Duration::from_millis(1);

/// How often the thread probes a failed disk.
const PROBE: Duration = Duration::from_secs(5);

/// The threads and their signals.
#[derive(Default)]
pub(crate) struct Maintenance {
    room: Arc<Signal>,
    scrub: Arc<Signal>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Maintenance {
    /// `room` wakes the thread that keeps room free.
    pub(crate) fn new(room: &Arc<Signal>) -> Self {
        Self {
            room: Arc::clone(room),
            ..Self::default()
        }
    }

    /// Starts the threads. They hold their work by weak references, and end when it is dropped.
    ///
    /// # Errors
    ///
    /// Fails if a thread cannot be started. Those already started run until [`Maintenance::stop`].
    pub(crate) fn start(&self, store: &Arc<Store>) -> io::Result<()> {
        let (weak, signal) = (Arc::downgrade(store), Arc::clone(&self.room));
        self.spawn("store-room", move || keep_room(&weak, &signal))?;
        let (weak, signal) = (Arc::downgrade(&store.loader), Arc::clone(&self.scrub));
        self.spawn("store-scrub", move || scrub::run(&weak, &signal))?;
        let writing = store.writers.start()?;
        self.threads.lock().extend(writing);
        Ok(())
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = thread::Builder::new().name(name.into()).spawn(work)?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Signals the threads to stop, and returns them for the caller to [`join`].
    pub(crate) fn stop(&self, writers: &Writers) -> Vec<JoinHandle<()>> {
        self.room.stop();
        self.scrub.stop();
        writers.stop();
        std::mem::take(&mut *self.threads.lock())
    }
}

/// Waits for a thread that was signalled to stop.
///
/// # Panics
///
/// Panics if the thread did.
pub(crate) fn join(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn keep_room(store: &Weak<Store>, signal: &Signal) {
    let mut nap = Duration::ZERO;
    let mut probed = clock::instant();
    let mut moves = Vec::new();
    while signal.sleep(nap) {
        let Some(store) = store.upgrade() else { return };
        store.evictor.make_room_ahead();
        store.removal.retry();
        store.pinning.end_due();
        nap = if store.layers.move_misplaced(&mut moves) {
            MOVES
        } else if store.removal.has_pending() {
            REMOVALS
        } else {
            IDLE
        };
        let now = clock::instant();
        if now.saturating_duration_since(probed) >= PROBE {
            probed = now;
            if store.probe() != Health::Serving {
                tracing::debug!("the store's disk still fails");
            }
        }
    }
}
