//! The threads that write blocks: few, and last in the queue for the processors.
//!
//! A block is written beside the answers it is already part of. Copying it into the page cache costs as much processor time as
//! sending it, so on a busy node writing waits for readers and not the other way round. It cannot wait for ever: what is not on
//! disk holds its share of the read path's memory window, and fetches wait when that is full.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Enough to keep a disk busy while one of them waits for it.
const THREADS: usize = 2;

/// About a tenth of the share of a thread that answers, when there is not enough for both.
const NICENESS: i32 = 10;

type Job = Box<dyn FnOnce() + Send>;

/// Hands work to the threads.
#[derive(Debug, Default)]
pub(super) struct Writers {
    jobs: Mutex<Option<Sender<Job>>>,
}

impl Writers {
    /// Starts the threads; they end when [`Writers::stop`] was called and the last job is done.
    pub(super) fn start(&self) -> io::Result<Vec<JoinHandle<()>>> {
        let (sender, receiver) = channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = (0..THREADS).map(|_| {
            let receiver = Arc::clone(&receiver);
            thread::Builder::new()
                .name("store-write".into())
                .spawn(move || write(&receiver))
        });
        let threads = threads.collect::<io::Result<_>>()?;
        *self.jobs.lock() = Some(sender);
        Ok(threads)
    }

    /// Takes no more work.
    pub(super) fn stop(&self) {
        *self.jobs.lock() = None;
    }

    /// Does `work` on one of the threads. `None` when they have stopped, or the work panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, outcome) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Nobody may be waiting any more; the work was done for the store.
            let _ = done.send(work());
        });
        self.jobs.lock().as_ref()?.send(job).ok()?;
        outcome.await.ok()
    }
}

fn write(jobs: &Mutex<Receiver<Job>>) {
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::warn!(%error, "blocks are written at the priority of answers");
    }
    loop {
        let Ok(job) = jobs.lock().recv() else { return };
        // The panic has been printed; the next block is not to blame.
        drop(catch_unwind(AssertUnwindSafe(job)));
    }
}

#[cfg(test)]
mod tests {
    use super::Writers;

    #[tokio::test]
    async fn work_is_done_also_after_some_that_panicked_and_not_after_the_end() {
        let writers = Writers::default();
        let threads = writers.start().unwrap();
        for _ in 0..4 {
            assert_eq!(writers.run(|| -> u32 { panic!("on purpose") }).await, None);
        }
        assert_eq!(writers.run(|| 7).await, Some(7));
        writers.stop();
        assert_eq!(writers.run(|| 7).await, None);
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
