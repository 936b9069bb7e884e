//! The threads that write blocks: few, delayed, and of low priority.
//!
//! A block is written while it is already being sent to clients, and copying it into the page cache costs
//! more processor time than sending it. So on a busy node writes yield to readers: a burst is answered first
//! and written afterwards, except for blocks that a caller needs on disk. The delay is bounded, because each
//! block not yet on disk holds its share of the read path's memory window, and fetches wait when that is
//! full: a block waits at most [`PATIENCE`], and not at all while more than [`WAITING_BYTES`] are waiting.

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use shoal_base::clock;
use tokio::sync::oneshot;

/// Enough threads to keep a disk busy while one of them waits for it.
const THREADS: usize = 2;

/// The niceness of the threads. Under contention each gets about a tenth of the processor time of a thread
/// that serves requests.
const NICENESS: i32 = 10;

/// How long a block waits for the end of a burst. A read of a cold object of 64 MiB takes 264 ms if its first
/// blocks are written while the last ones arrive (delay 10 ms), and 144 ms with this delay.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);

/// Blocks are written without delay while more than this many bytes wait: a quarter of the default memory
/// window.
const WAITING_BYTES: u64 = 64 << 20;

/// How soon a block has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// It may wait, because readers have the block in memory.
    Late,
    /// It is written at once, because a caller waits for it.
    Now,
}

type Job = Box<dyn FnOnce() + Send>;

/// Submits work to the threads.
pub(crate) struct Writers {
    queue: Arc<Queue>,
    patience: Duration,
}

/// The state that the threads share.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// Ordered by due time, then by arrival.
    waiting: BTreeMap<(Instant, u64), Waiting>,
    waiting_bytes: u64,
    /// Number of jobs submitted so far.
    arrivals: u64,
    threads: usize,
    stopped: bool,
}

struct Waiting {
    bytes: u64,
    job: Job,
}

/// The next step of a thread.
enum Next {
    Work(Job),
    /// Wait until this time, if any, or until something changes.
    Wait(Option<Instant>),
    End,
}

impl Writers {
    /// Creates writers whose work waits up to `patience` for the end of a burst.
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            queue: Arc::default(),
            patience,
        }
    }

    /// Starts the threads. They end after [`Writers::stop`] when the last job is done.
    pub(crate) fn start(&self) -> io::Result<Vec<JoinHandle<()>>> {
        let threads = (0..THREADS).map(|_| {
            let queue = Arc::clone(&self.queue);
            let thread = thread::Builder::new().name("store-write".into());
            let thread = thread.spawn(move || queue.work())?;
            self.queue.state.lock().threads += 1;
            Ok(thread)
        });
        threads.collect()
    }

    /// Rejects further work, and makes all waiting work due.
    pub(crate) fn stop(&self) {
        self.queue.state.lock().stopped = true;
        self.queue.changed.notify_all();
    }

    /// Runs `work`, which writes `bytes` bytes, on one of the threads. Returns `None` if the threads have
    /// stopped or the work panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        urgency: Urgency,
        bytes: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, outcome) = oneshot::channel();
        self.submit(urgency, bytes, move || {
            // The caller may be gone, but the work is done.
            let _ = done.send(work());
        })?;
        outcome.await.ok()
    }

    /// As [`Writers::run`], without waiting. Returns `None` if the threads have stopped; the job is then
    /// dropped.
    pub(crate) fn submit(
        &self,
        urgency: Urgency,
        bytes: u64,
        job: impl FnOnce() + Send + 'static,
    ) -> Option<()> {
        let patience = match urgency {
            Urgency::Late => self.patience,
            Urgency::Now => Duration::ZERO,
        };
        let due = clock::instant() + patience;
        let job: Job = Box::new(job);
        let wakes = self.queue.state.lock().push(due, Waiting { bytes, job })?;
        if wakes {
            self.queue.changed.notify_one();
        }
        Some(())
    }
}

impl QueueState {
    /// Queues a job. Returns true if a waiting thread has to be woken, so that threads are not woken during a
    /// burst just to wait again. Returns `None` if no threads are left.
    fn push(&mut self, due: Instant, waiting: Waiting) -> Option<bool> {
        if self.stopped || self.threads == 0 {
            return None;
        }
        self.waiting_bytes += waiting.bytes;
        self.waiting.insert((due, self.arrivals), waiting);
        let is_first = self.waiting.first_key_value().map(|(key, _)| key.1) == Some(self.arrivals);
        self.arrivals += 1;
        Some(is_first || self.is_overfull())
    }

    fn is_overfull(&self) -> bool {
        self.waiting_bytes > WAITING_BYTES
    }

