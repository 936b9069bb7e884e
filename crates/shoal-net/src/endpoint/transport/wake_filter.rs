//! The waker of a connection that is driven by its reader.
//!
//! The two ends of a connection wake each other frequently: the body, because it wants bytes, and the driver,
//! because it has some. With a task for each, that is required. Within one task, every such call would
//! schedule the task that is already running and, on a multi-threaded runtime, wake a second thread to look
//! for it. So while the reader polls, wakes are only recorded, and the reader polls again by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Rounds in one poll, before other tasks run.
const ROUNDS_MAX: u32 = 8;

pub(super) struct WakeFilter {
    state: Arc<State>,
    waker: Waker,
}

#[derive(Default)]
struct State {
    /// The reader is polling and will see `was_woken` itself.
    is_polling: AtomicBool,
    was_woken: AtomicBool,
    reader: AtomicWaker,
}

impl WakeFilter {
    pub(super) fn new() -> Self {
        let state = Arc::new(State::default());
        Self {
            waker: Waker::from(Arc::clone(&state)),
            state,
        }
    }

    /// Polls until there is a result, or no wake occurred during the last round.
    pub(super) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let state = &*self.state;
        state.reader.register(cx.waker());
        state.is_polling.store(true, Ordering::SeqCst);
        let mut rounds = 0;
        let polled = loop {
            state.was_woken.store(false, Ordering::SeqCst);
            let polled = poll(&mut Context::from_waker(&self.waker));
            rounds += 1;
            if polled.is_ready() || rounds == ROUNDS_MAX || !state.was_woken.load(Ordering::SeqCst) {
                break polled;
            }
        };
        state.is_polling.store(false, Ordering::SeqCst);
        // Woken at the last moment, or too often: the next poll handles it. After a result, the reader polls
        // anyway.
        if polled.is_pending() && state.was_woken.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
        polled
    }
}

impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The reader uses the opposite order, so at least one of the two sees the other's store.
        self.was_woken.store(true, Ordering::SeqCst);
        if !self.is_polling.load(Ordering::SeqCst) {
            self.reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use super::{ROUNDS_MAX, WakeFilter};

    #[derive(Default)]
    struct Reader(AtomicU32);

    impl Wake for Reader {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Reader {
        fn woken(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn a_wake_during_the_poll_is_another_round_and_no_wake() {
        let reader = Arc::new(Reader::default());
        let waker = Waker::from(Arc::clone(&reader));
        let mut rounds = 0;
        let polled = WakeFilter::new().poll(&mut Context::from_waker(&waker), |cx| {
            rounds += 1;
            if rounds == 1 {
                cx.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
        assert_eq!((polled, rounds, reader.woken()), (Poll::Pending, 2, 0));
    }

    #[test]
    fn a_wake_after_the_poll_reaches_the_reader() {
        let reader = Arc::new(Reader::default());
        let waker = Waker::from(Arc::clone(&reader));
        let wakes = WakeFilter::new();
        let mut kept = None;
        let polled = wakes.poll(&mut Context::from_waker(&waker), |cx| {
            kept = Some(cx.waker().clone());
            Poll::<()>::Pending
        });
        assert!(polled.is_pending());
        assert_eq!(reader.woken(), 0);
        kept.unwrap().wake();
        assert_eq!(reader.woken(), 1);
    }

    #[test]
    fn one_that_rings_without_end_leaves_a_turn_to_others() {
        let reader = Arc::new(Reader::default());
        let waker = Waker::from(Arc::clone(&reader));
        let mut rounds = 0;
        let polled = WakeFilter::new().poll(&mut Context::from_waker(&waker), |cx| {
            rounds += 1;
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!((polled, rounds, reader.woken()), (Poll::Pending, ROUNDS_MAX, 1));
    }

    #[test]
    fn no_wake_is_lost_between_two_threads() {
        let wakes = WakeFilter::new();
        let steps = Arc::new(AtomicU32::new(0));
        let (sender, wakers) = std::sync::mpsc::channel::<Waker>();
        let other = {
            let steps = Arc::clone(&steps);
            std::thread::spawn(move || {
                for waker in wakers {
                    steps.fetch_add(1, Ordering::SeqCst);
                    waker.wake();
                }
            })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for expected in 1..=2000 {
            let mut asked = false;
            let waiting = std::future::poll_fn(|cx| {
                wakes.poll(cx, |cx| {
                    if !std::mem::replace(&mut asked, true) {
                        sender.send(cx.waker().clone()).unwrap();
                    }
                    if steps.load(Ordering::SeqCst) == expected {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
            });
            runtime.block_on(waiting);
        }
        drop(sender);
        other.join().unwrap();
    }
}
