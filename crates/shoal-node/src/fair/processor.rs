//! Shares the node's processors among connections, in the names of their payers.
//!
//! The runtime polls tasks in the order in which they became ready. Behind four thousand busy connections of
//! one client, another client's request would wait for four thousand others. So a task that becomes ready
//! waits in its payer's queue, and only as many tasks as there are processors are with the runtime at a time.
//! The time that a task takes is charged to its payer: this covers all costs of a connection, from TLS and
//! signatures to the copying of answers into sockets.
//!
//! A task in the middle of a request may hold a turn at the lake, a connection to it, memory. So it goes
//! ahead of its payer's tasks that would only begin a request.
//!
//! While tasks of several payers run, the runtime is made to look at its sockets every 25 µs: a turn that
//! ends then is given on only afterwards. On its own the runtime looks after every 61 tasks, and a request
//! that has just arrived would wait for that many others. A payer that is alone for a tenth of a second is
//! spared this, and has some more tasks with the runtime; a payer that comes back then waits for those 61
//! tasks once.

#[cfg(test)]
mod tests;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use shoal_policy::fair::{FairQueue, Payer};

use crate::clock;

/// Shares out the processors of one runtime.
#[derive(Debug)]
pub struct Processor {
    state: Mutex<State>,
}

/// How many times more tasks may be with the runtime while one payer is alone: a task seldom waits in the
/// queue then.
const ALONE: usize = 8;

/// A payer is alone once no other has run for this long.
const ALONE_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct State {
    /// The number of tasks that can run at a time.
    width: usize,
    /// The number of tasks that run, or are with the runtime to be run.
    running: usize,
    /// When the runtime was last known to have looked at its sockets.
    looked: Instant,
    /// The payer that ran last.
    ran_last: u32,
    /// When a task last ran behind one of another payer.
    alternated: Instant,
    /// Whether that is longer ago than [`ALONE_AFTER`].
    is_alone: bool,
    ready: FairQueue<Arc<TaskSlot>>,
}

/// The payer of a connection. It is known once the connection's first request is verified, and may change
/// with each request.
#[derive(Debug)]
pub struct ConnectionPayer(AtomicU64);

impl ConnectionPayer {
    /// The payer of a connection whose first request has not been verified.
    pub fn new(payer: Payer) -> Self {
        Self(AtomicU64::new(packed(payer)))
    }

    /// The current payer.
    pub fn get(&self) -> Payer {
        let packed = self.0.load(Ordering::Relaxed);
        Payer {
            id: (packed >> 32) as u32,
            share: packed as u32,
        }
    }

    /// Sets the payer of the request that was just verified.
    pub fn set(&self, payer: Payer) {
        // The payer is nearly always the same, and a load spares the cache line.
        if self.get() != payer {
            self.0.store(packed(payer), Ordering::Relaxed);
        }
    }
}

fn packed(payer: Payer) -> u64 {
    u64::from(payer.id) << 32 | u64::from(payer.share)
}

/// Tells whether a task is in the middle of a request.
pub trait MidRequest: Send + Sync {
    /// Whether the task is in the middle of a request now.
    fn is_mid_request(&self) -> bool;
}

/// The state of one task, as the scheduler sees it.
struct TaskSlot {
    processor: Arc<Processor>,
    payer: Arc<ConnectionPayer>,
    /// `None` if the task always is in the middle of a request.
    mid_request: Option<Arc<dyn MidRequest>>,
    /// A [`Stage`]; changes only under the processor's lock.
    stage: AtomicU8,
    /// Makes the runtime poll the task.
    task: AtomicWaker,
}

impl std::fmt::Debug for TaskSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat")
            .field("payer", &self.payer)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    /// The task waits for something other than a turn.
    Asleep,
    /// The task is ready, and waits in the queue.
    Queued,
    /// The task is with the runtime.
    Granted,
    /// The task runs.
    Running,
    /// The task runs, and became ready again meanwhile.
    RunningAgain,
    /// The task has ended.
    Gone,
}

