//! Detects stalls: no progress for a while. Costs nothing while bytes move.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// A slow tick increments a counter; progress resets it to zero. Progress thus costs one store instead of a
/// timer reset, and a stall is detected between one and one and a quarter timeouts after it began.
pub(super) struct StallWatch {
    tick: Pin<Box<Sleep>>,
    every: Duration,
    quiet_ticks: u32,
}

/// Ticks in one timeout.
const TICKS: u32 = 4;

impl StallWatch {
    pub(super) fn new(timeout: Duration) -> Self {
        let every = timeout / TICKS;
        Self {
            tick: Box::pin(sleep(every)),
            every,
            quiet_ticks: 0,
        }
    }

    /// Expects progress within `timeout` from now on. Costs nothing if the timeout stays the same.
    pub(super) fn allow(&mut self, timeout: Duration) {
        self.quiet_ticks = 0;
        let every = timeout / TICKS;
        if self.every != every {
            self.every = every;
            self.tick.as_mut().reset(tokio::time::Instant::now() + every);
        }
    }

    /// Records progress.
    pub(super) fn progress(&mut self) {
        self.quiet_ticks = 0;
    }

    /// Ready when there was no progress within the timeout. `moved` is called once per tick and returns true
    /// for progress elsewhere.
    pub(super) fn poll_stalled(&mut self, cx: &mut Context<'_>, moved: impl Fn() -> bool) -> Poll<()> {
        while self.tick.as_mut().poll(cx).is_ready() {
            // The first tick after progress was scheduled at an arbitrary time before it, so it does not
            // count.
            self.quiet_ticks = if moved() { 0 } else { self.quiet_ticks + 1 };
            if self.quiet_ticks > TICKS {
                return Poll::Ready(());
            }
            // The runtime's own clock, because the runtime drives the tick.
            self.tick.as_mut().reset(tokio::time::Instant::now() + self.every);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::StallWatch;
    use crate::time::clock;

    const TIMEOUT: Duration = Duration::from_millis(80);

    #[tokio::test]
    async fn a_stall_is_noticed_and_not_before_the_timeout() {
        let start = clock::instant();
        let mut watch = StallWatch::new(TIMEOUT);
        poll_fn(|cx| watch.poll_stalled(cx, || false)).await;
        assert!(start.elapsed() >= TIMEOUT);
    }

    #[tokio::test]
    async fn a_watch_that_rested_starts_anew() {
        let mut watch = StallWatch::new(TIMEOUT);
        poll_fn(|cx| watch.poll_stalled(cx, || false)).await;
        sleep(TIMEOUT * 2).await;
        watch.progress();
        let start = clock::instant();
        poll_fn(|cx| watch.poll_stalled(cx, || false)).await;
        assert!(start.elapsed() >= TIMEOUT);
    }

    #[tokio::test]
    async fn a_longer_timeout_holds_from_the_moment_it_is_allowed() {
        let mut watch = StallWatch::new(TIMEOUT);
        poll_fn(|cx| watch.poll_stalled(cx, || false)).await;
        watch.allow(TIMEOUT * 3);
        let stalled = timeout(TIMEOUT * 2, poll_fn(|cx| watch.poll_stalled(cx, || false)));
        assert!(stalled.await.is_err());
        poll_fn(|cx| watch.poll_stalled(cx, || false)).await;
    }

    #[tokio::test]
    async fn progress_seen_elsewhere_counts() {
        let moving = Cell::new(true);
        let mut watch = StallWatch::new(TIMEOUT);
        let stalled = timeout(TIMEOUT * 3, poll_fn(|cx| watch.poll_stalled(cx, || moving.get())));
        assert!(stalled.await.is_err());
        moving.set(false);
        poll_fn(|cx| watch.poll_stalled(cx, || moving.get())).await;
    }
}
