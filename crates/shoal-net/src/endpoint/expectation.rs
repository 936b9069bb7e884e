//! `Expect: 100-continue` towards an endpoint: a body is held back until the endpoint requests it (RFC 9110,
//! 10.1.1).
//!
//! Polling a forwarded body for its first bytes makes the client send them. Therefore the body is not polled
//! before the endpoint has sent `100 Continue`, or has been silent for [`TIMEOUT`]. After a final response it
//! is not polled at all.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use http::{Request, StatusCode};
use tokio::time::{Sleep, sleep};

/// A store that does not support the expectation waits for the body; the node sends it after this time.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The endpoint's reaction to the expectation of one request.
#[derive(Clone, Default)]
pub(super) struct Expectation(Arc<State>);

#[derive(Default)]
struct State {
    verdict: AtomicU8,
    body: AtomicWaker,
}

impl Expectation {
    const OPEN: u8 = 0;
    const CONTINUED: u8 = 1;
    const ANSWERED: u8 = 2;

    /// Waits for the `100 Continue` that `request` may get.
    pub(super) fn listen<B>(&self, request: &mut Request<B>) {
        let expectation = self.clone();
        hyper::ext::on_informational(request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                expectation.settle(Self::CONTINUED);
            }
        });
    }

    /// Records that the response has arrived: if the body was not requested before, it never will be.
    pub(super) fn answered(&self) {
        self.settle(Self::ANSWERED);
    }

    /// Sets the verdict, if there is none yet.
    fn settle(&self, verdict: u8) {
        let State {
            verdict: settled,
            body,
        } = &*self.0;
        // Later verdicts have no effect.
        let _ = settled.compare_exchange(Self::OPEN, verdict, Ordering::AcqRel, Ordering::Acquire);
        body.wake();
    }

    fn verdict(&self) -> u8 {
        self.0.verdict.load(Ordering::Acquire)
    }
}

/// Holds a body back until its expectation is met.
pub(super) struct Hold {
    expectation: Expectation,
    /// Started by the first poll of the body: until then, the head has not been sent.
    timeout: Option<Pin<Box<Sleep>>>,
}

impl Hold {
    pub(super) fn new(expectation: Expectation) -> Self {
        Self {
            expectation,
            timeout: None,
        }
    }

    pub(super) fn expectation(&self) -> &Expectation {
        &self.expectation
    }

    /// Returns true if the response arrived first, so that the body is never released.
    pub(super) fn is_final(&self) -> bool {
        self.expectation.verdict() == Expectation::ANSWERED
    }

    /// Ready when the body may be sent.
    pub(super) fn poll_released(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.expectation.0.body.register(cx.waker());
        if self.expectation.verdict() == Expectation::OPEN {
            let timeout = self.timeout.get_or_insert_with(|| Box::pin(sleep(TIMEOUT)));
            ready!(timeout.as_mut().poll(cx));
            self.expectation.settle(Expectation::CONTINUED);
        }
        if self.is_final() {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}
