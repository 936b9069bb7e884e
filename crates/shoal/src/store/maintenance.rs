//! The store's background threads. One keeps room free, moves blocks between layers and asks a failed disk
//! whether it works again; one scrubs; some write ([`super::writers`]).

use std::io;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::layers::Moves;
use super::{Health, Store};
use crate::clock;

/// How long the maintenance sleeps when no other thread wakes it.
const IDLE: Duration = Duration::from_secs(1);

/// How often the maintenance checks whether readers have released the files that have left.
const DEPARTURES: Duration = Duration::from_millis(50);

/// How long the maintenance leaves the locks to others between moves of blocks from layer to layer.
const MOVES: Duration = Duration::from_millis(1);

/// How often the maintenance probes a failed disk.
const PROBE: Duration = Duration::from_secs(5);

/// The threads, and the signals that reach them.
#[derive(Debug, Default)]
pub(super) struct Maintenance {
    room: Arc<Signal>,
    scrub: Arc<Signal>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Lets a thread sleep until a time, until woken, or until stopped.
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

impl Maintenance {
    /// Starts the threads. They hold the store weakly, and end with it.
    pub(super) fn start(store: &Arc<Store>) -> io::Result<()> {
        let maintenance = &store.maintenance;
        let mut threads = maintenance.threads.lock();
        let (weak, signal) = (Arc::downgrade(store), Arc::clone(&maintenance.room));
        threads.push(spawn("store-room", move || keep_room(&weak, &signal))?);
        let (weak, signal) = (Arc::downgrade(store), Arc::clone(&maintenance.scrub));
        threads.push(spawn("store-scrub", move || super::scrub::run(&weak, &signal))?);
        threads.extend(store.writers.start()?);
        Ok(())
    }

    /// Wakes the maintenance because room is short.
    pub(super) fn wake(&self) {
        self.room.wake();
    }

    /// Tells the threads to end.
    pub(super) fn stop(&self) {
        self.room.stop();
        self.scrub.stop();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.room.state.lock().stopped
    }

    pub(super) fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.threads.lock())
    }
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

    fn wake(&self) {
        self.state.lock().woken = true;
        self.changed.notify_one();
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }
}

/// Waits for a thread that was told to end.
pub(super) fn join(thread: JoinHandle<()>) {
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(work)
}

fn keep_room(store: &Weak<Store>, signal: &Signal) {
    let mut nap = Duration::ZERO;
    let mut asked = clock::instant();
    let mut moves = Moves::default();
    while signal.sleep(nap) {
        let Some(store) = store.upgrade() else { return };
        store.evict_ahead();
        store.retry_departures();
        nap = if store.settle_some(&mut moves) {
            MOVES
        } else if store.has_departures() {
            DEPARTURES
        } else {
            IDLE
        };
        asked = probe_now_and_then(&store, asked, clock::instant());
    }
}

fn probe_now_and_then(store: &Store, asked: Instant, now: Instant) -> Instant {
    if now.saturating_duration_since(asked) < PROBE {
        return asked;
    }
    if store.probe() != Health::Serving {
        tracing::debug!("the store's disk still fails");
    }
    now
}
