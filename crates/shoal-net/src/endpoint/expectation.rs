//! `Expect: 100-continue` towards an endpoint: a body is held back until the endpoint requests it (RFC 9110,
//! 10.1.1).
//!
//! Polling a forwarded body for its first bytes makes the client send them. Therefore the body is not polled
//! before the endpoint has sent `100 Continue`, or has been silent for [`TIMEOUT`]. After a final response it
//! is not polled at all.

use std::time::Duration;

use http::{Request, StatusCode};
use tokio::sync::watch;
use tokio::time::timeout;

/// A store that does not support the expectation waits for the body; the node sends it after this time.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The endpoint's reaction to the expectation of one request.
#[derive(Clone)]
pub(super) struct Expectation(watch::Sender<Verdict>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Open,
    Continued,
    Answered,
}

impl Default for Expectation {
    fn default() -> Self {
        Self(watch::Sender::new(Verdict::Open))
    }
}

impl Expectation {
    /// Waits for the `100 Continue` that `request` may get.
    pub(super) fn listen<B>(&self, request: &mut Request<B>) {
        let expectation = self.clone();
        hyper::ext::on_informational(request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                expectation.settle(Verdict::Continued);
            }
        });
    }

    /// Records that the response has arrived: if the body was not requested before, it never will be.
    pub(super) fn answered(&self) {
        self.settle(Verdict::Answered);
    }

    /// Sets the verdict, if there is none yet.
    fn settle(&self, verdict: Verdict) {
        self.0.send_if_modified(|settled| {
            let is_open = *settled == Verdict::Open;
            if is_open {
                *settled = verdict;
            }
            is_open
        });
    }

    /// Returns true if the response arrived first, so that the body is never released.
    pub(super) fn is_final(&self) -> bool {
        *self.0.borrow() == Verdict::Answered
    }

    /// Waits until the body may be sent. The time runs from the first poll: until then, the head has not been
    /// sent.
    pub(super) async fn released(self) {
        let mut verdict = self.0.subscribe();
        let settled = verdict.wait_for(|verdict| *verdict != Verdict::Open);
        if timeout(TIMEOUT, settled).await.is_err() {
            self.settle(Verdict::Continued);
        }
        // Pending forever after a final response, because `self` keeps the channel open.
        let _ = verdict.wait_for(|verdict| *verdict == Verdict::Continued).await;
    }
}