impl TaskSlot {
    fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            0 => Stage::Asleep,
            1 => Stage::Queued,
            2 => Stage::Granted,
            3 => Stage::Running,
            4 => Stage::RunningAgain,
            _ => Stage::Gone,
        }
    }

    fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }
}

/// How long a socket may be ready unnoticed while tasks of several payers wait in the queue. Looking costs a
/// system call.
const LOOK_INTERVAL: Duration = Duration::from_micros(25);

/// How much idle time, in microseconds, a payer may make up for. A client on few connections has nothing to
/// run while its answers travel, and would lose a part of its share each time.
const CREDIT_US: u64 = 1000;

/// The estimated cost, in microseconds, of a task that has not run; the rest is charged afterwards.
const COST_AT_FIRST_US: u64 = 1;

impl State {
    fn has_free_turn(&self) -> bool {
        self.running < self.width * if self.is_alone { ALONE } else { 1 }
    }

    /// Notes that a task of `payer` has run until `ended`.
    fn has_run(&mut self, payer: u32, ended: Instant) {
        if payer != self.ran_last {
            self.ran_last = payer;
            self.alternated = ended;
        }
        self.is_alone = ended.saturating_duration_since(self.alternated) > ALONE_AFTER;
    }

    /// Gives a turn to a task that has become ready, or a place in the queue.
    fn admit(&mut self, slot: &Arc<TaskSlot>, stage: Stage) -> bool {
        let admitted = self.has_free_turn() && self.ready.is_empty();
        if admitted {
            self.running += 1;
            slot.enter(stage);
        } else {
            self.enqueue(slot);
        }
        admitted
    }

    fn enqueue(&mut self, slot: &Arc<TaskSlot>) {
        slot.enter(Stage::Queued);
        let (payer, task) = (slot.payer.get(), Arc::clone(slot));
        if slot.mid_request.as_ref().is_none_or(|task| task.is_mid_request()) {
            self.ready.push_begun(payer, COST_AT_FIRST_US, task);
        } else {
            self.ready.push(payer, COST_AT_FIRST_US, task);
        }
    }

    /// Gives a free turn to the next task. Tasks that ended in the queue are put into `gone`: their last
    /// reference must not be dropped under the lock.
    fn give_turn(&mut self, gone: &mut Vec<Arc<TaskSlot>>) -> Option<Arc<TaskSlot>> {
        while self.has_free_turn()
            && let Some(next) = self.ready.pop()
        {
            if next.stage() == Stage::Queued {
                self.running += 1;
                next.enter(Stage::Granted);
                return Some(next);
            }
            gone.push(next);
        }
        None
    }
}

impl Processor {
    /// The processors of the runtime that calls this.
    pub fn of_runtime() -> Arc<Self> {
        Self::of_width(tokio::runtime::Handle::current().metrics().num_workers())
    }

    fn of_width(width: usize) -> Arc<Self> {
        let now = clock::instant();
        Arc::new(Self {
            state: Mutex::new(State {
                width,
                running: 0,
                looked: now,
                ran_last: 0,
                alternated: now,
                is_alone: false,
                ready: FairQueue::with_credit(CREDIT_US),
            }),
        })
    }

    /// Gives the free turns to the next tasks.
    fn give_turns(&self) {
        let mut gone = Vec::new();
        loop {
            let next = self.state.lock().give_turn(&mut gone);
            let Some(next) = next else { break };
            next.task.wake();
        }
    }

    /// Arranges that the free turns are given after the runtime has looked at its sockets.
    fn give_turns_soon(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let yielding = pin!(tokio::task::yield_now());
        // The runtime wakes a task that yields once it has looked at its sockets; here it wakes the processor
        // instead.
        let _ = yielding.poll(&mut Context::from_waker(&waker));
    }

