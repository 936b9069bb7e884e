//! One direction of the link, where transfers wait for permission of the meter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_base::words::Count;
use shoal_policy::link::{AnswerTime, Ask, Class, Demand, Direction, Meter, ahead_bytes};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::figures::{ClassFigures, LaneFigures};
use super::since;

/// Longest sleep of the dispatcher, because the bandwidth may have grown meanwhile.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// Time from a client's first byte until its bytes arrive at full speed.
const CLIENT_BEGINS: Duration = Duration::from_millis(2);

/// One direction of the link.
#[derive(Debug)]
pub(super) struct Lane {
    began: Instant,
    direction: Direction,
    state: Mutex<State>,
    /// [`Meter::quantum`] of each class, in bytes.
    quanta: [AtomicU64; Class::ALL.len()],
    /// Wakes the dispatcher earlier than planned.
    looks_earlier: Notify,
    counts: [Counts; Class::ALL.len()],
}

#[derive(Debug)]
struct State {
    meter: Meter<oneshot::Sender<Class>>,
    answer_time: AnswerTime,
    /// When the dispatcher task wakes next; `None` if there is no such task.
    looks_at: Option<Duration>,
}

/// The place of a waiting transfer. It receives the class that the transfer's bytes are charged to, under the
/// lane's lock.
pub(super) type Ticket = oneshot::Receiver<Class>;

fn is_wanted(ticket: &oneshot::Sender<Class>) -> bool {
    !ticket.is_closed()
}

#[derive(Debug, Default)]
struct Counts {
    bytes: Count,
    waits: Count,
    waited_us: Count,
}

impl Lane {
    pub(super) fn new(direction: Direction, bandwidth: u64, began: Instant) -> Arc<Self> {
        let meter = Meter::new(bandwidth, since(began));
        let lane = Self {
            direction,
            began,
            quanta: Class::ALL.map(|class| AtomicU64::new(meter.quantum(class))),
            state: Mutex::new(State {
                meter,
                answer_time: AnswerTime::new(since(began)),
                looks_at: None,
            }),
            looks_earlier: Notify::new(),
            counts: Default::default(),
        };
        lane.bound_ahead(&mut lane.state.lock());
        Arc::new(lane)
    }

    /// Returns the maximum number of bytes to ask for at a time.
    pub(super) fn quantum(&self, class: Class) -> u64 {
        self.quanta[class as usize].load(Ordering::Relaxed)
    }

    /// Takes permission if it is available at once. Returns the class that the bytes were charged to.
    ///
    /// # Errors
    ///
    /// Returns a ticket that waits for permission.
    pub(super) fn take(self: &Arc<Self>, ask: Ask) -> Result<Class, Ticket> {
        let now = since(self.began);
        let mut state = self.state.lock();
        if let Some(went_as) = state.meter.try_take(ask, now) {
            return Ok(went_as);
        }
        let (grant, ticket) = oneshot::channel();
        state.meter.ask(ask, grant, now, is_wanted);
        self.keep_dispatching(&mut state);
        Err(ticket)
    }

    /// Returns unused permission for bytes that were charged to a class.
    pub(super) fn give_back(&self, class: Class, bytes: u64) {
        let now = since(self.began);
        self.state.lock().meter.give_back(class, bytes, now);
    }

    /// Charges bytes that have moved without permission.
    pub(super) fn pay(&self, class: Class, bytes: u64) {
        let now = since(self.began);
        self.state.lock().meter.pay(class, bytes, now);
    }

    /// Records that bytes permitted to a background transfer of `class` are no longer in flight.
    pub(super) fn arrived(self: &Arc<Self>, class: Class, bytes: u64) {
        let mut state = self.state.lock();
        if state.meter.arrived(class, bytes) {
            self.let_go(&mut state);
            self.keep_dispatching(&mut state);
        }
    }

    /// Records that a client's request has been sent to the lake.
    pub(super) fn expect_client(&self) {
        let now = since(self.began);
        let mut state = self.state.lock();
        let within = state.answer_time.floor().saturating_add(CLIENT_BEGINS);
        state.meter.expect_client(within, now);
    }