    fn next(&mut self, now: Instant) -> Next {
        let may_wait = !self.stopped && !self.is_overfull();
        let Some(first) = self.waiting.first_entry() else {
            return if self.stopped { Next::End } else { Next::Wait(None) };
        };
        let (due, _) = *first.key();
        if may_wait && now < due {
            return Next::Wait(Some(due));
        }
        let Waiting { bytes, job } = first.remove();
        self.waiting_bytes -= bytes;
        debug_assert!(
            !self.waiting.is_empty() || self.waiting_bytes == 0,
            "bytes without a job"
        );
        Next::Work(job)
    }
}

impl Queue {
    fn work(&self) {
        if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
            tracing::warn!(%error, "could not lower the priority of a writer thread");
        }
        let mut state = self.state.lock();
        loop {
            match state.next(clock::instant()) {
                Next::Work(job) => {
                    let leaves_some = !state.waiting.is_empty();
                    parking_lot::MutexGuard::unlocked(&mut state, || {
                        // The next one may be due before this one is done.
                        if leaves_some {
                            self.changed.notify_one();
                        }
                        // The panic was logged; continue with the next block.
                        drop(catch_unwind(AssertUnwindSafe(job)));
                    });
                }
                Next::Wait(None) => self.changed.wait(&mut state),
                Next::Wait(Some(due)) => {
                    self.changed.wait_until(&mut state, due);
                }
                Next::End => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shoal_base::clock;

    use super::{Next, PATIENCE, QueueState, Urgency, WAITING_BYTES, Waiting, Writers};

    #[tokio::test]
    async fn work_is_done_also_after_some_that_panicked_and_not_after_the_end() {
        let writers = Writers::new(Duration::ZERO);
        assert_eq!(
            writers.run(Urgency::Now, 1, || 7).await,
            None,
            "not before the beginning either"
        );
        let threads = writers.start().unwrap();
        for _ in 0..4 {
            assert_eq!(
                writers
                    .run(Urgency::Now, 1, || -> u32 { panic!("on purpose") })
                    .await,
                None
            );
        }
        assert_eq!(writers.run(Urgency::Now, 1, || 7).await, Some(7));
        writers.stop();
        assert_eq!(writers.run(Urgency::Now, 1, || 7).await, None);
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[tokio::test]
    async fn an_urgent_job_does_not_wait_for_late_ones() {
        let writers = Writers::new(Duration::from_secs(1_000_000));
        let threads = writers.start().unwrap();
        let late = writers.run(Urgency::Late, 1, || ());
        tokio::select! {
            biased;
            _ = late => panic!("nothing hurried it"),
            done = writers.run(Urgency::Now, 1, || 7) => assert_eq!(done, Some(7)),
        }
        writers.stop();
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[tokio::test]
    async fn while_one_thread_works_the_other_takes_what_is_due_next() {
        let writers = Writers::new(Duration::from_millis(5));
        let threads = writers.start().unwrap();
        // After this pause both threads wait, and only one is woken for the first job.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (second_done, second_is_done) = std::sync::mpsc::channel();
        let first = writers.run(Urgency::Late, 1, move || {
            second_is_done.recv_timeout(Duration::from_secs(20)).is_ok()
        });
        let second = writers.run(Urgency::Late, 1, move || second_done.send(()).unwrap());
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first, second), (Some(true), Some(())));
        writers.stop();
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_job_that_changes_nothing_for_the_waiting_threads_wakes_none() {
        let now = clock::instant();
        let mut queue = QueueState {
            threads: 1,
            ..QueueState::default()
        };
        let mut wakes = |due, bytes| {
            let job = Box::new(|| ());
            queue.push(due, Waiting { bytes, job }).unwrap()
        };
        assert!(wakes(now + PATIENCE, 1), "no thread knew of any");
        assert!(!wakes(now + PATIENCE, 1), "it waits behind the other");
        assert!(wakes(now, 1), "it is due first");
        assert!(!wakes(now + PATIENCE, 1));
        assert!(wakes(now + PATIENCE, WAITING_BYTES), "too much waits");
    }

    #[test]
    fn a_block_waits_a_moment_and_not_behind_many_nor_at_the_end() {
        let now = clock::instant();
        let (mut queue, due) = (QueueState::default(), now + PATIENCE);
        queue.threads = 1;
        let push = |queue: &mut QueueState, bytes| {
            let job = Box::new(|| ());
            queue.push(due, Waiting { bytes, job }).unwrap();
        };
        assert!(matches!(queue.next(now), Next::Wait(None)));
        push(&mut queue, WAITING_BYTES);
        assert!(matches!(queue.next(now), Next::Wait(Some(until)) if until == due));
        push(&mut queue, 1);
        assert!(matches!(queue.next(now), Next::Work(_)), "too much waits");
        assert!(matches!(queue.next(now), Next::Wait(_)), "that has been taken");
        assert!(matches!(queue.next(due), Next::Work(_)), "its moment has come");
        push(&mut queue, 1);
        queue.stopped = true;
        assert!(matches!(queue.next(now), Next::Work(_)), "nothing is left behind");
        assert!(matches!(queue.next(now), Next::End));
    }
}
