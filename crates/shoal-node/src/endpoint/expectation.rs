//! `Expect: 100-continue` towards an endpoint: a body is held back until the endpoint wants it (RFC 9110,
//! 10.1.1).
//!
//! Polling a forwarded body for its first bytes makes the client send them. So the body is not polled before
//! the endpoint has sent `100 Continue`, or has been silent for [`TIMEOUT`]. After an answer it is not
//! polled at all.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use http::{Request, StatusCode};
use tokio::time::{Sleep, sleep};

/// A store that does not know the expectation waits for the body; after this time the node sends it anyway.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The endpoint's reaction to one request's expectation.
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

    /// Listens for the `100 Continue` that `request` may get.
    pub(super) fn listen<B>(&self, request: &mut Request<B>) {
        let expectation = self.clone();
        hyper::ext::on_informational(request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                expectation.settle(Self::CONTINUED);
            }
        });
    }

    /// Notes that the answer is here: a body that was not requested before it never is.
    pub(super) fn answered(&self) {
        self.settle(Self::ANSWERED);
    }

    /// Settles the verdict. The first one stands.
    fn settle(&self, verdict: u8) {
        let State {
            verdict: settled,
            body,
        } = &*self.0;
        // A later verdict has no effect.
        let _ = settled.compare_exchange(Self::OPEN, verdict, Ordering::AcqRel, Ordering::Acquire);
        body.wake();
    }

    fn verdict(&self) -> u8 {
        self.0.verdict.load(Ordering::Acquire)
    }
}

/// Keeps a body back until its expectation is met.
pub(super) struct Hold {
    expectation: Expectation,
    /// Starts at the first poll of the body: until then the head has not been sent.
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

    /// Whether the answer came first; then the body is never released.
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
