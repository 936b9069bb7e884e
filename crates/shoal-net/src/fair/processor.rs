//! Shares the node's processors among connections, each charged to its payer.
//!
//! The runtime polls tasks in the order in which they became ready. Behind four thousand busy connections of
//! one client, another client's request would wait for four thousand others. So a task that becomes ready
//! waits in its payer's queue, and only as many tasks as there are processors are handed to the runtime at a
//! time. The time that a task takes is charged to its payer: this covers all costs of a connection, from TLS
//! and signatures to copying responses into sockets.
//!
//! A task in the middle of a request may hold a turn at the lake, a connection to it, or memory. So it
//! precedes those of its payer's tasks that would only begin a request.
//!
//! While tasks of several payers run, the runtime is made to poll its sockets every 25 µs, and a turn that
//! ends then is passed on only afterwards. By default the runtime polls them after every 61 tasks, so that a
//! request that has just arrived would wait for that many others. A payer that has been alone for a tenth of
//! a second is exempt from this, and has more tasks with the runtime; another payer that returns then waits
//! once for those 61 tasks.

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

use crate::time::clock;

/// Shares the processors of one runtime.
pub struct Processor {
    state: Mutex<State>,
}

/// Factor by which more tasks are handed to the runtime while one payer is alone, so that a task rarely waits
/// in the queue.
const ALONE: usize = 8;

/// A payer counts as alone once no other has run for this long.
const ALONE_AFTER: Duration = Duration::from_millis(100);

struct State {
    /// The number of tasks that can run at the same time.
    width: usize,
    /// The number of tasks that are running or have been handed to the runtime.
    running: usize,
    /// When the runtime was last known to have polled its sockets.
    looked: Instant,
    /// The payer that ran last.
    ran_last: u32,
    /// When a task last ran after one of another payer.
    alternated: Instant,
    /// True if `alternated` is longer ago than [`ALONE_AFTER`].
    is_alone: bool,
    ready: FairQueue<Arc<TaskSlot>>,
}

/// The payer of a connection. Known once the connection's first request is verified; may change with each
/// request.
#[derive(Debug)]
pub struct ConnectionPayer(AtomicU64);

impl ConnectionPayer {
    /// Creates the payer of a connection whose first request has not been verified.
    pub fn new(payer: Payer) -> Self {
        Self(AtomicU64::new(packed(payer)))
    }

    /// Returns the current payer.
    pub fn get(&self) -> Payer {
        let packed = self.0.load(Ordering::Relaxed);
        Payer {
            id: (packed >> 32) as u32,
            share: packed as u32,
        }
    }

    /// Sets the payer of the request that was just verified.
    pub fn set(&self, payer: Payer) {
        // The payer rarely changes, and a load does not invalidate the cache line.
        if self.get() != payer {
            self.0.store(packed(payer), Ordering::Relaxed);
        }
    }
}

fn packed(payer: Payer) -> u64 {
    u64::from(payer.id) << 32 | u64::from(payer.share)
}

/// Reports if a task is in the middle of a request.
pub trait MidRequest: Send + Sync {
    /// Returns true if the task is in the middle of a request.
    fn is_mid_request(&self) -> bool;
}

/// The state of one task, as the scheduler sees it.
struct TaskSlot {
    processor: Arc<Processor>,
    payer: Arc<ConnectionPayer>,
    /// `None` if the task is always in the middle of a request.
    mid_request: Option<Arc<dyn MidRequest>>,
    /// A [`Stage`]; changes only under the processor's lock.
    stage: AtomicU8,
    /// Makes the runtime poll the task.
    task: AtomicWaker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    /// Waits for something other than a turn.
    Asleep,
    /// Ready, and waits in the queue.
    Queued,
    /// Handed to the runtime.
    Granted,
    /// Running.
    Running,
    /// Running, and has become ready again.
    RunningAgain,
    /// Ended.
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

/// How long a ready socket may go unnoticed while tasks of several payers wait in the queue. Each poll costs
/// a system call.
const LOOK_INTERVAL: Duration = Duration::from_micros(25);

/// How much idle time, in microseconds, a payer may catch up on. A client with few connections has nothing to
/// run while its responses are in transit, and would otherwise lose a part of its share each time.
const CREDIT_US: u64 = 1000;

/// The estimated cost, in microseconds, of a task that has not run; the difference is charged afterwards.
const COST_AT_FIRST_US: u64 = 1;

impl State {
    fn has_free_turn(&self) -> bool {
        self.running < self.width * if self.is_alone { ALONE } else { 1 }
    }

    /// Records that a task of `payer` has run until `ended`.
    fn has_run(&mut self, payer: u32, ended: Instant) {
        if payer != self.ran_last {
            self.ran_last = payer;
            self.alternated = ended;
        }
        self.is_alone = ended.saturating_duration_since(self.alternated) > ALONE_AFTER;
    }

    /// Gives a turn to a task that has become ready, or queues it.
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

    /// Gives a free turn to the next task. Tasks that ended in the queue are moved to `gone`, because their
    /// last reference must not be dropped under the lock.
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
    /// Creates the scheduler for the processors of the calling runtime.
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

    /// Schedules the free turns to be given after the runtime has polled its sockets.
    fn give_turns_soon(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let yielding = pin!(tokio::task::yield_now());
        // The runtime wakes a yielding task once it has polled its sockets; here it wakes the scheduler
        // instead.
        let _ = yielding.poll(&mut Context::from_waker(&waker));
    }

    /// Runs `work` in turns of `payer`. Without `mid_request`, it always counts as in the middle of a
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

/// A task's reference to its slot, which returns its turn even if the task is dropped.
struct TaskGuard(Arc<TaskSlot>);

impl TaskGuard {
    /// Returns true if the task may run now; otherwise it is queued.
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

    /// Records that the task has run from `began` to `ended`.
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
        assert!(state.running > 0, "a task that ran had a turn");
        state.running -= 1;
        if state.ready.is_empty() {
            return;
        }
        if !state.is_alone && ended.saturating_duration_since(state.looked) >= LOOK_INTERVAL {
            drop(state);
            return slot.processor.give_turns_soon();
        }
        // Nearly always, the turn that has ended is the only free one.
        let mut gone = Vec::new();
        let next = state.give_turn(&mut gone);
        let are_more = state.has_free_turn() && !state.ready.is_empty();
        drop(state);
        if let Some(next) = next {
            next.task.wake();
        }
        if are_more {
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
            assert!(state.running > 0, "a turn is given back once");
            state.running -= 1;
        }
        slot.enter(Stage::Gone);
        drop(state);
        slot.processor.give_turns();
        // Otherwise the runtime's task and this slot would keep each other alive.
        drop(slot.task.take());
    }
}

pin_project! {
    /// Work that runs in turns of its payer.
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

/// Spawns the tasks of a connection, such as HTTP/2 streams, in turns of its payer.
#[derive(Clone)]
pub struct SharedTasks {
    /// The payer whose turns the tasks take.
    pub payer: Arc<ConnectionPayer>,
    /// The scheduler.
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