    /// Records that the lake answered a request after `took`.
    pub(super) fn answered(&self, took: Duration) {
        let now = since(self.began);
        let mut state = self.state.lock();
        state.answer_time.answered(took, now);
        self.bound_ahead(&mut state);
    }

    /// Limits the bytes in flight to background transfers.
    fn bound_ahead(&self, state: &mut State) {
        if self.direction == Direction::Down {
            let bytes = ahead_bytes(state.meter.bandwidth(), state.answer_time.floor());
            state.meter.set_ahead_max(bytes);
        }
    }

    /// Cancels a ticket. If it had been granted, returns the class that its bytes were charged to.
    pub(super) fn give_up(&self, mut ticket: Ticket) -> Option<Class> {
        let _state = self.state.lock();
        ticket.close();
        ticket.try_recv().ok()
    }

    /// Counts bytes that have moved.
    pub(super) fn moved(&self, class: Class, bytes: u64) {
        self.counts[class as usize].bytes.add(bytes);
    }

    pub(super) fn set_bandwidth(&self, bandwidth: u64) {
        let now = since(self.began);
        let mut state = self.state.lock();
        if state.meter.bandwidth() != bandwidth.max(1) {
            state.meter.set_bandwidth(bandwidth, now);
            self.bound_ahead(&mut state);
            for class in Class::ALL {
                let quantum = state.meter.quantum(class);
                self.quanta[class as usize].store(quantum, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn set_reserved(&self, rate: u64) {
        let now = since(self.began);
        self.state.lock().meter.set_reserved(rate, now);
    }

    pub(super) fn demand(&self, equal_part: u64) -> Demand {
        let now = since(self.began);
        self.state.lock().meter.demand(equal_part, now)
    }

    pub(super) fn figures(&self) -> LaneFigures {
        let now = since(self.began);
        let state = self.state.lock();
        let classes = Class::ALL.map(|class| {
            let counts = &self.counts[class as usize];
            let figures = ClassFigures {
                bytes: counts.bytes.get(),
                rate_bytes_per_second: state.meter.rate(class, now),
                waiting: state.meter.waiting(class),
                waits: counts.waits.get(),
                waited_ms: counts.waited_us.get() / 1_000,
            };
            (class.as_str().to_owned(), figures)
        });
        LaneFigures {
            share_bytes_per_second: state.meter.bandwidth(),
            rate_bytes_per_second: classes
                .iter()
                .map(|(_, figures)| figures.rate_bytes_per_second)
                .sum(),
            promised_bytes: state.meter.promised_bytes,
            classes: classes.into(),
        }
    }

    /// Ensures that a dispatcher task runs while transfers wait for room, and wakes in time for the next one.
    fn keep_dispatching(self: &Arc<Self>, state: &mut State) {
        let Some(next_at) = state.meter.next_at() else {
            return;
        };
        match state.looks_at {
            None => drop(tokio::spawn(Arc::clone(self).dispatch())),
            Some(looks_at) if next_at < looks_at => self.looks_earlier.notify_one(),
            Some(_) => return,
        }
        state.looks_at = Some(next_at);
    }

    /// Grants permission to waiting transfers until none waits for room.
    async fn dispatch(self: Arc<Self>) {
        loop {
            let pause = {
                let mut state = self.state.lock();
                let now = self.let_go(&mut state);
                let next_at = state.meter.next_at();
                let looks_at = next_at.map(|next_at| next_at.min(now + SLEEP_MAX));
                state.looks_at = looks_at;
                let Some(looks_at) = looks_at else { return };
                looks_at.saturating_sub(now)
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.looks_earlier.notified() => {}
            }
        }
    }

    /// Grants permission to the transfers that the meter admits now. Returns the time.
    fn let_go(&self, state: &mut State) -> Duration {
        let now = since(self.began);
        while let Some(granted) = state.meter.next(now, is_wanted) {
            let counts = &self.counts[granted.class as usize];
            counts.waits.add(1);
            let waited_us = granted.waited.as_micros() as u64;
            counts.waited_us.add(waited_us);
            // Tickets are given up under the lock that this function holds, so this one is still wanted.
            let _ = granted.item.send(granted.goes_as);
        }
        now
    }
}
