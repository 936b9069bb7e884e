//! A deadline that is cheap to move: the runtime's timer is reset only when necessary.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::clock;

/// A deadline that is set, moved and cleared many times.
///
/// A connection moves its deadline with every request. Moving it later only stores the new time: the timer
/// fires at the old one, finds that it is too early, and resets itself.
#[derive(Debug, Default)]
pub struct Deadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Sets the deadline to `wait` from now.
    pub fn set(&mut self, wait: Duration) {
        let at = clock::runtime_instant() + wait;
        self.at = Some(at);
        match &mut self.timer {
            None => self.timer = Some(Box::pin(sleep_until(at))),
            Some(timer) if timer.deadline() > at => timer.as_mut().reset(at),
            Some(_) => (),
        }
    }

    /// Clears the deadline. The timer may still wake the task once.
    pub fn clear(&mut self) {
        self.at = None;
    }

    /// Returns true if a deadline is set.
    pub fn is_set(&self) -> bool {
        self.at.is_some()
    }

    /// Ready once the deadline has passed, which also clears it. Without a deadline, it is pending forever.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(at), Some(timer)) = (self.at, &mut self.timer) else {
            return Poll::Pending;
        };
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= at {
                self.at = None;
                self.timer = None;
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::Deadline;

    async fn waited_until_expiry(deadline: &mut Deadline) -> Option<u64> {
        let start = Instant::now();
        let limit = Duration::from_hours(1);
        timeout(limit, poll_fn(|cx| deadline.poll_expired(cx)))
            .await
            .ok()?;
        Some(start.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_expires_once() {
        let mut deadline = Deadline::default();
        deadline.set(Duration::from_secs(5));
        assert_eq!(waited_until_expiry(&mut deadline).await, Some(5));
        assert!(!deadline.is_set());
        assert_eq!(waited_until_expiry(&mut deadline).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_moved_later_or_earlier_expires_at_its_last_moment() {
        let mut deadline = Deadline::default();
        deadline.set(Duration::from_secs(5));
        deadline.set(Duration::from_mins(1));
        assert_eq!(waited_until_expiry(&mut deadline).await, Some(60));
        deadline.set(Duration::from_mins(1));
        deadline.set(Duration::from_secs(5));
        assert_eq!(waited_until_expiry(&mut deadline).await, Some(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cleared_deadline_never_expires_and_can_be_set_again() {
        let mut deadline = Deadline::default();
        deadline.set(Duration::from_secs(5));
        deadline.clear();
        assert_eq!(waited_until_expiry(&mut deadline).await, None);
        deadline.set(Duration::from_secs(7));
        assert_eq!(waited_until_expiry(&mut deadline).await, Some(7));
    }
}