    /// Makes `work` take its turns in the name of `payer`; without `mid_request` it counts as the middle of a
    /// request.
    pub fn share<F: Future>(
        self: &Arc<Self>,
        payer: &Arc<ConnectionPayer>,
        mid_request: Option<Arc<dyn MidRequest>>,
        work: F,
    ) -> OnProcessor<F> {
        let slot = Arc::new(TaskSlot {
            processor: Arc::clone(self),
            payer: Arc::clone(payer),
            mid_request,
            stage: AtomicU8::new(Stage::Asleep as u8),
            task: AtomicWaker::new(),
        });
        OnProcessor {
            work,
            waker: Waker::from(Arc::clone(&slot)),
            seated: TaskGuard(slot),
        }
    }
}

impl Wake for Processor {
    fn wake(self: Arc<Self>) {
        self.state.lock().looked = clock::instant();
        self.give_turns();
    }
}

impl Wake for TaskSlot {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.processor.state.lock();
        let granted = match self.stage() {
            Stage::Asleep => state.admit(self, Stage::Granted),
            Stage::Running => {
                self.enter(Stage::RunningAgain);
                false
            }
            Stage::Queued | Stage::Granted | Stage::RunningAgain | Stage::Gone => false,
        };
        drop(state);
        if granted {
            self.task.wake();
        }
    }
}

/// The task's hold on its slot: its turn is given back even if the task is dropped.
struct TaskGuard(Arc<TaskSlot>);

impl TaskGuard {
    /// Whether the task may run now; if not, it waits in the queue.
    fn begin(&self) -> bool {
        let slot = &self.0;
        let mut state = slot.processor.state.lock();
        match slot.stage() {
            Stage::Granted => slot.enter(Stage::Running),
            Stage::Asleep => return state.admit(slot, Stage::Running),
            Stage::Queued | Stage::Running | Stage::RunningAgain | Stage::Gone => return false,
        }
        true
    }

    /// The task has run from `began` to `ended`.
    fn end(&self, began: Instant, ended: Instant) {
        let slot = &self.0;
        let cost = ended.saturating_duration_since(began);
        let payer = slot.payer.get();
        let mut state = slot.processor.state.lock();
        state.has_run(payer.id, ended);
        state.ready.charge(payer, cost.as_micros() as u64);
        if slot.stage() == Stage::RunningAgain {
            state.enqueue(slot);
        } else {
            slot.enter(Stage::Asleep);
        }
        state.running -= 1;
        if state.ready.is_empty() {
            return;
        }
        let should_look = !state.is_alone && ended.saturating_duration_since(state.looked) >= LOOK_INTERVAL;
        drop(state);
        if should_look {
            slot.processor.give_turns_soon();
        } else {
            slot.processor.give_turns();
        }
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let slot = &self.0;
        let mut state = slot.processor.state.lock();
        if matches!(
            slot.stage(),
            Stage::Granted | Stage::Running | Stage::RunningAgain
        ) {
            state.running -= 1;
        }
        slot.enter(Stage::Gone);
        drop(state);
        slot.processor.give_turns();
        // Otherwise the runtime's task and this slot keep each other alive.
        drop(slot.task.take());
    }
}

pin_project! {
    /// Work that runs in its payer's turns.
    pub struct OnProcessor<F> {
        #[pin]
        work: F,
        waker: Waker,
        seated: TaskGuard,
    }
}

impl<F: Future> Future for OnProcessor<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.seated.0.task.register(cx.waker());
        if !this.seated.begin() {
            return Poll::Pending;
        }
        let began = clock::instant();
        let polled = this.work.poll(&mut Context::from_waker(this.waker));
        this.seated.end(began, clock::instant());
        polled
    }
}

/// Spawns the tasks of a connection, such as the streams of HTTP/2, in the name of its payer.
#[derive(Clone, Debug)]
pub struct SharedTasks {
    /// The payer whose turns the tasks take.
    pub payer: Arc<ConnectionPayer>,
    /// The processors at which they take turns.
    pub processor: Arc<Processor>,
}

impl<F> hyper::rt::Executor<F> for SharedTasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, work: F) {
        tokio::spawn(self.processor.share(&self.payer, None, work));
    }
}
